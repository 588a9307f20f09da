"""Loss layers: the functions of `functional.loss` as modules."""

from glasshouse.nn.checks import REDUCTIONS, check_option
from glasshouse.nn.functional import loss as functional
from glasshouse.nn.functional.ctc import ctc_loss
from glasshouse.nn.module import Module


class Loss(Module):
    """What the losses share: a function, its options as attributes, its tensors as buffers."""

    function = staticmethod(functional.mse_loss)
    reductions: tuple[str, ...] = REDUCTIONS

    def __init__(self, reduction: str, tensors=None, **options):
        super().__init__()
        check_option(type(self).__name__, "reduction", reduction, self.reductions)
        options["reduction"] = reduction
        self._options = (*(tensors or {}), *options)
        for name, tensor in (tensors or {}).items():
            self.register_buffer(name, tensor)
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, input, target):
        options = {name: getattr(self, name) for name in self._options}
        return self.function(input, target, **options)


class MSELoss(Loss):
    """(x - y)²; see `functional.mse_loss`."""

    def __init__(self, *, reduction="mean"):
        super().__init__(reduction)


class L1Loss(Loss):
    """|x - y|; see `functional.l1_loss`."""

    function = staticmethod(functional.l1_loss)

    def __init__(self, *, reduction="mean"):
        super().__init__(reduction)


class SmoothL1Loss(Loss):
    """Squared below beta, absolute above; see `functional.smooth_l1_loss`."""

    function = staticmethod(functional.smooth_l1_loss)

    def __init__(self, *, reduction="mean", beta=1.0):
        super().__init__(reduction, beta=beta)


class HuberLoss(Loss):
    """Squared below delta, absolute above; see `functional.huber_loss`."""

    function = staticmethod(functional.huber_loss)

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction, delta=delta)


class BCELoss(Loss):
    """Cross-entropy of probabilities and 0/1 targets; see `functional.binary_cross_entropy`."""

    function = staticmethod(functional.binary_cross_entropy)

    def __init__(self, weight=None, *, reduction="mean"):
        super().__init__(reduction, {"weight": weight})


class BCEWithLogitsLoss(Loss):
    """Cross-entropy of logits and 0/1 targets: `functional.binary_cross_entropy_with_logits`."""

    function = staticmethod(functional.binary_cross_entropy_with_logits)

    def __init__(self, weight=None, *, reduction="mean", pos_weight=None):
        super().__init__(reduction, {"weight": weight, "pos_weight": pos_weight})


class NLLLoss(Loss):
    """-x[y] of log-probabilities; see `functional.nll_loss`."""

    function = staticmethod(functional.nll_loss)

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean"):
        super().__init__(reduction, {"weight": weight}, ignore_index=ignore_index)


class CrossEntropyLoss(Loss):
    """Cross-entropy of logits and classes or distributions; see `functional.cross_entropy`."""

    function = staticmethod(functional.cross_entropy)

    def __init__(self, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(
            reduction, {"weight": weight}, ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )  # fmt: skip


class KLDivLoss(Loss):
    """target · (log target - x); see `functional.kl_div`."""

    function = staticmethod(functional.kl_div)
    reductions = (*REDUCTIONS, "batchmean")

    def __init__(self, *, reduction="mean", log_target=False):
        super().__init__(reduction, log_target=log_target)


class CTCLoss(Loss):
    """-log p(target) over all alignments; see `functional.ctc_loss`."""

    function = staticmethod(ctc_loss)

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__(reduction, blank=blank, zero_infinity=zero_infinity)

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        return self.function(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip
