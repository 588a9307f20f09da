"""custom_vjp and custom_jvp: the user's rule is what derivatives are, wherever the function is."""

import math

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

ONE = gh.tensor(1.0)


@pytest.fixture(params=["numpy", "lazy"], autouse=True)
def on(request):
    """A backend; Programs are compiled at once."""
    with flags.override(compile="always"), gh.backends.use(request.param):
        yield request.param


@gh.custom_vjp
def scaled(x, y):
    return gh.sin(x) * y


scaled.defvjp(
    lambda x, y: (scaled(x, y), (gh.cos(x), gh.sin(x), y)),
    lambda saved, g: (saved[0] * g * saved[2] * 10, saved[1] * g),
)


@gh.custom_jvp
def log1pexp(x):
    return gh.log1p(gh.exp(x))


@log1pexp.defjvp
def rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + gh.exp(x))) * t


def near(x, expected):
    assert x.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_backward_pass_is_the_users():
    near(scaled(ONE, gh.tensor(2.0)), 2 * math.sin(1))
    gx, gy = gh.grad(scaled, (0, 1))(ONE, gh.tensor(2.0))
    near(gx, 20 * math.cos(1))
    near(gy, math.sin(1))
    x = gh.tensor(1.0, requires_grad=True)
    scaled(x, y=gh.tensor(2.0)).backward()
    near(x.grad, 20 * math.cos(1))


def test_rules_hold_in_batches():
    x, y = gh.tensor([1.0, 2.0]), gh.tensor([3.0, 4.0])
    expected = [30 * math.cos(1), 40 * math.cos(2)]
    near(gh.vmap(gh.grad(scaled))(x, y), expected)
    near(gh.grad(lambda x: gh.vmap(scaled)(x, y).sum())(x), expected)
    shared = gh.grad(lambda y: gh.vmap(scaled, in_axes=(0, None))(x, y).sum())
    near(shared(gh.tensor(3.0)), math.sin(1) + math.sin(2))
    near(gh.vmap(gh.grad(log1pexp))(gh.tensor([0.0, 100.0])), [0.5, 1.0])
    near(gh.grad(lambda x: gh.vmap(log1pexp)(x).sum())(gh.tensor([0.0, 100.0])), [0.5, 1.0])


def test_rules_hold_in_loops_and_conditions():
    @gh.custom_vjp
    def doubled(x):
        return x * 2

    doubled.defvjp(lambda x: (x * 2, ()), lambda saved, g: (g * 3,))
    through = gh.grad(lambda x: gh.scan(lambda c, _: (doubled(c), None), x, None, 4)[0])
    near(through(ONE), 3**4)
    near(gh.grad(lambda x: gh.cond(x > 0, log1pexp, lambda x: x, x))(gh.tensor(100.0)), 1.0)
    near(gh.grad(lambda x: gh.fori_loop(0, 2, lambda i, c: doubled(c), x))(ONE), 9.0)


def test_a_custom_jvp_serves_both_modes_and_higher_orders():
    value, slope = gh.jvp(log1pexp, (ONE,), (ONE,))
    s = 1 / (1 + math.exp(-1))
    near(value, math.log1p(math.e))
    near(slope, s)
    near(gh.grad(gh.grad(log1pexp))(ONE), s * (1 - s))
    near(gh.jvp(gh.grad(log1pexp), (ONE,), (ONE,))[1], s * (1 - s))


def test_defjvps_has_a_rule_for_each_argument():
    product = gh.custom_jvp(lambda x, y: x * y)
    product.defjvps(lambda t, ans, x, y: t * y * 5, None)
    gx, gy = gh.grad(product, (0, 1))(gh.tensor(2.0), gh.tensor(3.0))
    assert (gx.item(), gy.item()) == (15.0, 0.0)


def test_arguments_that_are_no_tensors_come_first():
    def clip(low, x):
        return x

    clipped = gh.custom_vjp(clip, nondiff_argnums=(0,))
    clipped.defvjp(lambda low, x: (x, ()), lambda low, saved, g: (gh.clip(g, low, -low),))
    assert gh.grad(lambda x: clipped(-2.0, x) * 7)(ONE).item() == 2.0


def test_trees_and_none_are_cotangents():
    @gh.custom_vjp
    def total(tree, scale):
        return (tree["a"] + tree["b"]) * scale

    total.defvjp(
        lambda tree, scale: (total(tree, scale), scale),
        lambda scale, g: ({"a": g * scale, "b": g * 0}, None),
    )
    ga, gs = gh.grad(total, (0, 1))({"a": ONE, "b": ONE}, gh.tensor(4.0))
    assert (ga["a"].item(), ga["b"].item(), gs.item()) == (4.0, 0.0, 0.0)


def test_what_a_rule_cannot_do_is_refused():
    with pytest.raises(gh.GradError, match="forward mode"):
        gh.jvp(scaled, (ONE, ONE), (ONE, ONE))
    with pytest.raises(gh.GradError, match="defvjp"):
        gh.grad(gh.custom_vjp(lambda x: x))(ONE)
    wrong = gh.custom_vjp(lambda x: x)
    wrong.defvjp(lambda x: (x, ()), lambda saved, g: (gh.zeros(3),))
    with pytest.raises(gh.ShapeError, match="cotangent"):
        gh.grad(wrong)(ONE)
    with pytest.raises(gh.GradError, match="around"):
        gh.grad(lambda x: gh.custom_vjp(lambda y: y * x)(ONE))(ONE)


def test_stop_gradient_stops_trees():
    def f(x):
        kept = gh.stop_gradient({"x": x, "n": 2})
        return x * kept["x"] * kept["n"]

    assert gh.grad(f)(gh.tensor(3.0)).item() == 6.0
    assert gh.jvp(f, (gh.tensor(3.0),), (ONE,))[1].item() == 6.0
