"""Reductions, movement, creation and indexing as ONNX."""

from typing import Any

import numpy as np

from glasshouse.base.dtype import bool_, int32, int64
from glasshouse.onnx.writing.elementwise import narrow, wide_names
from glasshouse.onnx.writing.joint import VaryingNumber
from glasshouse.onnx.writing.table import refused, writes
from glasshouse.onnx.writing.writer import (
    GraphWriter,
    WrittenValue,
    elements,
    has_zero,
)

__all__: list[str] = []

REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
              "any": "ReduceSum", "all": "ReduceMin"}  # fmt: skip
LARGEST = np.iinfo(np.int64).max


def reduced(w: GraphWriter, x: WrittenValue, name: str) -> WrittenValue:
    return WrittenValue(name, (*x.shape, *x.tail), x.shape, x.dtype)


@writes(*REDUCTIONS)
def reduction(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """A reduction over axes."""
    axes = call.attrs["axes"]
    if not axes:
        return x
    if x.dtype.is_complex and call.name != "sum":
        raise refused(f"{call.name} of complex numbers", "Compute with gh.real and gh.imag.")
    names, wide = wide_names(w, [reduced(w, x, w.whole(x))])
    inputs = [*names, w.integers(*axes)]
    name = w.node(REDUCTIONS[call.name], inputs, keepdims=0)
    return w.value(narrow(w, name, wide, call.results[0].dtype), call.results[0])


@writes("argmax", "argmin")
def arg_reduction(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The first place of the largest or least."""
    names, _ = wide_names(w, [reduced(w, x, w.whole(x))])
    op = "ArgMax" if call.name == "argmax" else "ArgMin"
    name = w.node(op, names, axis=call.attrs["axis"], keepdims=0)
    like = call.results[0]
    return w.value(name if like.dtype is int64 else w.cast(name, like.dtype), like)


@writes("cumsum")
def cumsum(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Running sums."""
    names, wide = wide_names(w, [reduced(w, x, w.whole(x))])
    axis = w.constant(np.array(call.attrs["axis"], np.int64))
    name = w.node("CumSum", [*names, axis], reverse=int(call.attrs["reverse"]))
    return w.value(narrow(w, name, wide, x.dtype), call.results[0])


# -- movement ----------------------------------------------------------------------------------


def reshaped(w: GraphWriter, name: str, old: Any, new: Any) -> str:
    """A tensor of sizes `old` in sizes `new`: as constants where one size at most is not known."""
    old, new = tuple(old), tuple(new)
    if old == new:
        return name
    target: list[Any] = list(new)
    if not has_zero(new):
        for axis, size in enumerate(new):
            if isinstance(size, VaryingNumber) and axis < len(old) and old[axis] == size:
                target[axis] = 0
        unknown = [axis for axis, size in enumerate(target) if isinstance(size, VaryingNumber)]
        if not unknown or len(unknown) == 1:
            for axis in unknown:
                target[axis] = -1
            return w.node("Reshape", [name, w.integers(*target)])
    return w.node("Reshape", [name, w.shape(new)], **({"allowzero": 1} if has_zero(new) else {}))


@writes("reshape")
def reshape(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The same elements in other sizes."""
    like = call.results[0]
    if x.is_single and elements(x.dims) == len(x.tail) + 1 and not x.is_whole:
        name = reshaped(w, x.name, x.dims, x.tail)
        return WrittenValue(name, x.tail, like.shape, like.dtype)
    name = reshaped(w, w.whole(x), (*x.shape, *x.tail), (*like.shape, *x.tail))
    return w.value(name, like)


@writes("permute")
def permute(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Axes in another order."""
    axes, like = call.attrs["axes"], call.results[0]
    own = x.dims[: len(x.dims) - len(x.tail)]
    if all(size == 1 for size in own) and len(own) < len(axes):
        return WrittenValue(x.name, x.dims, like.shape, like.dtype)
    name, dims = x.name, x.dims
    if len(own) != len(axes):
        name, dims = w.whole(x), (*x.shape, *x.tail)
    if axes == tuple(range(len(axes))):
        return WrittenValue(name, dims, like.shape, like.dtype)
    order = [*axes, *([len(axes)] if x.tail else [])]
    return w.value(w.node("Transpose", [name], perm=order), like, [dims[i] for i in order])


@writes("expand")
def expand(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Sizes of 1 grow; nothing is written, since most operators do that by themselves."""
    like = call.results[0]
    return WrittenValue(x.name, x.dims, like.shape, like.dtype)


def pad_value(value: Any, dtype: Any) -> np.ndarray:
    return np.array(value).astype(dtype.np)


@writes("pad")
def pad(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """A value around an array, and between its elements."""
    widths, like = call.attrs["widths"], call.results[0]
    if x.dtype.is_complex and call.attrs["value"] != 0:
        raise refused("pad of complex numbers by a number that is not 0", "Join arrays instead.")
    name, dims = w.whole(x), [*x.shape, *x.tail]
    value = w.constant(pad_value(call.attrs["value"], x.dtype)) if not x.tail else ""
    is_bool = x.dtype.is_bool
    if is_bool:
        name, value = w.cast(name, int32), w.constant(np.array(call.attrs["value"], np.int32))
    for axis, (_, _, gap) in enumerate(widths):
        if gap:
            name = with_gaps(w, name, dims, axis, gap, value)
    lows, highs = [low for low, _, _ in widths], [high for _, high, _ in widths]
    used = [axis for axis, pair in enumerate(zip(lows, highs)) if pair != (0, 0)]
    if used:
        amounts = w.shape([*(lows[i] for i in used), *(highs[i] for i in used)])
        name = w.node("Pad", [name, amounts, value, w.integers(*used)])
    return w.value(w.cast(name, bool_) if is_bool else name, like)


def with_gaps(w: GraphWriter, name: str, dims: list[Any], axis: int, gap: int, value: str) -> str:
    """A tensor with `gap` times a value between neighbours of an axis; `dims` gets its sizes."""
    name = w.node("Unsqueeze", [name, w.integers(axis + 1)])
    name = w.node("Pad", [name, w.integers(0, gap), value, w.integers(axis + 1)])
    long = elements([dims[axis], gap + 1])
    spread = [*dims[: axis + 1], gap + 1, *dims[axis + 1 :]]
    name = reshaped(w, name, spread, [*dims[:axis], long, *dims[axis + 1 :]])
    dims[axis] = minus(long, gap)
    ends = [w.integers(0), w.integers(-gap), w.integers(axis)]
    return w.node("Slice", [name, *ends])


def minus(size: Any, less: int) -> Any:
    if isinstance(size, VaryingNumber):
        return VaryingNumber([n - less for n in size.values])
    return size - less


@writes("slice")
def slice_(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """A part of each axis."""
    starts, stops, steps = (call.attrs[key] for key in ("starts", "stops", "steps"))
    like = call.results[0]
    axes = [i for i, size in enumerate(x.shape) if (starts[i], stops[i], steps[i]) != (0, size, 1)]
    if not axes:
        return x
    name, dims = x.name, list(x.dims)
    if len(x.dims) != len(x.shape) + len(x.tail) or any(x.dims[i] != x.shape[i] for i in axes):
        name, dims = w.whole(x), [*x.shape, *x.tail]
    ends = [LARGEST if stops[i] == x.shape[i] else stops[i] for i in axes]
    inputs = [name, w.shape([starts[i] for i in axes]), w.shape(ends), w.integers(*axes)]
    if any(steps[i] != 1 for i in axes):
        inputs.append(w.shape([steps[i] for i in axes]))
    for i in axes:
        dims[i] = like.shape[i]
    return w.value(w.node("Slice", inputs), like, dims)


@writes("flip")
def flip(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Axes from their end."""
    axes = call.attrs["axes"]
    if not axes:
        return x
    count = len(axes)
    ends = [w.integers(*[n] * count) for n in (-1, -LARGEST)]
    steps = w.integers(*[-1] * count)
    name = w.node("Slice", [w.whole(x), *ends, w.integers(*axes), steps])
    return w.value(name, call.results[0])


@writes("concatenate")
def concatenate(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """Arrays joined along an axis."""
    if len(xs) == 1:
        return xs[0]
    axis = call.attrs["axis"] % len(xs[0].shape)
    name = w.node("Concat", [w.whole(x) for x in xs], axis=axis)
    return w.value(name, call.results[0])


# -- creation ----------------------------------------------------------------------------------


@writes("constant")
def constant(w: GraphWriter, call: Any) -> WrittenValue:
    """An array."""
    return w.value(w.constant(np.asarray(call.attrs["value"])), call.results[0])


@writes("full")
def full(w: GraphWriter, call: Any) -> WrittenValue:
    """A number in a shape: the number alone."""
    like, value = call.results[0], call.attrs["value"]
    dtype = like.dtype
    if isinstance(value, VaryingNumber):
        return WrittenValue(varying_number(w, value, dtype), (), like.shape, dtype)
    if dtype.is_complex:
        number = complex(value)
        pair = np.array([number.real, number.imag], "float32" if dtype.itemsize == 8 else "float64")
        return WrittenValue(w.constant(pair), (2,), like.shape, dtype)
    return WrittenValue(w.constant(np.array(value).astype(dtype.np)), (), like.shape, dtype)


def varying_number(w: GraphWriter, value: VaryingNumber, dtype: Any) -> str:
    """A number that is a size, or its reciprocal, root or reciprocal root."""
    one = w.constant(np.array(1, dtype.np))
    for power, ops in ((1, ()), (-1, ("Div",)), (2, ("Sqrt",)), (-2, ("Sqrt", "Div"))):
        if any(x <= 0 for x in value.values) and power != 1:
            continue
        sizes = [x**power for x in value.values]
        whole = [round(x) for x in sizes]
        if any(abs(x - y) > 1e-6 * max(1, abs(y)) for x, y in zip(sizes, whole)):
            continue
        name = w.cast(w.number(VaryingNumber(whole)), dtype)
        for op in ops:
            name = w.node(op, [name] if op == "Sqrt" else [one, name])
        return name
    got = f"a number that is {', '.join(map(str, value.values))} with the varying sizes"
    raise refused(got, "Compute it from sizes alone, or leave the axis out of dynamic_axes.")


@writes("iota")
def iota(w: GraphWriter, call: Any) -> WrittenValue:
    """0, 1, … in a row."""
    size, like = call.attrs["size"], call.results[0]
    return w.value(counted(w, size, like.dtype), like)


def counted(w: GraphWriter, size: Any, dtype: Any = int64) -> str:
    """The integers below a size."""
    if not isinstance(size, VaryingNumber):
        return w.constant(np.arange(size).astype(dtype.np))
    zero, one = (w.constant(np.array(n, np.int64)) for n in (0, 1))
    name = w.node("Range", [zero, w.number(size), one])
    return name if dtype is int64 else w.cast(name, dtype)


# -- indexing ----------------------------------------------------------------------------------


def index_name(w: GraphWriter, x: WrittenValue) -> str:
    name = w.whole(x)
    return name if x.dtype in (int32, int64) else w.cast(name, int64)


@writes("gather")
def gather(w: GraphWriter, call: Any, x: WrittenValue, at: WrittenValue) -> WrittenValue:
    """Rows by their places."""
    name = w.node("Gather", [w.whole(x), index_name(w, at)], axis=call.attrs["axis"])
    return w.value(name, call.results[0])


@writes("scatter_add", "scatter_set")
def scatter(
    w: GraphWriter, call: Any, x: WrittenValue, at: WrittenValue, updates: WrittenValue
) -> WrittenValue:
    """Rows that are added to places, or written there. ONNX does not say which of several updates
    of a place stays; onnxruntime and we take the last."""
    axis, like, k = call.attrs["axis"], call.results[0], len(at.shape)
    names = [w.whole(x), w.whole(updates)]
    if axis:
        order = [axis, *(i for i in range(len(x.shape)) if i != axis)]
        moved = range(axis, axis + k)
        ends = [*moved, *(i for i in range(len(updates.shape)) if i not in moved)]
        tail = [len(order)] if x.tail else []
        update_tail = [len(ends)] if x.tail else []
        names[0] = w.node("Transpose", [names[0]], perm=[*order, *tail])
        names[1] = w.node("Transpose", [names[1]], perm=[*ends, *update_tail])
    places = w.node("Unsqueeze", [w.cast(w.whole(at), int64), w.integers(-1)])
    options: dict[str, Any] = {"reduction": "add"} if call.name == "scatter_add" else {}
    name = w.node("ScatterND", [names[0], places, names[1]], **options)
    if axis:
        back = [order.index(i) for i in range(len(order))]
        name = w.node("Transpose", [name], perm=[*back, *tail])
    return w.value(name, like)


@writes("sort", "top_k")
def ordered(w: GraphWriter, call: Any, x: WrittenValue) -> list[WrittenValue]:
    """Values in their order, and their places."""
    axis = call.attrs.get("axis", -1) % max(len(x.shape), 1)
    largest = call.attrs.get("descending", True)
    count = call.attrs.get("k", x.shape[axis] if x.shape else 1)
    if not x.shape:
        raise refused(f"{call.name} of a single number", "Leave it out.")
    names, wide = wide_names(w, [reduced(w, x, w.whole(x))])
    values, places = w.node(
        "TopK", [*names, w.size(count)], 2, axis=axis, largest=int(largest), sorted=1
    )
    results = call.results
    if results[1].dtype is not int64:
        places = w.cast(places, results[1].dtype)
    values = narrow(w, values, wide, x.dtype)
    return [w.value(values, results[0]), w.value(places, results[1])]
