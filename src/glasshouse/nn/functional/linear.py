"""The linear map x Wᵀ + b."""

from math import prod

from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import reshape
from glasshouse.nn.checks import bias_like, check_floating, check_same_dtype
from glasshouse.tensor.contract import matmul, matrix_transpose


def linear(input, weight, bias=None, *, _where="linear"):
    """x Wᵀ + b over the last axis; leading axes are merged into one product.
    Shapes: input (..., in), weight (out, in), bias (out,) -> (..., out). Raises: ShapeError if the
    last axis of input is not in; DTypeError for unequal dtypes. Source: standard."""
    x = check_floating(_where, input)
    weight = check_floating(_where, weight, "weight")
    if weight.ndim != 2:
        raise ShapeError(_where, "a weight (out, in)", weight.shape, "Reshape.")
    features = weight.shape[1]
    if x.ndim == 0 or x.shape[-1] != features:
        raise ShapeError(_where, f"{features} features on the last axis of the input", x.shape,
                         "Flatten or transpose the input, or change in_features.")  # fmt: skip
    check_same_dtype(_where, x, weight)
    y = matmul(reshape(x, (prod(x.shape[:-1]), features)), matrix_transpose(weight))
    if bias is not None:
        y = y + bias_like(y, bias)
    return reshape(y, (*x.shape[:-1], weight.shape[0]))
