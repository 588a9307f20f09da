"""Products of matrices and vectors with something added, and their kin, under PyTorch's names."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import OptionError, ShapeError
from glasshouse.base.shape import broadcast_shapes
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, adopt, as_value
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops.checks import check_option
from glasshouse.ops.index import gather
from glasshouse.tensor import linalg
from glasshouse.tensor.standard import contract, elementwise, reduce
from glasshouse.tensor.standard.arithmetic import multiply_by
from glasshouse.tensor.standard.manipulate import expand_dims

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "cdist", "cross", "dist", "dot",
           "ger", "mm", "mv", "pdist", "renorm", "vdot"]  # fmt: skip


def product(name: str, ndims: tuple[int, int], multiply: Any, about: str, shapes: str) -> Any:
    """A product of operands with fixed numbers of axes."""

    def function(x, other, /):
        x, other = as_value(x, where=name), as_value(other, where=name)
        if (x.ndim, other.ndim) != ndims:
            got = f"{x.shape} and {other.shape}"
            expected = f"{ndims[0]} and {ndims[1]} axes"
            raise ShapeError(name, expected, got, "Use gh.matmul, which broadcasts.")
        return multiply(x, other)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{about}\n\nShapes: {shapes}.\nRaises: ShapeError.\nSource: PyTorch."
    return composed(function)


def rows_times(x: "Tensor", other: "Tensor") -> "Tensor":
    return contract.matmul(x, other)


mm: Any = product(
    "mm", (2, 2), rows_times, "The product of two matrices.", "(m, k), (k, n) -> (m, n)"
)
bmm: Any = product(
    "bmm",
    (3, 3),
    rows_times,
    "The products of two stacks of matrices.",
    "(b, m, k), (b, k, n) -> (b, m, n)",
)
mv: Any = product("mv", (2, 1), rows_times, "A matrix times a vector.", "(m, k), (k,) -> (m,)")
dot: Any = product("dot", (1, 1), rows_times, "The sum of x · other.", "(n,), (n,) -> ()")
vdot: Any = product(
    "vdot", (1, 1), contract.vecdot, "The sum of conj(x) · other.", "(n,), (n,) -> ()"
)
ger: Any = product(
    "ger", (1, 1), contract.outer, "All products x_i · other_j.", "(m,), (n,) -> (m, n)"
)


def added(name: str, multiply: Any, about: str, shapes: str) -> Any:
    """beta · x + alpha · a product; with beta = 0, x is not read."""

    def function(x, a, b, *, beta=1, alpha=1):
        multiplied = multiply_by(multiply(a, b), alpha)
        return (
            multiplied
            if type(beta) is int and beta == 0
            else multiply_by(as_value(x), beta) + multiplied
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{about}

    Shapes: {shapes}; x broadcasts to the result.
    Raises: ShapeError.
    Source: PyTorch.
    """
    return composed(function)


def summed_products(a: "Tensor", b: "Tensor") -> "Tensor":
    return reduce.sum(bmm(a, b), axis=0)


FORM = "beta · x + alpha · "
addmm: Any = added("addmm", mm, f"{FORM}(a @ b).", "x, (m, k), (k, n) -> (m, n)")
addmv: Any = added("addmv", mv, f"{FORM}(a @ b).", "x, (m, k), (k,) -> (m,)")
addr: Any = added("addr", ger, f"{FORM}the outer product of a and b.", "x, (m,), (n,) -> (m, n)")
baddbmm: Any = added("baddbmm", bmm, f"{FORM}(a @ b).", "x, (s, m, k), (s, k, n) -> (s, m, n)")
addbmm: Any = added(
    "addbmm", summed_products, f"{FORM}the sum of all a @ b.", "x, (s, m, k), (s, k, n) -> (m, n)"
)


