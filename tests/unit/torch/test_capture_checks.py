"""Checks of a tensor's values in captured functions: part of the graph where they only raise."""

import pytest

torch = pytest.importorskip("torch")

from checked_functions import (  # noqa: E402
    InitializedOnce,
    both_ways,
    caught_beside,
    divides,
    filled_in,
    goes_on_where_large,
    is_sound,
    leaves_out_what_is_not_finite,
    multiplies_whole_numbers,
    named_condition,
    negative_where_all_are_finite_and_large,
    normalized_step,
    raises_in_a_loop,
    read_before_a_write,
    reads_what_it_wrote,
    skipping_step,
    step_that_reads_its_loss,
    stops_where_large,
    stops_where_not_finite,
    training_step,
    two_networks,
    ways_to_check,
)
from same_outcome import same_story  # noqa: E402

import glasshouse as gh  # noqa: E402

pytestmark = pytest.mark.library_warnings
COMPILERS = ["eager", "program"]
NAN = float("nan")


def given(values, shape=(3, 4)):
    """Return a function that makes the arguments of calls: random numbers, after those of
    `values`."""

    def arguments(number):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        if values[number] is not None:
            x.view(-1)[0] = values[number]
        return (x,)

    return arguments


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("bad", [float("nan"), 1e4], ids=["raise", "assert"])
def test_a_check_that_fails_leaves_all_as_eager_does(compiler, bad):
    def make():
        step, others = training_step(draws=compiler == "eager")  # a Program draws other numbers
        return step, given([None, None, None, bad, None, bad, bad, None]), others

    captured = same_story(make, calls=8, compiler=compiler)
    assert not captured.capture.breaks
    # Without gradients and state, with both, and without gradients where zero_grad came last.
    assert len(captured.capture.entries) == 3


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_error_is_the_users_at_the_users_line(compiler):
    captured = gh.optimize(compiler)(lambda x: is_sound(x) * 2)
    x = torch.ones(3)
    for _ in range(3):
        assert captured(x).tolist() == [2, 2, 2]
    x[1] = torch.inf
    with pytest.raises(ValueError, match=r"torch.Size\(\[3\]\) with others at \[\[1\]\]") as raised:
        captured(x)
    assert raised.traceback[-1].name == "is_sound"
    assert not captured.capture.breaks


def test_a_check_is_made_before_what_is_written_behind_it():
    def make():
        total = torch.zeros(4)

        def step(x):
            total.add_(is_sound(x).sum(0))
            return total * 2

        return step, given([None, None, float("nan"), None]), lambda: total

    captured = same_story(make, calls=4, compiler="program")
    assert not captured.capture.breaks and len(captured.capture.entries) == 1


@pytest.mark.parametrize("compiler", COMPILERS)
def test_behind_what_is_written_inputs_are_put_back(compiler):
    def make():
        total, count = torch.zeros(4), torch.zeros(())

        def step(x):
            total.add_(x.sum(0))
            count[...] = count + 1
            mean = is_sound(total / count)
            total.mul_(0.9)
            return mean * 2

        return step, given([None, None, float("nan"), None]), lambda: (total, count)

    captured = same_story(make, calls=4, compiler=compiler)
    assert not captured.capture.breaks and len(captured.capture.entries) == 1


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_check_behind_another_networks_update(compiler):
    def make():
        step, others = two_networks(is_sound)
        return step, given([None, None, None, float("nan"), None, float("inf"), None]), others

    assert not same_story(make, calls=7, compiler=compiler).capture.breaks


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_check_behind_a_batch_norm(compiler):
    def make():
        step, others = normalized_step()
        return step, given([None, None, None, float("nan"), None, None]), others

    assert not same_story(make, calls=6, compiler=compiler).capture.breaks


def adds_to_gradients(x, weight):
    (x * weight).sum().backward()
    return is_sound(x)


def writes_to_a_view(x, weight):
    with torch.no_grad():
        weight[1:].add_(x.sum())
    return is_sound(x)


