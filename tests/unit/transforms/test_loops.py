"""cond, switch, while_loop, fori_loop: the same as Python's own, and derivatives of the part that
ran."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.graph import record

W = gh.tensor([[1.0, 2.0], [3.0, 4.0]])
X = gh.tensor([0.1, 0.2])


@pytest.fixture(params=["numpy", "lazy"], autouse=True)
def on(request):
    """A backend; Programs are compiled at once."""
    with flags.override(compile="always"), gh.backends.use(request.param):
        yield request.param


def branching(is_taken):
    """(with cond, with Python's if)."""

    def ours(w, x):
        y = gh.cond(gh.tensor(is_taken), lambda x: gh.tanh(x @ w), lambda x: gh.sin(w @ x * 2), x)
        return (y * y).sum()

    def twin(w, x):
        y = gh.tanh(x @ w) if is_taken else gh.sin(w @ x * 2)
        return (y * y).sum()

    return ours, twin


def same(ours, theirs):
    for a, b in zip(gh.tree.leaves(ours), gh.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_taken", [True, False])
def test_gradients_and_hessians_go_through_the_branch_that_runs(is_taken):
    ours, twin = branching(is_taken)
    same(gh.value_and_grad(ours, (0, 1))(W, X), gh.value_and_grad(twin, (0, 1))(W, X))
    same(gh.hessian(ours, 1)(W, X), gh.hessian(twin, 1)(W, X))
    same(gh.jvp(lambda x: ours(W, x), (X,), (X,)), gh.jvp(lambda x: twin(W, x), (X,), (X,)))


def test_a_branch_that_does_not_run_spoils_no_gradient():
    def safe(x):
        return gh.cond(x > 0, gh.log, lambda x: x * 2, x)

    assert gh.grad(safe)(gh.tensor(0.0)).item() == 2.0


def test_backward_of_a_tensor_goes_through_cond():
    x = gh.tensor(3.0, requires_grad=True)
    gh.cond(x > 2, lambda x: x**3, lambda x: x, x).backward()
    assert x.grad.item() == pytest.approx(27.0)


def test_cond_under_vmap_gives_each_example_its_branch():
    flags_, x = gh.tensor([True, False, True]), gh.tensor([1.0, 2.0, 3.0])

    def one(flag, x):
        return gh.cond(flag, lambda x: x * x, lambda x: -x, x)

    assert gh.vmap(one)(flags_, x).tolist() == [1.0, -2.0, 9.0]
    assert gh.vmap(gh.grad(one, 1))(flags_, x).tolist() == [2.0, -1.0, 6.0]
    assert gh.grad(lambda x: gh.vmap(one)(flags_, x).sum())(x).tolist() == [2.0, -1.0, 6.0]


def test_cond_takes_trees_numbers_and_no_operands():
    out = gh.cond(gh.tensor(0), lambda: {"a": 1.0, "b": ()}, lambda: {"a": X[0], "b": ()})
    assert out["a"].item() == pytest.approx(0.1)


def test_branches_that_differ_are_refused():
    with pytest.raises(gh.ShapeError, match="branches"):
        gh.cond(gh.tensor(True), lambda x: x, lambda x: (x, x), X)
    with pytest.raises(gh.DTypeError, match="branches"):
        gh.cond(gh.tensor(True), lambda x: x, lambda x: gh.zeros(2, dtype="int64"), X)


def test_switch_clamps_its_index():
    fns = [gh.sin, gh.square, gh.exp]
    results = [gh.switch(gh.tensor(i), fns, gh.tensor(3.0)).item() for i in range(-1, 5)]
    np.testing.assert_allclose(results, [np.sin(3)] * 2 + [9.0] + [np.exp(3)] * 3, rtol=1e-6)


@pytest.mark.parametrize("begin, steps", [(3, 6), (200, 0)])
def test_while_loop_ends_by_its_condition(begin, steps):
    x, count = gh.while_loop(
        lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1] + 1), (gh.tensor(begin), gh.tensor(0))
    )
    assert (x.item(), count.item()) == (begin * 2**steps, steps)


def test_while_loop_under_vmap_stops_for_each_example():
    result = gh.vmap(lambda x: gh.while_loop(lambda c: c < 100, lambda c: c * 2, x))
    assert result(gh.tensor([1, 3, 200])).tolist() == [128, 192, 200]


def test_while_loop_has_forward_mode_and_refuses_reverse_mode():
    def cube(x):
        return gh.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * x, c[1] + 1), (x * 0 + 1, 0))[0]

    value, slope = gh.jvp(cube, (gh.tensor(2.0),), (gh.tensor(1.0),))
    assert (value.item(), slope.item()) == (8.0, 12.0)
    with pytest.raises(gh.GradError, match="known length"):
        gh.grad(cube)(gh.tensor(2.0))


def test_fori_loop_of_known_bounds_has_reverse_mode():
    power = gh.grad(lambda x: gh.fori_loop(0, 5, lambda i, v: v * x + i, x))
    x = 1.5
    assert power(gh.tensor(x)).item() == pytest.approx(6 * x**5 + 3 * x**2 + 2 * 2 * x + 3)
    assert gh.fori_loop(3, 3, lambda i, v: v + 1, gh.tensor(7)).item() == 7
    assert gh.fori_loop(gh.tensor(1), 5, lambda i, v: v + i, gh.tensor(0)).item() == 10


def test_random_numbers_differ_from_step_to_step():
    def step(c):
        return c[0] + 1, c[1].at[c[0]].set(gh.random.uniform(()))

    _, samples = gh.while_loop(lambda c: c[0] < 4, step, (gh.tensor(0), gh.zeros(4)))
    assert len(set(samples.tolist())) == 4


def test_loops_nest():
    def outer(total, x):
        inner = gh.while_loop(lambda c: c < x, lambda c: c + 3, x * 0)
        return total + gh.cond(inner > 5, lambda: inner, lambda: x), inner

    total, inner = gh.scan(outer, gh.tensor(0), gh.tensor([2, 7, 10]))
    assert (total.item(), inner.tolist()) == (2 + 9 + 12, [3, 9, 12])


def test_a_loop_and_a_condition_are_one_program():
    with gh.backends.use("lazy"):
        x = gh.while_loop(lambda c: c < 50.0, lambda c: c * 1.5, gh.tensor(2.0))
        y = gh.cond(x > 60, gh.sin, gh.cos, x)
        kernel_program = program.compiled(
            record.describe(record.with_ancestors([y.payload]), [y.payload])
        )
    assert not kernel_program.hosts
