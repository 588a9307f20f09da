"""A vocabulary that ranks share out: its embedding, and cross-entropy without gathered scores."""

from typing import Any

from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.value import as_value, cast
from glasshouse.distributed.tensor_parallel.layout import reduced_output
from glasshouse.nn import CrossEntropyLoss, Embedding
from glasshouse.nn.functional.linear import embedding, outside_of_table
from glasshouse.nn.functional.loss import outside_of_classes
from glasshouse.ops import collective
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, exp, log, reshape, take_along_axis
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce


def own_index(index: Any, size: int, group: ProcessGroup) -> tuple[Any, ...]:
    """(which of these numbers lie in this rank's part of a vocabulary, their places in it); `size`
    is the size of the part. The place of a number of another rank is 0; of a number of no rank it
    is one that no part has, so that a lookup is an error on each rank."""
    moved = index - group.rank * size
    inside = (moved >= 0) & (moved < size)
    elsewhere = choose((index >= 0) & (index < group.size * size), 0, size)
    return inside, choose(inside, moved, elsewhere)


class VocabularyEmbedding(Embedding):
    """An Embedding in which each rank has the rows of its part of the vocabulary."""

    def forward(self, input: Any) -> Any:
        index = as_value(input, where="Embedding")
        check_integers("Embedding", index, "Convert them with input.long().")
        group, size = self.layout.group, self.weight.shape[0]
        inside, local = own_index(index, size, group)
        padding = self.padding_idx
        if padding is not None:
            padding -= group.rank * size
            padding = padding if 0 <= padding < size else None
        try:
            rows = embedding(local, self.weight, padding, _where="Embedding")
        except IndexOutOfRangeError:
            raise outside_of_table("Embedding", index, group.size * size) from None
        part = choose(reshape(inside, (*index.shape, 1)), rows, 0.0)
        return reduced_output(part, self.layout)


def cross_entropy(
    scores: Any,
    target: Any,
    *,
    group: ProcessGroup,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of scores whose classes the ranks of the group share out; the same on each of
    them. Only sums and maxima over the classes travel.

    Shapes: scores (N, classes of this rank, ...), target (N, ...) of integers -> (), or like target
        for reduction "none"
    Raises: ShapeError for a target of another shape, OptionError for another reduction,
        IndexOutOfRangeError for a class that no rank has and that is not ignore_index
    Source: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3
    """
    where = "distributed.cross_entropy"
    check_option(where, "reduction", reduction, ("mean", "sum", "none"))
    scores, target = as_value(scores, where=where), as_value(target, where=where)
    check_integers(where, target, "Give the numbers of classes.")
    if scores.ndim < 2 or target.shape != (scores.shape[0], *scores.shape[2:]):
        fix = "Put the classes on axis 1."
        got = f"{scores.shape} and {target.shape}"
        raise ShapeError(where, "scores (N, C, ...) and a target (N, ...)", got, fix)
    top = reduce.max(scores, axis=1, keepdims=True).detach()
    top = collective.all_reduce(top, group=group, reduce="max", replicated=True)
    part_sums = reduce.sum(exp(scores - top), axis=1)
    total = collective.all_reduce(part_sums, group=group, reduce="sum", replicated=True)
    counts, size = target != ignore_index, scores.shape[1]
    inside, local = own_index(choose(counts, target, 0), size, group)
    try:
        picked = take_along_axis(scores - top, reshape(local, top.shape), axis=1)
    except IndexOutOfRangeError:
        raise outside_of_classes(where, target, group.size * size, ignore_index) from None
    picked = choose(inside, reshape(picked, target.shape), 0.0)
    picked = collective.all_reduce(picked, group=group, reduce="sum", replicated=True)
    losses = choose(counts, log(total) - picked, 0.0)
    if reduction == "none":
        return losses
    loss = reduce.sum(losses)
    return loss if reduction == "sum" else loss / reduce.sum(cast(counts, loss.dtype))


class VocabularyCrossEntropy(CrossEntropyLoss):
    """CrossEntropyLoss of scores whose classes the ranks share out."""

    def forward(self, input: Any, target: Any) -> Any:
        return cross_entropy(
            input,
            target,
            group=self.layout.group,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


def check_loss(where: str, loss: Any) -> None:
    """Refuse options that need all classes."""
    if loss.weight is not None or loss.label_smoothing:
        expected = "a CrossEntropyLoss without weight and label_smoothing"
        fix = "Gather the scores: Column(output=Replicate())."
        raise OptionError(where, expected, repr(loss), fix)
