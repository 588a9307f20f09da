"""Losses with parameters: a softmax over clusters of classes, and one after a linear layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.nn.checks import REDUCTIONS, check_floating, check_positive
from glasshouse.nn.containers import ModuleList, Sequential
from glasshouse.nn.functional.activation import log_softmax
from glasshouse.nn.functional.likelihood import linear_cross_entropy
from glasshouse.nn.functional.loss import refuse_unless
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_integer, check_like, check_option
from glasshouse.tensor import Tensor, arange, argmax, clip, concat
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class ASMoutput(NamedTuple):
    """The log-probability of each target, and minus their mean."""

    output: Tensor
    loss: Tensor


def pick(x: Tensor, index: Tensor) -> Tensor:
    """x at one position of its last axis each."""
    here = reshape(index, (*index.shape, 1)) == arange(x.shape[-1])
    return reduce.sum(choose(here, x, 0), axis=-1)


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of many classes, which are sorted by falling frequency. A head scores those
    below the first cutoff, and one entry for each later cluster; its own tail, with
    in_features // div_value^(i + 1) features, scores a cluster's classes. All tails are computed
    for all rows, so that a captured step does not depend on the targets.

    Shapes: input (N, in_features), target (N,), or (in_features,) and () -> output as target, and
        the loss, minus its mean.
    Raises: OptionError for cutoffs that are not increasing integers from 1 to n_classes - 1, and
        for a target outside [0, n_classes); ShapeError for other shapes.
    Source: Grave et al. 2017, arXiv:1609.04309.
    Example:
        >>> model = AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10])
        >>> output, loss = model(gh.zeros((3, 16)), gh.asarray([0, 7, 19]))
        >>> output.shape, loss.shape, model.log_prob(gh.zeros((3, 16))).shape
        ((3,), (), (3, 20))
    """

    cutoffs: list[int]
    div_value: float
    head_bias: bool
    shortlist_size: int
    n_clusters: int

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        where = "AdaptiveLogSoftmaxWithLoss"
        check_positive(where, in_features=in_features, n_classes=n_classes)
        cutoffs = list(cutoffs)
        fits = cutoffs and all(isinstance(c, int) and 0 < c < n_classes for c in cutoffs)
        if not fits or any(a >= b for a, b in pairwise(cutoffs)):
            expected = f"cutoffs that rise, from 1 to {n_classes - 1}"
            raise OptionError(where, expected, repr(cutoffs), "Sort them.")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs, self.div_value, self.head_bias = [*cutoffs, n_classes], div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size: int = self.shortlist_size + self.n_clusters
        placed: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head: Linear = Linear(in_features, self.head_size, bias=head_bias, **placed)
        self.tail: ModuleList = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **placed),
                    Linear(hidden, high - low, bias=False, **placed),
                )
            )

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        for module in (self.head, *(part for pair in self.tail for part in pair)):
            module.reset_parameters()

    def checked(self, input: Tensor, ndims: tuple[int, ...]) -> Tensor:
        x = check_floating("AdaptiveLogSoftmaxWithLoss", input)
        if x.ndim not in ndims or x.shape[-1] != self.in_features:
            expected = f"an input (N, {self.in_features})"
            raise ShapeError("AdaptiveLogSoftmaxWithLoss", expected, x.shape, "Reshape it.")
        return x

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        where = "AdaptiveLogSoftmaxWithLoss"
        x, target = self.checked(input, (1, 2)), as_value(target, where=where)
        check_like(where, "target", target, x.shape[:-1], "Give one class for each row.")
        head = log_softmax(self.head(x), dim=-1)
        fits = (target >= 0) & (target < self.n_classes)
        expected = f"targets from 0 to {self.n_classes - 1}"
        nothing = refuse_unless(where, fits, target, expected, "Change the targets.")
        place, output = target + nothing, 0
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            place = choose(inside, self.shortlist_size + i, place)
            scores = log_softmax(self.tail[i](x), dim=-1)
            label_scores = pick(scores, clip(target - low, 0, high - low - 1))
            output = output + choose(inside, label_scores, 0)
        output = output + pick(head, place)
        return ASMoutput(output, -reduce.mean(output))

    def log_prob(self, input: Tensor) -> Any:
        """The log-probabilities of all classes. Shapes: (N, in_features) -> (N, n_classes)."""
        x = self.checked(input, (2,))
        return self.all_classes(x, log_softmax(self.head(x), dim=-1))

    def all_classes(self, x: Tensor, head: Tensor) -> Tensor:
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(log_softmax(tail(x), dim=-1) + head[:, at : at + 1])
        return concat(parts, axis=1)

    def predict(self, input: Tensor) -> Any:
        """The most likely class of each row: that of the head if it is in the shortlist, else that
        of all classes. Shapes: (N, in_features) -> (N,)."""
        x = self.checked(input, (2,))
        head = log_softmax(self.head(x), dim=-1)
        best = argmax(head, axis=1)
        return choose(best < self.shortlist_size, best, argmax(self.all_classes(x, head), axis=1))


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` takes its rows in chunks: `batch_chunk_size` rows each, or as many
    as make a chunk's logits about as large as the input ("auto"; "aspect_ratio:f" a fraction 1/f of
    them). Sums are carried in float32 at least and graphs may be kept, whatever `acc_policy`,
    `acc_dtype` and `allow_retain_graph` say: they are PyTorch's, and change nothing here.

    Raises: OptionError for another chunk size or method.
    Source: PyTorch.
    Example:
        >>> LinearCrossEntropyOptions(batch_chunk_size=64).rows(1000, 16, 50000)
        64
        >>> LinearCrossEntropyOptions().rows(1000, 100, 1000)
        128
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None

    def __post_init__(self) -> None:
        where = "LinearCrossEntropyOptions"
        check_option(
            where, "acc_policy", self.acc_policy, ("auto", "accurate", "balanced", "compact")
        )
        if self.batch_chunk_size is not None:
            check_integer(where, "batch_chunk_size", self.batch_chunk_size, least=1)
        name, colon, factor = (self.chunking_method or "auto").partition(":")
        fits = name == "auto" if not colon else factor.isdigit() and int(factor) > 0
        if (
            not (fits and name in ("auto", "aspect_ratio"))
            and self.chunking_method != "aspect_ratio"
        ):
            expected = "chunking_method 'auto', 'aspect_ratio' or 'aspect_ratio:f'"
            raise OptionError(where, expected, repr(self.chunking_method), "Use 'auto'.")

    def rows(self, batch: int, in_features: int, classes: int) -> int:
        """How many rows a chunk has."""
        if self.batch_chunk_size is not None:
            return min(self.batch_chunk_size, batch)
        if self.chunking_method is None:
            return batch
        row_count = math.ceil(batch / math.ceil(classes / in_features))
        factor = int(self.chunking_method.partition(":")[2] or 1)
        return max(1, min((1 << (row_count - 1).bit_length()) // factor, batch))


class LinearCrossEntropyLoss(Module):
    """A linear layer and the cross-entropy of its output; see `functional.linear_cross_entropy`.

    Shapes: input (N, in_features) or (in_features,), target (N, *out_features) of classes, or
        (N, num_classes, *out_features) of probabilities -> ().
    Raises: ShapeError for another weight; OptionError for label smoothing outside [0, 1].
    Source: PyTorch.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: Any = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__()
        where = "LinearCrossEntropyLoss"
        check_option(where, "reduction", reduction, REDUCTIONS)
        if not 0 <= label_smoothing <= 1:
            raise OptionError(where, "label_smoothing in [0, 1]", label_smoothing, "Change it.")
        if weight is not None:
            weight = check_like(where, "weight", as_value(weight, where=where), (num_classes,))
        self.register_buffer("weight", weight)
        self.num_classes = num_classes
        self.out_features: tuple[int, ...] = tuple(out_features)
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        outputs = math.prod(self.out_features, start=num_classes)
        self.linear: Linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        outputs = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return linear_cross_entropy(
            input,
            reshape(self.linear.weight, (*outputs, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else reshape(bias, outputs),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
