"""How many graphs capture makes: of each function as few as TorchDynamo, and none again later."""

import pytest

import glasshouse as gh

X = gh.arange(4.0)


class GraphCounter:
    """A compiler that runs graphs as they are and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph_module, example_inputs):
        self.count += 1
        return graph_module.forward


def count_graphs(fn, *calls) -> int:
    """The graphs of all these calls (tuples of arguments), whose results are those of plain calls."""
    counter = GraphCounter()
    captured = gh.optimize(counter)(fn)
    for args in calls:
        want, got = fn(*args), captured(*args)
        assert type(got) is type(want)
        same = gh.array_equal(got, want) if isinstance(want, gh.Tensor) else got == want
        assert same, (want, got)
    return counter.count


def no_grad_across_a_break(x):
    with gh.no_grad():
        y = x * 2
        gh.graph_break()
        y = y + 1
    return y * 3


def nested_no_grad_across_a_break(x):
    with gh.no_grad():
        y = x * 2
        with gh.enable_grad():
            gh.graph_break()
            y = y * 2
        y = y + 1
    return y * 3


@pytest.mark.parametrize(
    ("fn", "most"),
    [
        (no_grad_across_a_break, 2),
        (nested_no_grad_across_a_break, 2),
    ],
)
def test_a_function_needs_few_graphs(fn, most):
    assert count_graphs(fn, *[(X,)] * 3) <= most


def test_branches_in_a_row_share_their_resume_functions():
    def fn(sign):
        x = gh.ones(3) * sign
        if x.sum() > 0:
            x = x + 1
        if x.sum() > 3:
            x = x - 1
        if x.sum() > 4:
            x = x * 2
        return x * 3

    assert count_graphs(fn, *[(sign,) for sign in (1.0, -1.0, 2.0, -2.0, 5.0)]) <= 2 * 3 + 1 + 1


@pytest.mark.parametrize("outside", [True, False])
def test_no_grad_that_a_break_interrupts_ends_as_in_python(outside):
    weight = gh.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)

    def fn(x):
        with gh.no_grad():
            gh.graph_break()
            y = x * weight
        z = y * weight
        return y.requires_grad, z.requires_grad, gh.is_grad_enabled()

    captured = gh.optimize("eager")(fn)
    for enabled in (outside, not outside, outside):
        with gh.set_grad_enabled(enabled):
            for _ in range(2):
                assert captured(X) == fn(X) == (False, enabled, enabled)
                assert gh.is_grad_enabled() is enabled


def test_no_grad_that_an_error_leaves_behind_a_break_ends():
    def fn(x):
        try:
            with gh.no_grad():
                gh.graph_break()
                x = x * 2
                raise ValueError("inside")
        except ValueError:
            return x + int(gh.is_grad_enabled())

    assert count_graphs(fn, *[(X,)] * 3) == 1
