"""Matrix factorisations over the last two axes, batched over leading axes.

Derivatives are matrix formulas written with matmul and triangular_solve, so they can be
differentiated again. With S* the adjoint of a map S under <X, Y> = Re tr(X^H Y), each vjp below is
the adjoint of the jvp beside it.

Sources: Giles 2008, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation"; Murray 2016, arXiv:1602.07527 (Cholesky); Seeger, Hetzel, Dai, Meissner, Lawrence
2017, arXiv:1710.08717 (QR, eigh, SVD); Roberts, Roberts 2020, arXiv:2009.10071 (wide QR); Wan,
Zhang 2019, arXiv:1909.02659 (the phase term of a complex SVD)."""

import math
from typing import Any

import numpy as np

from glasshouse.base import DType, Spec, int64, real_dtype
from glasshouse.base.errors import DTypeError, GradError, LinAlgError, OptionError, ShapeError
from glasshouse.dispatch import Value
from glasshouse.dispatch.primitive import LINEAR, Arr, card, refusal, sample
from glasshouse.dispatch.value import broadcast_to, cast, full, reshape, zeros
from glasshouse.ops.cast import conj, imag, make_complex, real
from glasshouse.ops.checks import check_option
from glasshouse.ops.compare import where
from glasshouse.ops.contract import adjoint, check_pair, matmul, transpose
from glasshouse.ops.create import iota
from glasshouse.ops.elementwise import batch_together, infer_same
from glasshouse.ops.movement import concatenate, section
from glasshouse.ops.reduce import sum_


def check_matrix(where_: str, a: Spec, square: bool = False) -> tuple[int, int]:
    infer_same(where_, "linalg")(Spec((), a.dtype))
    if a.ndim < 2:
        raise ShapeError(where_, "matrices (..., m, n)", a.shape, "Add an axis.")
    m, n = a.shape[-2:]
    if square and m != n:
        fix = "Use qr or svd for others."
        raise ShapeError(where_, "square matrices (..., n, n)", f"shape {a.shape}", fix)
    return m, n


def diagonals(m: int, n: int) -> Any:
    """The number of the diagonal that each place of a matrix lies on: column minus row."""
    return iota(size=n, dtype=int64) - as_column(iota(size=m, dtype=int64))


def tril(x: Any, k: int = 0) -> Any:
    """x with zeros above its k-th diagonal."""
    return where(broadcast_to(diagonals(*x.shape[-2:]) > k, x.shape), zeros(x), x)


def triu(x: Any, k: int = 0) -> Any:
    """x with zeros below its k-th diagonal."""
    return where(broadcast_to(diagonals(*x.shape[-2:]) < k, x.shape), zeros(x), x)


def diagonal_part(x: Value) -> Any:
    return triu(tril(x))


def hermitian_part(x: Value) -> Any:
    return (x + adjoint(x)) / 2


def real_part(x: Value) -> Any:
    return cast(real(x), x.dtype)


def as_column(v: Value) -> Any:
    return reshape(v, (*v.shape, 1))


def as_row(v: Value) -> Any:
    return reshape(v, (*v.shape[:-1], 1, v.shape[-1]))


def diagonal_matrix(v: Value, dtype: DType) -> Any:
    """Square matrices of `dtype` with v (..., n) on their diagonals."""
    return diagonal_part(broadcast_to(as_row(cast(v, dtype)), (*v.shape, v.shape[-1])))


def diagonal_of(x: Value) -> Any:
    return sum_(diagonal_part(x), axes=(x.ndim - 1,))


def columns(x: Value, start: int, stop: int) -> Any:
    return section(x, x.ndim - 1, start, stop)


def quotient(x: Value, gap: Value) -> Any:
    """x / gap, and 0 where both are 0: a cotangent of 0 stays 0 where values repeat.
    Where only the gap is 0, the result is infinite, for there the derivative does not exist."""
    gap = broadcast_to(cast(gap, x.dtype), x.shape)
    return x / where((x == 0) & (gap == 0), full(x.shape, 1, x.dtype), gap)


def spectral_quotient(x: Value, v: Value) -> Any:
    """x_ij / (v_j - v_i), and 0 on the diagonal."""
    return quotient(x - diagonal_part(x), as_row(v) - as_column(v))


