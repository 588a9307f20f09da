"""jax.lax's functions on elements, shapes and axes."""

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.base import as_dtype, flatten, unflatten
from glasshouse.dispatch import as_value
from glasshouse.jax import functions as g
from glasshouse.jax.functions import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    broadcast_shapes,
    ceil,
    conj,
    cos,
    cosh,
    digamma,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    full,
    imag,
    log,
    log1p,
    nextafter,
    pow,
    real,
    reciprocal,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    tile,
    zeta,
)  # fmt: skip
from glasshouse.jax.functions import bitwise_left_shift as shift_left
from glasshouse.jax.functions import bitwise_right_shift as shift_right_arithmetic
from glasshouse.jax.functions import equal as eq
from glasshouse.jax.functions import erfinv as erf_inv
from glasshouse.jax.functions import expit as logistic
from glasshouse.jax.functions import gammainc as igamma
from glasshouse.jax.functions import gammaincc as igammac
from glasshouse.jax.functions import gammaln as lgamma
from glasshouse.jax.functions import greater as gt
from glasshouse.jax.functions import greater_equal as ge
from glasshouse.jax.functions import i0e as bessel_i0e
from glasshouse.jax.functions import i1e as bessel_i1e
from glasshouse.jax.functions import isfinite as is_finite
from glasshouse.jax.functions import less as lt
from glasshouse.jax.functions import less_equal as le
from glasshouse.jax.functions import maximum as max
from glasshouse.jax.functions import minimum as min
from glasshouse.jax.functions import multiply as mul
from glasshouse.jax.functions import negative as neg
from glasshouse.jax.functions import not_equal as ne
from glasshouse.jax.functions import subtract as sub
from glasshouse.jax.numpy import arrays, numbers
from glasshouse.jax.numpy.arrays import cast
from glasshouse.jax.numpy.numbers import bitwise_count as population_count
from glasshouse.jax.numpy.numbers import cbrt
from glasshouse.ops.cast import bitcast
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor
from glasshouse.tensor import fft as transforms_of_fourier
from glasshouse.tensor.special import polygamma as polygamma_of
from glasshouse.transforms import cond, fori_loop, scan, stop_gradient, switch, while_loop

__all__ = ["abs", "acos", "acosh", "add", "approx_max_k", "approx_min_k", "argmax",
           "argmin", "asin", "asinh", "associative_scan", "atan", "atan2", "atanh",
           "batch_matmul", "bessel_i0e", "bessel_i1e", "betainc",
           "bitcast_convert_type", "bitwise_and", "bitwise_not", "bitwise_or",
           "bitwise_xor", "broadcast", "broadcast_in_dim", "broadcast_shapes",
           "broadcast_to_rank", "broadcasted_iota", "cbrt", "ceil", "clamp", "clz",
           "collapse", "complex", "concatenate", "cond", "conj",
           "convert_element_type", "cos", "cosh", "cumlogsumexp", "cummax", "cummin",
           "cumprod", "cumsum", "digamma", "div", "dot", "dot_general",
           "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
           "dynamic_update_index_in_dim", "dynamic_update_slice",
           "dynamic_update_slice_in_dim", "eq", "erf", "erf_inv", "erfc", "exp",
           "exp2", "expand_dims", "expm1", "fft", "floor", "fori_loop", "full",
           "full_like", "ge", "gt", "igamma", "igammac", "imag", "index_in_dim",
           "integer_pow", "iota", "is_finite", "le", "lgamma", "log", "log1p",
           "logistic", "lt", "map", "max", "min", "mul", "ne", "neg", "nextafter",
           "pad", "polygamma", "population_count", "pow", "real", "reciprocal",
           "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or",
           "reduce_precision", "reduce_prod", "reduce_sum", "reduce_xor", "rem",
           "reshape", "rev", "round", "rsqrt", "scan", "select", "select_n",
           "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
           "sin", "sinh", "slice", "slice_in_dim", "sort", "sort_key_val", "split",
           "sqrt", "square", "squeeze", "stop_gradient", "sub", "switch", "tan",
           "tanh", "tile", "top_k", "transpose", "while_loop", "zeta"]  # fmt: skip


