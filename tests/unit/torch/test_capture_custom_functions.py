"""Custom autograd.Functions, checkpoints and gradients of gradients under capture: gradients are
eager's. Functions whose Python is plain are nodes; the Python of others runs in each call."""

import functools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import nothing, same_story  # noqa: E402
from torch import nn  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.autograd.function import once_differentiable  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import glasshouse as gh  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)
W = torch.linspace(1, 2, 16).reshape(4, 4)
LOG: list = []


def leaf(number):
    return (X + number * 0.1).clone().requires_grad_()


def leaves(number):
    return (leaf(number),)


class Cube(Function):
    @staticmethod
    def forward(ctx, x, k):
        LOG.append(("forward", k))
        ctx.save_for_backward(x)
        ctx.k = k
        return x**3 * k

    @staticmethod
    def backward(ctx, grad):
        LOG.append(("backward", ctx.needs_input_grad))
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.k, None


class Several(Function):
    """With setup_context, a result without gradient, and gradients that are None."""

    @staticmethod
    def forward(x, w):
        return x @ w, (x > 0).to(torch.int64), x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, _, grad_twice):
        x, w = ctx.saved_tensors
        of_x = of_w = None
        if ctx.needs_input_grad[0]:
            of_x = 0 if grad is None else grad @ w.T
            of_x = of_x if grad_twice is None else of_x + 2 * grad_twice
        if ctx.needs_input_grad[1] and grad is not None:
            of_w = x.T @ grad
        return of_x, of_w


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Rounded(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reversed(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


class Fails(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("in the backward pass")


class Applied(Function):
    """Differentiates a function that it was given, within its own backward."""

    @staticmethod
    def forward(ctx, x, fn):
        ctx.fn = fn
        ctx.save_for_backward(x)
        return fn(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            z = ctx.fn(y)
        return torch.autograd.grad(z, y, grad)[0], None


POWER = 3


def powered(x, power):
    return x**power


class Power(Function):
    """With a global, a function of the user's, and a context that differs by what is needed."""

    @staticmethod
    def forward(ctx, x, scale, factor=1.0, name="unused"):
        ctx.save_for_backward(x, scale)
        ctx.factor = factor
        return powered(x, POWER) * scale * factor

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        of_scale = None
        if ctx.needs_input_grad[1]:
            of_scale = (grad * powered(x, POWER) * ctx.factor).sum()
        of_x = grad * POWER * powered(x, POWER - 1) * scale * ctx.factor
        return of_x, of_scale, None, None


class Mixed(Function):
    """Without gradients, under autocast's decorators."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Power.apply(x, torch.ones(()))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.cos(x)


class Branches(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2 if x.sum() > 0 else x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Context:
    """The context of `forward` where it is called as a function."""

    def save_for_backward(self, *tensors):
        self.saved = tensors


# -- custom functions ------------------------------------------------------------------------------


def logged():
    def fn(x, k):
        return Cube.apply(x, k).sum(), len(LOG)

    return fn, lambda i: (leaf(i), i % 2 + 1), lambda: LOG


def backward_inside():
    def fn(x, k):
        Cube.apply(x, k).sum().backward()
        return x.grad.clone(), len(LOG)

    return fn, lambda i: (leaf(i), i % 2 + 1), lambda: LOG


def in_a_training_step():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.b(Rounded.apply(Cube.apply(self.a(x), 2)))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def fn(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return fn, lambda i: (X + i,), model.state_dict


def arguments_of_several(i):
    return leaf(i), W.clone().requires_grad_(i % 2 == 0), i % 3


def several_results():
    def fn(x, w, k):
        a, b, c = Several.apply(x, w)
        chosen = [a.sum() + c.sum(), c.sum(), a.sum()][k]
        return chosen, b, a.requires_grad, b.requires_grad

    return fn, arguments_of_several, nothing


def several_gradients():
    def fn(x, w, k):
        a, _, c = Several.apply(x, w)
        [a.sum() + c.sum(), c.sum(), a.sum()][k].backward()
        return x.grad.clone(), w.grad

    return fn, arguments_of_several, nothing


def once_differentiated():
    def fn(x):
        y = Once.apply(x)
        y.sum().backward()
        return y

    return fn, leaves, nothing


def once_differentiated_twice():
    def fn(x):
        (g,) = torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return x.grad

    return fn, leaves, nothing


def differentiated_twice():
    def fn(x):
        (g,) = torch.autograd.grad(Cube.apply(x, 2).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return x.grad, g

    return fn, leaves, lambda: LOG


def in_place():
    def fn(x):
        y = x.clone()
        z = InPlace.apply(y)
        z.sum().backward()
        return x.grad, z is y, y

    return fn, leaves, nothing


def with_a_number_that_changes():
    layer = nn.Linear(4, 4)

    def fn(x, scale):
        layer.zero_grad()
        Reversed.apply(layer(x), scale).sum().backward()
        return layer.weight.grad.clone()

    return fn, lambda i: (X + i, float(i % 3)), nothing


def forward_as_a_function():
    def fn(x):
        ctx = Context()
        return Once.forward(ctx, x), len(ctx.saved)

    return fn, leaves, nothing


def without_gradients():
    def fn(x):
        with torch.no_grad():
            y = Cube.apply(x, 2)
        return y, y.requires_grad

    return fn, leaves, lambda: LOG


def error_in_backward():
    def fn(x):
        try:
            Fails.apply(x).sum().backward()
        except ValueError as error:
            return str(error), x.grad

    return fn, leaves, nothing


def differentiates_inside():
    return lambda x: Applied.apply(x, torch.sin).sum(), leaves, nothing


def branches_on_a_value():
    return lambda x: Branches.apply(x).sum(), lambda i: (X + i - 1,), nothing


def with_helpers():
    def fn(x, scale):
        y = Power.apply(x, scale, 2.0, "name")
        y.sum().backward()
        return y, x.grad.clone(), scale.grad

    def arguments(i):
        return leaf(i), torch.tensor(0.5, requires_grad=i % 2 == 0)

    return fn, arguments, nothing


def in_a_plain_training_step():
    layer = nn.Linear(4, 4)
    scale = nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([*layer.parameters(), scale], lr=0.01, momentum=0.9)

    def fn(x):
        optimizer.zero_grad()
        loss = Rounded.apply(Power.apply(layer(x), scale)).sum()
        loss.backward()
        optimizer.step()
        return loss

    return fn, lambda i: (X + i / 10,), lambda: (layer.state_dict(), scale)


def differentiated_outside():
    return lambda x: Power.apply(x, torch.tensor(2.0)), leaves, nothing


def plain_and_twice():
    def fn(x):
        (g,) = torch.autograd.grad(Power.apply(x, torch.ones(())).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return x.grad, g

    return fn, leaves, nothing


def one_in_another():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = Mixed.apply(x @ W)
        y.sum().backward()
        return y, x.grad.clone()

    return fn, leaves, nothing


CUSTOM = [
    logged, backward_inside, in_a_training_step, differentiated_twice, in_place,
    without_gradients, differentiates_inside, branches_on_a_value, error_in_backward,
]  # fmt: skip
PLAIN = [
    several_results, several_gradients, once_differentiated, with_a_number_that_changes,
    with_helpers, in_a_plain_training_step, differentiated_outside, plain_and_twice, one_in_another,
]  # fmt: skip


@pytest.mark.parametrize("make", CUSTOM, ids=lambda make: make.__name__)
def test_custom_functions_with_effects(make):
    def story():
        LOG.clear()
        return make()

    same_story(story, reason="a custom autograd.Function")


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", PLAIN, ids=lambda make: make.__name__)
def test_plain_custom_functions_are_nodes(make, compiler):
    captured = same_story(make, calls=9, compiler=compiler)
    assert not captured.capture.breaks
    assert captured.hits


def test_a_plain_custom_function_may_raise():
    same_story(once_differentiated_twice, reason="raising RuntimeError")


def test_what_a_custom_function_names_is_guarded(monkeypatch):
    captured = gh.optimize("aot_eager")(lambda x: Power.apply(x, torch.ones(())))
    for power in (3, 3, 2):
        monkeypatch.setitem(globals(), "POWER", power)
        torch.testing.assert_close(captured(X), X**power)
    monkeypatch.setattr(Power, "forward", staticmethod(lambda ctx, x, scale: x * 7))
    torch.testing.assert_close(captured(X), X * 7)
    assert captured.hits == 1


def test_forward_as_a_function_is_captured():
    captured = same_story(forward_as_a_function)
    assert captured.hits
    assert not captured.capture.breaks


# -- checkpoints -----------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, drops):
        super().__init__()
        self.a, self.b, self.drops = nn.Linear(4, 8), nn.Linear(8, 4), drops

    def forward(self, x):
        y = self.a(x).relu()
        return self.b(F.dropout(y, 0.5, True) if self.drops else y)


def checkpointed_step(is_reentrant, drops):
    blocks = nn.ModuleList(Block(drops) for _ in range(3))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)

    def fn(x):
        optimizer.zero_grad()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=is_reentrant)
        loss = x.pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return fn, leaves, blocks.state_dict


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpoints(is_reentrant, drops):
    same_story(lambda: checkpointed_step(is_reentrant, drops), reason="checkpoint")


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_python_of_a_checkpoint_runs_again(is_reentrant):
    def story():
        log = []

        def block(x, n):
            log.append(n)
            return (x @ W).relu() * n

        def fn(x):
            y = checkpoint(block, x, 2, use_reentrant=is_reentrant)
            before = len(log)
            y.sum().backward()
            return before, len(log), x.grad.clone()

        return fn, leaves, lambda: log

    same_story(story, reason="checkpoint")


def test_checkpoints_of_a_sequence():
    def story():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())

        def fn(x):
            model.zero_grad()
            checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
            return model[0].weight.grad.clone()

        return fn, leaves, nothing

    same_story(story, reason="checkpoint")


def test_selective_checkpoints():
    def policy(ctx, op, *args, **kwargs):
        is_product = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def block(x):
        return ((x @ W).relu() @ W).sin()

    def fn(x):
        checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum().backward()
        return x.grad.clone()

    same_story(lambda: (fn, leaves, nothing), reason="checkpoint")


# -- gradients of gradients ------------------------------------------------------------------------


def gradient_of_a_gradient():
    def fn(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return x.grad.clone(), g

    return fn, leaves, nothing


def product_with_a_hessian():
    def fn(x, v):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad(g, x, v)

    return fn, lambda i: (leaf(i), X), nothing


def penalty_on_a_gradient():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def fn(x):
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        y = model(x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        loss = y + ((g.norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return fn, lambda i: (X + i,), model.state_dict


TWICE = [gradient_of_a_gradient, product_with_a_hessian, penalty_on_a_gradient]


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", TWICE, ids=lambda make: make.__name__)
def test_gradients_of_gradients(make, compiler):
    captured = same_story(make, compiler=compiler)
    assert captured.hits >= 3
    assert not captured.capture.breaks


def test_a_gradient_of_a_gradient_outside():
    def story():
        def fn(x):
            return (x**3).sin().sum()

        return fn, leaves, nothing

    captured = same_story(story)
    x, y = leaf(1), leaf(1)
    for value, loss in ((x, captured(x)), (y, (y**3).sin().sum())):
        (g,) = torch.autograd.grad(loss, value, create_graph=True)
        g.pow(2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@torch.library.custom_op("gh_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def doubled_backward(ctx, grad):
    return grad * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(doubled_backward)


def test_operators_of_torch_library_are_captured():
    def fn(x):
        torch.ops.gh_tests.doubled(x * x).sum().backward()
        return x.grad.clone()

    captured = same_story(lambda: (fn, leaves, nothing))
    assert captured.hits == 4
    assert not captured.capture.breaks
