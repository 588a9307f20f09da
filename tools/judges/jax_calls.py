"""Calls of the functions of JAX, for `jax_names.py`: for each name arguments that JAX's function
takes. Arrays are NumPy's; `Call` has arguments by position and by name."""

from typing import Any, NamedTuple

import numpy as np

RNG = np.random.default_rng(0)


class Call(NamedTuple):
    """One call: its arguments, and what is compared of the result ("values", or "shape" alone)."""

    args: tuple[Any, ...]
    named: dict[str, Any]


def call(*args: Any, **named: Any) -> Call:
    return Call(args, named)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = -9, high: int = 9) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


X, Y, V, U = floats(3, 4), floats(3, 4), floats(6), floats(6)
P, Q = floats(3, 4, low=0.1, high=0.9), floats(3, 4, low=0.5, high=3.0)
BIG = floats(3, 4, low=1.1, high=4.0)
INTS, J, K = integers(3, 4), integers(3, 4), integers(3, 4, low=1, high=9)
B, C = RNG.random((3, 4)) < 0.5, RNG.random((3, 4)) < 0.5
M, N = floats(4, 4) + 4 * np.eye(4, dtype=np.float32), floats(4, 5)
T = floats(2, 3, 4)
Z = (floats(3, 4) + 1j * floats(3, 4)).astype(np.complex64)
NAN = np.where(B, X, np.nan).astype(np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], np.float32)
SORTED = np.sort(V)
WORDS = RNG.integers(0, 256, (3, 8)).astype(np.uint8)
POLY, POLY2 = floats(4), floats(3)

NHWC = ("NHWC", "HWIO", "NHWC")
CALLS: dict[str, list[Call]] = {}


def of(names: str, *calls: Call) -> None:
    for name in names.split():
        CALLS.setdefault(name, []).extend(calls)


# -- jax.numpy -------------------------------------------------------------------------------------
of(
    "sin cos tan sinh cosh tanh arctan atan arcsinh asinh exp exp2 expm1 abs absolute fabs "
    "negative "
    "positive square sign signbit floor ceil trunc rint deg2rad rad2deg degrees radians cbrt sinc "
    "isnan isinf isfinite isposinf isneginf nan_to_num reciprocal iscomplex isreal real imag conj "
    "conjugate angle i0 fix",
    call(X), call(SPECIAL),
)  # fmt: skip
of("real imag conj conjugate angle iscomplex isreal abs exp sin sqrt log", call(Z))
of("round around", call(X * 10), call(X * 10, 1), call(X * 10, decimals=1))
of("log log2 log10 log1p sqrt", call(Q), call(SPECIAL))
of("arcsin arccos asin acos arctanh atanh", call(X / 2.1))
of("arccosh acosh", call(BIG))
of(
    "add subtract multiply divide true_divide arctan2 atan2 maximum minimum fmax fmin hypot "
    "logaddexp logaddexp2 greater greater_equal less less_equal equal not_equal copysign nextafter "
    "heaviside isclose",
    call(X, Y), call(X, Y[0]), call(SPECIAL, SPECIAL[::-1].copy()), call(INTS, J), call(X, 2),
)  # fmt: skip

of("power pow float_power", call(Q, Y), call(Q, 2), call(X, 3))
of("power pow", call(K, 2))
of(
    "mod remainder fmod floor_divide divmod",
    call(X, Q),
    call(INTS, K),
    call(-X, 1.5),
    call(INTS, -K),
)
of("gcd lcm bitwise_and bitwise_or bitwise_xor", call(INTS, J))
of(
    "bitwise_not invert bitwise_invert bitwise_count",
    call(np.abs(INTS)),
)
of("left_shift bitwise_left_shift right_shift bitwise_right_shift", call(INTS, K % 5))
of("logical_and logical_or logical_xor", call(B, C), call(INTS, J), call(X, Y))
of("logical_not", call(B), call(INTS))
of("ldexp", call(X, INTS))
of("frexp modf", call(X))
of("clip", call(X, -0.5, 0.5), call(X, None, 0.5), call(INTS, 0, 3), call(X, min=-0.5))
of(
    "sum prod mean max min amax amin any all std var median ptp nansum nanprod nanmean nanmax "
    "nanmin "
    "nanstd nanvar nanmedian count_nonzero",
    call(X), call(X, 0), call(X, axis=1, keepdims=True), call(T, axis=(0, 2)), call(T, axis=-1),
    call(INTS),
)  # fmt: skip
of(
    "nansum nanprod nanmean nanmax nanmin nanstd nanvar nanmedian nancumsum nancumprod",
    call(NAN, 0),
)
of("std var nanstd nanvar", call(X, 0, ddof=1))