def div(x: Any, y: Any) -> Tensor:
    """x / y; of integers the quotient rounded toward zero."""
    x, y = as_value(x), as_value(y)
    if x.dtype.is_inexact:
        return x / y
    return sub(x, rem(x, y)) // y


def rem(x: Any, y: Any) -> Tensor:
    """The rest of the division rounded toward zero: it has the sign of x."""
    return g.fmod(as_value(x), as_value(y))


def round(x: Any, rounding_method: Any = None) -> Tensor:
    """The nearest integer, halves away from zero (to even with `rounding_method` 1)."""
    x = as_value(x)
    if rounding_method in (1, "TO_NEAREST_EVEN"):
        return g.round(x)
    return g.trunc(x + g.copysign(as_value(0.5, x.dtype), x))


def integer_pow(x: Any, y: int) -> Tensor:
    """x to a power that is known."""
    return as_value(x) ** y


def polygamma(m: Any, x: Any) -> Tensor:
    """The m-th derivative of digamma."""
    return polygamma_of(int(as_value(m).item()), as_value(x))


def betainc(a: Any, b: Any, x: Any) -> Tensor:
    """The regularized incomplete beta function, by its continued fraction.

    Source: Press et al., Numerical Recipes, section 6.4 (Lentz's method).
    """
    a, b, x = (cast(v, "float64") for v in (a, b, x))
    flips = x > (a + 1) / (a + b + 2)
    a, b, x = g.where(flips, b, a), g.where(flips, a, b), g.where(flips, 1 - x, x)
    front = a * g.log(x) + b * g.log1p(-x) + g.gammaln(a + b) - g.gammaln(a) - g.gammaln(b)
    tiny = 1e-300

    def safe(v):
        return g.where(g.abs(v) < tiny, tiny, v)

    c, d = x * 0 + 1.0, 1 / safe(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, 100):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / safe(1 + factor * d), safe(1 + factor / c)
            total = total * d * c
    result = g.exp(front) * total / a
    return cast(g.where(flips, 1 - result, result), "float32")


def clz(x: Any) -> Tensor:
    """The number of zeros before the first one among the bits."""
    x = as_value(x)
    bits = 8 * x.dtype.itemsize
    word = shift_right_logical(x, 0)
    count = word * 0 + bits
    for i in range(bits):
        count = g.where(shift_right_logical(word, i) != 0, bits - 1 - i, count)
    return count


def shift_right_logical(x: Any, y: Any) -> Tensor:
    """The bits of x moved right, with zeros from the left."""
    x = as_value(x)
    unsigned = as_dtype(x.dtype.name if x.dtype.kind == "uint" else f"u{x.dtype.name}")
    shifted = g.bitwise_right_shift(bitcast(x, dtype=unsigned), cast(y, unsigned))
    return bitcast(shifted, dtype=x.dtype)


def complex(x: Any, y: Any) -> Tensor:
    """x + i y."""
    return as_value(x) + as_value(y) * 1j


def clamp(min: Any, x: Any, max: Any) -> Tensor:
    """x held within min and max."""
    return g.minimum(g.maximum(as_value(x), min), max)


def select(pred: Any, on_true: Any, on_false: Any) -> Tensor:
    """Elements of one where pred is true, else of the other."""
    return g.where(as_value(pred), as_value(on_true), as_value(on_false))


def select_n(which: Any, *cases: Any) -> Tensor:
    """Of each place the element of the case that `which` names; true is the second."""
    which = as_value(which)
    result = as_value(cases[0])
    for i, case in enumerate(cases[1:], 1):
        result = g.where(which if which.dtype.is_bool else which >= i, as_value(case), result)
    return result


