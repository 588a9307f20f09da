"""Window primitives: sliding windows over the last axes, their transpose, and choice within them.

Max pooling is a `window_select`; `nn.functional.unfold` and its inverse are `windows` and `fold`.
Along an axis of S elements there are O = (S - dilation (k - 1) - 1) // stride + 1 windows of k
elements; window o holds the elements o stride + i dilation for i < k."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from glasshouse.base import Shape, Spec, accumulation_dtype, from_numpy_dtype
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.dispatch.primitive import LINEAR, Arr, card, refusal, sample
from glasshouse.ops.checks import check_ordered
from glasshouse.ops.elementwise import batch_together, infer_same


def check_window(where: str, spatial_ndim: int, **options: Any) -> None:
    for name, value in options.items():
        if len(value) != spatial_ndim:
            expected = f"{name} with {spatial_ndim} entries, one per spatial axis"
            raise ShapeError(where, expected, value, "Repeat or drop entries.")
        if any(entry < 1 for entry in value):
            raise OptionError(where, f"{name} of 1 or more", value, "Use 1.")


def window_counts(
    where: str,
    sizes: Shape,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Shape:
    check_window(where, len(sizes), size=size, stride=stride, dilation=dilation)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(size, dilation))
    if any(n < r for n, r in zip(sizes, reach)):
        got = f"windows that reach over {reach} elements and axes of {tuple(sizes)}"
        fix = "Pad the input or shrink the window."
        raise ShapeError(where, "windows no longer than the axes", got, fix)
    return tuple((n - r) // s + 1 for n, r, s in zip(sizes, reach, stride))


def window_view(
    x: np.ndarray, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> np.ndarray:
    """All windows of `x` (..., *S) as a read-only view (..., *O, *size), without copying."""
    lead = x.ndim - len(size)
    counts = window_counts("windows", x.shape[lead:], size, stride, dilation)
    steps = x.strides[lead:]
    outer = tuple(step * s for step, s in zip(steps, stride))
    inner = tuple(step * d for step, d in zip(steps, dilation))
    shape = x.shape[:lead] + counts + tuple(size)
    return as_strided(x, shape, x.strides[:lead] + outer + inner, writeable=False)


def window_positions(
    counts: Any, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Iterator[tuple[Any, ...]]:
    """For each position in a window, the index (..., slices) of that element of every window."""
    for position in product(*map(range, size)):
        axes = zip(position, counts, stride, dilation)
        yield (..., *(slice(p * d, p * d + (n - 1) * s + 1, s) for p, n, s, d in axes))


def check_ndim(where: str, x: Spec, spatial_ndim: int) -> None:
    if x.ndim < spatial_ndim:
        expected = f"at least {spatial_ndim} axes, one per entry of size"
        raise ShapeError(where, expected, f"shape {x.shape}", "Add axes or shorten size.")


def options(size: Any, stride: Any = None, dilation: Any = None, **others: Any) -> Any:
    ones = (1,) * len(size)
    return {"size": size, "stride": stride or ones, "dilation": dilation or ones, **others}


def infer_windows(
    x: Spec, *, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Spec:
    check_ndim("windows", x, len(size))
    lead = x.ndim - len(size)
    counts = window_counts("windows", x.shape[lead:], size, stride, dilation)
    return Spec(x.shape[:lead] + counts + size, x.dtype)


STRIDED = options((2, 3), stride=(2, 1), dilation=(3, 2))


@card(
    "window",
    infer=infer_windows,
    jvp=LINEAR,
    vjp=(
        lambda g, _y, _x, *, size, **options: fold(
            g, shape=_x.shape[_x.ndim - len(size) :], **options
        ),
    ),
    batch=lambda batched, x, **attrs: windows(x, **attrs),
    flops=lambda x, **_: 0,
    samples=[
        sample((2, 5), **options((3,))),
        sample((6, 5), **STRIDED),
        sample((1, 2, 3, 4, 3), **options((2, 1, 3), stride=(1, 2, 1))),
        sample((0, 4), **options((2,), stride=(3,))),
    ],
    error_samples=[
        refusal(ShapeError, "no longer than the axes", (2, 3), **options((4,))),
        refusal(OptionError, "stride of 1", (2, 3), **options((2,), stride=(-1,))),
        refusal(ShapeError, "stride with 1", (2, 3), **options((2,), stride=(1, 1))),
        refusal(ShapeError, "at least 2 axes", (3,), **options((2, 2))),
    ],
    traits=("linear", "movement"),
)
def windows(x: Any, *, size: Any, stride: Any, dilation: Any) -> Any:
    """All windows of x (..., *S) over its last len(size) axes, as (..., *O, *size).

    Why: a view with overlaps; of slices it takes one primitive per position in the window."""
    return window_view(x, size, stride, dilation)


def infer_fold(w: Spec, *, shape: Any, stride: Any, dilation: Any) -> Spec:
    infer_same("fold", "numeric")(w)
    n = len(shape)
    check_ndim("fold", w, 2 * n)
    lead, size = w.ndim - 2 * n, w.shape[w.ndim - n :]
    counts = window_counts("fold", shape, size, stride, dilation)
    if w.shape[lead : lead + n] != counts:
        expected = f"{counts} windows of {size} for axes of {tuple(shape)}"
        fix = "Pass the shape and options that the windows came from."
        raise ShapeError("fold", expected, w.shape[lead : lead + n], fix)
    return Spec(w.shape[:lead] + tuple(shape), w.dtype)


@card(
    "window",
    infer=infer_fold,
    jvp=LINEAR,
    vjp=(
        lambda g, _y, _w, *, shape, **options: windows(
            g, size=_w.shape[_w.ndim - len(shape) :], **options
        ),
    ),
    batch=lambda batched, w, **attrs: fold(w, **attrs),
    flops=lambda w, **_: w.size,
    samples=[
        sample((2, 3, 3), shape=(5,), stride=(1,), dilation=(1,)),
        sample((2, 1, 2, 3), shape=(6, 5), stride=(2, 1), dilation=(3, 2)),
    ],
    error_samples=[
        refusal(ShapeError, "(3,) windows", (4, 3), shape=(5,), stride=(1,), dilation=(1,)),
        refusal(ShapeError, "2 axes", (3,), shape=(5,), stride=(1,), dilation=(1,)),
    ],
    dtypes="numeric",
    traits=("linear",),
)
def fold(w: Any, *, shape: Any, stride: Any, dilation: Any) -> Any:
    """The transpose of `windows`: (..., *O, *size), added where windows overlap, to (..., *shape).

    Why: its composite is one pad and one addition per position in the window.

    One strided addition per position in the window; 16-bit floats are summed in float32."""
    n = len(shape)
    lead, size = w.shape[: w.ndim - 2 * n], w.shape[w.ndim - n :]
    out = np.zeros(lead + tuple(shape), accumulation_dtype(from_numpy_dtype(w.dtype)).np)
    flat = w.reshape(*w.shape[: w.ndim - n], math.prod(size))
    counts = w.shape[len(lead) : len(lead) + n]
    for i, at in enumerate(window_positions(counts, size, stride, dilation)):
        out[at] += flat[..., i]
    return out.astype(w.dtype, copy=False)


def choose_in_windows(keys: Any, size: Any, stride: Any, dilation: Any, padding: Any) -> Any:
    """(position in its window of the largest key, that key) for each window; NaN is the largest,
    and padding is chosen in windows of nothing else: there the first."""
    sizes = keys.shape[keys.ndim - len(size) :]
    counts = window_counts("window_select", sizes, size, stride, dilation)
    inside = np.zeros(sizes, np.bool_)
    inside[tuple(slice(low, n - high) for n, (low, high) in zip(sizes, padding))] = True
    padded = not inside.all()
    first, *others = window_positions(counts, size, stride, dilation)
    best = keys[first].copy()
    chosen = np.zeros_like(best, np.int32)
    has_value = inside[first]
    for i, at in enumerate(others, 1):
        key = keys[at]
        better = ~(key <= best)  # larger, or one of them is NaN
        if keys.dtype.kind not in "biu":
            better &= best == best
        if padded:
            better = inside[at] & (better | ~has_value)
            has_value = has_value | inside[at]
        np.copyto(chosen, np.int32(i), where=better)
        np.copyto(best, key, where=better)
    return chosen, best


def infer_select(
    x: Spec,
    keys: Spec,
    *,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[tuple[int, ...], ...],
) -> Spec:
    check_ordered("window_select", keys, "Take gh.abs.")
    check_padding("window_select", padding, len(size))
    if x.shape != keys.shape:
        expected = "x and keys of equal shape"
        fix = "Broadcast one of them."
        raise ShapeError("window_select", expected, f"{x.shape} and {keys.shape}", fix)
    windowed = infer_windows(keys, size=size, stride=stride, dilation=dilation)
    return Spec(windowed.shape[: keys.ndim], x.dtype)


def check_padding(where: str, padding: tuple[tuple[int, ...], ...], spatial_ndim: int) -> None:
    if len(padding) != spatial_ndim or any(low < 0 or high < 0 for low, high in padding):
        expected = f"padding as {spatial_ndim} pairs of 0 or more, one per spatial axis"
        raise ShapeError(where, expected, tuple(padding), "Pass (0, 0) for an axis without.")


def batch_with_keys(card: Any) -> Any:
    """The batching rule of a card of two operands, whose leading axes are free."""
    return lambda batched, *operands, **attrs: card()(*batch_together(batched, operands), **attrs)


def choosing(size: Any, padding: Any = None, **others: Any) -> Any:
    """The attrs of a choice in windows: without padding unless it is named."""
    return options(size, **others, padding=padding or ((0, 0),) * len(size))


@card(
    "window",
    infer=infer_select,
    vjp=(lambda g, _y, _x, keys, **attrs: window_scatter(g, keys, **attrs), None),
    jvp=(LINEAR, None),
    batch=batch_with_keys(lambda: window_select),
    flops=lambda x, keys, *, size, **attrs: (
        infer_select(x, keys, size=size, **attrs).size * math.prod(size)
    ),
    samples=[
        sample((2, 6), Arr((2, 6), -99, 99), **choosing((3,))),
        sample((6, 5), Arr((6, 5), -99, 99), **choosing(**STRIDED)),
        sample((2, 4, 4), Arr((2, 4, 4), -9, 9, dtype="int32"), **choosing((2, 2), stride=(2, 2))),
        sample((2, 9), Arr((2, 9), -99, 99), **choosing((2,), padding=((2, 1),))),
    ],
    error_samples=[
        refusal(ShapeError, "equal shape", (4,), (5,), **choosing((2,))),
        refusal(DTypeError, "order", (4,), Arr((4,), dtype="complex64"), **choosing((2,))),
        refusal(ShapeError, "no longer than", (4,), (4,), **choosing((5,))),
        refusal(ShapeError, "1 pairs", (4,), (4,), **choosing((2,), padding=((-1, 0),))),
    ],
    dtypes="ordered",
)
def window_select(x: Any, keys: Any, *, size: Any, stride: Any, dilation: Any, padding: Any) -> Any:
    """Per window over the last len(size) axes, the element of x where `keys` is largest: the first
    such place, and a NaN's before all others. Of the `padding`, (low, high) elements at the ends of
    each axis, one is taken only where a window has nothing else.

    Why: from windows, argmax and gather it needs a copy and an index of every element."""
    chosen, best = choose_in_windows(keys, size, stride, dilation, padding)
    if x is keys:
        return best
    out = np.empty(chosen.shape, x.dtype)
    counts = chosen.shape[x.ndim - len(size) :]
    for i, at in enumerate(window_positions(counts, size, stride, dilation)):
        np.copyto(out, x[at], where=chosen == i)
    return out


def infer_scatter(g: Spec, keys: Spec, **attrs: Any) -> Spec:
    infer_same("window_scatter", "real")(g)
    check_ordered("window_scatter", keys, "Take gh.abs.")
    expected = infer_select(keys, keys, **attrs).shape
    if g.shape != expected:
        raise ShapeError(
            "window_scatter",
            f"g of shape {expected}, one entry per window of keys {keys.shape}",
            g.shape,
            "Pass the keys and options of the window_select.",
        )
    return Spec(keys.shape, g.dtype)


@card(
    "window",
    infer=infer_scatter,
    vjp=(lambda g, _y, _g, keys, **attrs: window_select(g, keys, **attrs), None),
    jvp=(LINEAR, None),
    batch=batch_with_keys(lambda: window_scatter),
    flops=lambda g, keys, *, size, **_: g.size * (math.prod(size) + 1),
    samples=[
        sample((2, 4), Arr((2, 6), -99, 99), **choosing((3,))),
        sample((2, 1), Arr((6, 5), -99, 99), **choosing(**STRIDED)),
        sample((2, 8), Arr((2, 9), -99, 99), **choosing((2,), padding=((2, 1),))),
    ],
    error_samples=[
        refusal(ShapeError, "one entry per window", (4,), (4,), **choosing((2,))),
        refusal(DTypeError, "order", (3,), Arr((4,), dtype="complex64"), **choosing((2,))),
    ],
    dtypes="real",
)
def window_scatter(
    g: Any, keys: Any, *, size: Any, stride: Any, dilation: Any, padding: Any
) -> Any:
    """The transpose of `window_select` in x: each g added at the place that its window chose,
    zeros elsewhere.

    Why: a scatter_add needs an index for every window."""
    chosen, _best = choose_in_windows(keys, size, stride, dilation, padding)
    out = np.zeros(keys.shape, accumulation_dtype(from_numpy_dtype(g.dtype)).np)
    counts = g.shape[g.ndim - len(size) :]
    for i, at in enumerate(window_positions(counts, size, stride, dilation)):
        out[at] += np.where(chosen == i, g, 0)
    return out.astype(g.dtype, copy=False)
