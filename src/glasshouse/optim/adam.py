"""Adam and AdamW: steps scaled by running moments of the gradient."""

import math

from glasshouse.ops.elementwise import maximum, sqrt
from glasshouse.optim.optimizer import FRACTION, NON_NEGATIVE, Optimizer, blend, options


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient.
    m = b1 * m + (1 - b1) * g,   v = b2 * v + (1 - b2) * g^2,   after t steps
    p = p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
    Weight decay adds weight_decay * p to g; AMSGrad uses the largest v so far.
    Raises: OptionError for options out of range. Source: Kingma & Ba 2015, arXiv:1412.6980,
    algorithm 1; AMSGrad: Reddi, Kale, Kumar 2018, arXiv:1904.09237, algorithm 2.
    Example: >>> p = gh.tensor([1.0], requires_grad=True)
             >>> opt = Adam([p], lr=0.5)
             >>> (p * 2).sum().backward()
             >>> opt.step()
             >>> p.tolist()
             [0.5]"""

    ranges = {"lr": NON_NEGATIVE, "betas": FRACTION, "eps": NON_NEGATIVE,
              "weight_decay": NON_NEGATIVE}  # fmt: skip
    pairs = ("betas",)
    buffers = ("exp_avg", "exp_avg_sq")
    optional = ("max_exp_avg_sq",)

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *,
                 maximize: bool = False, decoupled_weight_decay: bool = False):  # fmt: skip
        super().__init__(params, options(locals()))

    def change(self, grad, state, group):
        beta1, beta2 = group["betas"]
        step = state["step"] = state.get("step", 0) + 1
        mean = state["exp_avg"] = blend(state.get("exp_avg"), grad, 1 - beta1)
        square = state["exp_avg_sq"] = blend(state.get("exp_avg_sq"), grad * grad, 1 - beta2)
        if group["amsgrad"]:
            largest = state.get("max_exp_avg_sq")
            square = square if largest is None else maximum(largest, square)
            state["max_exp_avg_sq"] = square
        # Both bias corrections are numbers: moved out of the tensors, they cost nothing.
        correction = math.sqrt(1 - beta2**step)
        rate = float(group["lr"]) * correction / (1 - beta1**step)
        return mean / (sqrt(square) + group["eps"] * correction) * -rate


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself: p = p * (1 - lr * weight_decay) first.
    Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2."""

    def __init__(self, params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 maximize: bool = False):  # fmt: skip
        kept = {"maximize": maximize, "decoupled_weight_decay": True}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **kept)
