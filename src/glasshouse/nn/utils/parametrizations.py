"""Parametrizations of weights: weight, spectral and orthogonal norm."""

from glasshouse.autograd import no_grad
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import Value, as_value, reshape
from glasshouse.nn.checks import check_positive
from glasshouse.nn.conv import ConvTranspose
from glasshouse.nn.functional.norm import normalize
from glasshouse.nn.module import Module
from glasshouse.nn.utils.parametrize import register_parametrization
from glasshouse.tensor import matmul, moveaxis, random, reduce, sqrt

FIRST_ITERATIONS = 15  # of the power method when a spectral norm begins, as in PyTorch


def norm_but(x: Value, dim: int | None) -> Value:
    """The norms over all axes but one, which are kept with size 1; dim None: over all axes."""
    axes = tuple(range(x.ndim)) if dim is None else others(x, dim)
    return sqrt(reduce.sum(x * x, axis=axes, keepdims=dim is not None))


def others(x: Value, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(x.ndim) if i != dim % x.ndim)


def scaled_direction(v: Value, g: Value, dim: int | None) -> Value:
    """g · v / ‖v‖, with the norm over all axes but `dim`."""
    return v * (g / norm_but(v, dim))


class WeightNorm(Module):
    """g · v / ‖v‖ of a length g and a direction v, which are the originals 0 and 1."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = None if dim == -1 else dim

    def forward(self, weight_g, weight_v):
        return scaled_direction(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_but(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """`module` with a weight of a length and a direction of their own, one for each index of `dim`
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


def as_rows(weight: Value, dim: int) -> Value:
    """A weight as a matrix whose rows are the indices of `dim`."""
    weight = moveaxis(weight, dim, 0)
    return reshape(weight, (weight.shape[0], weight.size // weight.shape[0]))


def default_dim(module: Module, dim: int | None) -> int:
    """The axis of a weight that is the outputs'."""
    return dim if dim is not None else int(isinstance(module, ConvTranspose))


def unit_vector(size: int, like: Value, eps: float) -> Value:
    return normalize(random.normal((size,), dtype=like.dtype), dim=0, eps=eps)


class SpectralNorm(Module):
    """weight / σ, with its largest singular value σ found by power iterations, some in each forward
    while training. One with a single axis is divided by its norm."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
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

    def iterate(self, matrix, count: int) -> None:
        u, v = self._u, self._v
        with no_grad():
            for _ in range(count):
                u.copy_(normalize(matmul(matrix, v), dim=0, eps=self.eps))
                v.copy_(normalize(matmul(u, matrix), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_rows(weight, self.dim)
        if self.training:
            self.iterate(matrix.detach(), self.n_power_iterations)
        return weight / largest_value(matrix, self._u.detach(), self._v.detach())

    def right_inverse(self, value):
        return value


def largest_value(matrix: Value, u: Value, v: Value) -> Value:
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
