"""Convolution layers against PyTorch's, over their options."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError

SIZES = {1: (9,), 2: (7, 8), 3: (5, 6, 7)}
OPTIONS = [
    {},
    {"kernel_size": 2, "stride": 2, "bias": False},
    {"padding": 2, "dilation": 2},
    {"groups": 2, "padding": 1},
    {"groups": 4, "stride": 3, "padding": 1},
    {"padding": "same", "kernel_size": 4},
    {"padding": "same", "dilation": 2},
    {"padding": "valid"},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": 2, "padding_mode": "replicate"},
    {"padding": 2, "padding_mode": "circular", "stride": 2},
    {"padding": "same", "kernel_size": 4, "padding_mode": "circular"},
]
TRANSPOSED = [
    {},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": 3, "groups": 2, "bias": False},
    {"dilation": 2, "padding": 2},
    {"dilation": 3, "stride": 2, "output_padding": 2},
    {"dilation": 3, "stride": 1, "output_padding": 2, "padding": 1},
]


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
def test_conv_equals_pytorchs(twin, n, options):
    arguments = {"in_channels": 4, "out_channels": 8, "kernel_size": 3} | options
    ours, theirs = (getattr(lib, f"Conv{n}d")(**arguments) for lib in (nn, twin.torch.nn))
    x = np.random.default_rng(0).normal(size=(2, 4, *SIZES[n]))
    twin.module(ours, theirs, x)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", TRANSPOSED)
def test_transposed_conv_equals_pytorchs(twin, n, options):
    arguments = {"in_channels": 4, "out_channels": 6, "kernel_size": 3} | options
    name = f"ConvTranspose{n}d"
    ours, theirs = (getattr(lib, name)(**arguments) for lib in (nn, twin.torch.nn))
    x = np.random.default_rng(0).normal(size=(2, 4, *[s - 3 for s in SIZES[n]]))
    twin.module(ours, theirs, x)


def test_output_size_chooses_the_output_padding(twin):
    ours = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)
    theirs = twin.torch.nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)
    x = np.random.default_rng(0).normal(size=(1, 4, 5, 5))
    twin.module(ours, theirs, x, output_size=(10, 9))
    with pytest.raises(OptionError, match="expected an output_size from"):
        ours(gh.asarray(x), output_size=(12, 9))


def test_no_batch_axis(twin):
    x = np.random.default_rng(0).normal(size=(3, 6, 5))
    twin.module(nn.Conv2d(3, 4, 3), twin.torch.nn.Conv2d(3, 4, 3), x)
    twin.module(nn.ConvTranspose2d(3, 4, 3), twin.torch.nn.ConvTranspose2d(3, 4, 3), x)


def test_functional_forms(twin):
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 4, 9)), rng.normal(size=(6, 2, 3)), rng.normal(size=6)
    theirs = twin.torch.nn.functional
    twin.function(
        lambda *a: F.conv1d(*a, stride=2, padding=1, groups=2),
        lambda *a: theirs.conv1d(*a, stride=2, padding=1, groups=2),
        x,
        w,
        b,
    )
    w = rng.normal(size=(4, 3, 3))
    twin.function(
        lambda *a: F.conv_transpose1d(*a, stride=2, output_padding=1, groups=2),
        lambda *a: theirs.conv_transpose1d(*a, stride=2, output_padding=1, groups=2),
        x,
        w,
        b,
    )


def test_initial_values_follow_pytorch():
    gh.random.seed(0)
    layer = nn.Conv2d(16, 32, 3)
    bound = 1 / (16 * 9) ** 0.5
    for p in (layer.weight, layer.bias):
        assert np.abs(p.numpy()).max() <= bound
    assert layer.weight.numpy().std() == pytest.approx(bound / 3**0.5, rel=0.05)


IMAGE = gh.ones((1, 3, 8, 8))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nn.Conv2d(4, 2, 3)(IMAGE),
            ShapeError,
            "Conv2d: expected 4 input channels on axis 1",
        ),
        (lambda: nn.Conv2d(3, 2, 9)(IMAGE), ShapeError, "at least the kernel's size"),
        (lambda: nn.Conv2d(3, 2, 3)(gh.ones((8, 8))), ShapeError, "3 or 4 axes"),
        (
            lambda: nn.Conv2d(3, 2, 3)(gh.ones((1, 3, 8, 8), dtype="float64")),
            DTypeError,
            "weight's dtype",
        ),
        (lambda: nn.Conv2d(3, 2, 3)(gh.ones((1, 3, 8, 8), dtype="uint8")), DTypeError, "got uint8"),
        (
            lambda: nn.Conv2d(3, 2, 3, groups=2),
            OptionError,
            "expected groups to divide in_channels",
        ),
        (
            lambda: nn.Conv2d(4, 3, 3, groups=2),
            OptionError,
            "expected groups to divide out_channels",
        ),
        (lambda: nn.Conv2d(3, 2, (3, 3, 3)), OptionError, "kernel_size to be an integer"),
        (
            lambda: nn.Conv2d(3, 2, 3, stride=0),
            OptionError,
            "stride to be an integer of at least 1",
        ),
        (lambda: nn.Conv2d(3, 2, 3, padding=-1), OptionError, "padding to be an integer"),
        (lambda: nn.Conv2d(3, 2, 3, padding="sane"), OptionError, "Did you mean 'same'?"),
        (
            lambda: nn.Conv2d(3, 2, 3, 2, padding="same"),
            OptionError,
            "stride 1 with padding='same'",
        ),
        (lambda: nn.Conv2d(3, 2, 3, padding_mode="mirror"), OptionError, "expected padding_mode"),
        (lambda: nn.Conv2d(0, 2, 3), OptionError, "in_channels to be an integer of at least 1"),
        (
            lambda: nn.ConvTranspose2d(3, 2, 3, output_padding=1)(IMAGE),
            OptionError,
            "output_padding",
        ),
        (
            lambda: nn.ConvTranspose2d(4, 2, 3)(IMAGE),
            ShapeError,
            "ConvTranspose2d: expected 4 input",
        ),
        (lambda: nn.ConvTranspose2d(3, 2, 3, padding="same"), OptionError, "padding as numbers"),
        (
            lambda: F.conv2d(IMAGE, gh.ones((2, 3, 3))),
            ShapeError,
            "conv2d: expected a weight of 4 axes",
        ),
        (lambda: F.conv2d(IMAGE, gh.ones((2, 3, 3, 3)), gh.ones(3)), ShapeError, "bias of (2,)"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
