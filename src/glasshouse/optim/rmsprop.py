"""RMSprop: steps scaled by a running mean of squared gradients."""

from glasshouse.ops.elementwise import sqrt
from glasshouse.optim.optimizer import FRACTION, NON_NEGATIVE, Optimizer, blend, options


class RMSprop(Optimizer):
    """Steps scaled by the running root mean square of the gradient.
    v = alpha * v + (1 - alpha) * g^2,   centered: v - a^2 with the running mean a of g
    p = p - lr * g / (sqrt(v) + eps),   with momentum: b = momentum * b + g / (…),  p = p - lr * b
    Raises: OptionError for options out of range. Source: Tieleman & Hinton 2012, lecture 6.5;
    centered: Graves 2013, arXiv:1308.0850, eq. 38-41."""

    ranges = {"lr": NON_NEGATIVE, "alpha": FRACTION, "eps": NON_NEGATIVE,
              "weight_decay": NON_NEGATIVE, "momentum": NON_NEGATIVE}  # fmt: skip
    buffers = ("square_avg",)
    optional = ("momentum_buffer", "grad_avg")

    def __init__(self, params, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *,
                 maximize: bool = False):  # fmt: skip
        super().__init__(params, options(locals()))

    def change(self, grad, state, group):
        state["step"] = state.get("step", 0) + 1
        weight = 1 - group["alpha"]
        square = state["square_avg"] = blend(state.get("square_avg"), grad * grad, weight)
        if group["centered"]:
            mean = state["grad_avg"] = blend(state.get("grad_avg"), grad, weight)
            square = square - mean * mean
        scaled = grad / (sqrt(square) + group["eps"])
        if group["momentum"]:
            buffer = state.get("momentum_buffer")
            if buffer is not None:
                scaled = buffer * group["momentum"] + scaled
            state["momentum_buffer"] = scaled
        return scaled * -float(group["lr"])
