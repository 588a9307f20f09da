"""Pooling, padding and patches against PyTorch's, over their options."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.base.flags import flags

SIZES = {1: (11,), 2: (7, 10), 3: (5, 6, 7)}
MAX_OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "dilation": 2, "stride": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True},
]
AVG_OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
]


def images(n, seed=0):
    """Rounded, so that windows have several largest elements."""
    return np.random.default_rng(seed).normal(size=(2, 3, *SIZES[n])).round(1)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", MAX_OPTIONS)
def test_max_pool_equals_pytorchs(twin, n, options):
    ours, theirs = (getattr(lib, f"MaxPool{n}d")(**options) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, images(n))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", AVG_OPTIONS)
def test_avg_pool_equals_pytorchs(twin, n, options):
    ours, theirs = (getattr(lib, f"AvgPool{n}d")(**options) for lib in (nn, twin.torch.nn))
    if n == 1:  # PyTorch's repr of AvgPool1d shows tuples
        ours, theirs = nn.Sequential(), twin.torch.nn.Sequential()
        f, g = F.avg_pool1d, twin.torch.nn.functional.avg_pool1d
        twin.function(lambda x: f(x, **options), lambda x: g(x, **options), images(1))
        return
    twin.module(ours, theirs, images(n))


def test_divisor_override(twin):
    ours, theirs = F.avg_pool2d, twin.torch.nn.functional.avg_pool2d
    options = {"kernel_size": 2, "divisor_override": 3}
    twin.function(lambda x: ours(x, **options), lambda x: theirs(x, **options), images(2))


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize(
    "n, size",
    [(1, 4), (1, 11), (2, 1), (2, (3, 4)), (2, (None, 5)), (3, 2), (3, (5, 4, 3)), (2, 9)],
)
def test_adaptive_pool_equals_pytorchs(twin, kind, n, size):
    name = f"Adaptive{kind}Pool{n}d"
    ours, theirs = (getattr(lib, name)(size) for lib in (nn, twin.torch.nn))
    twin.module(ours, theirs, images(n))


def test_adaptive_max_pool_indices(twin):
    torch = twin.torch.nn.functional
    for n, size in ((1, 3), (2, (3, 4))):
        ours, theirs = (getattr(lib, f"adaptive_max_pool{n}d") for lib in (F, torch))
        twin.function(
            lambda x: ours(x, size, return_indices=True),  # noqa: B023
            lambda x: theirs(x, size, return_indices=True),  # noqa: B023
            images(n),
        )


def test_adaptive_average_does_not_mix_infinity_into_other_bins():
    x = gh.asarray([[np.inf, 1.0, 1.0, 1.0, 1.0]])
    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[np.inf, 1.0, 1.0]]


def test_no_batch_axis(twin):
    theirs = twin.torch.nn.functional
    for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"):
        twin.function(
            lambda x, name=name: getattr(F, name)(x, 3),
            lambda x, name=name: getattr(theirs, name)(x, 3),
            images(2)[0],
        )


def test_nan_wins_max_pooling():
    x = gh.asarray([[[1.0, np.nan, 3.0, 2.0]]])
    np.testing.assert_array_equal(F.max_pool1d(x, 2).numpy(), [[[np.nan, 3.0]]])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 2), (2, 1, 1, 0), (0, 3), (-1, 2), (-2, -1, 1, -1)])
def test_pad_equals_pytorchs(twin, mode, pad):
    theirs = twin.torch.nn.functional.pad
    x = images(2)
    if mode != "constant" and len(pad) == 2:
        x = x[0]  # PyTorch pads the last axis of 2 or 3 axes, the last two of 3 or 4
    twin.function(lambda x: F.pad(x, pad, mode), lambda x: theirs(x, pad, mode), x)


def test_pad_with_a_value(twin):
    theirs = twin.torch.nn.functional.pad
    x = images(1)
    pad = (1, 0, 2, 1, 0, 1)
    twin.function(lambda x: F.pad(x, pad, value=2.5), lambda x: theirs(x, pad, value=2.5), x)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3},
        {"kernel_size": (2, 3), "stride": 2, "padding": 1},
        {"kernel_size": 2, "dilation": (2, 3), "padding": (0, 2), "stride": (1, 3)},
    ],
)
def test_unfold_and_fold_equal_pytorchs(twin, options):
    torch = twin.torch.nn
    x = images(2)
    twin.module(nn.Unfold(**options), torch.Unfold(**options), x)
    columns = F.unfold(gh.asarray(x), **options).numpy()
    twin.module(nn.Fold((7, 10), **options), torch.Fold((7, 10), **options), columns)
    twin.function(
        lambda c: F.fold(c, (7, 10), **options),
        lambda c: torch.functional.fold(c, (7, 10), **options),
        columns[0],
    )


IMAGE = gh.ones((1, 3, 4, 4))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nn.MaxPool2d(2, padding=2)(IMAGE),
            OptionError,
            "MaxPool2d: expected padding of at most half",
        ),
        (lambda: nn.MaxPool2d(5)(IMAGE), ShapeError, "at least the kernel's size"),
        (
            lambda: nn.MaxPool2d(2)(gh.ones((4, 4))),
            ShapeError,
            "MaxPool2d: expected an input of 3 or 4 axes",
        ),
        (
            lambda: nn.AvgPool2d(2, divisor_override=0)(IMAGE),
            OptionError,
            "divisor_override other than 0",
        ),
        (lambda: nn.AdaptiveAvgPool2d(0)(IMAGE), OptionError, "output_size to be an integer"),
        (lambda: nn.AdaptiveAvgPool2d((1, 2, 3))(IMAGE), OptionError, "2 of them; got (1, 2, 3)"),
        (lambda: F.pad(IMAGE, (1, 1), "reflekt"), OptionError, "Did you mean 'reflect'?"),
        (lambda: F.pad(IMAGE, (1, 1, 1)), OptionError, "an even number of integers"),
        (lambda: F.pad(IMAGE, (1,) * 10), ShapeError, "at most 4 pairs"),
        (lambda: F.pad(IMAGE, (4, 0), "reflect"), ShapeError, "widths of at most 3"),
        (lambda: F.pad(IMAGE, (5, 0), "circular"), ShapeError, "widths of at most 4"),
        (lambda: F.pad(IMAGE, (-3, -3)), ShapeError, "to crop at most the size"),
        (lambda: F.fold(gh.ones((1, 8, 5)), (4, 4), 2), ShapeError, "fold: expected (…, C · 4, 9)"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


PADDED = [  # kernel, stride, padding, dilation, ceil_mode
    (2, 2, 1, 2, False),
    (3, 2, 1, 1, False),
    (3, 1, 1, 2, True),
    (2, 1, 1, 9, False),  # whose windows lie in the padding alone, or have one element in the data
    (2, 3, 1, 1, True),
]
WAYS = [  # backend, compile, whether images lie last in memory
    ("numpy", "never", False),
    ("torch", "never", False),
    ("lazy", "always", False),
    ("lazy", "always", True),
]


def pooled_by_definition(x, kernel, stride, padding, dilation, ceil_mode):
    """(largest elements, row-major places, gradient of the sum) of images (N, *S)."""
    sizes = x.shape[1:]
    reach = dilation * (kernel - 1) + 1
    counts = []
    for size in sizes:
        last = size + 2 * padding - reach
        count = (-(-last // stride) if ceil_mode else last // stride) + 1
        counts.append(count - (ceil_mode and (count - 1) * stride >= size + padding))
    values = np.full((len(x), *counts), -np.inf)
    places, grad = np.zeros(values.shape, np.int64), np.zeros(x.shape)
    for at in np.ndindex(*values.shape):
        starts = [i * stride - padding for i in at[1:]]
        window = [
            tuple(s + dilation * i for s, i in zip(starts, offset))
            for offset in np.ndindex(*(kernel,) * len(sizes))
        ]
        inside = [p for p in window if all(0 <= i < n for i, n in zip(p, sizes))]
        if inside:
            best = int(np.argmax([x[(at[0], *p)] for p in inside]))  # a NaN first, else the first
            place = (at[0], *inside[best])
            values[at] = x[place]
            grad[place] += 1
            places[at] = np.ravel_multi_index(inside[best], sizes)
    return values, places, grad


@pytest.mark.sample(14)
@pytest.mark.parametrize("backend, compile, last", WAYS)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("options", PADDED)
def test_padding_is_never_chosen(n, options, backend, compile, last):
    if backend == "torch":
        pytest.importorskip("torch")
    rng = np.random.default_rng(n)
    x = rng.integers(-2, 3, (3, *(8, 9, 10)[:n])).astype(np.float32)
    x[rng.random(x.shape) < 0.8] = -np.inf
    x[rng.random(x.shape) < 0.05] = np.nan
    expected = pooled_by_definition(x, *options)
    with gh.backends.use(backend), flags.override(compile=compile):
        laid = gh.asarray(np.moveaxis(x, 0, -1) if last else x).requires_grad_()
        images = gh.moveaxis(laid, -1, 0) if last else laid
        y, places = getattr(F, f"max_pool{n}d")(images[None], *options, return_indices=True)
        y.sum().backward()
        grad = np.moveaxis(laid.grad.numpy(), -1, 0) if last else laid.grad.numpy()
        got = y[0].detach().numpy(), places[0].numpy(), grad
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def integers_with_ends(dtype: str, shape) -> np.ndarray:
    """Small integers, and many of the least and some of the largest of the dtype."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    x = rng.integers(3, size=shape).astype(dtype)
    x[rng.random(shape) < 0.7] = info.min
    x[rng.random(shape) < 0.1] = info.max
    return x


