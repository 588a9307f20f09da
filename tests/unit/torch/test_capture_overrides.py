"""Subclasses of Tensor, what stands in for tensors, modes and parametrizations under capture."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch.nn.utils.parametrize as parametrize  # noqa: E402
from same_outcome import nothing, same_story  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)
W = torch.linspace(1, 2, 16).reshape(4, 4)
CALLS: list = []


class Function(torch.Tensor):
    """Is told of functions."""

    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        CALLS.append(getattr(fn, "__name__", str(fn)))
        return super().__torch_function__(fn, types, args, kwargs or {})


class Dispatch(torch.Tensor):
    """Is told of operators, and holds another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Dispatch({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, fn, types, args=(), kwargs=None):
        CALLS.append(str(fn))
        opened = lambda x: x.inner if isinstance(x, Dispatch) else x  # noqa: E731
        result = fn(*tree_map(opened, args), **tree_map(opened, kwargs or {}))
        return tree_map(lambda x: Dispatch(x) if isinstance(x, torch.Tensor) else x, result)


class StandIn:
    """No tensor, and told of functions."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        CALLS.append(fn.__name__)
        opened = lambda x: x.tensor if isinstance(x, StandIn) else x  # noqa: E731
        return fn(*map(opened, args), **{k: opened(v) for k, v in (kwargs or {}).items()})


class OwnParameter(nn.Parameter):
    pass


def calls():
    return CALLS


def plain(x):
    return x.as_subclass(torch.Tensor)


def pairs(make):
    return lambda i: (X + i, make(X))


def function(x):
    return x.as_subclass(Function)


# -- subclasses ------------------------------------------------------------------------------------


def argument():
    return lambda x: (x @ W).relu() + 1, lambda i: (function(X + i),), calls


def made_inside():
    def fn(x):
        y = function(x) * 2
        return plain(y), len(CALLS)

    return fn, lambda i: (X + i,), calls


def in_lists():
    def fn(x, y):
        return plain(torch.stack([x, y]).sum()), plain(torch.cat((y, x)))

    return fn, lambda i: (X + i, function(X) if i % 2 else X), calls


def through_a_layer():
    layer = nn.Linear(4, 4)

    def fn(named):
        return [plain(layer(x).sum()) for x in named.values()]

    return fn, lambda i: ({"a": X + i, "b": function(X + i)},), calls


def weight():
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(function(layer.weight.detach()))
    return lambda x: plain(layer(x)), lambda i: (X + i,), calls


def index():
    return lambda x, at: plain(x[at]), lambda i: (X + i, function(torch.tensor([0, 1]))), calls


def given_as_out():
    def fn(x, out):
        torch.add(x, 1, out=out)
        return x * 2

    return fn, pairs(lambda x: function(torch.zeros(3, 4))), calls


def operators():
    def fn(x, y):
        results = [plain(z) for z in (x + y, 2 * y, -y)]
        return results, y.shape, len(y), y.size(0), str(y.dtype), y.requires_grad

    return fn, pairs(function), calls


def wrapper():
    return lambda x: (x.sin() + 1).inner, lambda i: (Dispatch(X + i),), calls


def wrapper_made_inside():
    def fn(x):
        y = Dispatch(x) * 2
        return y.inner, len(CALLS)

    return fn, lambda i: (X + i,), calls


def own_parameter():
    layer = nn.Linear(4, 4)
    layer.weight = OwnParameter(layer.weight.detach())
    return lambda x: layer(x), lambda i: (X + i,), nothing


def lazy_layer():
    def fn(layer, x):
        torch.manual_seed(0)
        return layer(x), type(layer).__name__

    return fn, lambda i: (nn.LazyLinear(4), X), nothing


def stand_in():
    def fn(x, d):
        return torch.add(x, d), torch.add(d, x), torch.add(input=x, other=d), len(CALLS)

    return fn, pairs(StandIn), calls


def stand_in_for_a_layer():
    def fn(x, d):
        return F.linear(x, d), F.relu(d), F.gelu(d, approximate="tanh")

    return fn, pairs(StandIn), calls


SUBCLASSES = {
    argument: "a subclass of Tensor", made_inside: "as_subclass", in_lists: "a subclass of Tensor",
    through_a_layer: "linear of a Function", weight: "linear of a Function",
    index: "getitem of a Function", given_as_out: "add of a Function",
    operators: "add of a Function",
    wrapper: "attribute 'sin' of a Dispatch", wrapper_made_inside: "_make_wrapper_subclass",
    own_parameter: "linear of a OwnParameter", lazy_layer: "a LazyLinear",
    stand_in: "a StandIn is given", stand_in_for_a_layer: "a StandIn is given",
}  # fmt: skip


def told_anew(make):
    def story():
        CALLS.clear()
        return make()

    return story


@pytest.mark.parametrize("make", SUBCLASSES, ids=lambda make: make.__name__)
def test_subclasses(make):
    same_story(told_anew(make), reason=SUBCLASSES[make])


# -- modes that are entered inside -----------------------------------------------------------------


class Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        CALLS.append(fn.__name__)
        return fn(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        CALLS.append(str(fn))
        return fn(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_a_mode_inside(mode):
    def fn(x):
        y = x.cos()
        with mode():
            z = y.sin()
        return z, len(CALLS)

    same_story(told_anew(lambda: (fn, lambda i: (X + i,), calls)), reason="_push_on_torch_")


def test_a_device_inside():
    def fn(x):
        with torch.device("meta"):
            y = torch.ones(3)
        return y, y.device, torch.ones(3).device, x * 2

    same_story(lambda: (fn, lambda i: (X + i,), nothing), reason="__enter__ of a device")


# -- parametrizations ------------------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, a):
        return a.triu()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


def training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def fn(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return fn, lambda i: (X + i,), model.state_dict


def linear(*rules):
    layer = nn.Linear(4, 4)
    for rule in rules:
        parametrize.register_parametrization(layer, "weight", rule)
    return layer


@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated")
@pytest.mark.parametrize(
    "make",
    [
        lambda: linear(Symmetric()),
        lambda: linear(Counting()),
        lambda: linear(Symmetric(), Counting()),
        lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
        lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
        lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
        lambda: nn.utils.weight_norm(nn.Linear(4, 4)),
        lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
        lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5),
    ],
    ids="one counts two weight_norm spectral_norm orthogonal old_weight_norm old_spectral_norm "
    "pruned".split(),
)
def test_training_with_a_parametrization(make):
    captured = same_story(lambda: training(make()))
    assert captured.hits >= 3


def comes_and_goes():
    layer = nn.Linear(4, 4)

    def arguments(i):
        if i == 2:
            parametrize.register_parametrization(layer, "weight", Symmetric())
        if i == 4:
            parametrize.remove_parametrizations(layer, "weight")
        return (X + i,)

    return lambda x: layer(x), arguments, nothing


def kept_inside():
    layer = linear(Counting())

    def fn(x):
        with parametrize.cached():
            y = layer(x) + layer(x)
        return y, layer(x)

    return fn, lambda i: (X + i,), lambda: layer.parametrizations.weight[0].n


def kept_outside():
    layer, contexts = linear(Counting()), []

    def arguments(i):
        if i == 2:
            contexts.append(parametrize.cached())
            contexts[0].__enter__()
        if i == 4:
            contexts[0].__exit__(None, None, None)
        return (X + i,)

    return lambda x: layer(x), arguments, lambda: layer.parametrizations.weight[0].n


def weight_is_set():
    layer = linear(Symmetric())

    def fn(x):
        layer.weight = torch.ones(4, 4) * x.sum()
        return layer(x)

    return fn, lambda i: (X + i,), layer.state_dict


@pytest.mark.parametrize("make", [comes_and_goes, kept_inside, kept_outside, weight_is_set])
def test_parametrizations(make):
    same_story(make)