def convert_element_type(operand: Any, new_dtype: Any) -> Tensor:
    """operand in another dtype."""
    return cast(operand, new_dtype)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Tensor:
    """The bits of operand as another dtype of the same size."""
    return bitcast(as_value(operand), dtype=as_dtype(new_dtype))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """operand rounded to so many bits; beyond the range of the exponent infinite, or zero."""
    x = as_value(operand)
    drop = 23 - mantissa_bits
    bits = cast(bitcast(x, dtype=as_dtype("uint32")), "int64")
    if drop:
        bits = bits + ((bits >> drop) & 1) + (2 ** (drop - 1) - 1)
        bits = (bits >> drop) << drop
    y = bitcast(cast(bits, "uint32"), dtype=as_dtype("float32"))
    bias = 2 ** (exponent_bits - 1) - 1
    largest = 2.0 ** (bias + 1) * (1 - 2.0 ** -(mantissa_bits + 2)) if bias < 127 else math.inf
    y = g.where(g.abs(y) > largest, g.copysign(as_value(math.inf), y), y)
    return g.where(g.abs(y) < 2.0 ** (1 - bias), g.copysign(as_value(0.0), y), y)


# -- shapes ----------------------------------------------------------------------------------------


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **options: Any
) -> Tensor:
    """fill_value in the shape and dtype of x, unless others are given."""
    x = as_value(x)
    return g.full(x.shape if shape is None else shape, fill_value, dtype=dtype or x.dtype)


def iota(dtype: Any, size: int) -> Tensor:
    """0, 1, 2 … of a dtype."""
    return g.arange(size, dtype=dtype)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, **options: Any) -> Tensor:
    """The positions along an axis, in a shape."""
    line = g.arange(shape[dimension], dtype=dtype)
    sizes = tuple(-1 if i == dimension else 1 for i in range(len(shape)))
    return g.broadcast_to(g.reshape(line, sizes), tuple(shape))


def broadcast(operand: Any, sizes: Sequence[int], **options: Any) -> Tensor:
    """operand repeated along new axes in front."""
    x = as_value(operand)
    return g.broadcast_to(x, (*sizes, *x.shape))


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any, **options: Any) -> Tensor:
    """operand in a shape, its axes being those named of the result."""
    x = as_value(operand)
    places = dict(zip(broadcast_dimensions, x.shape, strict=True))
    return g.broadcast_to(
        g.reshape(x, tuple(places.get(i, 1) for i in range(len(shape)))), tuple(shape)
    )


def broadcast_to_rank(x: Any, rank: int) -> Tensor:
    """x with axes of size 1 in front, so many in all."""
    x = as_value(x)
    return g.reshape(x, (1,) * (rank - x.ndim) + x.shape)


def reshape(operand: Any, new_sizes: Any, dimensions: Any = None, **options: Any) -> Tensor:
    """operand in another shape; `dimensions` is the order of its axes before that."""
    x = as_value(operand) if dimensions is None else transpose(operand, dimensions)
    return g.reshape(x, tuple(new_sizes))


def squeeze(array: Any, dimensions: Any) -> Tensor:
    """array without these axes of size 1."""
    return g.squeeze(as_value(array), axis=tuple(dimensions))


def expand_dims(array: Any, dimensions: Any) -> Tensor:
    """array with axes of size 1, at these places of the result."""
    return g.expand_dims(as_value(array), axis=tuple(dimensions))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Tensor:
    """operand with the axes from start to stop as one."""
    x = as_value(operand)
    shape = x.shape
    stop = len(shape) if stop_dimension is None else stop_dimension
    start, stop = range(len(shape))[start_dimension], stop % (len(shape) + 1) if stop < 0 else stop
    return g.reshape(x, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


def transpose(operand: Any, permutation: Any) -> Tensor:
    """operand with its axes in another order."""
    return g.permute_dims(as_value(operand), tuple(int(i) for i in permutation))


def rev(operand: Any, dimensions: Any) -> Tensor:
    """operand with these axes turned round."""
    return g.flip(as_value(operand), axis=tuple(dimensions))


def concatenate(operands: Any, dimension: int) -> Tensor:
    """The operands one after the other along an axis."""
    return g.concat([as_value(x) for x in operands], axis=dimension)


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Tensor:
    """operand with values before, after and between its elements, on each axis; numbers below zero
    cut instead."""
    x, value = as_value(operand), as_value(padding_value)
    for axis, (low, high, inside) in enumerate(padding_config):
        before = (builtins.slice(None),) * axis
        if inside:
            size = x.shape[axis]
            wide = [(0, 0)] * (x.ndim + 1)
            wide[axis + 1] = (0, inside)
            spread = filled_around(g.expand_dims(x, axis=axis + 1), wide, value)
            x = g.reshape(spread, (*x.shape[:axis], -1, *x.shape[axis + 1 :]))
            x = x[(*before, builtins.slice(0, size + (size - 1) * inside))]
        wide = [(0, 0)] * x.ndim
        wide[axis] = (low if low > 0 else 0, high if high > 0 else 0)
        x = filled_around(x, wide, value)
        stop = x.shape[axis] + (high if high < 0 else 0)
        x = x[(*before, builtins.slice(-low if low < 0 else 0, stop))]
    return x


def filled_around(x: Tensor, widths: Any, value: Tensor) -> Tensor:
    """x with a border of a value, which may be a traced one."""
    if not any(a or b for a, b in widths):
        return x
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, widths, strict=True))
    keys = tuple(builtins.slice(a, a + n) for n, (a, _) in zip(x.shape, widths, strict=True))
    return g.broadcast_to(cast(value, x.dtype), shape).at[keys].set(x)


