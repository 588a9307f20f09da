"""Tensors and the array functions: compositions of primitives, named as in the Array API."""

from glasshouse.tensor import linalg, random
from glasshouse.tensor.contract import (einsum, inner, kron, matmul, matrix_transpose, outer,
    tensordot, vecdot)
from glasshouse.tensor.creation import (arange, asarray, empty, empty_like, eval, eye, from_dlpack,
    full, full_like, linspace, meshgrid, one_hot, ones, ones_like, tensor, tril, triu, zeros,
    zeros_like)
from glasshouse.tensor.elementwise import (abs, acos, acosh, add, allclose, angle, array_equal,
    asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or,
    bitwise_right_shift, bitwise_xor, ceil, clip, conj, copysign, cos, cosh, divide, equal, erf,
    exp, exp2, expm1, floor, floor_divide, greater, greater_equal, hypot, imag, isclose, isfinite,
    isinf, isnan, less, less_equal, log, log1p, log2, log10, logaddexp, logical_and, logical_not,
    logical_or, logical_xor, maximum, minimum, multiply, nan_to_num, negative, nextafter, not_equal,
    positive, pow, real, reciprocal, remainder, round, rsqrt, sign, signbit, sin, sinh, sqrt,
    square, subtract, tan, tanh, trunc, where)
from glasshouse.tensor.index import (add_at, nonzero, put_along_axis, searchsorted, take,
    take_along_axis)
from glasshouse.tensor.manipulate import (broadcast_arrays, broadcast_shapes, broadcast_to, chunk,
    concat, expand_dims, flatten, flip, moveaxis, pad, permute_dims, repeat, reshape, roll, split,
    squeeze, stack, swapaxes, tile, transpose, unstack)
from glasshouse.tensor.methods import Tensor
from glasshouse.tensor.namespace import (__array_api_version__, __array_namespace_info__, astype,
    can_cast, e, finfo, iinfo, inf, isdtype, nan, newaxis, pi, result_type)
from glasshouse.tensor.printing import set_print_options
from glasshouse.tensor.reduce import (all, any, argmax, argmin, count_nonzero, cumulative_prod,
    cumulative_sum, diff, logsumexp, max, mean, min, prod, std, sum, var)
from glasshouse.tensor.reduce import cumulative_prod as cumprod
from glasshouse.tensor.reduce import cumulative_sum as cumsum
from glasshouse.tensor.search import (argsort, sort, topk, unique_all, unique_counts,
    unique_inverse, unique_values)

__all__ = ["Tensor", "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh",
           "add", "add_at", "all", "allclose", "angle", "any", "arange", "argmax", "argmin",
           "argsort", "array_equal", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
           "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
           "bitwise_right_shift", "bitwise_xor", "broadcast_arrays", "broadcast_shapes",
           "broadcast_to", "can_cast", "ceil", "chunk", "clip", "concat", "conj", "copysign", "cos",
           "cosh", "count_nonzero", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
           "diff", "divide", "e", "einsum", "empty", "empty_like", "eval", "equal", "erf", "exp",
           "exp2", "expand_dims", "expm1", "eye", "finfo", "flatten", "flip", "floor",
           "floor_divide", "from_dlpack", "full", "full_like", "greater", "greater_equal", "hypot",
           "iinfo", "imag", "inf", "inner", "isclose", "isdtype", "isfinite", "isinf", "isnan",
           "kron", "less", "less_equal", "linalg", "linspace", "log", "log10", "log1p", "log2",
           "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp",
           "matmul", "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum",
           "moveaxis", "multiply", "nan", "nan_to_num", "negative", "newaxis", "nextafter",
           "nonzero", "not_equal", "one_hot", "ones", "ones_like", "outer", "pad", "permute_dims",
           "pi", "positive", "pow", "prod", "put_along_axis", "random", "real", "reciprocal",
           "remainder", "repeat", "reshape", "result_type", "roll", "round", "rsqrt",
           "searchsorted", "set_print_options", "sign", "signbit", "sin", "sinh", "sort", "split",
           "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take",
           "take_along_axis", "tan", "tanh", "tensor", "tensordot", "tile", "topk", "transpose",
           "tril", "triu", "trunc", "unique_all", "unique_counts", "unique_inverse",
           "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like"]
