"""Of PyTorch, too, what is called may be something else in the next call."""

import copy

import pytest
from tests.unit.capture.test_replaced_callables import check

import glasshouse as gh

torch = pytest.importorskip("torch")


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Thrice(Twice):
    @staticmethod
    def forward(ctx, x):
        return 3 * x


LAYER = torch.nn.Linear(2, 2)
CALLS = {  # an expression that calls F, what F is, and another callable of its kind
    "function": ("F(x)", torch.relu, torch.exp),
    "functional": ("F(x)", torch.nn.functional.silu, torch.nn.functional.gelu),
    "method": ("F(x)", torch.Tensor.exp, torch.Tensor.relu),
    "bound method": ("F()", torch.ones(3).sum, torch.ones(3).max),
    "operator": ("F(x)", torch.ops.aten.relu.default, torch.ops.aten.exp.default),
    "packet": ("F(x)", torch.ops.aten.relu, torch.ops.aten.exp),
    "maker": ("F(2)", torch.ones, torch.zeros),
    "layer": ("F(x)", torch.nn.ReLU(), torch.nn.Sigmoid()),
    "layer with weights": (
        "F(x)",
        LAYER,
        copy.deepcopy(LAYER).double().float().requires_grad_(False),
    ),
    "class of layers": ("type(F())", torch.nn.ReLU, torch.nn.Sigmoid),
    "class of modules": ("F()(x)", torch.nn.ReLU, torch.nn.Sigmoid),
    "module's method": ("F(x)", torch.nn.ReLU().forward, torch.nn.Sigmoid().forward),
    "function with a derivative": ("F(leaf)", Twice.apply, Thrice.apply),
    "its class": ("F.apply(leaf)", Twice, Thrice),
    "module": ("F.relu(x)", torch, torch.nn.functional),
    "optimizer": ("F([leaf], lr=0.1).defaults['lr']", torch.optim.SGD, torch.optim.Adam),
    "context": ("entered(F(), leaf)", torch.no_grad, torch.enable_grad),
    "inference": ("entered(F(), leaf)", torch.inference_mode, torch.enable_grad),
    "grad mode": (
        "entered(F(False), leaf)",
        torch.set_grad_enabled,
        lambda on: torch.enable_grad(),
    ),
    "decorator": ("F(lambda x: x * leaf)(x).requires_grad", torch.no_grad(), torch.enable_grad()),
    "autocast": ("entered(F('cpu'), leaf)", torch.autocast, lambda name: torch.no_grad()),
    "question": ("F(x)", torch.is_tensor, torch.is_complex),
    "dtype": ("F('a') if callable(F) else x.to(F).dtype", torch.float64, torch.float16),
    "size": ("F([1, 2])", torch.Size, tuple),
    "promotion": ("F(torch.int32, torch.int64)", torch.promote_types, max),
    "finfo": ("F(torch.float32).max", torch.finfo, lambda kind: leaf_of(kind)),
    "grad": ("F((leaf * 2).sum(), [leaf])", torch.autograd.grad, lambda y, xs: xs),
    "vmap": ("F(torch.sin)(x)", torch.vmap, torch.func.grad_and_value),
    "checkpoint": (
        "F(torch.sin, x, use_reentrant=False)",
        torch.utils.checkpoint.checkpoint,
        torch.add,
    ),
    "captured": ("F(x)", gh.optimize("eager")(torch.sin), gh.optimize("eager")(torch.cos)),
    "seed": ("F(1) and torch.rand(2)", torch.manual_seed, lambda n: torch.manual_seed(n + 1)),
    "deepcopy": ("F(x)", copy.deepcopy, torch.neg),
}


def leaf_of(kind):
    return torch.zeros(1, dtype=kind, requires_grad=True)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_called_may_be_replaced(name):
    names = {"torch": torch, "leaf": torch.ones(2, requires_grad=True)}
    check(CALLS[name], torch.tensor([0.5, -1.0]), names, torch.manual_seed)
