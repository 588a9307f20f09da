"""torch.func and forward mode under capture: a break with a reason, results eager's."""

import pytest

torch = pytest.importorskip("torch")

from same_outcome import nothing, same_story  # noqa: E402
from torch import func, nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import glasshouse as gh  # noqa: E402

# PyTorch's derivatives in forward mode are made with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

X = torch.linspace(-1, 1, 12).reshape(3, 4)
W = torch.linspace(1, 2, 16).reshape(4, 4)


def pairs(number):
    return X + number, W


def plain(number):
    return (X + number,)


def gradient():
    return lambda x, w: func.grad(lambda z: (z @ w).sin().sum())(x) + 1, pairs, nothing


def gradient_with_more():
    def fn(x, w):
        inner = lambda z: ((z @ w).sin().sum(), z * 2)  # noqa: E731
        grad, (value, more) = func.grad_and_value(inner, has_aux=True)(x)
        return grad, value, more

    return fn, pairs, nothing


def gradients_of_each_sample():
    layer = nn.Linear(4, 2)

    def fn(x):
        def loss(parameters, row):
            return func.functional_call(layer, parameters, (row,)).pow(2).sum()

        return func.vmap(func.grad(loss), (None, 0))(dict(layer.named_parameters()), x)

    return fn, plain, nothing


def ensemble():
    models = [nn.Linear(4, 2) for _ in range(3)]

    def fn(x):
        parameters, buffers = func.stack_module_state(models)
        run = lambda p, b: func.functional_call(models[0], (p, b), (x,))  # noqa: E731
        return func.vmap(run)(parameters, buffers), sorted(parameters)

    return fn, plain, nothing


def other_parameters():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def fn(x, scale):
        scaled = {name: p * scale for name, p in model.named_parameters()}
        return func.functional_call(model, scaled, (x,)), model(x)

    return fn, lambda i: (X + i, float(i)), model.state_dict


def jacobians():
    def fn(x, w):
        inner = lambda z: (z @ w).sin()  # noqa: E731
        hessian = func.hessian(lambda z: inner(z).sum())(x[0])
        return func.jacrev(inner)(x[0]), func.jacfwd(inner)(x[0]), hessian

    return fn, pairs, nothing


def products():
    def fn(x, w):
        y, pull = func.vjp(lambda z: z @ w, x)
        return y, pull(y)[0], func.jvp(lambda z: z @ w, (x,), (x,))

    return fn, pairs, nothing


def random_rows():
    inner = lambda row: row + torch.rand(4)  # noqa: E731
    return lambda x: func.vmap(inner, randomness="different")(x), plain, nothing


def effects_inside():
    log = []

    def squares(z):
        log.append(1)
        return (z**2).sum()

    def fn(x):
        log.append(0)
        return func.grad(squares)(x), len(log)

    return fn, plain, lambda: log


def rows_of_a_function():
    def row_of(row, w):
        return (row @ w).relu()

    return lambda x, w: torch.vmap(row_of, (0, None))(x, w), pairs, nothing


def without_mutation():
    def inner(z):
        y = z.clone()
        y.add_(1)
        return y

    return lambda x: func.functionalize(inner)(x), plain, nothing


def whole_hessian():
    run = lambda x: torch.autograd.functional.hessian(lambda z: (z**3).sum(), x[0])  # noqa: E731
    return run, plain, nothing


REASONS = {
    gradient: "torch.func", gradient_with_more: "torch.func",
    gradients_of_each_sample: "torch.func",
    ensemble: "torch.func", jacobians: "torch.func",
    products: "torch.func", random_rows: "torch.func", effects_inside: "torch.func",
    rows_of_a_function: "torch.func", without_mutation: "torch.func",
    whole_hessian: "hessian runs as it is",
}  # fmt: skip


@pytest.mark.parametrize("make", REASONS, ids=lambda make: make.__name__)
def test_transforms(make):
    same_story(make, reason=REASONS[make])


def test_functional_call_is_captured():
    gh.reset()
    assert not same_story(other_parameters).capture.breaks


@pytest.mark.parametrize("transform", [func.grad, func.jacrev, func.jacfwd, func.hessian])
def test_captured_functions_within_transforms(transform):
    plain_function = lambda x: (x**3).sum()  # noqa: E731
    captured = gh.optimize("eager")(plain_function)
    for _ in range(3):
        torch.testing.assert_close(transform(captured)(X), transform(plain_function)(X))
        torch.testing.assert_close(captured(X), plain_function(X))
    assert captured.hits == 2


def test_rows_of_a_captured_function():
    captured = gh.optimize("eager")(lambda row: row.cumsum(0) * 2)
    for _ in range(3):
        torch.testing.assert_close(torch.vmap(captured)(X), X.cumsum(1) * 2)
        torch.testing.assert_close(captured(X[0]), X[0].cumsum(0) * 2)


# -- forward mode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_tangents_pass_through_a_captured_function(compiler):
    captured = gh.optimize(compiler)(lambda x: (x * 3).sin())
    for _ in range(3):
        captured(X)
        with forward_ad.dual_level():
            dual = captured(forward_ad.make_dual(X, torch.ones_like(X)))
            tangent = forward_ad.unpack_dual(dual).tangent
        torch.testing.assert_close(tangent, 3 * (X * 3).cos())


def test_tangents_inside():
    def fn(x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual((dual * 3).sin()).tangent

    same_story(lambda: (fn, plain, nothing), reason="dual_level")
