"""The linear map x Wᵀ + b; look-up of rows by index, and one-hot vectors."""

from math import prod
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.checks import bias_like, check_floating, check_same_dtype, refuse_sparse
from glasshouse.ops.checks import check_integers
from glasshouse.ops.index import gather, scatter_add, scatter_set
from glasshouse.ops.movement import permute
from glasshouse.tensor import Tensor, abs, arange, matmul, matrix_transpose, zeros
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


@composed
def linear(
    input: Any, weight: Tensor, bias: Tensor | None = None, *, _where: str = "linear"
) -> Tensor:
    """x Wᵀ + b over the last axis; leading axes are merged into one product.

    Shapes: input (..., in), weight (out, in), bias (out,) -> (..., out).
    Raises: ShapeError if the last axis of input is not in; DTypeError for unequal dtypes.
    Source: standard.
    """
    x = check_floating(_where, input)
    weight = check_floating(_where, weight, "weight")
    if weight.ndim != 2:
        raise ShapeError(_where, "a weight (out, in)", weight.shape, "Reshape.")
    features = weight.shape[1]
    if x.ndim == 0 or x.shape[-1] != features:
        fix = "Flatten or transpose the input, or change in_features."
        raise ShapeError(_where, f"{features} features on the last axis of the input", x.shape, fix)
    check_same_dtype(_where, x, weight)
    y = matmul(reshape(x, (prod(x.shape[:-1]), features)), matrix_transpose(weight))
    if bias is not None:
        y = y + bias_like(y, bias)
    return reshape(y, (*x.shape[:-1], weight.shape[0]))


@composed
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """yₖ = x₁ᵀ Wₖ x₂ + bₖ over the last axes.

    Shapes: input1 (..., in1), input2 (..., in2), weight (out, in1, in2), bias (out,) -> (..., out).
    Raises: ShapeError for sizes that do not fit; DTypeError for unequal dtypes.
    Source: standard.
    Example:
        >>> bilinear([1.0, 2.0], [3.0], [[[1.0], [1.0]]]).tolist()
        [9.0]
    """
    where = "bilinear"
    named_inputs = (("input1", input1), ("input2", input2), ("weight", weight))
    x1, x2, w = (check_floating(where, x, name) for name, x in named_inputs)
    fits = w.ndim == 3 and x1.ndim == x2.ndim > 0 and x1.shape[:-1] == x2.shape[:-1]
    if not fits or (x1.shape[-1], x2.shape[-1]) != w.shape[1:]:
        expected = "inputs (..., in1) and (..., in2) for a weight (out, in1, in2)"
        fix = "Let the axes before the last one agree."
        raise ShapeError(where, expected, f"{x1.shape}, {x2.shape} and {w.shape}", fix)
    check_same_dtype(where, x1, w)
    check_same_dtype(where, x2, w)
    lead, (outs, in1, in2) = x1.shape[:-1], w.shape
    rows = reshape(x1, (prod(lead), in1))
    turned = reshape(permute(w, axes=(1, 0, 2)), (in1, outs * in2))
    maps = reshape(matmul(rows, turned), (prod(lead), outs, in2))
    y = reduce.sum(maps * cast(reshape(x2, (prod(lead), 1, in2)), maps.dtype), axis=-1)
    y = y if bias is None else y + bias_like(y, bias)
    return reshape(y, (*lead, outs))


def embedding(
    input: Any,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    _where: str = "embedding",
) -> Tensor:
    """The rows of weight that input names.
    Row `padding_idx` gets no gradient. `max_norm` first scales the rows in use, in weight itself,
    to at most that norm. `scale_grad_by_freq` divides gradients by how often their row is used.

    Shapes: input (...) of integers, weight (V, D) -> (..., D).
    Raises: IndexOutOfRangeError for an index outside [0, V); DTypeError unless they are integers;
        OptionError for padding_idx outside [-V, V).
    Source: Mikolov et al. 2013, arXiv:1301.3781.
    """
    refuse_sparse(_where, sparse)
    index = as_value(input, where=_where)
    weight = check_floating(_where, weight, "weight")
    if weight.ndim != 2:
        raise ShapeError(_where, "a weight (V, D)", weight.shape, "Reshape it.")
    check_integers(_where, index, "Convert them with input.long().")
    rows = weight.shape[0]
    padding_idx = check_padding_idx(_where, padding_idx, rows)
    # Look-ups count from the end for negative indices; here those are mistakes.
    valid = choose(index < 0, index - rows, index)
    try:
        if max_norm is not None:
            shrink_rows(weight, valid, max_norm, norm_type)
        y = gather(weight, valid, axis=0)
    except IndexOutOfRangeError:
        raise outside_of_table(_where, index, rows) from None
    if scale_grad_by_freq:
        ones = cast(valid == valid, y.dtype)
        uses = scatter_add(zeros((rows,), dtype=y.dtype), valid, ones, axis=0)
        share = reshape(1 / gather(uses, valid, axis=0), (*index.shape, 1))
        y = y.detach() + (y - y.detach()) * share
    if padding_idx is not None:
        y = choose(reshape(index == padding_idx, (*index.shape, 1)), y.detach(), y)
    return y


def check_padding_idx(where: str, padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        fix = "Name a row of the weight."
        raise OptionError(where, f"padding_idx from {-rows} to {rows - 1}", padding_idx, fix)
    return padding_idx % rows


def shrink_rows(weight: Any, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` named by `index`, in place, to a norm of at most max_norm."""
    with no_grad():
        indices = reshape(index, (index.size,))
        rows = gather(weight.detach(), indices, axis=0)
        size = reduce.sum(abs(rows) ** norm_type, axis=1, keepdims=True) ** (1 / norm_type)
        # 1e-7 as in PyTorch: the scaled row stays below the limit in spite of rounding
        rows = choose(size > max_norm, rows * (max_norm / (size + 1e-7)), rows)
        weight[...] = scatter_set(weight.detach(), indices, rows, axis=0)


def outside_of_table(where: str, index: Tensor, rows: int) -> IndexOutOfRangeError:
    """The error of indices outside a table of so many rows."""
    got = f"indices from {reduce.min(index).item()} to {reduce.max(index).item()}"
    fix = "Enlarge num_embeddings or change the indices."
    return IndexOutOfRangeError(where, f"indices from 0 to {rows - 1}", got, fix)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 vectors of zeros with a 1 at each index; -1 classes: the largest index plus 1.

    Shapes: (...) -> (..., num_classes).
    Raises: DTypeError unless the indices are integers; IndexOutOfRangeError for one outside [0,
        num_classes).
    Source: standard.
    """
    index = as_value(tensor, where="one_hot")
    check_integers("one_hot", index, "Use .long().")
    if index.size:
        low, high = int(reduce.min(index).item()), int(reduce.max(index).item())
        num_classes = high + 1 if num_classes == -1 else num_classes
        if low < 0 or high >= num_classes:
            expected = f"indices from 0 to {num_classes - 1}"
            fix = "Change the indices or num_classes."
            raise IndexOutOfRangeError("one_hot", expected, f"indices from {low} to {high}", fix)
    elif num_classes < 1:
        raise OptionError("one_hot", "num_classes for an empty input", "-1", "Pass it.")
    return cast(reshape(index, (*index.shape, 1)) == arange(num_classes), arange(0).dtype)
