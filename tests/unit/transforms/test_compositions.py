"""Every composition of the transforms, against closed forms and each other."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import (
    DTypeError,
    GradError,
    OptionError,
    ShapeError,
    TransformError,
)
from glasshouse.transforms.sparsity import Sparsity

rng = np.random.default_rng(0)
X = rng.normal(size=4)
V = rng.normal(size=4)
A = rng.normal(size=(4, 4))


def f(x):
    """A scalar function with a full Hessian."""
    return gh.sum(gh.sin(gh.asarray(A) @ x) * gh.exp(x * 0.3))


def numeric_gradient(fn, x, eps=1e-6):
    steps = np.eye(len(x)) * eps
    return np.array([(fn(x + s) - fn(x - s)) / (2 * eps) for s in steps])


def as_numpy(fn):
    return lambda x: fn(gh.asarray(x)).numpy()


GRADIENT = numeric_gradient(as_numpy(f), X)
HESSIAN = numeric_gradient(as_numpy(gh.grad(f)), X)


def by_backward(fn):
    def gradient(x):
        x = x.detach().requires_grad_()
        fn(x).backward()
        return x.grad

    return gradient


def by_forward(fn):
    """The gradient, one jvp per coordinate."""
    return lambda x: gh.jacobian(fn, mode="forward")(x)


@pytest.mark.quick
def test_gradients_agree():
    for gradient in (gh.grad, by_backward, by_forward, gh.jacobian):
        np.testing.assert_allclose(gradient(f)(gh.asarray(X)).numpy(), GRADIENT, rtol=1e-6)


@pytest.mark.parametrize(
    ("outer", "inner"),
    list(itertools.product((gh.jacobian, by_forward), (gh.grad, gh.jacobian, by_forward))),
)
def test_hessian_by_any_two_modes(outer, inner):
    np.testing.assert_allclose(outer(inner(f))(gh.asarray(X)).numpy(), HESSIAN, rtol=1e-5)
    np.testing.assert_allclose(gh.hessian(f)(gh.asarray(X)).numpy(), HESSIAN, rtol=1e-5)


def flops_of(fn, *args):
    """Count the FLOPs of fn(*args) by the cards."""
    with gh.FlopCounter() as counter:
        fn(*args)
    return counter.total("all")


@pytest.mark.parametrize("size", [3, 8])
def test_a_hessian_computes_value_and_gradient_once(size):
    """All directions cost one gradient, and the tangents of one direction each."""
    matrix, x = gh.asarray(rng.normal(size=(size, size))), gh.asarray(rng.normal(size=size))

    def loss(v):
        return (gh.tanh(matrix @ v) ** 2).sum()

    gradient = flops_of(gh.grad(loss), x)
    tangents = flops_of(lambda v: gh.hvp(loss, (v,), (v,)), x) - gradient
    assert flops_of(gh.hessian(loss), x) <= gradient + size * tangents


def test_a_hessian_by_several_tensors_computes_value_and_gradient_once():
    """By hand, products alone: 2nio each; n rows, i inputs, h hidden units, o outputs."""
    n, i, h, o = 5, 3, 4, 2
    x, y = (gh.asarray(rng.normal(size=shape)) for shape in ((n, i), (n, o)))
    weights = {"a": gh.asarray(rng.normal(size=(i, h))), "b": gh.asarray(rng.normal(size=(h, o)))}

    def loss(p):
        return ((gh.tanh(x @ p["a"]) @ p["b"] - y) ** 2).sum()

    outer, inner = 2 * n * h * o, 2 * n * i * h
    value_and_gradient = 2 * inner + 3 * outer
    along_a, along_b = 2 * inner + 4 * outer, inner + 4 * outer
    needed = value_and_gradient + i * h * along_a + h * o * along_b
    with gh.FlopCounter() as counter:
        blocks = gh.hessian(loss)(weights)
    assert counter.total("matrix") == needed
    flat = gh.concat([weights[name].reshape(-1) for name in "ab"])
    parts = {"a": slice(0, i * h), "b": slice(i * h, None)}
    whole = gh.hessian(
        lambda v: loss({k: v[s].reshape(weights[k].shape) for k, s in parts.items()})
    )
    whole = whole(flat).numpy()
    for row in "ab":
        for column in "ab":
            block = blocks[row][column].numpy().reshape(-1, weights[column].size)
            np.testing.assert_allclose(block, whole[parts[row], parts[column]], atol=1e-12)


def test_blocks_of_a_hessian_by_several_arguments():
    def loss(a, b):
        return (a**2 * b.sum()).sum() * b[0]

    a, b = gh.asarray(X[:2]), gh.asarray(V[:3])
    whole = gh.hessian(lambda x: loss(x[:2], x[2:]))(gh.concat([a, b])).numpy()
    rows = [
        np.concatenate([block.numpy() for block in row], 1)
        for row in gh.hessian(loss, (0, 1))(a, b)
    ]
    np.testing.assert_allclose(np.concatenate(rows), whole, rtol=1e-12)


def test_jacobians_choose_the_mode_by_size():
    wide, tall = gh.asarray(rng.normal(size=(2, 9))), gh.asarray(rng.normal(size=(9, 2)))
    for matrix, cheap, dear in ((wide, gh.jacrev, gh.jacfwd), (tall, gh.jacfwd, gh.jacrev)):

        def fn(x, matrix=matrix):
            return gh.sin(matrix @ x)

        x = gh.asarray(rng.normal(size=matrix.shape[1]))
        costs = [flops_of(make(fn), x) for make in (cheap, gh.jacobian, dear)]
        assert costs[0] <= costs[1] < costs[2]
        expected = np.cos(matrix.numpy() @ x.numpy())[:, None] * matrix.numpy()
        for make in (cheap, gh.jacobian, dear):
            np.testing.assert_allclose(make(fn)(x).numpy(), expected, rtol=1e-12)


class PassThrough(gh.autograd.Function):
    """Rounds; its backward is that of the identity."""

    @staticmethod
    def forward(ctx, x):
        return gh.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize("fn", [PassThrough.apply, gh.checkpoint(PassThrough.apply)])
def test_a_backward_of_a_user_is_not_passed_over(fn):
    derivative = gh.jacobian(lambda x: fn(gh.concat([x, x])))(gh.asarray(V))
    np.testing.assert_array_equal(derivative.numpy(), np.concatenate([np.eye(4)] * 2))


def test_complex_jacobians_do_not_depend_on_sizes():
    z = gh.asarray(np.array([1 + 2j]))
    derivative = gh.jacobian(lambda z: gh.concat([z * z, z]))(z)
    np.testing.assert_allclose(derivative.numpy(), [[2 - 4j], [1]])


BAND = np.abs(np.subtract.outer(np.arange(12), np.arange(12))) <= 1


def neighbours(x):
    """Each element from those next to it: a Jacobian with three diagonals."""
    padded = gh.concat([x[:1] * 0, x, x[:1] * 0])
    return gh.sin(padded[:-2]) * padded[1:-1] + padded[2:] ** 2


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_a_sparse_jacobian_takes_a_run_for_each_colour(mode):
    x = gh.asarray(rng.normal(size=12))
    sparse = gh.jacobian(neighbours, mode=mode, sparsity=BAND)
    np.testing.assert_array_equal(sparse(x).numpy(), gh.jacobian(neighbours)(x).numpy())
    assert flops_of(sparse, x) < 0.5 * flops_of(gh.jacobian(neighbours, mode=mode), x)
    assert Sparsity(BAND).runs(12, 12) == (3, 3)


def test_an_arrow_shaped_jacobian_is_cheap_in_one_mode_only():
    """A full row and the diagonal: 8 colours of columns, 2 of rows."""
    pattern = np.eye(8, dtype=bool)
    pattern[0] = True
    assert Sparsity(pattern).runs(8, 8) == (8, 2)
    x = gh.asarray(rng.normal(size=8))

    def arrow(x):
        return gh.concat([gh.sum(x * x, axis=0, keepdims=True), x[1:] ** 3])

    got = gh.jacobian(arrow, sparsity=pattern)(x).numpy()
    np.testing.assert_array_equal(got, gh.jacobian(arrow)(x).numpy())


def test_sparse_jacobians_of_matrices_under_vmap():
    x = gh.asarray(rng.normal(size=(3, 2, 2)))
    pattern = np.eye(4, dtype=bool).reshape(2, 2, 2, 2)
    got = gh.vmap(gh.jacobian(gh.sin, sparsity=pattern))(x).numpy().reshape(3, 4, 4)
    np.testing.assert_allclose(got, np.cos(x.numpy()).reshape(3, 4, 1) * np.eye(4), rtol=1e-12)


def test_hvp_in_three_ways():
    x, v = gh.asarray(X), gh.asarray(V)
    expected = HESSIAN @ V
    np.testing.assert_allclose(gh.hvp(f, (x,), (v,))[0].numpy(), expected, rtol=1e-5)
    reverse_over_reverse = gh.grad(lambda y: gh.sum(gh.grad(f)(y) * v))(x)
    np.testing.assert_allclose(reverse_over_reverse.numpy(), expected, rtol=1e-5)
    reverse_over_forward = gh.grad(lambda y: gh.jvp(f, (y,), (v,))[1])(x)
    np.testing.assert_allclose(reverse_over_forward.numpy(), expected, rtol=1e-5)


def test_third_derivative_by_every_order_of_modes():
    def g(x):
        return x * x * x * x

    def forward(fn):
        return lambda x: gh.jvp(fn, (x,), (gh.ones((), dtype=gh.float64),))[1]

    for chain in itertools.product((gh.grad, forward), repeat=3):
        d = g
        for transform in chain:
            d = transform(d)
        assert d(gh.asarray(np.float64(2.0))).item() == pytest.approx(48.0)


def test_per_example_gradients_of_shared_weights():
    w = gh.asarray(rng.normal(size=3))
    xs = gh.asarray(rng.normal(size=(5, 3)))

    def loss(w, x):
        return gh.tanh(gh.sum(w * x)) ** 2

    batched = gh.vmap(gh.grad(loss), in_axes=(None, 0))(w, xs)
    one_by_one = gh.stack([gh.grad(loss)(w, x) for x in xs])
    np.testing.assert_allclose(batched.numpy(), one_by_one.numpy(), rtol=1e-12)


def test_gradient_of_a_vmapped_function():
    xs = gh.asarray(rng.normal(size=(5, 4)))
    together = gh.grad(lambda z: gh.sum(gh.vmap(f)(z)))(xs)
    apart = gh.vmap(gh.grad(f))(xs)
    np.testing.assert_allclose(together.numpy(), apart.numpy(), rtol=1e-12)


def test_backward_through_vmap():
    w = gh.tensor(rng.normal(size=3), requires_grad=True)
    xs = gh.asarray(rng.normal(size=(5, 3)))
    gh.sum(gh.vmap(lambda x: gh.sum(w * x))(xs)).backward()
    np.testing.assert_allclose(w.grad.numpy(), xs.numpy().sum(0))


@pytest.mark.quick
def test_vmapped_hessians_and_nested_vmap():
    xs = gh.asarray(rng.normal(size=(2, 3, 4)))
    hessians = gh.vmap(gh.vmap(gh.hessian(f)))(xs)
    assert hessians.shape == (2, 3, 4, 4)
    np.testing.assert_allclose(hessians[1, 2].numpy(), gh.hessian(f)(xs[1, 2]).numpy(), rtol=1e-10)


def test_grad_inside_two_vmaps_of_different_arguments():
    xs, ys = gh.asarray(rng.normal(size=3)), gh.asarray(rng.normal(size=4))
    table = gh.vmap(
        gh.vmap(gh.grad(lambda x, y: gh.sin(x * y)), in_axes=(None, 0)), in_axes=(0, None)
    )(xs, ys)
    expected = np.cos(np.outer(xs.numpy(), ys.numpy())) * ys.numpy()
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-12)


def test_jvp_of_vmap_and_vmap_of_jvp():
    xs, vs = gh.asarray(rng.normal(size=(3, 4))), gh.asarray(rng.normal(size=(3, 4)))
    inside = gh.vmap(lambda x, v: gh.jvp(f, (x,), (v,))[1])(xs, vs)
    outside = gh.jvp(gh.vmap(f), (xs,), (vs,))[1]
    np.testing.assert_allclose(inside.numpy(), outside.numpy(), rtol=1e-12)


def test_no_perturbation_confusion():
    def inner(x):
        return gh.jvp(lambda y: x * y, (gh.asarray(1.0),), (gh.asarray(1.0),))[1]

    assert gh.grad(lambda x: x * inner(x))(gh.asarray(3.0)).item() == 6.0
    assert (
        gh.grad(lambda x: x * gh.grad(lambda y: x + y)(gh.asarray(1.0)))(gh.asarray(3.0)).item()
        == 1.0
    )


def test_grad_of_a_closed_over_leaf_leaves_both_right():
    w = gh.tensor(2.0, requires_grad=True)
    g = gh.grad(lambda x: w * x * x)(gh.asarray(3.0))
    assert g.item() == 12.0
    g.backward()
    assert w.grad.item() == 6.0


def test_no_grad_outside_does_not_stop_grad_inside():
    with gh.no_grad():
        assert gh.grad(lambda x: x * x)(gh.asarray(3.0)).item() == 6.0
    assert gh.grad(lambda x: x * gh.no_grad()(lambda v: v * v)(x))(gh.asarray(3.0)).item() == 9.0


def test_detach_stops_every_mode():
    x = gh.asarray(3.0)
    assert gh.grad(lambda v: v * v.detach())(x).item() == 3.0
    assert gh.jvp(lambda v: v * v.detach(), (x,), (gh.asarray(1.0),))[1].item() == 3.0


def test_trees_of_arguments_and_results():
    params = {"w": gh.asarray([1.0, 2.0]), "b": (gh.asarray(0.5), None)}

    def loss(p, x):
        return gh.sum(p["w"] * x) + p["b"][0]

    value, grads = gh.value_and_grad(loss)(params, gh.asarray([3.0, 4.0]))
    assert value.item() == 11.5
    assert grads["w"].tolist() == [3.0, 4.0]
    assert grads["b"][0].item() == 1.0 and grads["b"][1] is None
    out, pullback = gh.vjp(lambda p: {"twice": p["w"] * 2, "b": p["b"][0]}, params)
    back = pullback({"twice": gh.asarray([1.0, 0.0]), "b": gh.asarray(5.0)})[0]
    assert back["w"].tolist() == [2.0, 0.0] and back["b"][0].item() == 5.0
    assert out["twice"].tolist() == [2.0, 4.0]


@pytest.mark.quick
def test_argnums_and_aux():
    def fn(x, y):
        return x * y, {"sum": x + y}

    (gx, gy), aux = gh.grad(fn, argnums=(0, 1), has_aux=True)(gh.asarray(2.0), gh.asarray(3.0))
    assert (gx.item(), gy.item(), aux["sum"].item()) == (3.0, 2.0, 5.0)
    (value, aux), g = gh.value_and_grad(fn, has_aux=True)(gh.asarray(2.0), gh.asarray(3.0))
    assert (value.item(), aux["sum"].item(), g.item()) == (6.0, 5.0, 3.0)


def test_vmap_axes():
    x = gh.asarray(np.arange(6.0).reshape(2, 3))
    assert gh.vmap(lambda r: r.sum(), in_axes=1)(x).tolist() == [3.0, 5.0, 7.0]
    assert gh.vmap(lambda r: r * 2, in_axes=1, out_axes=1)(x).tolist() == (x * 2).tolist()
    both = gh.vmap(lambda d, s: (d["a"] * s, s), in_axes=({"a": 0}, None), out_axes=(0, None))
    scaled, same = both({"a": x}, gh.asarray(2.0))
    assert scaled.tolist() == (x * 2).tolist() and same.item() == 2.0
    as_in_pytorch = gh.vmap(lambda r: r * 2, in_dims=1, out_dims=1)
    assert as_in_pytorch(x).tolist() == (x * 2).tolist()


def test_vmap_randomness():
    draw = gh.vmap(lambda x: x + gh.random.uniform((2,)), randomness="different")(gh.zeros(3))
    assert len({row[0] for row in draw.tolist()}) == 3
    draw = gh.vmap(lambda x: x + gh.random.uniform((2,)), randomness="same")(gh.zeros(3))
    assert len({row[0] for row in draw.tolist()}) == 1
    with pytest.raises(TransformError, match="randomness"):
        gh.vmap(lambda x: x + gh.random.uniform((2,)))(gh.zeros(3))


def test_empty_batch_and_empty_jacobian():
    assert gh.vmap(gh.grad(f))(gh.zeros((0, 4), dtype=gh.float64)).shape == (0, 4)
    assert gh.jacobian(lambda x: x[:0])(gh.asarray(X)).shape == (0, 4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gh.grad(lambda x: x)(gh.ones(2)), GradError, "jacobian"),
        (lambda: gh.grad(lambda x: x)(gh.asarray(1)), DTypeError, "int64"),
        (lambda: gh.grad(lambda x: 3)(gh.asarray(1.0)), type(None), ""),
        (lambda: gh.grad(lambda x: "no")(gh.asarray(1.0)), DTypeError, "str"),
        (lambda: gh.grad(lambda x: x, argnums=1)(gh.asarray(1.0)), GradError, "positional"),
        (lambda: gh.grad(lambda x: x, argnums=-1), DTypeError, "argnums"),
        (lambda: gh.grad(lambda x: x, has_aux=True)(gh.asarray(1.0)), DTypeError, "pair"),
        (lambda: gh.jvp(lambda x: x, gh.ones(2), gh.ones(2)), DTypeError, "tuples"),
        (lambda: gh.jvp(lambda x: x, (gh.ones(2),), (gh.ones(3),)), ShapeError, r"\(2,\)"),
        (lambda: gh.jvp(lambda x: x, (gh.ones(2),), ()), ShapeError, "structured"),
        (lambda: gh.jacobian(lambda x: x, mode="sideways"), OptionError, "sideways"),
        (lambda: gh.vmap(lambda x: x, randomness="some"), OptionError, "some"),
        (lambda: gh.vmap(lambda x, y: x)(gh.ones(2), gh.ones(3)), ShapeError, r"\[2, 3\]"),
        (lambda: gh.vmap(lambda x: x, in_axes=None)(gh.ones(2)), ShapeError, "mapped"),
        (lambda: gh.vmap(lambda x: x, in_axes=2)(gh.ones(2)), ShapeError, "axis"),
        (lambda: gh.vmap(lambda x: x, in_axes=(0, 0))(gh.ones(2)), ShapeError, "in_axes"),
        (lambda: gh.vmap(lambda x: x if x > 0 else -x)(gh.ones(2)), TransformError, "gh.where"),
        (lambda: gh.vmap(lambda x: "a")(gh.ones(2)), DTypeError, "str"),
        (lambda: gh.vmap(lambda x: x, out_axes=None)(gh.ones(2)), ShapeError, "out_axes"),
        (lambda: gh.vjp(lambda x: x, gh.ones(2))[1](gh.ones(3)), ShapeError, r"\(2,\)"),
        (lambda: gh.vjp(lambda x: x, gh.ones(2))[1]((gh.ones(2), 1)), ShapeError, "structured"),
        (lambda: gh.hvp(f, gh.ones(2), gh.ones(2)), ShapeError, "tuples"),
        (lambda: gh.vmap(lambda x: x.requires_grad_())(gh.ones(2)), TransformError, "gh.grad"),
    ],
)
def test_wrong_calls(call, error, text):
    if error is type(None):
        assert call().item() == 0.0
        return
    with pytest.raises(error, match=text):
        call()


def test_a_leaked_value_is_named():
    leaked = []
    gh.vmap(lambda x: leaked.append(x) or x)(gh.ones(2))
    with pytest.raises(TransformError, match="not active"):
        leaked[0] + 1


def test_modes_are_left_after_an_exception():
    with pytest.raises(ZeroDivisionError):
        gh.vmap(lambda x: 1 / 0)(gh.ones(2))
    with pytest.raises(ZeroDivisionError):
        gh.grad(lambda x: 1 / 0)(gh.asarray(1.0))
    assert gh.dispatch.active_modes() == ()


def squared_in_place(x):
    y = x * 1
    y += x * x
    y[0] = x[1] * x[1]
    y.mul_(x)
    return y.copy_(y * 2)


def squared(x):
    return 2 * x * gh.where(gh.arange(len(x)) == 0, x[1] * x[1], x + x * x)


@pytest.mark.parametrize("transform", [gh.jvp, lambda fn, xs, ts: gh.vjp(fn, *xs)[1](*ts)])
def test_derivatives_of_functions_that_write_in_place(transform):
    x, t = gh.asarray(X), gh.asarray(V)
    written = transform(squared_in_place, (x,), (t,))
    computed = transform(squared, (x,), (t,))
    for got, expected in zip(written, computed, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12)