def solve(a: Value, b: Value, *, lower: bool, adjoint_a: bool = False) -> Any:
    """a^-1 b, or a^-H b."""
    a = conj(a) if adjoint_a else a
    return triangular_solve(a, b, lower=lower, transpose=adjoint_a, unit_diagonal=False)


def solve_right(a: Value, b: Value, *, lower: bool, adjoint_a: bool = False) -> Any:
    """b a^-1, or b a^-H."""
    return adjoint(solve(a, adjoint(b), lower=lower, adjoint_a=not adjoint_a))


def pivots(a: Value, perm: Value) -> Any:
    """The permutation matrices P with P a = a[perm]."""
    n = perm.shape[-1]
    shape = (*perm.shape, n)
    positions = broadcast_to(as_column(perm), shape)
    return cast(positions == broadcast_to(iota(size=n, dtype=int64), shape), a.dtype)


def of_square(where_: str, result: Any) -> Any:
    def infer(a: Spec):
        check_matrix(where_, a, square=True)
        return result(a)

    return infer


def symmetric(a: np.ndarray) -> np.ndarray:
    return (a + np.conj(a.mT)) / 2


def factorise(where_: str, expected: str, factor: Any, a: np.ndarray, *options: Any) -> Any:
    """factor(a, *options) of numpy.linalg, with its failure as our error."""
    try:
        return factor(a, *options)
    except np.linalg.LinAlgError as error:
        got = f"matrices of shape {a.shape} that are not ({error})"
        fix = "Look for NaN, or add a multiple of the identity."
        raise LinAlgError(where_, expected, got, fix) from None


def batch_first(card: Any) -> Any:
    """The batching rule of a card over the last axes of one operand: leading axes are free."""
    return lambda batched, a, **attrs: card()(a, **attrs)


def spd(rng: "np.random.Generator", shape: Any) -> Any:
    x = rng.uniform(-1, 1, shape)
    return x @ x.mT + shape[-1] * np.eye(shape[-1])


def spread_values(rng: "np.random.Generator", shape: Any) -> Any:
    """Matrices whose singular values 1, 2, … are far apart."""
    m, n = shape[-2:]
    u = np.linalg.qr(rng.normal(size=(*shape[:-2], m, m))).Q
    v = np.linalg.qr(rng.normal(size=(*shape[:-2], n, n))).Q
    middle = np.zeros(shape)
    for i in range(min(m, n)):
        middle[..., i, i] = i + 1
    return u @ middle @ v


def spread_symmetric(rng: "np.random.Generator", shape: Any) -> Any:
    """Symmetric matrices whose eigenvalues 0, 1.5, 3 … are far apart."""
    q = np.linalg.qr(rng.normal(size=shape)).Q
    return q @ (1.5 * np.arange(shape[-1])[:, None] * q.mT)


def dominant(rng: "np.random.Generator", shape: Any) -> Any:
    """Matrices with a large diagonal, moved down by one row, so that pivots are clear."""
    return np.roll(rng.uniform(-1, 1, shape) + 3 * np.eye(shape[-1]), 1, axis=-2)


def triangle(rng: "np.random.Generator", shape: Any) -> Any:
    return rng.uniform(-1, 1, shape) + 3 * np.eye(shape[-1])


HALF = refusal(DTypeError, "expected a dtype", (2, 2), on="float16")
VECTOR = refusal(ShapeError, "expected matrices", (3,))
OBLONG = refusal(ShapeError, "square matrices", (2, 3))


# Cholesky: A = L L^H. With Φ taking the lower triangle and half the diagonal,
# dL = L Φ(L^-1 dA L^-H).


def half_lower(x: Value) -> Any:
    """Φ: the lower triangle, with half the diagonal."""
    return tril(x) - diagonal_part(x) / 2


def cholesky_vjp(g: Value, y: Value, _a: Spec) -> Any:
    inner = half_lower(matmul(adjoint(y), g))
    return hermitian_part(solve_right(y, solve(y, inner, lower=True, adjoint_a=True), lower=True))


def cholesky_jvp(t: Value, y: Value, a: Value) -> Any:
    inner = solve_right(y, solve(y, hermitian_part(t), lower=True), lower=True, adjoint_a=True)
    return matmul(y, half_lower(inner))