def slice_of(x: Any, keys: Any) -> Tensor:
    return as_value(x)[tuple(keys)]


def slice(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Tensor:
    """The elements from start to limit on each axis."""
    steps = [1] * len(start_indices) if strides is None else strides
    return slice_of(operand, builtins.map(builtins.slice, start_indices, limit_indices, steps))


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Tensor:
    """The elements from start to limit along an axis."""
    axis = range(as_value(operand).ndim)[axis]
    return slice_of(
        operand, [*[builtins.slice(None)] * axis, builtins.slice(start_index, limit_index, stride)]
    )


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Tensor:
    """The slice at an index of an axis."""
    x = as_value(operand)
    axis = range(x.ndim)[axis]
    index = index % x.shape[axis]
    y = slice_in_dim(x, index, index + 1, 1, axis)
    return y if keepdims else g.squeeze(y, axis=axis)


def starts_within(x: Tensor, start_indices: Any, sizes: Any) -> list[Tensor]:
    """Starts of a slice, counted from the end if below zero, and held within x."""
    starts = []
    for start, size, n in zip(start_indices, sizes, x.shape, strict=True):
        start = cast(start, "int64")
        start = g.where(start < 0, start + n, start)
        starts.append(g.clip(start, 0, n - size))
    return starts


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any, **options: Any) -> Tensor:
    """A slice of known sizes, from starts that may be tensors; it is moved to lie within."""
    x = as_value(operand)
    for axis, (start, size) in enumerate(
        zip(starts_within(x, start_indices, slice_sizes), slice_sizes, strict=True)
    ):
        if size != x.shape[axis]:
            x = g.take(x, start + g.arange(size), axis=axis)
    return x


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, **options: Any
) -> Tensor:
    """A slice of an axis, of known size, from a start that may be a tensor."""
    x = as_value(operand)
    axis = range(x.ndim)[axis]
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[axis], sizes[axis] = start_index, slice_size
    return dynamic_slice(x, starts, sizes)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, **options: Any
) -> Tensor:
    """The slice at an index of an axis, which may be a tensor."""
    y = dynamic_slice_in_dim(operand, index, 1, axis)
    return y if keepdims else g.squeeze(y, axis=range(y.ndim)[axis])


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, **options: Any) -> Tensor:
    """operand with `update` in place of a slice, which is moved to lie within."""
    x, new = as_value(operand), as_value(update)
    keys: list[Any] = []
    for axis, (start, size) in enumerate(
        zip(starts_within(x, start_indices, new.shape), new.shape, strict=True)
    ):
        places = start + g.arange(size)
        keys.append(g.reshape(places, (-1, *(1,) * (x.ndim - 1 - axis))))
    return x.at[tuple(keys)].set(new)


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, **options: Any
) -> Tensor:
    """operand with `update` in place of a slice of an axis."""
    x = as_value(operand)
    starts = [0] * x.ndim
    starts[axis] = start_index
    return dynamic_update_slice(x, update, starts)


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, **options: Any
) -> Tensor:
    """operand with `update` in place of the slice at an index of an axis."""
    x, new = as_value(operand), as_value(update)
    axis = range(x.ndim)[axis]
    new = new if new.ndim == x.ndim else g.expand_dims(new, axis=axis)
    return dynamic_update_slice_in_dim(x, new, index, axis)


