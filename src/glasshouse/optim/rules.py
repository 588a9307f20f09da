"""The rules: gradient descent with momentum, Adam, RMSprop, Adagrad."""

import math

from glasshouse.base.errors import OptionError
from glasshouse.ops.elementwise import maximum, sqrt
from glasshouse.optim.optimizer import FRACTION, NON_NEGATIVE, Optimizer, blend, options


class SGD(Optimizer):
    """Gradient descent with momentum.

        g = grad + weight_decay * p
        b = momentum * b + (1 - dampening) * g      (b = g at the first step)
        p = p - lr * b, or with Nesterov p - lr * (g + momentum * b)

    Raises: OptionError for options out of range, or Nesterov without momentum or with dampening.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep
        learning"; with the learning rate outside the buffer, as PyTorch has it.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt = SGD([p], lr=0.1)
        >>> (p * 2).sum().backward()
        >>> opt.step()
        >>> p.tolist()
        [0.800000011920929]
    """

    ranges = {
        "lr": NON_NEGATIVE,
        "momentum": NON_NEGATIVE,
        "dampening": (float("-inf"), float("inf")),
        "weight_decay": NON_NEGATIVE,
    }
    optional = ("momentum_buffer",)
    counts_steps = False

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, options(locals()))

    def check_options(self, options):
        super().check_options(options)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise OptionError(
                "SGD",
                "momentum > 0 and dampening 0 with nesterov",
                f"momentum={options['momentum']}, dampening={options['dampening']}",
                "Change them.",
            )

    def change(self, grad, state, group):
        momentum = group["momentum"]
        if momentum:
            buffer, kept = state.get("momentum_buffer"), 1 - group["dampening"]
            if buffer is not None:
                buffer = buffer * momentum + (grad if kept == 1 else grad * kept)
            buffer = state["momentum_buffer"] = grad if buffer is None else buffer
            grad = grad + buffer * momentum if group["nesterov"] else buffer
        return grad * -float(group["lr"])


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient; after t steps

        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g^2
        p = p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    Weight decay adds weight_decay * p to g; AMSGrad uses the largest v so far.

    Raises: OptionError for options out of range.
    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; AMSGrad: Reddi, Kale, Kumar 2018,
        arXiv:1904.09237, algorithm 2.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt = Adam([p], lr=0.5)
        >>> (p * 2).sum().backward()
        >>> opt.step()
        >>> p.tolist()
        [0.5]
    """

    ranges = {
        "lr": NON_NEGATIVE,
        "betas": FRACTION,
        "eps": NON_NEGATIVE,
        "weight_decay": NON_NEGATIVE,
    }
    pairs = ("betas",)
    buffers = ("exp_avg", "exp_avg_sq")
    optional = ("max_exp_avg_sq",)

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ):
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

    Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ):
        kept = {"maximize": maximize, "decoupled_weight_decay": True}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **kept)


class RMSprop(Optimizer):
    """Steps scaled by the running root mean square of the gradient.

        v = alpha * v + (1 - alpha) * g^2           (centered: v - a^2, a the running mean of g)
        p = p - lr * g / (sqrt(v) + eps)
        with momentum: b = momentum * b + g / (sqrt(v) + eps), p = p - lr * b

    Raises: OptionError for options out of range.
    Source: Tieleman & Hinton 2012, lecture 6.5; centered: Graves 2013, arXiv:1308.0850, eq. 38-41.
    """

    ranges = {
        "lr": NON_NEGATIVE,
        "alpha": FRACTION,
        "eps": NON_NEGATIVE,
        "weight_decay": NON_NEGATIVE,
        "momentum": NON_NEGATIVE,
    }
    buffers = ("square_avg",)
    optional = ("momentum_buffer", "grad_avg")

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ):
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
            if "momentum_buffer" in state:
                scaled = state["momentum_buffer"] * group["momentum"] + scaled
            state["momentum_buffer"] = scaled
        return scaled * -float(group["lr"])


class Adagrad(Optimizer):
    """Steps scaled by the root of the sum of all squared gradients; after t steps

        s = s + g^2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    Raises: OptionError for options out of range.
    Source: Duchi, Hazan, Singer 2011, "Adaptive subgradient methods", JMLR 12, sec. 1.1.
    """

    ranges = dict.fromkeys(
        "lr lr_decay weight_decay initial_accumulator_value eps".split(), NON_NEGATIVE
    )
    buffers = ("sum",)

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, options(locals()))

    def change(self, grad, state, group):
        step = state["step"] = state.get("step", 0) + 1
        total = state.get("sum", group["initial_accumulator_value"])
        total = state["sum"] = grad * grad + total if "sum" in state or total else grad * grad
        rate = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return grad / (sqrt(total) + group["eps"]) * -rate