@rounded_once
def power_norm(x: "Tensor", p: float, axis: int | None = None, keepdims: bool = False) -> "Tensor":
    """The p-norm, whose derivative is 0 where it is 0 and where x is."""
    if p in (0, 1, math.inf):
        return linalg.vector_norm(x, axis=axis, ord=p, keepdims=keepdims)
    if p == 2:
        return linalg.vector_norm(x, axis=axis, keepdims=keepdims)
    if p < 0:
        return linalg.vector_norm(x, axis=axis, ord=p, keepdims=keepdims)
    size = elementwise.abs(x)
    zero = size == 0
    powers = elementwise.where(zero, 0.0, elementwise.where(zero, 1.0, size) ** p)
    total = reduce.sum(powers, axis=axis, keepdims=keepdims)
    none = total == 0
    return elementwise.where(none, 0.0, elementwise.where(none, 1.0, total) ** (1 / p))


@composed
def cross(x: ArrayLike, other: ArrayLike, axis: int | None = None) -> "Tensor":
    """The cross product of vectors along an axis, which has to be named where PyTorch would take
    another one than NumPy: the first of size 3, and not the last.

    Shapes: (*a, 3, *b), (*a, 3, *b), broadcast -> (*a, 3, *b).
    Raises: ShapeError for no axis of size 3, OptionError where one has to be named.
    Source: PyTorch.
    Example:
        >>> cross(as_value([1, 0, 0]), as_value([0, 1, 0])).tolist()
        [0, 0, 1]
    """
    x, other = as_value(x, where="cross"), as_value(other, where="cross")
    shape = broadcast_shapes("cross", x.shape, other.shape)
    threes = [i - len(shape) for i, n in enumerate(shape) if n == 3]
    if axis is None and threes and threes[0] != -1 == threes[-1]:
        fix = f"Write dim={threes[0]}, which PyTorch takes, or axis=-1, which NumPy takes."
        raise OptionError("cross", "an axis by its name", f"none for shape {shape}", fix)
    axis = axis if axis is not None else threes[0] if threes else -1
    return linalg.cross(x, other, axis=axis)


@composed
@rounded_once
def dist(x: ArrayLike, other: ArrayLike, p: float = 2) -> "Tensor":
    """The p-norm of x - other.

    Shapes: (...), (...), which broadcast -> ().
    Source: PyTorch.
    """
    return power_norm(as_value(x) - as_value(other), float(p))


MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@composed
@rounded_once
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = MODES[0]) -> Any:
    """The p-norms of all differences of a row of x1 and a row of x2. All are computed as they are
    written, whatever the mode, which only trades accuracy for speed in PyTorch.

    Shapes: (..., m, k), (..., n, k) -> (..., m, n).
    Raises: OptionError for an unknown mode.
    Source: PyTorch.
    """
    check_option("cdist", "compute_mode", compute_mode, MODES)
    x1, x2 = (as_value(x, where="cdist") for x in (x1, x2))
    apart = expand_dims(x1, -2) - expand_dims(x2, -3)  # (..., m, n, k)
    return power_norm(apart, float(p), axis=-1)


@rounded_once
def pdist(x: ArrayLike, p: float = 2.0) -> Any:
    """The p-norms of the differences of all pairs of rows, the first with each later one and so on.

    Shapes: (n, k) -> (n · (n - 1) / 2,).
    Raises: ShapeError unless x is a matrix.
    Source: SciPy, PyTorch.
    """
    x = as_value(x, where="pdist")
    if x.ndim != 2:
        raise ShapeError("pdist", "a matrix", x.shape, "Reshape it.")
    first, second = (gather(x, adopt(k), axis=0) for k in np.triu_indices(x.shape[0], 1))
    return power_norm(first - second, float(p), axis=-1)


@composed
@rounded_once
def renorm(x: ArrayLike, p: float, axis: int, maxnorm: float) -> Any:
    """x with each slice along an axis whose p-norm exceeds `maxnorm` scaled down to it.

    Shapes: (..., n, ...) -> (..., n, ...).
    Source: PyTorch.
    """
    x = as_value(x, where="renorm")
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    size = power_norm(x, float(p), axis=others, keepdims=True)
    return elementwise.where(size > maxnorm, x * (maxnorm / (size + 1e-7)), x)
