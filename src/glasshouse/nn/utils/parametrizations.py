"""Parametrizations of weights: weight, spectral and orthogonal norm."""

from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, ShapeError, int32
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.checks import check_positive
from glasshouse.nn.conv import ConvTranspose
from glasshouse.nn.functional.norm import normalize
from glasshouse.nn.module import Module
from glasshouse.nn.utils.parametrize import register_parametrization
from glasshouse.ops.checks import check_option
from glasshouse.tensor import (
    Tensor,
    asarray,
    concat,
    eye,
    linalg,
    matmul,
    matrix_transpose,
    moveaxis,
    pad,
    random,
    sqrt,
    tril,
    triu,
    zeros,
)
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

FIRST_ITERATIONS = 15  # of the power method when a spectral norm begins, as in PyTorch


def norm_but(x: Tensor, dim: int | None) -> Tensor:
    """The norms over all axes but one, which are kept with size 1; dim None: over all axes."""
    axes = tuple(range(x.ndim)) if dim is None else others(x, dim)
    return sqrt(reduce.sum(x * x, axis=axes, keepdims=dim is not None))


def others(x: Tensor, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != dim % x.ndim)


def scaled_direction(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    """g · v / ‖v‖, with the norm over all axes but `dim`."""
    return v * (g / norm_but(v, dim))


class WeightNorm(Module):
    """g · v / ‖v‖ of a length g and a direction v, which are the originals 0 and 1."""

    def __init__(self, dim: Any = 0) -> None:
        super().__init__()
        self.dim: Any = None if dim == -1 else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return scaled_direction(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> Any:
        return norm_but(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """`module` with a weight of separate lengths and directions, one for each index of `dim`
    (None: one in all).

        weight = g · v / ‖v‖

    State saved by `nn.utils.weight_norm`, as weight_g and weight_v, can be loaded.

    Raises: OptionError for a name that is none of its parameters.
    Source: Salimans & Kingma 2016, arXiv:1602.07868, eq. 2.
    Example:
        >>> layer = weight_norm(gh.nn.Linear(3, 2))
        >>> layer.parametrizations.weight.original0.shape
        (2, 1)
    """
    register_parametrization(module, name, WeightNorm(dim), unsafe=True)

    def rename(module, state, prefix, metadata, strict, missing, unexpected, errors):
        for i, old in enumerate(("_g", "_v")):
            key = f"{prefix}{name}{old}"
            if key in state:
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(key)

    module.register_load_state_dict_pre_hook(rename)
    return module


def as_rows(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix whose rows are the indices of `dim`."""
    weight = moveaxis(weight, dim, 0)
    return reshape(weight, (weight.shape[0], weight.size // weight.shape[0]))


def default_dim(module: Module, dim: int | None) -> int:
    """The axis of a weight that is the outputs'."""
    return dim if dim is not None else int(isinstance(module, ConvTranspose))


def unit_vector(size: int, like: Tensor, eps: float) -> Tensor:
    return normalize(random.normal((size,), dtype=like.dtype), dim=0, eps=eps)


class SpectralNorm(Module):
    """weight / σ, with its largest singular value σ found by power iterations, some in each forward
    while training. One with a single axis is divided by its norm."""

    dim: int
    eps: float
    n_power_iterations: int

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        check_positive("spectral_norm", n_power_iterations=n_power_iterations)
        if not -weight.ndim <= dim < weight.ndim:
            raise ShapeError("spectral_norm", f"an axis dim={dim}", weight.shape, "Change dim.")
        self.dim, self.eps, self.n_power_iterations = dim % weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            with no_grad():
                matrix = as_rows(weight, self.dim)
                self.register_buffer("_u", unit_vector(matrix.shape[0], matrix, eps))
                self.register_buffer("_v", unit_vector(matrix.shape[1], matrix, eps))
                self.iterate(matrix, FIRST_ITERATIONS)

    def iterate(self, matrix: Any, count: int) -> None:
        u, v = self._u, self._v
        with no_grad():
            for _ in range(count):
                u.copy_(normalize(matmul(matrix, v), dim=0, eps=self.eps))
                v.copy_(normalize(matmul(u, matrix), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Any:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_rows(weight, self.dim)
        if self.training:
            self.iterate(matrix.detach(), self.n_power_iterations)
        return weight / largest_value(matrix, self._u.detach(), self._v.detach())

    def right_inverse(self, value: Tensor) -> Any:
        return value


def largest_value(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """uᵀ M v: the singular value of the vectors u and v."""
    return reduce.sum(u * matmul(matrix, v))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """`module` with a weight of spectral norm 1: weight / σ, σ being its largest singular value as
    a matrix with the indices of `dim` as rows.

    Raises: OptionError for a name that is none of its parameters, or no iterations.
    Source: Miyato et al. 2018, arXiv:1802.05957, algorithm 1.
    Example:
        >>> layer = spectral_norm(gh.nn.Linear(3, 2))
        >>> round(gh.linalg.svdvals(layer.eval().weight)[0].item(), 3)
        1.0
    """
    weight = as_value(getattr(module, name, None), where="spectral_norm")
    rows = default_dim(module, dim)
    return register_parametrization(
        module, name, SpectralNorm(weight, n_power_iterations, rows, eps)
    )


ORTHOGONAL_MAPS = ("matrix_exp", "cayley", "householder")


def reflections(x: Tensor) -> Tensor:
    """The product of the reflections I - tau v vᵀ of the columns v of x below its diagonal, which
    counts as 1; the first columns of it.

        Q = I - V T Vᵀ, with T⁻¹ = triu(Vᵀ V, 1) + diag(1 / tau), tau = 2 / vᵀ v

    Shapes: (..., n, k) -> (..., n, k).
    Source: Schreiber & Van Loan 1989, A storage-efficient WY representation; Puglisi 1992.
    """
    n, k = x.shape[-2:]
    first = eye(n, k, dtype=x.dtype)
    v = tril(x, k=-1) + first
    inner = matmul(matrix_transpose(v), v)
    halves = inner * eye(k, dtype=x.dtype) * 0.5  # 1 / tau
    t = linalg.solve(triu(inner, k=1) + halves, matrix_transpose(v[..., :k, :]))
    return first - matmul(v, t)


def nearest_orthogonal(x: Tensor) -> Tensor:
    """Q of x = QR, with the signs of R's diagonal."""
    q, r = linalg.qr(x)
    diagonal = reshape(linalg.diagonal(r), (*r.shape[:-2], 1, r.shape[-1]))
    return q * choose(diagonal < 0, -1.0, 1.0)


class Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if it has more columns than rows): `base` times
    the image of a matrix under the map."""

    shape: tuple[int, ...]
    map: Any

    def __init__(
        self, weight: Tensor, orthogonal_map: Any, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.map = tuple(weight.shape), orthogonal_map
        self.based = use_trivialization
        if use_trivialization:
            size = max(self.shape[-2:])
            one = zeros((*self.shape[:-2], size, size), dtype=weight.dtype)
            self.register_buffer("base", one)

    def forward(self, X: Any) -> Any:
        transposed = X.shape[-2] < X.shape[-1]
        X = matrix_transpose(X) if transposed else X
        Q = self.reflected(X) if self.map == "householder" else self.turned(X)
        Q = matmul(self.base, Q) if self.based else Q
        return matrix_transpose(Q) if transposed else Q

    def reflected(self, X: Any) -> Any:
        """Reflections, with the diagonal's whole numbers as signs."""
        signs = cast(cast(linalg.diagonal(X), int32), X.dtype)
        return reflections(X) * reshape(signs, (*X.shape[:-2], 1, X.shape[-1]))

    def turned(self, X: Any) -> Any:
        """The first columns of the image of the skew-symmetric matrix that X's lower part makes."""
        n, k = X.shape[-2:]
        X = pad(tril(X), ((0, 0),) * (X.ndim - 1) + ((0, n - k),))
        A = X - matrix_transpose(X)
        if self.map == "matrix_exp":
            return linalg.matrix_exp(A)[..., :k]
        one = eye(n, dtype=X.dtype)
        return linalg.solve(one - A * 0.5, one + A * 0.5)[..., :k]

    def right_inverse(self, Q: Any) -> Any:
        if Q.shape != self.shape:
            raise ShapeError("orthogonal", f"a matrix {self.shape}", Q.shape, "Keep its shape.")
        transposed = Q.shape[-2] < Q.shape[-1]
        Q = matrix_transpose(Q) if transposed else Q
        X = self.rebased(Q) if self.based else self.columns(Q)
        return matrix_transpose(X) if transposed else X

    def rebased(self, Q: Any) -> Any:
        """The matrix that the base, now the orthogonal matrix nearest to Q, is the image of."""
        n, k = Q.shape[-2:]
        if k < n:
            rest = random.normal((*Q.shape[:-2], n, n - k), dtype=Q.dtype)
            Q = concat([Q, rest], axis=-1)
        self.base.copy_(nearest_orthogonal(Q))
        return zeros((*Q.shape[:-2], n, k), dtype=Q.dtype) - eye(n, k, dtype=Q.dtype)

    def columns(self, Q: Any) -> Any:
        """The reflections that make Q below the diagonal, with the signs of its columns on it."""
        if self.map != "householder":
            expected = "a map that can be assigned to without a base"
            fix = "Pass use_trivialization=True, or orthogonal_map='householder'."
            raise OptionError("orthogonal", expected, repr(self.map), fix)
        n, k = Q.shape[-2:]
        packed = []
        for q in Q.numpy().reshape(-1, n, k):
            h, tau = np.linalg.qr(q, mode="raw")
            column = np.tril(h.T, -1)
            np.fill_diagonal(column, np.sign(np.diagonal(h.T)) * np.where(tau == 0, -1, 1))
            packed.append(column)
        return asarray(np.stack(packed).reshape(Q.shape), dtype=Q.dtype)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """`module` with a real matrix of orthonormal columns, or rows if it has more columns than rows.
    The map makes it of a free matrix: "matrix_exp" of its skew part, "cayley"
    (I - A/2)⁻¹ (I + A/2), or a product of "householder" reflections; the first for square matrices,
    the last for others, unless given. With `use_trivialization` it is multiplied by a fixed matrix,
    so that it may start, and be assigned, anywhere.

    Raises: ShapeError for fewer than two axes; OptionError for an unknown map or name.
    Source: Lezcano-Casado 2019, arXiv:1909.09501; Mhammedi et al. 2017, arXiv:1612.00188
        (reflections).
    Example:
        >>> w = orthogonal(gh.nn.Linear(3, 5)).weight
        >>> bool(abs(w.mT @ w - gh.eye(3)).max() < 1e-5)
        True
    """
    weight = as_value(getattr(module, name, None), where="orthogonal")
    if weight.ndim < 2:
        raise ShapeError("orthogonal", "a matrix or several", weight.shape, "Name another tensor.")
    square = weight.shape[-2] == weight.shape[-1]
    chosen = orthogonal_map or ("matrix_exp" if square else "householder")
    check_option("orthogonal", "orthogonal_map", chosen, ORTHOGONAL_MAPS)
    mapping = Orthogonal(weight, chosen, use_trivialization)
    return register_parametrization(module, name, mapping, unsafe=True)
