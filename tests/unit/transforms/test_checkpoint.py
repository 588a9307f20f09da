"""Checkpointed regions: same values and gradients, less kept."""

import numpy as np

import glasshouse as gh

rng = np.random.default_rng(1)


class Names(gh.Mode):
    """The names of the primitives that pass."""

    def __init__(self):
        self.seen = []

    def process(self, primitive, args, attrs, below):
        self.seen.append(primitive.name)
        return below(primitive, args, attrs)


def region(x, w):
    return gh.tanh(x @ w).exp()


def leaves():
    fixed = np.random.default_rng(3)
    x = gh.tensor(fixed.normal(size=(3, 4)), requires_grad=True)
    w = gh.tensor(fixed.normal(size=(4, 2)), requires_grad=True)
    return x, w


def test_gradients_are_bit_equal():
    x, w = leaves()
    region(x, w).sum().backward()
    x2, w2 = leaves()
    gh.checkpoint(region)(x2, w2).sum().backward()
    assert (x.grad == x2.grad).all() and (w.grad == w2.grad).all()


def test_the_inside_is_computed_again():
    x, w = leaves()
    y = gh.checkpoint(region)(x, w).sum()
    with Names() as names:
        y.backward()
    assert names.seen.count("tanh") == 1


def test_closed_over_tensors_get_gradients():
    x, w = leaves()
    doubled = w * 2
    gh.checkpoint(lambda v: gh.tanh(v @ doubled))(x).sum().backward()
    x2, w2 = leaves()
    gh.tanh(x2 @ (w2 * 2)).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), w2.grad.numpy())
    x, w = leaves()
    doubled = w * 2
    (g,) = gh.autograd.grad(gh.checkpoint(lambda v: gh.tanh(v @ doubled))(x).sum(), w)
    np.testing.assert_array_equal(g.numpy(), w2.grad.numpy())


def test_hooks_of_closed_over_tensors_run_once():
    """And see what comes from inside and outside together."""
    x, w = leaves()
    log = []
    product = x @ w
    product.register_hook(lambda g: log.append(g.numpy()))
    y = gh.checkpoint(lambda v: (product * v).exp())(gh.asarray(2.0, dtype=product.dtype)) + product
    y.sum().backward()
    assert len(log) == 1 and np.allclose(log[0], 2 * np.exp(2 * product.numpy()) + 1)


def test_cotangents_are_added_in_the_order_without_a_region():
    """Of uses outside and inside: the sum of these terms depends on the order."""

    def uses(x):
        return x * 1e8 + x * 3.0 - x * 1e8

    grads = []
    for fn in (uses, gh.checkpoint(uses)):
        x = gh.tensor(np.linspace(0.1, 0.9, 7, dtype=np.float32), requires_grad=True)
        middle = x * 1.0
        (middle * 0.3 + fn(middle) + middle * 0.7).sum().backward()
        grads.append(x.grad.numpy())
    assert np.array_equal(*grads)


def test_random_numbers_are_replayed():
    def noisy(v):
        return v * (gh.random.uniform(v.shape) > 0.5)

    x = gh.tensor(np.ones(64, np.float32), requires_grad=True)
    gh.random.seed(5)
    y = gh.checkpoint(noisy)(x)
    after = gh.random.uniform((2,)).tolist()
    y.sum().backward()
    assert (x.grad == y).all()
    gh.random.seed(5)
    noisy(x)
    assert gh.random.uniform((2,)).tolist() == after


def test_higher_derivatives_and_nesting():
    def f(v):
        return gh.sum(gh.exp(gh.sin(v)) * v)

    x = gh.asarray(rng.normal(size=3))
    nested = gh.checkpoint(lambda v: gh.checkpoint(f)(v * 2) ** 2)

    def plain(v):
        return f(v * 2) ** 2

    np.testing.assert_allclose(gh.grad(nested)(x).numpy(), gh.grad(plain)(x).numpy())
    np.testing.assert_allclose(gh.hessian(nested)(x).numpy(), gh.hessian(plain)(x).numpy())
    np.testing.assert_allclose(
        gh.grad(lambda v: gh.sum(gh.grad(nested)(v) ** 2))(x).numpy(),
        gh.grad(lambda v: gh.sum(gh.grad(plain)(v) ** 2))(x).numpy(),
    )
    leaf = x.detach().requires_grad_()
    (g,) = gh.autograd.grad(gh.checkpoint(plain)(leaf), leaf, create_graph=True)
    (gg,) = gh.autograd.grad((g * g).sum(), leaf)
    expected = gh.grad(lambda v: gh.sum(gh.grad(plain)(v) ** 2))(x)
    np.testing.assert_allclose(gg.numpy(), expected.numpy())


def test_inside_vmap_and_jvp():
    xs = gh.asarray(rng.normal(size=(4, 3)))

    def f(v):
        return gh.sum(gh.sin(v) ** 2)

    np.testing.assert_allclose(
        gh.vmap(gh.grad(gh.checkpoint(f)))(xs).numpy(), gh.vmap(gh.grad(f))(xs).numpy()
    )
    np.testing.assert_allclose(
        gh.jvp(gh.checkpoint(f), (xs[0],), (xs[1],))[1].numpy(),
        gh.jvp(f, (xs[0],), (xs[1],))[1].numpy(),
    )


def test_without_gradients_it_is_the_function():
    with gh.no_grad():
        assert not gh.checkpoint(region)(*leaves()).requires_grad