def writes_to_a_list(x, weight):
    with torch.no_grad():
        torch._foreach_mul_([weight], 0.5)
    return is_sound(x)


def writes_to_much(x, weight):
    with torch.no_grad():
        weight.mul_(0.5)
    return is_sound(x)


@pytest.mark.parametrize(
    "write, size",
    [
        (adds_to_gradients, 4),
        (writes_to_a_view, 4),
        (writes_to_much, 2**20 + 1),
    ],
)
def test_behind_what_is_not_put_back_a_check_breaks_the_graph(write, size):
    """Python could not begin again: it would write again."""

    def make():
        weight = torch.ones(size, requires_grad=True)
        weight.grad = torch.ones(size)
        return (
            lambda x: write(x, weight),
            given([None, None, float("nan"), None], shape=(1,)),
            lambda: weight,
        )

    same_story(make, calls=4, reason="a branch on a tensor's value")


def test_what_is_written_to_a_list_is_put_back():
    def make():
        weight = torch.ones(4, requires_grad=True)
        values = given([None, None, NAN, None], shape=(1,))
        return lambda x: writes_to_a_list(x, weight), values, lambda: weight

    assert not same_story(make, calls=4).capture.breaks


def test_errors_of_what_follows_writing_are_raised_once_it_is_written():
    """The check asks for a second run where it fails; other errors do not."""

    def make():
        total, table = torch.zeros(4), torch.arange(5.0)

        def step(x):
            total.add_(is_sound(x).sum(0))
            return table[x[0].long()] + total

        values = [None, None, 9.0, None, float("nan")]
        return step, lambda i: (given(values)(i)[0].abs(),), lambda: total

    same_story(make, calls=5)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_error_that_the_function_itself_catches(compiler):
    def make():
        def step(x):
            try:
                return is_sound(x).exp()
            except ValueError:
                return torch.nan_to_num(x)

        return step, given([None, None, float("nan"), None]), lambda: ()

    assert not same_story(make, calls=4, compiler=compiler).capture.breaks


@pytest.mark.parametrize("function", [both_ways, named_condition, caught_beside, raises_in_a_loop])
def test_a_branch_that_may_go_on_breaks_the_graph(function):
    def make():
        return function, lambda i: (torch.tensor([1.0, i - 2.0]),), lambda: ()

    same_story(make, reason="a branch on a tensor's value")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("bad", "is_broken"),
    [([3, 6], False), ([3, 4, 6, 8], True), ([0], False), ([0, 1, 2, 3, 4, 5], False)],
    ids=["twice", "often", "at first", "for long"],
)
def test_whether_numbers_are_finite_is_assumed(compiler, bad, is_broken):
    def make():
        step, others = skipping_step()
        values = [NAN if i in bad else None for i in range(11)]
        return step, given(values), others

    reason = "a branch on a tensor's value" if is_broken else None
    captured = same_story(make, calls=11, compiler=compiler, reason=reason)
    assert is_broken or bad[0] == 0 or not captured.capture.breaks


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (stops_where_not_finite, NAN),
        (stops_where_not_finite, float("inf")),
        (stops_where_large, 1e8),
        (stops_where_large, NAN),
        (leaves_out_what_is_not_finite, NAN),
        (leaves_out_what_is_not_finite, float("-inf")),
    ],
)
def test_numbers_that_tensors_hold_are_checked_in_the_graph(check, bad, compiler):
    def make():
        step, others = step_that_reads_its_loss(check)
        return step, given([None, None, None, bad, None, bad, None, None]), others

    captured = same_story(make, calls=8, compiler=compiler)
    assert not captured.capture.breaks


@pytest.mark.parametrize("check", [goes_on_where_large, divides])
def test_other_branches_on_numbers_break_the_graph(check):
    def make():
        step, others = step_that_reads_its_loss(check)
        return step, given([None, None, 1e8, None]), others

    same_story(make, calls=4, reason="a branch on a number that a tensor holds")