of("sum mean any all count_nonzero prod", call(B), call(B, axis=0))
of("argmax argmin nanargmax nanargmin", call(X), call(X, 1), call(X, axis=0, keepdims=True))
of("cumsum cumprod nancumsum nancumprod", call(X), call(X, 0), call(X, axis=1), call(INTS, 1))
of(
    "cumulative_sum cumulative_prod",
    call(V),
    call(X, axis=1),
    call(X, axis=0, include_initial=True),
)
of("sort argsort", call(X), call(X, 0), call(X, axis=None), call(V, descending=True))
of("sort_complex", call(V))
of("lexsort", call((INTS[0], V[:4])), call(np.array([[1, 1, 0], [2, 1, 3]])))
of(
    "average",
    call(X),
    call(X, 0),
    call(X, 1, weights=Q[0]),
    call(X, weights=Q),
    call(X, 0, returned=True),
)
of(
    "quantile nanquantile",
    call(X, 0.3),
    call(X, np.float32([0.2, 0.9]), 1),
    call(V, 0.5, method="lower"),
)
of("percentile nanpercentile", call(X, 30.0), call(X, np.float32([20, 90]), 0))
of("cov corrcoef", call(X), call(X, rowvar=False), call(X, Y))
of("cov", call(X, bias=True), call(X, ddof=0))
of(
    "histogram",
    call(V),
    call(V, 4),
    call(V, 5, (-1, 1)),
    call(V, np.float32([-2, 0, 2])),
    call(V, 4, density=True),
    call(V, 4, weights=U),
)
of("histogram_bin_edges", call(V), call(V, 4, (-1, 1)))
of("histogram2d", call(V, U, 3), call(V, U, [2, 3]))
of("histogramdd", call(floats(7, 2), 3))
of(
    "bincount",
    call(np.array([0, 1, 1, 4])),
    call(np.array([0, 1, 1, 4]), V[:4]),
    call(np.array([0, 1]), minlength=5),
)
of("digitize", call(V, SORTED), call(V, SORTED[::-1].copy()), call(V, SORTED, right=True))
of("searchsorted", call(SORTED, U), call(SORTED, U, "right"), call(SORTED, 0.1))
of(
    "interp",
    call(U, SORTED, V),
    call(U, SORTED, V, left=-1.0, right=9.0),
    call(U, SORTED, V, period=3.0),
)
of("trapezoid", call(V), call(V, SORTED), call(X, dx=0.5, axis=0))
of("gradient", call(V), call(X), call(V, 0.5), call(X, axis=0))
of("diff", call(V), call(X, 2), call(X, axis=0), call(V, prepend=0.0, append=1.0))
of("ediff1d", call(V), call(X), call(V, to_end=U[:2], to_begin=1.0))
of(
    "convolve correlate",
    call(V, U[:3]),
    call(V, U[:3], "same"),
    call(V, U[:3], mode="valid"),
    call(V, U[:3], "full"),
    call(U[:3], V, "same"),
)
of("unwrap", call(V * 5), call(X * 5, axis=0))
of("poly", call(POLY), call(M))
of("polyadd polysub polymul", call(POLY, POLY2))
of("polydiv", call(POLY, POLY2))
of("polyval", call(POLY, V), call(POLY, X))
of("polyder", call(POLY), call(POLY, 2))
of("polyint", call(POLY), call(POLY, 2))
of("polyfit", call(SORTED, U, 2), call(SORTED, U, 1, w=np.abs(V)))
of("roots", call(np.float32([1, -6, 11, -6])))
of("vander", call(V), call(V, 3), call(V, 3, True), call(V, increasing=True))
of("bartlett blackman hamming hanning", call(7), call(1))
of("kaiser", call(7, 5.0))
of("dot inner outer", call(V, U))
of("dot", call(X, Y.T.copy()), call(X, V[:4]), call(2.0, V))
of("inner", call(X, Y))
of("outer", call(X, V))
of("vdot", call(X, Y), call(Z, Z))
of("vecdot", call(X, Y), call(Z, Z))
of("matmul", call(X, N), call(T, N), call(X, V[:4]))
of("matvec", call(X, V[:4]))
of("vecmat", call(V[:3], X))
of("tensordot", call(T, N, 1), call(T, T, axes=((0, 1), (0, 1))), call(X, Y))
of("einsum", call("ij,jk->ik", X, N), call("ij->j", X), call("bij,jk", T, N))
of("kron", call(X, N), call(V, U))
of("cross", call(V[:3], U[:3]), call(X[:, :3], Y[:, :3]))
of("trace", call(M), call(T), call(M, 1), call(T, 0, 1, 2), call(M, offset=-1))
of("diagonal", call(M), call(M, 1), call(T, 0, 1, 2))
of("diag", call(V), call(M), call(V, 1), call(M, k=-1))
of("diagflat", call(X), call(V, 1))
of("tril triu", call(M), call(M, 1), call(T, -1))
of("tri", call(3), call(3, 4, 1))
of("tril_indices triu_indices", call(3), call(3, 1), call(3, 0, 4))
of("tril_indices_from triu_indices_from diag_indices_from", call(M))
of("diag_indices", call(3), call(3, 3))
of("reshape", call(X, (4, 3)), call(X, -1), call(X, (2, -1)), call(X, (2, 6), order="F"))
of("ravel", call(X), call(X, order="F"))
of("transpose", call(X), call(T), call(T, (1, 0, 2)))
of("permute_dims", call(T, (1, 0, 2)))
of("matrix_transpose", call(T))
of("swapaxes moveaxis", call(T, 0, 2))
of("rollaxis", call(T, 2), call(T, 0, 3))
of("squeeze", call(X[:, None]), call(X[None, :, None], 0))
of("expand_dims", call(X, 0), call(X, (0, 2)))
of("broadcast_to", call(V, (2, 6)))
of("broadcast_arrays", call(X, V[:4]))
of("broadcast_shapes", call((3, 1), (1, 4)))
of("atleast_1d atleast_2d atleast_3d", call(np.float32(2)), call(V), call(X), call(V, X))
of("concatenate concat", call((X, Y)), call((X, Y), 1), call((X, Y), axis=None))
of("stack", call((X, Y)), call((X, Y), 1), call((X, Y), axis=-1))
of("vstack hstack dstack column_stack", call((X, Y)), call((V, U)))
of("append", call(X, Y), call(X, Y, 1), call(V, 3.0))
of("split array_split", call(X, 2, 1), call(V, 3), call(V, [2, 4]), call(V, np.array([1])))
of("array_split", call(V, 4))
of("hsplit", call(X, 2), call(V, [2]))
of("vsplit", call(T, 2), call(X, [1]))
of("dsplit", call(T, 2))
of("unstack", call(X), call(X, axis=1))
of("block", call([[X, Y], [Y, X]]), call([V, U]))
of("tile", call(X, 2), call(V, (2, 3)))
of("repeat", call(X, 2), call(X, 2, 0), call(V, np.arange(6)), call(X, np.array([1, 0, 2]), axis=0))
of("roll", call(V, 2), call(X, 1), call(X, 1, 0), call(X, (1, 2), (0, 1)))
of("flip", call(X), call(X, 0), call(X, axis=(0, 1)))
of("fliplr flipud", call(X))
of("rot90", call(X), call(X, 2), call(T, 1, (1, 2)))
of(
    "pad",
    call(X, 1),
    call(X, ((1, 2), (0, 1)), constant_values=3.0),
    call(V, 2, "reflect"),
    call(V, 2, mode="edge"),
    call(V, 2, "wrap"),
    call(V, 2, "symmetric"),
    call(X, (1, 2)),
)
of("delete", call(V, 2), call(X, [0, 2], 1), call(V, np.array([1, 3])))
of("insert", call(V, 2, 9.0), call(X, 1, 5.0, axis=1), call(V, np.array([1, 3]), 7.0))
of("resize", call(V, (2, 4)), call(X, (2, 3)))
of("trim_zeros", call(np.float32([0, 1, 0, 2, 0])))
of(
    "take",
    call(X, np.array([0, 5])),
    call(X, np.array([0, 2]), 1),
    call(V, 2),
    call(X, np.array([[1]]), axis=0),
)
of("take_along_axis", call(X, np.argsort(X, 1), 1), call(X, np.argsort(X, 0), axis=0))
of("put_along_axis", call(X, np.array([[0], [1], [2]]), 9.0, 1, inplace=False))
of("put", call(X, np.array([0, 5]), np.float32([7, 8]), inplace=False))
of("place", call(X, B, np.float32([7, 8]), inplace=False))
of("fill_diagonal", call(M, 3.0, inplace=False))
of("choose", call(np.array([0, 1, 0, 1]), [V[:4], U[:4]]))
of("compress", call(np.array([True, False, True]), X, 0), call(B[0], V[:4]))
of("extract", call(B, X))
of("select", call([X > 1, X > 0], [X, Y]), call([X > 1, X > 0], [X, Y], 5.0))
of("piecewise", call(X, [X < 0, X > 1], [0.0, 1.0]), call(X, [X < 0], [3.0, 4.0]))
of("where", call(B, X, Y), call(B, X, 0.0), call(B))
of("nonzero argwhere flatnonzero", call(B), call(INTS))
of(
    "unique",
    call(INTS),
    call(INTS, return_index=True, return_inverse=True, return_counts=True),
    call(INTS, axis=0),
    call(V),
)
of("unique_values unique_counts unique_inverse unique_all", call(INTS))
of("intersect1d union1d setdiff1d setxor1d isin", call(INTS, J))
of("isin", call(INTS, J, invert=True))
of("array_equal array_equiv allclose", call(X, X), call(X, Y), call(X, X[:2]))
of("partition argpartition", call(V, 2))
of("packbits", call(B), call(B, axis=1), call(B, axis=0, bitorder="little"))
of("unpackbits", call(WORDS), call(WORDS, axis=1), call(WORDS, axis=0, bitorder="little"))
of("arange", call(5), call(1, 7, 2), call(0.0, 1.0, 0.25), call(5, dtype="float32"))
of(
    "linspace",
    call(0, 1, 5),
    call(0, 1),
    call(0.0, 1.0, 5, endpoint=False),
    call(0, 1, 5, retstep=True),
    call(V[:2], U[:2], 3),
)
of("logspace", call(0, 2, 5), call(0, 2, 5, base=2.0), call(0, 2, 5, False))
of("geomspace", call(1, 1000, 4), call(1.0, 8.0, 4, endpoint=False))
of("meshgrid", call(V, U), call(V, U, indexing="ij"), call(V, U, sparse=True))
of("indices", call((2, 3)), call((2, 3), sparse=True))
of("ix_", call(np.array([0, 1]), np.array([2, 3, 4])))
of("identity", call(3), call(2, "int32"))
of("eye", call(3), call(3, 4), call(3, 4, 1), call(3, k=-1))
of("zeros ones", call((2, 3)), call(4), call((2,), "int32"))
of("full", call((2, 3), 7.0), call(4, 3), call((2,), V[:2]))
of("zeros_like ones_like", call(X), call(INTS), call(X, "int32"))
of("full_like", call(X, 3), call(INTS, 2.7))
of("array asarray", call([[1, 2], [3, 4]]), call(X), call([1.5, 2]), call([1, 2], "float32"))
of("astype", call(X, "int32"), call(INTS, "float32"))
of("copy", call(X))
of("size ndim shape", call(X), call(T))
of("size", call(X, 1))
of("isscalar iterable iscomplexobj isrealobj", call(2.0), call(X), call(Z))
of("unravel_index", call(np.array([3, 7]), (3, 4)))
of("ravel_multi_index", call((np.array([0, 2]), np.array([3, 1])), (3, 4)))
of("spacing", call(Q))
of("cbrt", call(X))

