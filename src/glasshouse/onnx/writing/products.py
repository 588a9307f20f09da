"""Windows, products, convolutions and Fourier transforms as ONNX."""

from math import prod
from typing import Any

import numpy as np

from glasshouse.base.dtype import float64, int32, int64
from glasshouse.onnx.writing.arrays import counted, minus, reshaped
from glasshouse.onnx.writing.elementwise import parts
from glasshouse.onnx.writing.joint import VaryingNumber
from glasshouse.onnx.writing.table import check_real, refused, writes
from glasshouse.onnx.writing.writer import GraphWriter, WrittenValue, elements

__all__: list[str] = []


def spread(w: GraphWriter, name: str, axis: int, count: Any, steps: tuple[int, int, int]) -> str:
    """The windows along an axis, which becomes two: windows, and places in a window. `steps` are
    the size of a window, its stride and its dilation."""
    size, stride, gap = steps
    first = counted(w, count)
    if isinstance(count, VaryingNumber):
        first = w.node("Mul", [first, w.integers(stride)])
        first = w.node("Unsqueeze", [first, w.integers(1)])
        places = w.node("Add", [first, w.constant((np.arange(size) * gap)[None])])
    else:
        places = w.constant(np.arange(count)[:, None] * stride + np.arange(size) * gap)
    return w.node("Gather", [name, places], axis=axis)


def windows_of(w: GraphWriter, x: WrittenValue, counts: Any, attrs: Any) -> str:
    """All windows over the last axes: (..., *O, *size)."""
    steps = list(zip(attrs["size"], attrs["stride"], attrs["dilation"], strict=True))
    n, lead = len(steps), len(x.shape) - len(steps)
    name = w.whole(x)
    for i in range(n):
        name = spread(w, name, lead + 2 * i, counts[i], steps[i])
    if n == 1:
        return name
    order = [*range(lead), *range(lead, lead + 2 * n, 2), *range(lead + 1, lead + 2 * n, 2)]
    return w.node("Transpose", [name], perm=[*order, *([lead + 2 * n] if x.tail else [])])


