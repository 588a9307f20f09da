"""Softmax and its logarithm."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, OptionError, accumulation_dtype, as_dtype, check_axis
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike, as_value, cast
from glasshouse.ops.elementwise import exp, log
from glasshouse.tensor.standard import reduce

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


def softmax_operands(
    where_: str,
    input: ArrayLike,
    dim: int | Sequence[int] | None,
    dtype: DTypeLike | None,
    axis: int | Sequence[int] | None,
) -> "tuple[Tensor, tuple[Any, ...] | int]":
    """(x, the axis or axes): none for one number, as PyTorch has it."""
    x = as_value(input) if dtype is None else cast(as_value(input), as_dtype(dtype))
    if not x.dtype.is_inexact:
        got, fix = f"{x.dtype.name} {x.shape}", "Convert it with input.float()."
        raise DTypeError(where_, "a floating input", got, fix)
    if (dim is None) == (axis is None):
        fix = "Pass dim=-1 for the last axis."
        raise OptionError(where_, "one of dim and axis", f"dim={dim} and axis={axis}", fix)
    axis = axis if dim is None else dim
    return x, () if not x.ndim and axis in (0, -1) else check_axis(where_, axis, x.ndim)


def shifted(x: "Tensor", axis: int | Sequence[int]) -> "Tensor":
    """x - max(x) along axis; the maximum cancels in the result, so it is detached."""
    return x - reduce.max(x, axis=axis, keepdims=True).detach()


@composed
def softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> "Tensor":
    """exp(x) / sum(exp(x)) along dim (or axis), without overflow.

    Dtypes: floating; `dtype` casts first.
    Raises: OptionError unless just one of dim and axis is given.
    Source: Bridle 1990.
    Example:
        >>> softmax([[0.0, 0.0]], dim=-1).tolist()
        [[0.5, 0.5]]
    """
    x, axis = softmax_operands("softmax", input, dim, dtype, axis)
    e = exp(shifted(cast(x, accumulation_dtype(x.dtype)), axis))
    return cast(e / reduce.sum(e, axis=axis, keepdims=True), x.dtype)


@composed
def log_softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> "Tensor":
    """x - log(sum(exp(x))) along dim (or axis), computed without overflow.

    Shapes: any -> the same.
    Raises: OptionError unless exactly one of dim and axis is given.
    Source: standard.
    """
    x, axis = softmax_operands("log_softmax", input, dim, dtype, axis)
    z = shifted(cast(x, accumulation_dtype(x.dtype)), axis)
    return cast(z - log(reduce.sum(exp(z), axis=axis, keepdims=True)), x.dtype)