# -- jax.nn ----------------------------------------------------------------------------------------
of(
    "nn.relu nn.relu6 nn.sigmoid nn.softplus nn.sparse_plus nn.sparse_sigmoid nn.soft_sign nn.silu "
    "nn.swish nn.log_sigmoid nn.leaky_relu nn.hard_sigmoid nn.hard_silu nn.hard_swish nn.hard_tanh "
    "nn.elu nn.celu nn.selu nn.gelu nn.mish nn.squareplus nn.tanh nn.identity",
    call(X * 4), call(INTS),
)  # fmt: skip
of("nn.elu nn.celu nn.leaky_relu", call(X * 4, 0.3))
of("nn.gelu", call(X, approximate=False), call(X, False))
of("nn.squareplus", call(X, 2.0))
of("nn.log1mexp", call(Q))
of("nn.glu", call(X), call(T, 2))
of("nn.softmax nn.log_softmax", call(X), call(X, 0), call(T, axis=(0, 1)))
of("nn.softmax", call(X, where=B | (np.arange(4) == 0)))
of("nn.logsumexp nn.logmeanexp", call(X), call(X, 0), call(X, axis=1, keepdims=True))
of("nn.logsumexp", call(X, 1, Q))
of("nn.standardize", call(X), call(X, 0), call(T, (0, 1)))
of(
    "nn.one_hot",
    call(np.array([0, 2, 1]), 3),
    call(np.array([0, 5, -1]), 3),
    call(np.array([[0, 2]]), 3, axis=0),
)
HEADS = floats(2, 5, 4, 8), floats(2, 6, 4, 8), floats(2, 6, 4, 8)
of(
    "nn.dot_product_attention",
    call(*HEADS),
    call(HEADS[0], HEADS[0], HEADS[0], is_causal=True),
    call(*HEADS, scale=0.3),
    call(HEADS[0], HEADS[1][:, :, :2], HEADS[2][:, :, :2]),
)