@writes("windows")
def windows(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Sliding windows, by their places."""
    like, n = call.results[0], len(call.attrs["size"])
    lead = len(x.shape) - n
    return w.value(windows_of(w, x, like.shape[lead : lead + n], call.attrs), like)


@writes("fold")
def fold(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Windows added up where they overlap."""
    check_real(call)
    shape, like, n = call.attrs["shape"], call.results[0], len(call.attrs["shape"])
    lead = len(x.shape) - 2 * n
    size = x.shape[lead + n :]
    if any(isinstance(k, VaryingNumber) for k in size):
        raise refused("fold of windows whose sizes vary", "Keep the size of a window fixed.")
    order = [*range(lead), *range(lead + n, lead + 2 * n), *range(lead, lead + n)]
    name = w.node("Transpose", [w.whole(x)], perm=order)
    turned = [x.shape[i] for i in order]
    rows, blocks = elements(x.shape[:lead]), elements(x.shape[lead : lead + n])
    flat = [rows, prod(size), blocks]
    name = reshaped(w, name, turned, flat)
    if n == 1:  # onnxruntime has Col2Im for two axes and more
        stride, dilation = (call.attrs["stride"][0], 1), (call.attrs["dilation"][0], 1)
        sides, kernel = (shape[0], 1), (size[0], 1)
    else:
        stride, dilation = call.attrs["stride"], call.attrs["dilation"]
        sides, kernel = shape, size
    name = w.node(
        "Col2Im", [name, w.shape(sides), w.integers(*kernel)], strides=stride, dilations=dilation
    )
    return w.value(reshaped(w, name, [rows, 1, *sides], like.shape), like)


@writes("window_select")
def window_select(w: GraphWriter, call: Any, x: WrittenValue, keys: WrittenValue) -> WrittenValue:
    """For each window, the value of x where `keys` is largest."""
    like, size, padding = call.results[0], call.attrs["size"], call.attrs["padding"]
    lead = len(x.shape) - len(size)
    if any(isinstance(n, VaryingNumber) for pair in padding for n in pair):
        raise refused("pooling whose padding varies", "Pad before, with gh.pad.")
    fits = all(max(pair) < k for pair, k in zip(padding, size) if pair != (0, 0))
    if x.name == keys.name and x.dtype.kind == "float" and len(size) <= 3 and fits:
        return max_pool(w, call, x)
    counts = like.shape[lead:]
    flat = [*x.shape[:lead], *counts, prod(size)]
    wide = keys
    if not keys.dtype.is_floating:
        wide = WrittenValue(w.cast(w.whole(keys), float64), keys.shape, keys.shape, float64)
    if any(pair != (0, 0) for pair in padding):
        wide = without_padding(w, wide, lead, padding)
    names = [windows_of(w, v, counts, call.attrs) for v in (wide, x)]
    ranks, values = (reshaped(w, name, [*flat[:-1], *size], flat) for name in names)
    at = w.node("ArgMax", [ranks], axis=len(flat) - 1, keepdims=1)
    name = w.node("GatherElements", [values, at], axis=len(flat) - 1)
    return w.value(w.node("Squeeze", [name, w.integers(-1)]), like)


def inner_slice(w: GraphWriter, x: WrittenValue, lead: int, padding: Any) -> WrittenValue:
    """An array without the padding at the ends of its last axes."""
    axes = [lead + i for i, pair in enumerate(padding) if pair != (0, 0)]
    lows, highs = zip(*(padding[i - lead] for i in axes))
    ends = w.integers(*(-high if high else np.iinfo(np.int64).max for high in highs))
    name = w.node("Slice", [w.whole(x), w.integers(*lows), ends, w.integers(*axes)])
    shape = list(x.shape)
    for i in axes:
        shape[i] = minus(shape[i], sum(padding[i - lead]))
    return WrittenValue(name, shape, shape, x.dtype)


def without_padding(w: GraphWriter, x: WrittenValue, lead: int, padding: Any) -> WrittenValue:
    """An array whose padding is below all else."""
    inner = inner_slice(w, x, lead, padding)
    lows, highs = zip(*padding)
    axes = range(lead, len(x.shape))
    lowest = w.constant(np.array(-np.inf, x.dtype.np))
    name = w.node("Pad", [inner.name, w.integers(*lows, *highs), lowest, w.integers(*axes)])
    return WrittenValue(name, x.shape, x.shape, x.dtype)


def max_pool(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The largest of each window, with padding that the operator makes itself."""
    like, padding = call.results[0], call.attrs["padding"]
    lead = len(x.shape) - len(padding)
    if any(pair != (0, 0) for pair in padding):
        widths = ((0, 0, 0),) * lead + tuple((*pair, 0) for pair in padding)
        source = x.source
        if source is not None and source.name == "pad" and source.attrs["widths"] == widths:
            x = x.operands[0]
        else:
            x = inner_slice(w, x, lead, padding)
    flat = flat_batch(x.shape, lead)
    name = reshaped(w, w.whole(x), x.shape, flat)
    name = w.node(
        "MaxPool", [name], kernel_shape=call.attrs["size"], strides=call.attrs["stride"],
        dilations=call.attrs["dilation"], pads=[n for ends in zip(*padding) for n in ends],
    )  # fmt: skip
    out = [*flat[:2], *like.shape[lead:]]
    return w.value(reshaped(w, name, out, like.shape), like)


def flat_batch(shape: Any, lead: int) -> list[Any]:
    """(N, C, *S) for an array whose spatial axes follow `lead` others."""
    if lead == 2:
        return list(shape)
    if lead == 1:
        return [1, *shape]
    return [1, elements(shape[:lead]), *shape[lead:]]


# -- products ----------------------------------------------------------------------------------


def narrow_operands(a: WrittenValue, b: WrittenValue) -> list[WrittenValue] | None:
    """Integers of 8 bits that were made wide for a product; None for other operands."""
    wide = [x for x in (a, b) if x.dtype is int32 and x.source and x.source.name == "cast"]
    sources = [x.operands[0] for x in wide if x.operands[0].dtype.name in ("int8", "uint8")]
    return sources if len(sources) == 2 else None


@writes("matmul")
def matmul(w: GraphWriter, call: Any, a: WrittenValue, b: WrittenValue) -> WrittenValue:
    """Products of matrices; leading axes of 1 grow by themselves."""
    if a.dtype.is_complex:
        return complex_matmul(w, call, a, b)
    names = []
    for x in (a, b):
        fits = len(x.dims) == len(x.shape) and x.dims[-2:] == x.shape[-2:]
        names.append(x.name if fits else w.whole(x))
    wide, op = a.dtype, "MatMul"
    if (bytes_of := narrow_operands(a, b)) is not None:
        names, op = [w.whole(x) for x in bytes_of], "MatMulInteger"
    elif a.dtype.name in ("int8", "uint8", "int16", "uint16", "bool"):
        names, wide = [w.cast(name, int64) for name in names], int64
    name = w.node(op, names)
    like = call.results[0]
    name = name if wide is a.dtype else w.cast(name, a.dtype)
    lead = [
        x.dims[:-2] if n == x.name else x.shape[:-2] for x, n in zip((a, b), names, strict=True)
    ] if wide is a.dtype else [a.shape[:-2]]  # fmt: skip
    if like.shape[:-2] not in lead:
        return w.value(w.node("Expand", [name, w.shape(like.shape)]), like)
    return w.value(name, like)


def complex_matmul(w: GraphWriter, call: Any, a: WrittenValue, b: WrittenValue) -> WrittenValue:
    """A product of complex matrices, by four real ones."""
    sides = []
    for x in (a, b):
        pair = parts(w, w.whole(x))
        sides.append([w.node("Squeeze", [name, w.integers(-1)]) for name in pair])
    (p, q), (r, s) = sides
    real = w.node("Sub", [w.node("MatMul", [p, r]), w.node("MatMul", [q, s])])
    imag = w.node("Add", [w.node("MatMul", [p, s]), w.node("MatMul", [q, r])])
    ends = [w.node("Unsqueeze", [name, w.integers(-1)]) for name in (real, imag)]
    return w.value(w.node("Concat", ends, axis=-1), call.results[0])


def window_attributes(call: Any) -> dict[str, Any]:
    """Attributes of a convolution.

    Raises: OptionError for a padding that varies
    """
    padding = call.attrs["padding"]
    if any(isinstance(n, VaryingNumber) for pair in padding for n in pair):
        raise refused(f"{call.name} whose padding varies", "Pad before, with gh.pad.")
    return {
        "strides": call.attrs["stride"],
        "dilations": call.attrs["dilation"],
        "group": call.attrs["groups"],
        "pads": [*(low for low, _ in padding), *(high for _, high in padding)],
    }


@writes("conv")
def conv(w: GraphWriter, call: Any, x: WrittenValue, kernel: WrittenValue) -> WrittenValue:
    """A convolution."""
    check_real(call)
    options = window_attributes(call)
    if not x.dtype.is_floating:
        return integer_conv(w, call, x, kernel)
    name = w.node("Conv", [w.whole(x), w.whole(kernel)], kernel_shape=kernel.shape[2:], **options)
    return w.value(name, call.results[0])


def integer_conv(w: GraphWriter, call: Any, x: WrittenValue, kernel: WrittenValue) -> WrittenValue:
    """A convolution of integers, which ONNX's has not: products of windows."""
    like, n, groups = call.results[0], len(x.shape) - 2, call.attrs["groups"]
    if (bytes_of := narrow_operands(x, kernel)) is not None:
        names, options = [w.whole(v) for v in bytes_of], window_attributes(call)
        return w.value(w.node("ConvInteger", names, kernel_shape=kernel.shape[2:], **options), like)
    wide = int64 if x.dtype.itemsize > 4 else int32
    name, weight = (w.cast(w.whole(v), wide) for v in (x, kernel))
    lows, highs = zip(*call.attrs["padding"])
    if any(lows) or any(highs):
        name = w.node("Pad", [name, w.integers(*lows, *highs), "", w.integers(*range(2, n + 2))])
    counts, size = like.shape[2:], kernel.shape[2:]
    windows = WrittenValue(name, x.shape, x.shape, wide)
    name = windows_of(w, windows, counts, {**call.attrs, "size": size})  # (N, C, *O, *K)
    perm = [0, *range(2, n + 2), 1, *range(n + 2, 2 * n + 2)]
    length, blocks = prod(kernel.shape[1:]), elements(counts)
    old = [x.shape[0], *counts, x.shape[1], *size]
    name = w.node("Transpose", [name], perm=perm)
    name = reshaped(w, name, old, [old[0], blocks, groups, length])
    name = w.node("Transpose", [name], perm=[0, 2, 1, 3])  # (N, G, P, C/G · K)
    out = kernel.shape[0] // groups
    weight = w.node("Reshape", [weight, w.integers(groups, out, length)])
    name = w.node("MatMul", [name, w.node("Transpose", [weight], perm=[0, 2, 1])])
    name = w.node("Transpose", [name], perm=[0, 1, 3, 2])  # (N, G, O/G, P)
    name = reshaped(w, name, [old[0], groups, out, blocks], like.shape)
    return w.value(w.cast(name, x.dtype), like)


@writes("conv_data_grad")
def conv_transposed(
    w: GraphWriter, call: Any, g: WrittenValue, kernel: WrittenValue
) -> WrittenValue:
    """A transposed convolution; sizes beyond the smallest possible ones are padding."""
    check_real(call)
    options, like = window_attributes(call), call.results[0]
    padding, sizes = call.attrs["padding"], kernel.shape[2:]
    steps = zip(call.attrs["stride"], call.attrs["dilation"], padding, sizes, strict=True)
    more = []
    for (stride, gap, pair, k), old, new in zip(steps, g.shape[2:], call.attrs["shape"]):
        olds, news = (x.values if isinstance(x, VaryingNumber) else [x] for x in (old, new))
        count = max(len(olds), len(news))
        olds, news = (list(x) * (count // len(x)) for x in (olds, news))
        rest = {
            b - ((a - 1) * stride + gap * (k - 1) + 1 - sum(pair))
            for a, b in zip(olds, news, strict=True)
        }
        if len(rest) != 1:
            fix = "Choose sizes that the stride divides."
            raise refused("a transposed convolution whose extra padding varies", fix)
        more.append(rest.pop())
    is_small = all(
        m < max(s, d) for m, s, d in zip(more, call.attrs["stride"], call.attrs["dilation"])
    )
    if is_small:
        options["output_padding"] = more
        name = w.node("ConvTranspose", [w.whole(g), w.whole(kernel)], kernel_shape=sizes, **options)
        return w.value(name, like)
    n = len(sizes)
    pads = options["pads"]
    cut = [max(0, pads[n + i] - m) for i, m in enumerate(more)]
    left = [m - (pads[n + i] - c) for i, (m, c) in enumerate(zip(more, cut))]
    options["pads"] = [*pads[:n], *cut]
    name = w.node("ConvTranspose", [w.whole(g), w.whole(kernel)], kernel_shape=sizes, **options)
    if any(left):
        name = w.node("Pad", [name, w.integers(*[0] * (n + 2), 0, 0, *left)])
    return w.value(name, like)


# -- Fourier transforms ------------------------------------------------------------------------


def transformed(w: GraphWriter, name: str, axis: int, **options: int) -> str:
    return w.node("DFT", [name, "", w.constant(np.array(axis, np.int64))], **options)


def times_size(w: GraphWriter, name: str, size: Any, dtype: Any) -> str:
    factor = w.cast(w.number(size), dtype)
    return w.node("Mul", [name, factor])


def real_of(dtype: Any) -> str:
    return "float32" if dtype.itemsize == 8 else "float64"


@writes("fft")
def fft(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Discrete Fourier transforms along axes."""
    name = w.whole(x)
    for axis in call.attrs["axes"]:
        axis %= len(x.shape)
        is_inverse = bool(call.attrs["inverse"])
        name = transformed(w, name, axis, inverse=int(is_inverse))
        if is_inverse:  # ONNX divides by the size
            name = times_size(w, name, x.shape[axis], real_of(x.dtype))
    return w.value(name, call.results[0])


MOST_BY_PRODUCT = 1024  # elements; onnxruntime's DFT is off by 2e-5 of the largest for 400


@writes("rfft")
def rfft(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The half of the frequencies that says all of a real signal: for short ones, along the last
    axis, a product with their waves."""
    axis = call.attrs["axis"] % len(x.shape)
    size, like = x.shape[-1], call.results[0]
    if axis == len(x.shape) - 1 and not isinstance(size, VaryingNumber) and size <= MOST_BY_PRODUCT:
        turns = np.outer(np.arange(size), np.arange(size // 2 + 1)) % max(size, 1) / max(size, 1)
        waves = np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)], axis=-1)
        table = w.constant(waves.reshape(size, -1).astype(x.dtype.np))
        name = w.node("MatMul", [w.whole(x), table])
        flat = [*x.shape[:-1], 2 * (size // 2 + 1)]
        return w.value(reshaped(w, name, flat, [*like.shape, 2]), like)
    name = w.node("Unsqueeze", [w.whole(x), w.integers(-1)])
    return w.value(transformed(w, name, axis, onesided=1), call.results[0])


@writes("irfft")
def irfft(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The real signal: by both halves of the frequencies, of which the second mirrors the first."""
    axis, size, like = call.attrs["axis"] % len(x.shape), call.attrs["size"], call.results[0]
    if isinstance(size, VaryingNumber):
        raise refused("irfft of a size that varies", "Leave the axis out of dynamic_axes.")
    half = size // 2 + 1
    first = counted(w, half)
    rest = w.constant(np.arange(size - half, 0, -1))
    name = w.node("Gather", [w.whole(x), first], axis=axis)
    mirror = w.node("Gather", [w.whole(x), rest], axis=axis)
    signs = np.array([1, -1], real_of(x.dtype))
    mirror = w.node("Mul", [mirror, w.constant(signs)])
    name = w.node("Concat", [name, mirror], axis=axis)
    name = times_size(w, transformed(w, name, axis, inverse=1), size, like.dtype)
    name = w.node("Gather", [name, w.constant(np.array(0))], axis=-1)
    return w.value(name, like)
