"""Adagrad: steps shrink with the sum of squared gradients."""

from glasshouse.ops.elementwise import sqrt
from glasshouse.optim.optimizer import NON_NEGATIVE, Optimizer, options


class Adagrad(Optimizer):
    """Steps scaled by the root of the sum of all squared gradients.
    s = s + g^2,   p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
    Raises: OptionError for options out of range.
    Source: Duchi, Hazan, Singer 2011, "Adaptive subgradient methods", JMLR 12, sec. 1.1."""

    ranges = dict.fromkeys(
        ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"), NON_NEGATIVE
    )
    buffers = ("sum",)

    def __init__(self, params, lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0, eps: float = 1e-10, *,
                 maximize: bool = False):  # fmt: skip
        super().__init__(params, options(locals()))

    def change(self, grad, state, group):
        step = state["step"] = state.get("step", 0) + 1
        total = state.get("sum", group["initial_accumulator_value"])
        total = state["sum"] = grad * grad + total if "sum" in state or total else grad * grad
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return grad / (sqrt(total) + group["eps"]) * -rate
