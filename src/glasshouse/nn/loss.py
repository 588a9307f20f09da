"""Losses and distances as layers."""

from functools import partial
from typing import Any

from glasshouse.dispatch.value import ArrayLike
from glasshouse.nn import functional
from glasshouse.nn.checks import REDUCTIONS, check_positive
from glasshouse.nn.layer import FunctionModule, layer
from glasshouse.nn.module import Parameter
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor, zeros

__all__ = ["ASGLoss", "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "ContrastiveLoss",
           "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss", "DiceLoss", "FocalLoss",
           "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "InfoNCELoss", "KLDivLoss",
           "L1Loss", "LabelSmoothingLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
           "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "NTXentLoss",
           "PairwiseDistance", "PoissonNLLLoss", "RNNTLoss", "SigmoidFocalLoss", "SmoothL1Loss",
           "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss"]  # fmt: skip


class LossModule(FunctionModule):
    """Base of losses: a function, its options as attributes, its tensors as buffers."""

    shown: tuple[()] = ()
    tensors: tuple[str, ...] = ("weight", "pos_weight")
    reductions: tuple[str, ...] = REDUCTIONS

    def __init__(self, options: dict[Any, Any]) -> None:
        check_option(type(self).__name__, "reduction", options["reduction"], self.reductions)
        super().__init__(options)


class Loss(LossModule):
    """A loss of an input and a target."""

    def forward(self, input: Any, target: Any) -> Tensor:
        return self.function(input, target, **self.chosen())


class LossOfTwo(LossModule):
    """A loss of two inputs and a target."""

    def forward(self, input1: Any, input2: Any, target: Any) -> Tensor:
        return self.function(input1, input2, target, **self.chosen())


class LossOfViews(LossModule):
    """A loss of two views of the same samples."""

    def forward(self, view1: Any, view2: Any) -> Any:
        return self.function(view1, view2, **self.chosen())


class LossOfThree(LossModule):
    """A loss of an anchor, a positive that should lie near it, and a negative."""

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        return self.function(anchor, positive, negative, **self.chosen())


class LossByDistance(LossOfThree):
    """A loss of three with a distance, by default `PairwiseDistance`."""

    def __init__(self, options: dict[Any, Any]) -> None:
        if options["distance_function"] is None:
            options["distance_function"] = PairwiseDistance()
        super().__init__(options)


class LossWithVariance(LossModule):
    """A loss of a distribution's mean and variance."""

    def forward(self, input: Any, target: Any, var: Any) -> Tensor:
        return self.function(input, target, var, **self.chosen())


class LossWithNegatives(LossModule):
    """A loss of queries, their positives, and negatives if given."""

    def forward(self, query: Any, positive: Any, negatives: Any = None) -> Any:
        return self.function(query, positive, negatives, **self.chosen())


class LossOfAlignments(LossModule):
    """A loss of log-probabilities and labels without their times."""

    def forward(
        self,
        log_probs: ArrayLike,
        targets: ArrayLike,
        input_lengths: ArrayLike,
        target_lengths: ArrayLike,
    ) -> Tensor:
        lengths = (input_lengths, target_lengths)
        return self.function(log_probs, targets, *lengths, **self.chosen())


class LossOfEmissions(LossModule):
    """A loss of a transducer's logits and labels."""

    def forward(self, logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any) -> Any:
        lengths = (logit_lengths, target_lengths)
        return self.function(logits, targets, *lengths, **self.chosen())


class Distance(FunctionModule):
    """A number for each pair of vectors of two inputs."""

    shown: tuple[()] = ()

    def forward(self, x1: Any, x2: Any) -> Tensor:
        return self.function(x1, x2, **self.chosen())


CosineSimilarity: type[Any] = layer(
    "CosineSimilarity", functional.cosine_similarity, "dim eps", Distance
)
PairwiseDistance: type[Any] = layer(
    "PairwiseDistance", functional.pairwise_distance, "p eps keepdim", Distance
)

loss: partial[type[Any]] = partial(layer, base=Loss)
MSELoss: type[Any] = loss("MSELoss", functional.mse_loss, "* reduction")
L1Loss: type[Any] = loss("L1Loss", functional.l1_loss, "* reduction")
SmoothL1Loss: type[Any] = loss("SmoothL1Loss", functional.smooth_l1_loss, "* reduction beta")
HuberLoss: type[Any] = loss("HuberLoss", functional.huber_loss, "reduction delta")
BCELoss: type[Any] = loss("BCELoss", functional.binary_cross_entropy, "weight * reduction")
BCEWithLogitsLoss: type[Any] = loss(
    "BCEWithLogitsLoss",
    functional.binary_cross_entropy_with_logits,
    "weight * reduction pos_weight",
)
NLLLoss: type[Any] = loss("NLLLoss", functional.nll_loss, "weight * ignore_index reduction")
CrossEntropyLoss: type[Any] = loss(
    "CrossEntropyLoss", functional.cross_entropy, "weight * ignore_index reduction label_smoothing"
)
KLDivLoss: type[Any] = loss(
    "KLDivLoss", functional.kl_div, "* reduction log_target", reductions=(*REDUCTIONS, "batchmean")
)


