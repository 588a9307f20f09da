"""Loss layers: the functions of `functional.loss` as modules."""

from functools import partial

from glasshouse.nn.checks import REDUCTIONS
from glasshouse.nn.functional import loss as functional
from glasshouse.nn.functional.ctc import ctc_loss
from glasshouse.nn.layer import Layer, layer
from glasshouse.ops.checks import check_option


class Loss(Layer):
    """What the losses share: a function, its options as attributes, its tensors as buffers."""

    shown, tensors = (), ("weight", "pos_weight")
    reductions: tuple[str, ...] = REDUCTIONS

    def __init__(self, options: dict):
        check_option(type(self).__name__, "reduction", options["reduction"], self.reductions)
        super().__init__(options)

    def forward(self, input, target):
        return self.function(input, target, **self.chosen())


loss = partial(layer, base=Loss)
MSELoss = loss("MSELoss", functional.mse_loss, "* reduction")
L1Loss = loss("L1Loss", functional.l1_loss, "* reduction")
SmoothL1Loss = loss("SmoothL1Loss", functional.smooth_l1_loss, "* reduction beta")
HuberLoss = loss("HuberLoss", functional.huber_loss, "reduction delta")
BCELoss = loss("BCELoss", functional.binary_cross_entropy, "weight * reduction")
BCEWithLogitsLoss = loss("BCEWithLogitsLoss", functional.binary_cross_entropy_with_logits,
                         "weight * reduction pos_weight")  # fmt: skip
NLLLoss = loss("NLLLoss", functional.nll_loss, "weight * ignore_index reduction")
CrossEntropyLoss = loss(
    "CrossEntropyLoss", functional.cross_entropy, "weight * ignore_index reduction label_smoothing"
)
KLDivLoss = loss(
    "KLDivLoss", functional.kl_div, "* reduction log_target", reductions=(*REDUCTIONS, "batchmean")
)


class CTCLoss(loss("CTCLoss", ctc_loss, "blank reduction zero_infinity")):
    """-log p(target) over all alignments; see `functional.ctc_loss`."""

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        lengths = (input_lengths, target_lengths)
        return self.function(log_probs, targets, *lengths, **self.chosen())
