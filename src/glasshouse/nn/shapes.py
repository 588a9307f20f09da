"""Small layers of Flashlight: they move, cast or scale, or are a function of the user."""

from collections.abc import Sequence
from typing import Any

from glasshouse.base import ShapeError, as_dtype, check_axis
from glasshouse.base.dtype import DType, DTypeLike
from glasshouse.dispatch.value import as_value, cast
from glasshouse.nn.checks import check_callable, check_floating
from glasshouse.nn.functional.activation import sigmoid
from glasshouse.nn.functional.norm import norm
from glasshouse.nn.layer import layer
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor, log, permute_dims, reshape, where

__all__ = ["Log", "Normalize", "PrecisionCast", "Reorder", "Swish", "ThresholdReLU", "Transform",
           "View"]  # fmt: skip


class Log(Module):
    """log(x).

    Shapes: any -> the same.
    Source: standard.
    """

    def forward(self, input: Tensor) -> Tensor:
        return log(check_floating("Log", input))


class Swish(Module):
    """x · sigmoid(beta · x); SiLU is that with a beta of 1.

    Shapes: any -> the same.
    Source: Ramachandran et al. 2017, arXiv:1710.05941, sec. 4.
    """

    _shown = ("beta",)

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, input: Tensor) -> Tensor:
        x = check_floating("Swish", input)
        return x * sigmoid(x * self.beta)


class ThresholdReLU(Module):
    """x where x >= threshold, else 0.

    Shapes: any -> the same.
    Source: Konda et al. 2014, arXiv:1402.3337.
    Example:
        >>> ThresholdReLU(1.0)(gh.asarray([0.5, 1.0, 2.0])).tolist()
        [0.0, 1.0, 2.0]
    """

    _shown_first = ("threshold",)

    def __init__(self, threshold: float = 1.0) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="ThresholdReLU")
        return where(x >= self.threshold, x, 0)


def scaled_to_norm(
    input: Tensor, axes: Sequence[int], p: float = 2.0, eps: float = 1e-12, value: float = 1.0
) -> Tensor:
    """value · x / max(‖x‖ₚ, eps), the norm over one axis or several."""
    x = check_floating("Normalize", input)
    axis_tuple = axes if isinstance(axes, (tuple, list)) else (axes,)
    axes = tuple(check_axis("Normalize", axis, x.ndim) for axis in axis_tuple)
    return x / norm(x, p, axes, eps) * value


NORMALIZE = """value · x / max(‖x‖ₚ, eps), the norm over one axis or several.

    Shapes: any -> the same.
    Raises: ShapeError for an axis out of range.
    Source: standard; the arguments as in Flashlight.
    Example:
        >>> Normalize(-1, value=5.0)(gh.asarray([3.0, 4.0])).tolist()
        [3.0, 4.0]
    """
Normalize: type[Any] = layer("Normalize", scaled_to_norm, __doc__=NORMALIZE)


class PrecisionCast(Module):
    """The input in another dtype, its gradient in its own.

    Shapes: any -> the same.
    Source: standard.
    """

    _shown_first = ("dtype",)

    def __init__(self, dtype: DTypeLike) -> None:
        super().__init__()
        self.dtype: DType = as_dtype(dtype)

    def forward(self, input: Tensor) -> Tensor:
        return cast(as_value(input, where="PrecisionCast"), self.dtype)


class Reorder(Module):
    """The input with its axes in another order.

    Shapes: (s₀, s₁, …) -> (s_axes[0], s_axes[1], …).
    Raises: ShapeError unless each axis is named once.
    Source: standard.
    """

    _shown_first = ("axes",)

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes: tuple[Any, ...] | tuple[int, ...] | tuple[int] = (
            tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes
        )

    def forward(self, input: Tensor) -> Tensor:
        return permute_dims(as_value(input, where="Reorder"), self.axes)


def view(input: Tensor, shape: Any) -> Tensor:
    """The input in another shape; 0 keeps the size of an axis, -1 is reckoned from the others."""
    x = as_value(input, where="View")
    if any(size == 0 and i >= x.ndim for i, size in enumerate(shape)):
        raise ShapeError("View", f"axes to keep for {shape}", x.shape, "Name the sizes.")
    return reshape(x, tuple(x.shape[i] if s == 0 else s for i, s in enumerate(shape)))


VIEW = """The input in another shape; 0 keeps the size of an axis, -1 is reckoned from the others.

    Shapes: any -> shape.
    Raises: ShapeError unless the elements fit.
    Source: standard; 0 as in Flashlight.
    Example:
        >>> View((0, -1))(gh.ones((2, 3, 4))).shape
        (2, 12)
    """
View: type[Any] = layer("View", view, __doc__=VIEW)


class Transform(Module):
    """A function as a layer, with a name to show.

    Shapes: as the function's.
    Raises: DTypeError for a function that is not callable.
    Source: standard.
    Example:
        >>> Transform(lambda x: x * 2, "double")(3)
        6
    """

    _shown_first = ("name",)

    def __init__(self, function: Any, name: Any = None) -> None:
        super().__init__()
        check_callable("Transform", "function", function)
        self.function = function
        self.name: Any = getattr(function, "__name__", "function") if name is None else name

    def forward(self, *args: Tensor, **kwargs: Any) -> Tensor:
        return self.function(*args, **kwargs)