# -- jax.lax ---------------------------------------------------------------------------------------
of(
    "lax.abs lax.sin lax.cos lax.tan lax.sinh lax.cosh lax.tanh lax.asinh lax.atan lax.exp "
    "lax.exp2 "
    "lax.expm1 lax.floor lax.ceil lax.neg lax.sign lax.square lax.erf lax.erfc lax.logistic "
    "lax.is_finite lax.cbrt lax.bessel_i0e lax.bessel_i1e lax.reciprocal lax.stop_gradient",
    call(X),
)  # fmt: skip
of("lax.round", call(X * 10))
of("lax.log lax.log1p lax.sqrt lax.rsqrt lax.lgamma lax.digamma", call(Q))
of("lax.asin lax.acos lax.atanh lax.erf_inv", call(X / 2.1))
of("lax.acosh", call(BIG))
of(
    "lax.add lax.sub lax.mul lax.div lax.max lax.min lax.pow lax.atan2 "
    "lax.nextafter lax.rem lax.eq lax.ne lax.gt lax.ge lax.lt lax.le",
    call(Q, P),
)
of("lax.add lax.sub lax.mul lax.div lax.rem lax.max lax.min lax.eq lax.lt", call(INTS, K))
of(
    "lax.bitwise_and lax.bitwise_or lax.bitwise_xor lax.shift_left "
    "lax.shift_right_arithmetic lax.shift_right_logical",
    call(np.abs(INTS), K % 5),
)
of("lax.shift_right_arithmetic lax.shift_right_logical", call(INTS, K % 5))
of("lax.bitwise_not lax.population_count lax.clz", call(np.abs(INTS)))
of("lax.integer_pow", call(X, 3))
of("lax.igamma lax.igammac lax.zeta", call(BIG, Q))
of("lax.polygamma", call(np.float32(1), Q))
of("lax.betainc", call(Q, BIG, P))
of("lax.complex", call(X, Y))
of("lax.real lax.imag lax.conj", call(Z))
of("lax.clamp", call(np.float32(-0.5), X, np.float32(0.5)), call(-Q, X, Q))
of("lax.select", call(B, X, Y))
of("lax.select_n", call(B, X, Y), call(np.array([0, 1, 2]), V[:3], U[:3], V[3:]))
of("lax.convert_element_type", call(X, "int32"), call(INTS, "float32"))
of("lax.bitcast_convert_type", call(X, "int32"))
of("lax.reduce_precision", call(X, 5, 10), call(X * 1e6, 5, 10))
of("lax.broadcast", call(X, (2, 5)))
of("lax.broadcast_in_dim", call(V, (2, 6, 3), (1,)), call(X, (3, 2, 4), (0, 2)))
of("lax.broadcast_to_rank", call(V, 3))
of("lax.broadcasted_iota", call("int32", (2, 3), 1))
of("lax.iota", call("float32", 5))
of("lax.reshape", call(X, (4, 3)))
of("lax.squeeze", call(X[:, None], (1,)))
of("lax.expand_dims", call(X, (0, 2)))
of("lax.collapse", call(T, 0, 2), call(T, 1))
of("lax.transpose", call(T, (2, 0, 1)))
of("lax.rev", call(T, (0, 2)))
of("lax.concatenate", call([X, Y], 1))
of(
    "lax.pad",
    call(X, np.float32(7), ((1, 2, 0), (0, 1, 1))),
    call(X, np.float32(0), ((-1, 0, 0), (0, -1, 0))),
)
of("lax.slice", call(T, (0, 1, 0), (2, 3, 4)), call(X, (0, 0), (3, 4), (2, 3)))
of("lax.slice_in_dim", call(X, 1, 3, 1, 1), call(X, 0, 3, 2))
of("lax.index_in_dim", call(X, 1), call(X, 2, 1, False))
of(
    "lax.dynamic_slice",
    call(X, (1, 2), (2, 2)),
    call(X, (np.int32(2), np.int32(3)), (2, 2)),
    call(X, (-1, 0), (1, 2)),
)
of("lax.dynamic_slice_in_dim", call(X, 2, 2, 1), call(X, 9, 2, 0))
of("lax.dynamic_index_in_dim", call(X, 1), call(X, 2, 1, False))
of("lax.dynamic_update_slice", call(X, Y[:2, :2], (1, 2)), call(X, Y[:2, :2], (9, 9)))
of("lax.dynamic_update_slice_in_dim", call(X, Y[:, :2], 1, 1))
of("lax.dynamic_update_index_in_dim", call(X, Y[0], 1, 0))
of("lax.dot", call(X, N), call(V, U))
of("lax.batch_matmul", call(T, T.transpose(0, 2, 1).copy()))
of(
    "lax.dot_general",
    call(T, T, (((2,), (2,)), ((0,), (0,)))),
    call(X, N, (((1,), (0,)), ((), ()))),
)
of(
    "lax.cumsum lax.cumprod lax.cummax lax.cummin lax.cumlogsumexp",
    call(X),
    call(X, 1),
    call(X, axis=1, reverse=True),
)
of("lax.argmax lax.argmin", call(X, 1, "int32"))
of("lax.reduce_sum lax.reduce_prod lax.reduce_max lax.reduce_min", call(T, (0, 2)))
of("lax.reduce_and lax.reduce_or", call(B, (0,)))
of("lax.reduce_xor", call(B, (0,)))
of("lax.sort", call(X), call(X, 0), call((INTS[0], V[:4])))
of("lax.sort_key_val", call(V, U), call(X, Y, 0))
of("lax.top_k", call(X, 2))
of("lax.approx_max_k lax.approx_min_k", call(X, 2))
of("lax.split", call(V, (2, 4)), call(X, (1, 3), 1))
of("lax.tile", call(X, (2, 3)))
of(
    "lax.full",
    call((2, 3), 7.0),
)
of("lax.full_like", call(X, 3.0), call(X, 2, "int32"))
of(
    "lax.fft",
    call(Z, "FFT", (4,)),
    call(X, "RFFT", (4,)),
    call(Z, "IFFT", (3, 4)),
    call(Z, "IRFFT", (6,)),
)
of(
    "lax.conv",
    call(floats(2, 3, 8, 8), floats(4, 3, 3, 3), (1, 1), "SAME"),
    call(floats(2, 3, 8, 8), floats(4, 3, 3, 3), (2, 2), "VALID"),
)
of(
    "lax.conv_with_general_padding",
    call(floats(2, 3, 8, 8), floats(4, 3, 3, 3), (1, 1), [(1, 2), (0, 1)], None, None),
    call(floats(2, 3, 8, 8), floats(4, 3, 3, 3), (1, 1), [(2, 2), (2, 2)], (1, 1), (2, 2)),
)
of(
    "lax.conv_general_dilated",
    call(floats(2, 8, 8, 3), floats(3, 3, 3, 4), (1, 1), "SAME", dimension_numbers=NHWC),
    call(floats(2, 8, 8, 4), floats(3, 3, 2, 6), (2, 1), [(1, 1), (0, 2)],
         dimension_numbers=NHWC, feature_group_count=2),
    call(floats(2, 3, 9), floats(4, 3, 3), (2,), "SAME"),
    call(floats(2, 3, 5), floats(4, 3, 3), (1,), [(2, 2)], lhs_dilation=(2,)),
    call(floats(2, 3, 9), floats(4, 3, 3), (1,), "VALID", rhs_dilation=(2,)),
)  # fmt: skip
of(
    "lax.conv_transpose",
    call(
        floats(2, 5, 5, 3),
        floats(3, 3, 3, 4),
        (2, 2),
        "SAME",
        dimension_numbers=NHWC,
    ),
    call(
        floats(2, 5, 5, 3),
        floats(3, 3, 3, 4),
        (2, 2),
        "VALID",
        dimension_numbers=NHWC,
    ),
)
of("lax.conv_general_dilated_patches", call(floats(1, 2, 5, 5), (2, 2), (1, 1), "VALID"))
of("lax.padtype_to_pads", call((8, 8), (3, 3), (2, 2), "SAME"), call((8,), (3,), (1,), "VALID"))
of("lax.broadcast_shapes", call((3, 1), (1, 4)))