@card(
    "linalg",
    infer=of_square("cholesky", lambda a: a),
    vjp=(cholesky_vjp,),
    jvp=(cholesky_jvp,),
    batch=batch_first(lambda: cholesky),
    flops=lambda a: a.size * a.shape[-1] // 3,
    samples=[sample(Arr((3, 3), make=spd)), sample(Arr((2, 1, 2, 2), make=spd))],
    error_samples=[HALF, VECTOR, OBLONG],
    dtypes="linalg",
    source="Murray 2016, arXiv:1602.07527",
)
def cholesky(a: np.ndarray) -> np.ndarray:
    """The lower triangular L with L L^H = the Hermitian part of a, and a positive diagonal.

    Why: a loop over columns, whose length the program does not know."""
    return factorise("cholesky", "positive definite ones", np.linalg.cholesky, symmetric(a))


# QR: A = Q R, R upper triangular with a real diagonal. For m >= n, with X = dA R^-1, C = Q^H X and
# U = S(C) = triu(C, 1) + tril(C, -1)^H + Re diag(C): dR = U R, dQ = X - Q U. A wide A = [A1 A2] has
# Q R1 = A1 and R2 = Q^H A2.


def infer_qr(a: Spec, *, mode: str) -> tuple[Spec, Spec]:
    m, n = check_matrix("qr", a)
    check_option("qr", "mode", mode, ("reduced", "complete"))
    k = m if mode == "complete" else min(m, n)
    return Spec((*a.shape[:-1], k), a.dtype), Spec((*a.shape[:-2], k, n), a.dtype)


def check_qr_gradient(a: Value, mode: str) -> None:
    m, n = a.shape[-2:]
    if mode == "complete" and m > n:
        expected = "mode 'reduced' for the derivative of tall matrices"
        fix = "The added columns of q are not unique."
        raise GradError("qr", expected, f"'complete' and shape {a.shape}", fix)


def skew_free(c: Value) -> Any:
    """S = dR R^-1, upper triangular, from C = S + (skew-Hermitian)."""
    return triu(c, 1) + adjoint(tril(c, -1)) + real_part(diagonal_part(c))


def skew_free_adjoint(u: Value) -> Any:
    """S*: triu(U, 1) and its conjugate transpose, and Re diag(U)."""
    upper = triu(u, 1)
    return upper + adjoint(upper) + real_part(diagonal_part(u))


def square_qr_vjp(gq: Value, gr: Value, q: Value, r: Value) -> Any:
    inner = matmul(gr, adjoint(r)) - matmul(adjoint(q), gq)
    return solve_right(r, gq + matmul(q, skew_free_adjoint(inner)), lower=False, adjoint_a=True)


def qr_vjp(g: list[Value], y: list[Value], a: Value, *, mode: str) -> Any:
    check_qr_gradient(a, mode)
    (gq, gr), (q, r) = g, y
    m, n = a.shape[-2:]
    if m >= n:
        return square_qr_vjp(gq, gr, q, r)
    gr2, a2 = columns(gr, m, n), columns(a, m, n)
    first = square_qr_vjp(gq + matmul(a2, adjoint(gr2)), columns(gr, 0, m), q, columns(r, 0, m))
    return concatenate(first, matmul(q, gr2), axis=a.ndim - 1)


def square_qr_jvp(t: Value, q: Value, r: Value) -> Any:
    x = solve_right(r, t, lower=False)
    u = skew_free(matmul(adjoint(q), x))
    return x - matmul(q, u), matmul(u, r)


def qr_jvp(t: Value, y: tuple[Value, ...], a: Value, *, mode: str) -> Any:
    check_qr_gradient(a, mode)
    q, r = y
    m, n = a.shape[-2:]
    if m >= n:
        return square_qr_jvp(t, q, r)
    tq, tr = square_qr_jvp(columns(t, 0, m), q, columns(r, 0, m))
    tr2 = matmul(adjoint(tq), columns(a, m, n)) + matmul(adjoint(q), columns(t, m, n))
    return tq, concatenate(tr, tr2, axis=a.ndim - 1)


