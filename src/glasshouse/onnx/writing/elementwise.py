"""Elementwise primitives as ONNX. Narrow integers and booleans are computed as wider ones."""

from typing import Any

import numpy as np

from glasshouse.base.dtype import bool_, float32, int32, int64
from glasshouse.onnx.writing.table import WHERE, check_real, refused, writes
from glasshouse.onnx.writing.writer import GraphWriter, WrittenValue, broadcast

__all__: list[str] = []

SAME_NAME = {"neg": "Neg", "abs": "Abs", "floor": "Floor", "round": "Round", "exp": "Exp",
             "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "erf": "Erf",
             "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow",
             "maximum": "Max", "minimum": "Min"}  # fmt: skip
COMPARISONS = {"equal": "Equal", "less": "Less"}
LOGIC = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}
NARROW = {"bool": int32, "int8": int32, "uint8": int32, "int16": int32, "uint16": int32,
          "uint32": int64}  # fmt: skip


def wide_names(w: GraphWriter, xs: Any) -> tuple[list[str], Any]:
    """(names of operands, the dtype that they are computed in)."""
    wide = NARROW.get(xs[0].dtype.name)
    if wide is None:
        return [x.name for x in xs], xs[0].dtype
    return [w.cast(x.name, wide) for x in xs], wide


def elementwise(w: GraphWriter, call: Any, name: str, xs: Any) -> WrittenValue:
    """The value of an elementwise result, whose sizes are those of its operands together."""
    return w.value(name, call.results[0], broadcast(*(x.dims for x in xs)))


def narrow(w: GraphWriter, name: str, wide: Any, dtype: Any) -> str:
    """A result in the dtype that it has to have."""
    return name if wide is dtype else w.cast(name, dtype)