def split(operand: Any, sizes: Any, axis: int = 0) -> list[Tensor]:
    """The parts of these sizes along an axis."""
    return arrays.array_split(operand, list(np.cumsum(sizes)[:-1]), axis)


# -- products --------------------------------------------------------------------------------------


def dot(lhs: Any, rhs: Any, **options: Any) -> Tensor:
    """The product of vectors and matrices; axes of `dimension_numbers` as dot_general."""
    numbers_of = options.get("dimension_numbers")
    if numbers_of is not None:
        return dot_general(lhs, rhs, numbers_of)
    return as_value(lhs) @ as_value(rhs)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Tensor:
    """The product of matrices."""
    return as_value(lhs) @ as_value(rhs)


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, *args: Any, **options: Any) -> Tensor:
    """The sum of products over pairs of axes, for each place of pairs of batch axes: batch axes,
    then the other axes of lhs, then those of rhs."""
    x, y = as_value(lhs), as_value(rhs)
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    x_rest = [i for i in range(x.ndim) if i not in (*x_sum, *x_batch)]
    y_rest = [i for i in range(y.ndim) if i not in (*y_sum, *y_batch)]
    lead = tuple(x.shape[i] for i in x_batch)
    rows, columns = tuple(x.shape[i] for i in x_rest), tuple(y.shape[i] for i in y_rest)
    inner = math.prod(x.shape[i] for i in x_sum)
    a = g.reshape(transpose(x, (*x_batch, *x_rest, *x_sum)), (*lead, math.prod(rows), inner))
    b = g.reshape(transpose(y, (*y_batch, *y_sum, *y_rest)), (*lead, inner, math.prod(columns)))
    return g.reshape(a @ b, (*lead, *rows, *columns))


# -- along axes ------------------------------------------------------------------------------------


def running(name: str, compute: Callable[..., Any], about: str) -> Any:
    """A running reduction along an axis, from the end if `reverse`."""

    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Tensor:
        x = as_value(operand)
        x = g.flip(x, axis=axis) if reverse else x
        y = compute(x, axis)
        return g.flip(y, axis=axis) if reverse else y

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The running {about} along an axis, from the end if `reverse`."
    return function


cumsum: Any = running("cumsum", numbers.cumsum, "sum")
cumprod: Any = running("cumprod", numbers.cumprod, "product")
cummax: Any = running("cummax", lambda x, axis: g.cummax(x, axis=axis)[0], "maximum")
cummin: Any = running("cummin", lambda x, axis: g.cummin(x, axis=axis)[0], "minimum")
cumlogsumexp: Any = running("cumlogsumexp", lambda x, axis: g.logcumsumexp(x, axis), "log-sum-exp")


def argmax(operand: Any, axis: int, index_dtype: Any = "int32") -> Tensor:
    """The place of the largest element along an axis."""
    return cast(g.argmax(as_value(operand), axis=axis), index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any = "int32") -> Tensor:
    """The place of the smallest element along an axis."""
    return cast(g.argmin(as_value(operand), axis=axis), index_dtype)


def reducing(name: str, compute: Callable[..., Any], about: str) -> Any:
    """A reduction over axes."""

    def function(operand: Any, axes: Any, **options: Any) -> Tensor:
        return compute(as_value(operand), axis=tuple(axes))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {about} over axes."
    return function