def qr_flops(a: Spec, *, mode: Any) -> int:
    """Householder reflections, for r and again for q.

    Source: Golub, Van Loan 2013, 5.2.
    """
    m, n = a.shape[-2:]
    k, count = min(m, n), math.prod(a.shape[:-2])
    return 2 * count * int(2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3)


@card(
    "linalg",
    infer=infer_qr,
    vjp=(qr_vjp,),
    jvp=(qr_jvp,),
    batch=batch_first(lambda: qr),
    flops=qr_flops,
    samples=[
        sample(Arr((3, 3), make=spread_values), mode="reduced"),
        sample(Arr((2, 4, 2), make=spread_values), mode="reduced"),
        sample(Arr((2, 3), make=spread_values), mode="complete"),
    ],
    error_samples=[
        refusal(OptionError, "'reduced' or 'complete'", (2, 2), mode="raw"),
        refusal(DTypeError, "a dtype", (2, 2), on="float16", mode="reduced"),
        refusal(ShapeError, "expected matrices", (2,), mode="reduced"),
    ],
    dtypes="linalg",
    source="Seeger et al. 2017, arXiv:1710.08717; Roberts, Roberts 2020, arXiv:2009.10071",
    num_outputs=2,
)
def qr(a: Any, *, mode: Any) -> tuple[np.ndarray, ...]:
    """(q, r) with q r = a, q^H q = 1 and r upper triangular; q has min(m, n) columns, or m if mode
    is 'complete'. The derivative needs full rank.

    Why: a loop over columns, whose length the program does not know."""
    return tuple(np.linalg.qr(a, mode))


# LU: P A = L U. With F = L^-1 P dA U^-1: dL = L tril(F, -1) and dU = triu(F) U, packed in one.


def unpacked(packed: Value) -> Any:
    return tril(packed, -1) + diagonal_part(full(packed.shape, 1, packed.dtype)), triu(packed)


def lu_vjp(g: list[Value], y: list[Value], _a: Spec) -> Any:
    (g, _), (packed, perm) = g, y
    lower, upper = unpacked(packed)
    inner = tril(matmul(adjoint(lower), tril(g, -1)), -1)
    inner = inner + triu(matmul(triu(g), adjoint(upper)))
    inner = solve(lower, inner, lower=True, adjoint_a=True)
    inner = solve_right(upper, inner, lower=False, adjoint_a=True)
    return matmul(adjoint(pivots(packed, perm)), inner)


def lu_jvp(t: Value, y: tuple[Value, ...], a: Value) -> Any:
    packed, perm = y
    lower, upper = unpacked(packed)
    inner = solve(lower, matmul(pivots(packed, perm), t), lower=True)
    inner = solve_right(upper, inner, lower=False)
    return matmul(lower, tril(inner, -1)) + matmul(triu(inner), upper), None


