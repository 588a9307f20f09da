"""jax.numpy's names with jax.numpy's meaning: `import glasshouse.jax.numpy as jnp`.

Functions of the array API standard are the library's own. Read `arrays.py` for rearranging and
choosing, `numbers.py` for reductions and statistics, `curves.py` for counts, products and
polynomials; `host.py` has functions that NumPy runs, since their shapes depend on contents.
"""

from glasshouse.base.dtype import (
    bfloat16, bool_, complex128, complex64, float16, float32, float64, int16, int32, int64,
    int8, uint16, uint32, uint64, uint8,
)  # fmt: skip
from glasshouse.base.dtype import bool_ as bool
from glasshouse.base.dtype import complex64 as csingle
from glasshouse.base.dtype import complex128 as cdouble
from glasshouse.base.dtype import float32 as float_
from glasshouse.base.dtype import float32 as single
from glasshouse.base.dtype import float64 as double
from glasshouse.base.dtype import int64 as int_
from glasshouse.base.dtype import uint64 as uint
from glasshouse.jax.numpy.arrays import *
from glasshouse.jax.numpy.curves import *
from glasshouse.jax.functions import (  # type: ignore[attr-defined]
    abs, absolute, acos, acosh, add, all, allclose, angle, any, arange, arccos, arccosh, arcsin,
    arcsinh, arctan, arctan2, arctanh, argmax, argmin, array_equal, asarray, asin, asinh,
    astype, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_not,
    bitwise_or, bitwise_right_shift, bitwise_xor, broadcast_arrays, broadcast_shapes,
    broadcast_to, can_cast, ceil, column_stack, concat, concatenate, conj, copysign, cos, cosh,
    cumulative_prod, cumulative_sum, deg2rad, diag, diagflat, divide, dstack, e, einsum, empty,
    empty_like, equal, exp, exp2, expand_dims, expm1, finfo, flip, fliplr, flipud,
    float_power, floor, floor_divide, fmax, fmin, fmod, frexp, from_dlpack, frombuffer, full,
    full_like, gcd, greater, greater_equal, hstack, hypot, i0, iinfo, imag, inf, isclose,
    isdtype, isfinite, isinf, isnan, isneginf, isposinf, isreal, kron, lcm, ldexp, less,
    less_equal, log, log10, log1p, log2, logaddexp, logaddexp2, logical_and, logical_not,
    logical_or, logical_xor, matmul, matrix_transpose, maximum, minimum, moveaxis,
    multiply, nan, nan_to_num, negative, newaxis, nextafter, not_equal, ones, ones_like,
    permute_dims, pi, positive, pow, promote_types, rad2deg, real, reciprocal, remainder,
    result_type, roll, rot90, round, sign, signbit, sin, sinh, sqrt, square, squeeze,
    stack, subtract, swapaxes, tan, tanh, tile, tril, triu, true_divide, trunc, unstack, vecdot,
    vstack, zeros, zeros_like,
)  # fmt: skip
from glasshouse.jax.functions import conj as conjugate
from glasshouse.jax.functions import rad2deg as degrees
from glasshouse.jax.functions import bitwise_not as invert
from glasshouse.jax.functions import bitwise_left_shift as left_shift
from glasshouse.jax.functions import remainder as mod
from glasshouse.jax.functions import deg2rad as radians
from glasshouse.jax.functions import bitwise_right_shift as right_shift
from glasshouse.jax.numpy.host import *
from glasshouse.jax.numpy.numbers import *
from glasshouse.tensor import Tensor as ndarray