reduce_sum: Any = reducing("reduce_sum", lambda x, axis: numbers.sum(x, axis), "sum")
reduce_prod: Any = reducing("reduce_prod", lambda x, axis: numbers.prod(x, axis), "product")
reduce_max: Any = reducing("reduce_max", lambda x, axis: numbers.max(x, axis), "maximum")
reduce_min: Any = reducing("reduce_min", lambda x, axis: numbers.min(x, axis), "minimum")
reduce_and: Any = reducing("reduce_and", lambda x, axis: g.all(x, axis=axis), "conjunction")
reduce_or: Any = reducing("reduce_or", lambda x, axis: g.any(x, axis=axis), "disjunction")
reduce_xor: Any = reducing(
    "reduce_xor", lambda x, axis: numbers.count_nonzero(x, axis) % 2 == 1, "parity"
)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """operand in order along an axis; of several, in the order of the first."""
    if not isinstance(operand, (tuple, list)):
        return g.sort(as_value(operand), axis=dimension)
    order = None
    for key in reversed(operand[:num_keys]):
        key = as_value(key)
        key = key if order is None else g.take_along_axis(key, order, axis=dimension)
        step = g.argsort(key, axis=dimension)
        order = step if order is None else g.take_along_axis(order, step, axis=dimension)
    return tuple(g.take_along_axis(as_value(x), order, axis=dimension) for x in operand)


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> Any:
    """(keys in order along an axis, values in the same order)."""
    return sort((keys, values), dimension)


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Tensor]:
    """[the k largest elements along an axis, their places]."""
    x = as_value(operand)
    axis = range(x.ndim)[axis]
    places = g.argsort(x, axis=axis, descending=True)
    places = places[(*(builtins.slice(None),) * axis, builtins.slice(0, k))]
    return [g.take_along_axis(x, places, axis=axis), cast(places, "int32")]


def approx_max_k(
    operand: Any, k: int, reduction_dimension: int = -1, **options: Any
) -> list[Tensor]:
    """As top_k, which is exact."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(
    operand: Any, k: int, reduction_dimension: int = -1, **options: Any
) -> list[Tensor]:
    """[the k smallest elements along an axis, their places]; exact."""
    values, places = top_k(neg(operand), k, axis=reduction_dimension)
    return [neg(values), places]


def map(f: Callable[..., Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """The results of f for each element of `xs` along axis 0, one after the other, stacked;
    `batch_size` has no effect.

    Raises: as scan.
    """
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def associative_scan(
    fn: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """The running results of an associative function along an axis of trees, in about log2(length)
    rounds of calls on whole slices.

    Source: Hillis & Steele 1986, Data parallel algorithms.
    """
    leaves, treedef = flatten(elems)
    xs = [g.moveaxis(as_value(x), axis, 0) for x in leaves]
    xs = [g.flip(x, axis=0) for x in xs] if reverse else xs
    size, step = xs[0].shape[0], 1
    while step < size:
        before = unflatten(treedef, [g.moveaxis(x[:-step], 0, axis) for x in xs])
        after = unflatten(treedef, [g.moveaxis(x[step:], 0, axis) for x in xs])
        joined = [g.moveaxis(as_value(y), axis, 0) for y in flatten(fn(before, after))[0]]
        xs = [g.concat([x[:step], y]) for x, y in zip(xs, joined, strict=True)]
        step *= 2
    xs = [g.flip(x, axis=0) for x in xs] if reverse else xs
    return unflatten(treedef, [g.moveaxis(x, 0, axis) for x in xs])


def reduce(
    operands: Any, init_values: Any, computation: Any, dimensions: Any, **options: Any
) -> Any:
    """operands joined over axes by an associative function of pairs, with a first value."""
    leaves, treedef = flatten(operands)
    inits = flatten(init_values)[0]
    xs = [as_value(x) for x in leaves]
    rest = [i for i in range(xs[0].ndim) if i not in dimensions]
    sizes = tuple(xs[0].shape[i] for i in rest)
    rows = [g.reshape(transpose(x, (*dimensions, *rest)), (-1, *sizes)) for x in xs]
    total = [
        g.broadcast_to(cast(as_value(i), x.dtype), sizes) for i, x in zip(inits, xs, strict=True)
    ]
    for k in range(rows[0].shape[0]):
        pair = unflatten(treedef, total), unflatten(treedef, [x[k] for x in rows])
        total = flatten(computation(*pair))[0]
    return unflatten(treedef, total)


def fft(x: Any, fft_type: Any, fft_lengths: Any) -> Tensor:
    """The Fourier transform of the last axes: "FFT", "IFFT", "RFFT" or "IRFFT"."""
    kind = getattr(fft_type, "name", fft_type).upper()
    check_option("fft", "fft_type", kind, ("FFT", "IFFT", "RFFT", "IRFFT"))
    axes = tuple(range(-len(fft_lengths), 0))
    function = getattr(transforms_of_fourier, f"{kind.lower()}n")
    return function(as_value(x), tuple(fft_lengths), axes)
