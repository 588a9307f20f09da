"""Lazy layers against PyTorch's: before, at and after their first input."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn

SHAPES = {1: (2, 4, 9), 2: (2, 4, 5, 6), 3: (2, 4, 3, 4, 5)}
CASES = {
    "LazyLinear": (3,),
    **{f"LazyConv{n}d": (6, 3) for n in SHAPES},
    **{f"LazyConvTranspose{n}d": (6, 3) for n in SHAPES},
    **{f"LazyBatchNorm{n}d": () for n in SHAPES},
    **{f"LazyInstanceNorm{n}d": () for n in SHAPES},
}


def input_of(name: str) -> np.ndarray:
    n = int(name[-2]) if name.endswith("d") else 2
    return np.random.default_rng(0).normal(size=SHAPES[n])


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", CASES)
def test_lazy_layers_become_pytorchs(twin, name):
    ours, theirs = (getattr(lib, name)(*CASES[name]) for lib in (nn, twin.torch.nn))
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = input_of(name)
    ours(gh.asarray(x.astype(np.float32)))
    theirs(twin.torch.tensor(x.astype(np.float32)))
    assert type(ours).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")
    twin.module(ours, theirs, x)


@pytest.mark.parametrize("name", CASES)
def test_initial_values_are_those_of_the_layer(name):
    x = gh.asarray(input_of(name).astype(np.float32))
    gh.random.seed(3)
    lazy = getattr(nn, name)(*CASES[name])
    lazy.eval()
    y = lazy(x)
    gh.random.seed(3)
    size = x.shape[-1] if name == "LazyLinear" else x.shape[1]
    options = {"affine": True, "track_running_stats": True} if "Instance" in name else {}
    direct = getattr(nn, name.removeprefix("Lazy"))(size, *CASES[name], **options).eval()
    assert (y == direct(x)).all() and not lazy.training


def test_options_are_kept():
    layer = nn.LazyConv2d(6, 3, groups=2, padding="same", bias=False, padding_mode="reflect")
    assert layer(gh.ones((1, 4, 5, 5))).shape == (1, 6, 5, 5)
    assert layer.weight.shape == (6, 2, 3, 3) and layer.bias is None


def test_a_lazy_network_trains():
    gh.random.seed(0)
    net = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))
    x = gh.random.normal((8, 3, 6))
    net(x)
    opt = gh.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = (net(x) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_state_gives_shapes():
    lazy, layer = nn.LazyLinear(3), nn.Linear(5, 3)
    lazy.load_state_dict(layer.state_dict())
    assert lazy.weight.shape == (3, 5) and type(lazy.weight) is nn.Parameter
    x = gh.ones((2, 5))
    assert (lazy(x) == layer(x)).all() and lazy.in_features == 5


def test_state_without_shapes_goes_between_lazy_layers():
    first, second = nn.LazyLinear(3), nn.LazyLinear(3)
    second.load_state_dict(first.state_dict())
    assert second.has_uninitialized_params()
    with pytest.raises(gh.CheckpointError, match="weight without a shape"):
        nn.Linear(2, 3).load_state_dict(first.state_dict())


def test_what_has_no_shape_says_so():
    layer = nn.LazyLinear(3)
    assert repr(layer.weight) == "<UninitializedParameter>"
    with pytest.raises(gh.ShapeError, match="Call the module once"):
        layer.weight.shape
    with pytest.raises(gh.ShapeError, match="features on axis -1"):
        layer(gh.asarray(1.0))


def test_conversion_copies_and_pickles_before_the_first_input():
    layer = nn.LazyLinear(3).double()
    for same in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), layer):
        assert same(gh.ones((2, 4), dtype="float64")).dtype == gh.float64


def test_buffers_without_a_shape():
    x = nn.UninitializedBuffer(dtype="float64")
    x.materialize((2,))
    assert x.shape == (2,) and x.dtype == gh.float64 and not x.requires_grad