@writes(*SAME_NAME)
def same_name(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """An operator of ONNX with the same meaning."""
    if xs[0].dtype.is_complex:
        return complex_elementwise(w, call, *xs)
    if call.name == "add":
        name = with_bias(w, *xs) or with_bias(w, *reversed(xs))
        if name:
            return w.value(name, call.results[0])
    names, wide = wide_names(w, xs)
    if call.name == "neg" and wide.kind == "uint":
        name = w.node("Sub", [w.constant(np.array(0, wide.np)), *names])
    else:
        name = w.node(SAME_NAME[call.name], names)
    return elementwise(w, call, narrow(w, name, wide, xs[0].dtype), xs)


CONVOLUTIONS = {"conv": "Conv", "conv_data_grad": "ConvTranspose"}


def with_bias(w: GraphWriter, y: WrittenValue, bias: WrittenValue) -> str:
    """The convolution of y once more with a bias for each channel; "" if it has none, or has one.
    The first one is not needed any more then, and goes."""
    op = CONVOLUTIONS.get(y.source.name) if y.source is not None else None
    if op is None or len(bias.dims) > len(y.shape):
        return ""
    dims = (1,) * (len(y.shape) - len(bias.dims)) + bias.dims
    if dims[1] != y.shape[1] or any(size != 1 for i, size in enumerate(dims) if i != 1):
        return ""
    node = next((x for x in reversed(w.nodes) if y.name in x.outputs), None)
    while bias.source is not None and bias.source.name in ("reshape", "expand"):
        (bias,) = bias.operands
    if node is None or node.op != op or len(node.inputs) != 2 or bias.dims != dims[1:2]:
        return ""
    return w.node(op, [*node.inputs, bias.name], **node.attributes)


def complex_elementwise(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """Sums, products and lengths of complex numbers, whose parts are a last axis."""
    if call.name in ("add", "sub", "neg"):
        name = w.node(SAME_NAME[call.name], [x.name for x in xs])
        return elementwise(w, call, name, xs)
    if call.name == "abs":
        squares = w.node("Mul", [xs[0].name, xs[0].name])
        total = w.node("ReduceSum", [squares, w.integers(-1)], keepdims=0)
        return w.value(w.node("Sqrt", [total]), call.results[0], xs[0].dims[:-1])
    if call.name == "exp":
        real, angle = parts(w, xs[0].name)
        circle = [w.node(op, [angle]) for op in ("Cos", "Sin")]
        name = w.node("Mul", [w.node("Exp", [real]), w.node("Concat", circle, axis=-1)])
        return elementwise(w, call, name, xs)
    if call.name not in ("mul", "div"):
        raise refused(f"{call.name} of complex numbers", "Compute with gh.real and gh.imag.")
    (a, b), (c, d) = (parts(w, x.name) for x in xs)
    if call.name == "div":  # by the conjugate, over the square of the length
        length = w.node("Add", [w.node("Mul", [c, c]), w.node("Mul", [d, d])])
        c, d = w.node("Div", [c, length]), w.node("Neg", [w.node("Div", [d, length])])
    real = w.node("Sub", [w.node("Mul", [a, c]), w.node("Mul", [b, d])])
    imag = w.node("Add", [w.node("Mul", [a, d]), w.node("Mul", [b, c])])
    return elementwise(w, call, w.node("Concat", [real, imag], axis=-1), xs)


def parts(w: GraphWriter, name: str) -> list[str]:
    """The real and imaginary parts, each with a last axis of 1."""
    return [
        w.node("Slice", [name, w.integers(i), w.integers(i + 1), w.integers(-1)]) for i in (0, 1)
    ]


@writes(*COMPARISONS)
def comparison(w: GraphWriter, call: Any, x: WrittenValue, y: WrittenValue) -> WrittenValue:
    """Equal or less, of booleans too."""
    if x.dtype.is_complex:
        same = w.cast(w.node("Equal", [x.name, y.name]), int32)
        name = w.node("ReduceMin", [same, w.integers(-1)], keepdims=0)
        return w.value(w.cast(name, bool_), call.results[0], broadcast(x.dims, y.dims)[:-1])
    names, _ = wide_names(w, (x, y))
    return elementwise(w, call, w.node(COMPARISONS[call.name], names), (x, y))


@writes(*LOGIC)
def logic(w: GraphWriter, call: Any, x: WrittenValue, y: WrittenValue) -> WrittenValue:
    """Logic of booleans, or of bits."""
    op = LOGIC[call.name] if x.dtype.is_bool else f"Bitwise{LOGIC[call.name]}"
    return elementwise(w, call, w.node(op, [x.name, y.name]), (x, y))


@writes("shift_right")
def shift_right(w: GraphWriter, call: Any, x: WrittenValue, y: WrittenValue) -> WrittenValue:
    """Bits shifted, or the quotient of a power of two, rounded down."""
    if x.dtype.kind == "uint":
        name = w.node("BitShift", [x.name, y.name], direction="RIGHT")
        return elementwise(w, call, name, (x, y))
    a, b = w.cast(x.name, int64), w.cast(y.name, int64)
    power = w.node("Pow", [w.constant(np.array(2, np.int64)), b])
    whole = w.node("Sub", [a, w.node("Mod", [a, power])])
    return elementwise(w, call, w.cast(w.node("Div", [whole, power]), x.dtype), (x, y))


@writes("where")
def where(
    w: GraphWriter, call: Any, c: WrittenValue, x: WrittenValue, y: WrittenValue
) -> WrittenValue:
    """One or the other."""
    condition = c.name
    if x.dtype.is_complex:
        condition = w.node("Unsqueeze", [condition, w.integers(-1)])
        dims = broadcast((*c.dims, 1), x.dims, y.dims)
        return w.value(w.node("Where", [condition, x.name, y.name]), call.results[0], dims)
    names, wide = wide_names(w, (x, y))
    name = w.node("Where", [condition, *names])
    return elementwise(w, call, narrow(w, name, wide, x.dtype), (c, x, y))


@writes("remainder")
def remainder(w: GraphWriter, call: Any, x: WrittenValue, y: WrittenValue) -> WrittenValue:
    """The remainder with the divisor's sign, as Python has it."""
    if x.dtype.is_integer:
        return elementwise(w, call, w.node("Mod", [x.name, y.name]), (x, y))
    rest = w.node("Mod", [x.name, y.name], fmod=1)
    zero = w.constant(np.array(0, x.dtype.np))
    signs = w.node("Less", [w.node("Mul", [w.node("Sign", [rest]), y.name]), zero])
    moved = w.node("Where", [signs, w.node("Add", [rest, y.name]), rest])
    return elementwise(w, call, moved, (x, y))


@writes("expm1")
def expm1(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """exp(x) - 1, near 0 by 2 t / (1 - t) with t = tanh(x / 2)."""
    check_real(call)
    half, one, two = (w.constant(np.array(n, x.dtype.np)) for n in (0.5, 1, 2))
    t = w.node("Tanh", [w.node("Mul", [x.name, half])])
    near = w.node("Div", [w.node("Mul", [two, t]), w.node("Sub", [one, t])])
    far = w.node("Sub", [w.node("Exp", [x.name]), one])
    is_near = w.node("Less", [w.node("Abs", [x.name]), half])
    return elementwise(w, call, w.node("Where", [is_near, near, far]), (x,))


@writes("log1p")
def log1p(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """log(1 + x): log(u) x / (u - 1) with u = 1 + x as it was rounded; x where that is 1.

    Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, 1.14.1"""
    check_real(call)
    one = w.constant(np.array(1, x.dtype.np))
    infinity = w.constant(np.array(np.inf, x.dtype.np))
    u = w.node("Add", [x.name, one])
    rest = w.node("Sub", [u, one])
    logarithm = w.node("Log", [u])
    exact = w.node("Mul", [logarithm, w.node("Div", [x.name, rest])])
    near = w.node("Where", [w.node("Equal", [u, one]), x.name, exact])
    name = w.node("Where", [w.node("Equal", [u, infinity]), logarithm, near])
    return elementwise(w, call, name, (x,))


@writes("atan2")
def atan2(w: GraphWriter, call: Any, y: WrittenValue, x: WrittenValue) -> WrittenValue:
    """The angle of (x, y): the arc tangent of the smaller over the larger, put into its octant."""
    constants = (np.array(n, x.dtype.np) for n in (0, np.pi / 2, np.pi, 1))
    zero, quarter, half, one = map(w.constant, constants)
    a, b = w.node("Abs", [y.name]), w.node("Abs", [x.name])
    is_steep = w.node("Less", [b, a])
    small, large = w.node("Min", [a, b]), w.node("Max", [a, b])
    is_origin = w.node("Equal", [large, zero])
    angle = w.node("Atan", [w.node("Div", [small, w.node("Where", [is_origin, one, large])])])
    angle = w.node("Where", [is_steep, w.node("Sub", [quarter, angle]), angle])
    is_left = w.node("Less", [x.name, zero])
    angle = w.node("Where", [is_left, w.node("Sub", [half, angle]), angle])
    is_below = w.node("Less", [y.name, zero])
    name = w.node("Where", [is_below, w.node("Neg", [angle]), angle])
    return elementwise(w, call, name, (y, x))


@writes("cast")
def cast(w: GraphWriter, call: Any, x: WrittenValue, dtype: Any = None) -> WrittenValue:
    """Another dtype."""
    to = call.attrs["dtype"]
    if x.dtype is to:
        return x
    if not x.dtype.is_complex and not to.is_complex:
        return w.value(w.cast(x.name, to), call.results[0], x.dims)
    real = {"complex64": float32, "complex128": "float64"}
    if x.dtype.is_complex and to.is_bool:
        length = w.node("ReduceSum", [w.node("Abs", [x.name]), w.integers(-1)], keepdims=0)
        return w.value(w.cast(length, to), call.results[0], x.dims[:-1])
    if x.dtype.is_complex:
        return w.value(w.cast(x.name, real[to.name]), call.results[0], x.dims)
    name = w.node("Unsqueeze", [w.cast(x.name, real[to.name]), w.integers(-1)])
    name = w.node("Pad", [name, w.integers(0, 1), "", w.integers(-1)])
    return w.value(name, call.results[0], (*x.dims, 2))


@writes("bitcast")
def bitcast(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Complex numbers and their parts are the same tensor in the file."""
    like = call.results[0]
    if x.dtype.is_complex == like.dtype.is_complex:
        if x.dtype is like.dtype:
            return x
        if {x.dtype.kind, like.dtype.kind} == {"int", "uint"} and x.dtype.itemsize < 8:
            return elementwise(w, call, other_sign(w, x, like.dtype), (x,))
        if x.dtype.name in ("int32", "uint32") and like.dtype is float32:
            return elementwise(w, call, float_of_bits(w, x), (x,))
        fix = "Convert values with astype instead of reading their bits."
        raise refused(f"bitcast of {x.dtype.name} to {like.dtype.name}", fix)
    return w.value(w.whole(x), like, (*x.shape, 2) if x.dtype.is_complex else None)


def other_sign(w: GraphWriter, x: WrittenValue, dtype: Any) -> str:
    """The bits of integers with a sign read as those without one, or the other way."""
    bits = 8 * dtype.itemsize
    wide, span = w.cast(x.name, int64), w.constant(np.array(1 << bits, np.int64))
    first = w.constant(np.array(0 if dtype.kind == "uint" else 1 << (bits - 1), np.int64))
    is_low = w.node("Less", [wide, first])
    moved = w.node("Add" if dtype.kind == "uint" else "Sub", [wide, span])
    pair = [moved, wide] if dtype.kind == "uint" else [wide, moved]
    return w.cast(w.node("Where", [is_low, *pair]), dtype)


def float_of_bits(w: GraphWriter, x: WrittenValue) -> str:
    """32 bits read as a float: mantissa · 2^exponent, computed in float64, which is exact.

    Source: IEEE 754-2019, 3.4"""
    top, half, one = (w.constant(np.array(n, np.int64)) for n in (1 << 31, 1 << 23, 1))
    zero, last = (w.constant(np.array(n, np.int64)) for n in (0, 255))
    bits = w.cast(x.name, int64)
    is_large = w.node("Not", [w.node("Less", [bits, top])])
    is_negative = w.node("Or", [w.node("Less", [bits, zero]), is_large])
    rest = w.node("Mod", [bits, top])
    exponent = w.node("Div", [rest, half])
    fraction = w.node("Mod", [rest, half])
    is_normal = w.node("Less", [zero, exponent])
    mantissa = w.node("Where", [is_normal, w.node("Add", [fraction, half]), fraction])
    power = w.node("Sub", [w.node("Max", [exponent, one]), w.constant(np.array(150, np.int64))])
    scale = w.node("Pow", [w.constant(np.array(2.0)), w.cast(power, "float64")])
    size = w.cast(w.node("Mul", [w.cast(mantissa, "float64"), scale]), float32)
    is_nan = w.node("And", [w.node("Equal", [exponent, last]), w.node("Less", [zero, fraction])])
    size = w.node("Where", [is_nan, w.constant(np.array(np.nan, np.float32)), size])
    return w.node("Where", [is_negative, w.node("Neg", [size]), size])


@writes("detach")
def detach(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The value itself."""
    return x


@writes("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "copy_to_ranks",
        "collective_permute", "shard")  # fmt: skip
def collective(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """The exchange of a group of one with itself: the operand."""
    if call.attrs["group"].size != 1:
        raise refused(f"{call.name}, between processes", f"Call {WHERE} on one process's model.")
    pairs = call.attrs.get("pairs", ((0, 0),))
    if not pairs:
        raise refused("collective_permute without a pair", "Leave it out.")
    return x