def test_products_of_whole_numbers_break_the_graph():
    def make():
        return multiplies_whole_numbers, lambda i: (torch.ones(()),), lambda: ()

    same_story(make, calls=4, reason="a branch on a number that a tensor holds")


def test_a_number_that_was_read_before_a_write():
    def make():
        return read_before_a_write, given([None, None, 1e8, None]), lambda: ()

    same_story(make, calls=4, reason="a branch on a number that a tensor holds")


def test_a_check_that_rarely_fails_stays():
    @gh.optimize("eager")
    def captured(x):
        return None if x.isnan().any() else x * 2

    for number in range(1000):
        x = torch.full((3, 4), NAN if number % 150 == 149 else 1.0)
        assert (captured(x) is None) is (number % 150 == 149)
    assert not captured.capture.breaks


@pytest.mark.parametrize("bad", [[], [2], [0, 1, 2, 4, 5, 6]])
def test_what_is_filled_in_may_be_assumed(bad):
    def make():
        return filled_in, given([NAN if i in bad else None for i in range(8)]), lambda: ()

    same_story(make, calls=8)


def test_of_two_conditions_one_may_be_assumed():
    def make():
        function = negative_where_all_are_finite_and_large
        return (
            function,
            lambda i: (torch.tensor([1.0, i - 2.0, NAN if i == 5 else 1.0]),),
            lambda: (),
        )

    same_story(make, calls=8, reason="a branch on a tensor's value")


def test_a_flag_of_a_module_is_guarded():
    def make():
        layer = InitializedOnce()

        def step(number, x):
            return layer(x)

        def arguments(number):
            if number == 5:
                layer.ready.fill_(False)
            return number < 0, *given([None] * 8)(number)

        return step, arguments, lambda: layer

    captured = same_story(make, calls=8)
    assert not captured.capture.breaks
    assert len(captured.capture.entries) == 2


def test_a_flag_that_the_call_wrote_is_not():
    flag = torch.tensor(False)

    def make():
        flag.fill_(False)
        return reads_what_it_wrote, lambda i: (flag, torch.ones(3)), lambda: flag

    same_story(make, calls=5, reason="a branch on a tensor's value")


def test_where_the_first_call_raises_nothing_is_assumed():
    def make():
        return is_sound, given([float("nan"), None, None, float("nan")]), lambda: ()

    same_story(make, calls=4)


@pytest.mark.parametrize("bad", [9.5, 1000.0, float("nan"), -9.5])
def test_ways_to_write_a_check(bad):
    def make():
        return ways_to_check, given([None, None, bad, None]), lambda: ()

    captured = same_story(make, calls=4, compiler="program")
    assert not captured.capture.breaks
    assert len(captured.capture.entries) == 1


def test_an_exported_graph_says_where_the_check_is():
    exported = gh.export(lambda x: is_sound(x) * 2, torch.ones(3))[0]
    assert exported(torch.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"a check of .* failed: .*checked_functions.py:\d+$"):
        exported(torch.ones(3) * torch.nan)


def test_torch_compile_raises_what_pytorch_says():
    def checked(x):
        torch._assert_async((x > 0).all(), "expected numbers above 0")
        return x.log()

    compiled = torch.compile(checked, backend="glasshouse", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.zeros(3))
    with pytest.raises(RuntimeError, match="^expected numbers above 0$"):
        compiled(-torch.ones(3))


def test_a_check_of_the_forward_pass_is_made_once():
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_module_simplified

    from glasshouse.torch.backend.partition import partition

    graphs = []

    def keep(graph, _inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    def checked(x):
        size = x.exp()
        torch._assert_async((size < 9).all(), "too large")
        return ((size * size).sum(),)

    x = torch.ones(3, requires_grad=True)
    traced = torch.fx.symbolic_trace(checked)
    run = aot_module_simplified(
        traced, [x], fw_compiler=keep, bw_compiler=keep, partition_fn=partition
    )
    run(x)[0].backward()
    forward, backward = graphs
    assert "aten._assert_async.msg" in forward
    assert "aten._assert_async.msg" not in backward