GaussianNLLLoss: type[Any] = layer(
    "GaussianNLLLoss", functional.gaussian_nll_loss, "* full eps reduction", LossWithVariance
)
PoissonNLLLoss: type[Any] = loss(
    "PoissonNLLLoss", functional.poisson_nll_loss, "log_input full * eps reduction"
)
SoftMarginLoss: type[Any] = loss("SoftMarginLoss", functional.soft_margin_loss, "* reduction")
HingeEmbeddingLoss: type[Any] = loss(
    "HingeEmbeddingLoss", functional.hinge_embedding_loss, "margin * reduction"
)
MultiMarginLoss: type[Any] = loss(
    "MultiMarginLoss", functional.multi_margin_loss, "p margin weight * reduction"
)
MultiLabelMarginLoss: type[Any] = loss(
    "MultiLabelMarginLoss", functional.multilabel_margin_loss, "* reduction"
)
MultiLabelSoftMarginLoss: type[Any] = loss(
    "MultiLabelSoftMarginLoss", functional.multilabel_soft_margin_loss, "weight * reduction"
)
LabelSmoothingLoss: type[Any] = loss(
    "LabelSmoothingLoss",
    functional.label_smoothing_loss,
    "smoothing ignore_index reduction",
)
SigmoidFocalLoss: type[Any] = loss(
    "SigmoidFocalLoss", functional.sigmoid_focal_loss, "alpha gamma reduction"
)
FocalLoss: type[Any] = loss(
    "FocalLoss", functional.focal_loss, "weight gamma ignore_index reduction"
)
DiceLoss: type[Any] = loss("DiceLoss", functional.dice_loss, "smooth reduction")

between: partial[type[Any]] = partial(layer, base=LossOfTwo, options="margin * reduction")
MarginRankingLoss: type[Any] = between("MarginRankingLoss", functional.margin_ranking_loss)
CosineEmbeddingLoss: type[Any] = between("CosineEmbeddingLoss", functional.cosine_embedding_loss)
ContrastiveLoss: type[Any] = between("ContrastiveLoss", functional.contrastive_loss)
TripletMarginLoss: type[Any] = layer(
    "TripletMarginLoss",
    functional.triplet_margin_loss,
    "margin p eps swap * reduction",
    LossOfThree,
)
TripletMarginWithDistanceLoss: type[Any] = layer(
    "TripletMarginWithDistanceLoss",
    functional.triplet_margin_with_distance_loss,
    "* distance_function margin swap reduction",
    LossByDistance,
)
InfoNCELoss: type[Any] = layer(
    "InfoNCELoss", functional.info_nce_loss, "temperature reduction", LossWithNegatives
)
NTXentLoss: type[Any] = layer(
    "NTXentLoss", functional.nt_xent_loss, "temperature reduction", LossOfViews
)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` under the name that it once had for images."""


CTCLoss: type[Any] = layer(
    "CTCLoss", functional.ctc_loss, "blank reduction zero_infinity", LossOfAlignments
)
RNNTLoss: type[Any] = layer(
    "RNNTLoss", functional.rnnt_loss, "blank reduction fused_log_softmax", LossOfEmissions
)


class ASGLoss(LossModule):
    """`functional.asg_loss` with transitions (num_classes, num_classes) as parameter, at first 0.

    Shapes: input (T, N, num_classes), targets (N, S), lengths (N,) -> ().
    Source: Collobert et al. 2016, arXiv:1609.03193.
    Example:
        >>> loss = ASGLoss(3)
        >>> x = gh.zeros((4, 1, 3))
        >>> loss(x, [[0, 2]], [4], [2]).shape, loss.path(x, [4])[0].shape
        ((), (4, 1))
    """

    def __init__(self, num_classes: Any, reduction: str = "mean") -> None:
        super().__init__({"reduction": reduction})
        check_positive("ASGLoss", num_classes=num_classes)
        self.transitions: Parameter = Parameter(zeros((num_classes, num_classes)))

    def forward(self, input: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        operands = (input, targets, input_lengths, target_lengths, self.transitions)
        return functional.asg_loss(*operands, self.reduction)

    def path(self, input: Tensor, input_lengths: Any) -> Any:
        """The labels of the highest score and the score; see `functional.asg_path`."""
        return functional.asg_path(input, input_lengths, self.transitions)

    def align(self, input: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """The best labels that read as the targets; see `functional.asg_align`."""
        operands = (input, targets, input_lengths, target_lengths)
        return functional.asg_align(*operands, self.transitions)