@card(
    "linalg",
    infer=of_square("lu", lambda a: (a, Spec(a.shape[:-1], int64))),
    vjp=(lu_vjp,),
    jvp=(lu_jvp,),
    batch=batch_first(lambda: lu),
    flops=lambda a: 2 * a.size * a.shape[-1] // 3,
    samples=[sample(Arr((3, 3), make=dominant)), sample(Arr((2, 1, 2, 2), make=dominant))],
    error_samples=[HALF, VECTOR, OBLONG],
    dtypes="linalg",
    source="Golub, Van Loan 2013, Matrix Computations, 3.4; derivative: from dA = dL U + L dU",
    num_outputs=2,
)
def lu(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """(packed, perm) of square matrices: a[perm] = L U, with U in the upper triangle of `packed`
    and L, whose diagonal is 1, below it. A singular matrix has a 0 on the diagonal of U.

    Why: a loop over columns, whose length the program does not know.

    Gaussian elimination with partial pivoting, one column at a time for the whole batch."""
    n = a.shape[-1]
    lu = a.reshape(math.prod(a.shape[:-2]), n, n).copy()
    perm = np.tile(np.arange(n), (len(lu), 1))
    each = np.arange(len(lu))
    for k in range(n - 1):
        best = k + np.argmax(np.abs(lu[:, k:, k]), axis=1)
        lu[each, k], lu[each, best] = lu[each, best], lu[each, k]
        perm[each, k], perm[each, best] = perm[each, best], perm[each, k]
        pivot = lu[:, k, k]
        scale = np.where(pivot == 0, 1, pivot)  # then the whole column is 0 already
        lu[:, k + 1 :, k] /= scale[:, None]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return lu.reshape(a.shape), perm.reshape(a.shape[:-1])


# Triangular solve: with X = T^-1 B and T the triangle of A: dX = T^-1 (dB - dT X).


def infer_triangular_solve(
    a: Spec, b: Spec, *, lower: bool, transpose: bool, unit_diagonal: bool
) -> Spec:
    check_matrix("triangular_solve", a, square=True)
    check_matrix("triangular_solve", b)
    check_pair("triangular_solve", "linalg", a, b)
    if a.shape[:-1] != b.shape[:-1]:
        expected = "a (..., n, n) and b (..., n, k) with equal leading axes"
        fix = "Broadcast them first."
        raise ShapeError("triangular_solve", expected, f"{a.shape} and {b.shape}", fix)
    return b


def substitute(a: np.ndarray, b: np.ndarray, lower: bool, unit_diagonal: bool) -> np.ndarray:
    """a^-1 b by halves: solve one half of the rows, take it off the other, solve that."""
    n = a.shape[-1]
    if n == 0:
        return b
    if n == 1:
        return b if unit_diagonal else b / a
    h = n // 2
    top, bottom = slice(None, h), slice(h, None)
    first, second = (top, bottom) if lower else (bottom, top)
    x = np.empty_like(b)
    x[..., first, :] = substitute(a[..., first, first], b[..., first, :], lower, unit_diagonal)
    rest = b[..., second, :] - a[..., second, first] @ x[..., first, :]
    x[..., second, :] = substitute(a[..., second, second], rest, lower, unit_diagonal)
    return x


def of_triangle(x: Value, lower: bool, unit_diagonal: bool) -> Any:
    """The part of x that triangular_solve reads of its first operand."""
    return tril(x, -int(unit_diagonal)) if lower else triu(x, int(unit_diagonal))


def solve_vjp_b(
    g: Value, _y: Value, a: Value, _b: Spec | None, *, transpose: bool, **attrs: Any
) -> Any:
    return triangular_solve(conj(a), g, transpose=not transpose, **attrs)


def solve_vjp_a(g: Value, y: Value, a: Value, _b: Spec, **attrs: Any) -> Any:
    outer = matmul(solve_vjp_b(g, y, a, None, **attrs), adjoint(y))
    outer = transpose(outer) if attrs["transpose"] else outer
    return -of_triangle(outer, attrs["lower"], attrs["unit_diagonal"])


def solve_jvp_a(t: Value, y: Value, a: Value, b: Value, **attrs: Any) -> Any:
    t = of_triangle(t, attrs["lower"], attrs["unit_diagonal"])
    t = transpose(t) if attrs["transpose"] else t
    return -triangular_solve(a, matmul(t, y), **attrs)


def solve_attrs(lower: bool = True, transpose: bool = False, unit_diagonal: bool = False) -> Any:
    return {"lower": lower, "transpose": transpose, "unit_diagonal": unit_diagonal}


@card(
    "linalg",
    infer=infer_triangular_solve,
    vjp=(solve_vjp_a, solve_vjp_b),
    jvp=(solve_jvp_a, LINEAR),
    batch=lambda batched, *ab, **attrs: triangular_solve(*batch_together(batched, ab), **attrs),
    flops=lambda a, b, **_: a.shape[-1] * b.size,
    samples=[
        sample(Arr((3, 3), make=triangle), (3, 2), **solve_attrs()),
        sample(Arr((3, 3), make=triangle), (3, 1), **solve_attrs(False, True)),
        sample(Arr((2, 2, 2), make=triangle), (2, 2, 1), **solve_attrs(True, True, True)),
        sample(Arr((2, 2), make=triangle), (2, 0), **solve_attrs(False)),
    ],
    error_samples=[
        refusal(ShapeError, "equal leading axes", (2, 2), (3, 1), **solve_attrs()),
        refusal(ShapeError, "square", (2, 3), (2, 1), **solve_attrs()),
        refusal(ShapeError, "expected matrices", (2, 2), (2,), **solve_attrs()),
        refusal(DTypeError, "one dtype", (2, 2), Arr((2, 1), dtype="float64"), **solve_attrs()),
        refusal(DTypeError, "a dtype", (2, 2), (2, 1), on="bfloat16", **solve_attrs()),
    ],
    dtypes="linalg",
    source="Golub, Van Loan 2013, Matrix Computations, 3.1; derivative: Giles 2008",
)
def triangular_solve(
    a: np.ndarray, b: np.ndarray, *, lower: bool, transpose: bool, unit_diagonal: bool
) -> np.ndarray:
    """x with a x = b, or a^T x = b if `transpose`, for triangular a (..., n, n) and b (..., n, k).
    Only the lower or upper triangle of a is read; with `unit_diagonal` its diagonal counts as 1.

    Why: a loop over rows, whose length the program does not know."""
    if transpose:
        a, lower = a.mT, not lower
    return substitute(a, b, lower, unit_diagonal)


# eigh: A V = V diag(w). With C = V^H dA V and F_ij = 1 / (w_j - w_i), 0 on the diagonal:
# dw = Re diag(C), dV = V (F ∘ C). The phase of complex vectors is kept still.


def eigh_vjp(g: list[Value], y: list[Value], _a: Spec) -> Any:
    (gw, gv), (w, v) = g, y
    inner = spectral_quotient(matmul(adjoint(v), gv), w) + diagonal_matrix(gw, v.dtype)
    return hermitian_part(matmul(matmul(v, inner), adjoint(v)))


def eigh_jvp(t: Value, y: tuple[Value, ...], a: Value) -> Any:
    w, v = y
    inner = matmul(matmul(adjoint(v), hermitian_part(t)), v)
    return real(diagonal_of(inner)), matmul(v, spectral_quotient(inner, w))


@card(
    "linalg",
    infer=of_square("eigh", lambda a: (Spec(a.shape[:-1], real_dtype(a.dtype)), a)),
    vjp=(eigh_vjp,),
    jvp=(eigh_jvp,),
    batch=batch_first(lambda: eigh),
    flops=lambda a: 9 * a.size * a.shape[-1],
    samples=[sample(Arr(s, make=spread_symmetric)) for s in ((3, 3), (2, 1, 2, 2))],
    error_samples=[HALF, VECTOR, OBLONG],
    dtypes="linalg",
    traits=("unique_up_to_phase",),
    source="Giles 2008; Seeger et al. 2017, arXiv:1710.08717",
    num_outputs=2,
)
def eigh(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """(w, v): eigenvalues, smallest first, and eigenvectors (columns) of the Hermitian part of a.
    The derivative of v needs distinct eigenvalues, and a use that its phases do not matter to.

    Why: an iteration of unknown length.

    Its FLOPs: Golub, Van Loan 2013, 8.3: about 9 n³ with vectors."""
    return tuple(factorise("eigh", "finite matrices", np.linalg.eigh, symmetric(a)))


# SVD: A = U diag(s) V^H. With P = U^H dA V and F_ij = 1 / (s_j² - s_i²), 0 on the diagonal:
# ds = Re diag(P), U^H dU = F ∘ (P S + S P^H) + i Im diag(P) / s, V^H dV = F ∘ (S P + P^H S). The
# part of dU outside the columns of U is (1 - U U^H) dA V / s; of dV, (1 - V V^H) dA^H U / s.


def infer_svd(a: Spec, *, full_matrices: bool) -> tuple[Spec, Spec, Spec]:
    m, n = check_matrix("svd", a)
    lead, k = a.shape[:-2], min(m, n)
    rows, cols = (m, n) if full_matrices else (k, k)
    singular = Spec((*lead, k), real_dtype(a.dtype))
    return Spec((*lead, m, rows), a.dtype), singular, Spec((*lead, cols, n), a.dtype)


def check_svd_gradient(a: Value, full_matrices: bool) -> None:
    m, n = a.shape[-2:]
    if full_matrices and m != n:
        expected = "full_matrices=False for the derivative of oblong matrices"
        fix = "The added vectors are not unique."
        raise GradError("svd", expected, f"True and shape {a.shape}", fix)


def imaginary_diagonal(x: Value) -> Any:
    """i Im diag(x), as matrices."""
    return make_complex(full(x.shape, 0, real_dtype(x.dtype)), imag(diagonal_part(x)))


def outside(u: Value, x: Value) -> Any:
    return x - matmul(u, matmul(adjoint(u), x))


def svd_vjp(g: list[Value], y: list[Value], a: Value, *, full_matrices: bool) -> Any:
    check_svd_gradient(a, full_matrices)
    (gu, gs, gvh), (u, s, vh) = g, y
    v, gv = adjoint(vh), adjoint(gvh)
    su, sv = matmul(adjoint(u), gu), matmul(adjoint(v), gv)
    row, squares = cast(as_row(s), u.dtype), s * s
    fu, fv = spectral_quotient(su, squares), spectral_quotient(sv, squares)
    column = cast(as_column(s), u.dtype)
    inner = (fu + adjoint(fu)) * row + column * (fv + adjoint(fv)) + diagonal_matrix(gs, u.dtype)
    if a.dtype.is_complex:
        inner = inner + quotient(imaginary_diagonal(su), row)
    left, (m, n) = matmul(u, inner), a.shape[-2:]
    if m > n:
        left = left + quotient(outside(u, gu), row)
    result = matmul(left, vh)
    if m < n:
        result = result + matmul(u, adjoint(quotient(outside(v, gv), row)))
    return result


def svd_jvp(t: Value, y: tuple[Value, ...], a: Value, *, full_matrices: bool) -> Any:
    check_svd_gradient(a, full_matrices)
    u, s, vh = y
    v = adjoint(vh)
    p = matmul(matmul(adjoint(u), t), v)
    row, column, squares = cast(as_row(s), u.dtype), cast(as_column(s), u.dtype), s * s
    ph = adjoint(p)
    rotate_u = spectral_quotient(p * row + column * ph, squares)
    rotate_v = spectral_quotient(column * p + ph * row, squares)
    if a.dtype.is_complex:
        rotate_u = rotate_u + quotient(imaginary_diagonal(p), row)
    tu, tv, (m, n) = matmul(u, rotate_u), matmul(v, rotate_v), a.shape[-2:]
    if m > n:
        tu = tu + quotient(outside(u, matmul(t, v)), row)
    if m < n:
        tv = tv + quotient(outside(v, matmul(adjoint(t), u)), row)
    return tu, real(diagonal_of(p)), adjoint(tv)


def svd_flops(a: Spec, *, full_matrices: Any) -> int:
    """About 14 m n² + 8 n³ for m >= n, with vectors. Golub, Van Loan 2013, fig. 8.6.1."""
    small, large = sorted(a.shape[-2:])
    return math.prod(a.shape[:-2]) * (14 * large * small**2 + 8 * small**3)


@card(
    "linalg",
    infer=infer_svd,
    vjp=(svd_vjp,),
    jvp=(svd_jvp,),
    batch=batch_first(lambda: svd),
    flops=svd_flops,
    samples=[
        sample(Arr((3, 3), make=spread_values), full_matrices=True),
        sample(Arr((2, 4, 2), make=spread_values), full_matrices=False),
        sample(Arr((2, 3), make=spread_values), full_matrices=False),
    ],
    error_samples=[
        refusal(DTypeError, "a dtype", (2, 2), on="float16", full_matrices=False),
        refusal(ShapeError, "expected matrices", (2,), full_matrices=False),
    ],
    dtypes="linalg",
    traits=("unique_up_to_phase",),
    source="Seeger et al. 2017, arXiv:1710.08717; Wan, Zhang 2019, arXiv:1909.02659",
    num_outputs=3,
)
def svd(a: np.ndarray, *, full_matrices: bool) -> tuple[np.ndarray, ...]:
    """(u, s, vh) with u diag(s) vh = a and s falling; u and vh are square if `full_matrices`. The
    derivative of u and vh needs distinct singular values, not 0 where a is oblong, and a use
    that the vectors' phases do not matter to.

    Why: an iteration of unknown length."""
    return tuple(factorise("svd", "finite matrices", np.linalg.svd, a, full_matrices))