@pytest.mark.parametrize("backend, compile, last", WAYS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_pool_of_integers_equals_pytorchs(n, dtype, backend, compile, last):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn.functional, f"max_pool{n}d_with_indices")
    x = integers_with_ends(dtype, (3, 2, *(8, 9, 10)[:n]))
    for kernel, stride, padding, dilation, ceil_mode in PADDED:
        options = {"dilation": dilation, "ceil_mode": ceil_mode, "return_indices": True}
        values, places = theirs(torch.from_numpy(x), kernel, stride, padding, **options)
        ones = theirs(torch.ones(x.shape), kernel, stride, padding, **options)[0]
        places[ones < 0] = 0  # of padding alone PyTorch names places outside of the image
        with gh.backends.use(backend), flags.override(compile=compile):
            laid = gh.asarray(np.moveaxis(x, 1, -1) if last else x)
            images = gh.moveaxis(laid, -1, 1) if last else laid
            got = getattr(F, f"max_pool{n}d")(images, kernel, stride, padding, **options)
            got = [part.numpy() for part in got]
        assert got[0].dtype == x.dtype
        np.testing.assert_array_equal(got[0], values.numpy())
        np.testing.assert_array_equal(got[1], places.numpy())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_pool_refuses_booleans_and_what_averages_refuses_integers(n):
    image = gh.ones((1, *(4,) * n))
    with pytest.raises(DTypeError, match="floating input; got bool"):
        getattr(F, f"max_pool{n}d")(image.bool(), 2)
    with pytest.raises(DTypeError, match="floating input; got int64"):
        getattr(F, f"avg_pool{n}d")(image.long(), 2)


class Calls(gh.Mode):
    """Counts the calls of primitives."""

    count = 0

    def process(self, primitive, operands, attrs, below):
        self.count += 1
        return below(primitive, operands, attrs)


@pytest.mark.parametrize("kernel", [8, 9, 16, 31, 200])
@pytest.mark.parametrize("stride", [1, 3, 40, 200, 250])
@pytest.mark.parametrize("padding", [0, 4])
def test_long_windows_are_summed_in_few_calls(twin, kernel, stride, padding):
    theirs = twin.torch.nn.functional.avg_pool1d
    x = np.random.default_rng(0).normal(size=(2, 3, 520))
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": True}
    twin.function(lambda x: F.avg_pool1d(x, **options), lambda x: theirs(x, **options), x)
    with Calls() as calls:
        F.avg_pool1d(gh.asarray(x), **options)
    assert calls.count < 60
