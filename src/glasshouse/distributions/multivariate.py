"""Normal distributions of vectors."""

import math
from typing import Any

from glasshouse.base import OptionError, ShapeError
from glasshouse.dispatch import as_value, broadcast_to
from glasshouse.dispatch.value import ArrayLike
from glasshouse.distributions.distribution import Distribution, as_parameters
from glasshouse.tensor import broadcast_shapes, eye, linalg, log, matmul, random, square
from glasshouse.tensor import sum as sum_
from glasshouse.tensor.handle import Tensor

__all__ = ["MultivariateNormal"]


class MultivariateNormal(Distribution):
    """The normal distribution of vectors with the mean `loc`, and one of three matrices: the
    covariance, its inverse, or its Cholesky factor.

    Shapes: loc (..., n), matrix (..., n, n) -> events (n,).
    Raises: OptionError unless one matrix is there, ShapeError without an axis.
    Source: standard.
    Example:
        >>> d = MultivariateNormal(gh.zeros(2), covariance_matrix=4.0 * gh.eye(2))
        >>> d.scale_tril.tolist(), round(d.log_prob(gh.zeros(2)).item(), 4)
        ([[2.0, 0.0], [0.0, 2.0]], -3.2242)
    """

    PARAMETERS = {"loc": 1, "scale_tril": 2}
    has_rsample: bool = True

    def __init__(
        self,
        loc: ArrayLike,
        covariance_matrix: ArrayLike | None = None,
        precision_matrix: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (loc,) = as_parameters(loc)
        forms = (covariance_matrix, precision_matrix, scale_tril)
        if sum(x is not None for x in forms) != 1:
            expected = "one of covariance_matrix, precision_matrix and scale_tril"
            got = f"{sum(x is not None for x in forms)} of them"
            raise OptionError("MultivariateNormal", expected, got, "Pass one.")
        if not loc.ndim:
            raise ShapeError("MultivariateNormal", "a vector loc", "a number", "Add an axis.")
        (matrix,) = as_parameters(next(x for x in forms if x is not None))
        if precision_matrix is not None:
            matrix = linalg.inv(matrix)
        factor = matrix if scale_tril is not None else linalg.cholesky(matrix)
        n, shape = loc.shape[-1], broadcast_shapes(loc.shape[:-1], factor.shape[:-2])
        self.loc: Tensor = broadcast_to(loc, (*shape, n))
        self.scale_tril: Any = broadcast_to(factor, (*shape, n, n))
        super().__init__(shape, (n,), validate_args)

    def draw(self, shape: tuple[int, ...]) -> Any:
        """loc + scale_tril @ noise."""
        noise = random.normal((*shape, 1), dtype=self.loc.dtype)
        return self.loc + matmul(self.scale_tril, noise)[..., 0]

    def whitened(self, value: ArrayLike, factor: Any) -> Any:
        """The solution x of scale_tril x = value, (…, n)."""
        x = as_value(value)
        shape = broadcast_shapes(x.shape, factor.shape[:-1])
        factor = broadcast_to(factor, (*shape, shape[-1]))
        column = broadcast_to(x, shape)[..., None]
        return linalg.solve_triangular(factor, column, upper=False)[..., 0]

    def half_log_det(self) -> Any:
        """The logarithm of the determinant of scale_tril."""
        return sum_(log(linalg.diagonal(self.scale_tril)), axis=-1)

    def log_prob(self, value: ArrayLike) -> Any:
        """-|x|² / 2 - log det(scale_tril) - n log √(2 pi), with scale_tril x = value - loc."""
        distance = sum_(square(self.whitened(value - self.loc, self.scale_tril)), axis=-1)
        constant = self.event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - self.half_log_det()

    def entropy(self) -> Any:
        """n (1 + log(2 pi)) / 2 + log det(scale_tril)."""
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + self.half_log_det()

    @property
    def covariance_matrix(self) -> Any:
        """scale_tril times its transpose."""
        return matmul(self.scale_tril, self.scale_tril.mT)

    @property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        unit = eye(self.event_shape[0], dtype=self.loc.dtype)
        inverse = linalg.solve_triangular(
            self.scale_tril, broadcast_to(unit, self.scale_tril.shape), upper=False
        )
        return matmul(inverse.mT, inverse)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """The diagonal of the covariance."""
        return sum_(square(self.scale_tril), axis=-1)