# -- jax.random: draws, of which shapes and quantiles are compared ---------------------------------
MANY = (20_000,)
SCALES = np.float32([1.0, 2.0])
DRAWS: dict[str, Call] = {
    "ball": call(3, 2, MANY),
    "bernoulli": call(0.3, MANY),
    "beta": call(2.0, 3.0, MANY),
    "binomial": call(6, 0.4, MANY),
    "bits": call(MANY),
    "categorical": call(np.log(np.float32([0.2, 0.5, 0.3])), shape=MANY),
    "cauchy": call(MANY),
    "chisquare": call(3.0, MANY),
    "choice": call(5, MANY),
    "dirichlet": call(np.float32([1, 2, 3]), MANY),
    "double_sided_maxwell": call(1.0, 2.0, MANY),
    "exponential": call(MANY),
    "f": call(4.0, 9.0, MANY),
    "gamma": call(np.float32(0.7), MANY),
    "generalized_normal": call(3.0, MANY),
    "geometric": call(0.3, MANY),
    "gumbel": call(MANY),
    "laplace": call(MANY),
    "loggamma": call(np.float32(2.0), MANY),
    "logistic": call(MANY),
    "lognormal": call(0.5, MANY),
    "maxwell": call(MANY),
    "multivariate_normal": call(np.zeros(2, np.float32), np.float32([[2, 1], [1, 2]]), MANY),
    "normal": call(MANY),
    "orthogonal": call(3, (2000,)),
    "pareto": call(3.0, MANY),
    "permutation": call(20_000),
    "poisson": call(np.float32(4.0), MANY),
    "rademacher": call(MANY),
    "randint": call(MANY, 0, 9),
    "rayleigh": call(2.0, MANY),
    "t": call(5.0, MANY),
    "triangular": call(0.0, 0.5, 2.0, MANY),
    "truncated_normal": call(-1.0, 2.0, MANY),
    "uniform": call(MANY, minval=-1.0, maxval=2.0),
    "wald": call(2.0, MANY),
    "weibull_min": call(2.0, 1.5, MANY),
}
