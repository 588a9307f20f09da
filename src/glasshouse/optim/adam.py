"""Adam and those made from it: steps scaled by running moments of the gradient."""

import math
from collections.abc import Iterable
from typing import Any

from glasshouse.ops.elementwise import maximum, sqrt
from glasshouse.optim.optimizer import FRACTION, Optimizer, blend, non_negative, options
from glasshouse.tensor import Tensor, where
from glasshouse.tensor import any as any_

MOMENT_RANGES = non_negative("lr eps weight_decay") | {"betas": FRACTION}


class MomentRule(Optimizer):
    """Base of rules with two running moments of the gradient, its mean and mean square."""

    ranges = MOMENT_RANGES
    pairs: tuple[str, ...] = ("betas",)
    buffers: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    never_negative: tuple[str, ...] = ("exp_avg_sq",)

    def moments(
        self, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> tuple[Any, ...]:
        """(t, mean of g, mean of g^2) after this step, whose number is t."""
        beta1, beta2 = group["betas"]
        step = state["step"] = state.get("step", 0) + 1
        mean = state["exp_avg"] = blend(state.get("exp_avg"), grad, 1 - beta1)
        square = state["exp_avg_sq"] = blend(state.get("exp_avg_sq"), grad * grad, 1 - beta2)
        return step, mean, square


class Adam(MomentRule):
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

    optional: tuple[str, ...] = ("max_exp_avg_sq",)
    never_negative: tuple[str, ...] = ("exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        step, mean, square = self.moments(grad, state, group)
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
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **options(locals()), decoupled_weight_decay=True)


class Adamax(MomentRule):
    """Adam with the largest gradient, as it decays, in place of the root of the mean square:

        u = max(b2 * u, |g| + eps)
        p = p - lr / (1 - b1^t) * m / u

    Raises: OptionError for options out of range.
    Source: Kingma & Ba 2015, arXiv:1412.6980, algorithm 2.
    """

    buffers: tuple[str, ...] = ("exp_avg", "exp_inf")
    never_negative: tuple[str, ...] = ("exp_inf",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        beta1, beta2 = group["betas"]
        step = state["step"] = state.get("step", 0) + 1
        mean = state["exp_avg"] = blend(state.get("exp_avg"), grad, 1 - beta1)
        size = abs(grad) + group["eps"]
        if "exp_inf" in state:
            size = maximum(state["exp_inf"] * beta2, size)
        state["exp_inf"] = size
        return mean / size * (-float(group["lr"]) / (1 - beta1**step))


class NAdam(MomentRule):
    """Adam with Nesterov's momentum, whose weight mu grows with the step t:

        mu_t = b1 * (1 - 0.96^(t * momentum_decay) / 2), M_t = mu_1 * ... * mu_t
        p = p - lr * (mu_(t+1) / (1 - M_(t+1)) * m + (1 - mu_t) / (1 - M_t) * g) / (sqrt(v^) + eps)

    with v^ as in Adam.

    Raises: OptionError for options out of range.
    Source: Dozat 2016, "Incorporating Nesterov momentum into Adam"; 0.96 as in PyTorch.
    """

    ranges: dict[str, tuple[float, float]] = MOMENT_RANGES | non_negative("momentum_decay")
    numbers: tuple[str, ...] = ("mu_product",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        beta1, beta2 = group["betas"]
        lr, decay = float(group["lr"]), group["momentum_decay"]
        step, mean, square = self.moments(grad, state, group)
        now, then = (beta1 * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
        product = state["mu_product"] = state.get("mu_product", 1.0) * now
        correction = math.sqrt(1 - beta2**step)
        ahead = mean * (-lr * correction * then / (1 - product * then))
        ahead = ahead + grad * (-lr * correction * (1 - now) / (1 - product))
        return ahead / (sqrt(square) + group["eps"] * correction)


class RAdam(MomentRule):
    """Adam that waits for its second moment to be known well: at first it is gradient descent with
    momentum; once rho_t > 5, Adam's step times the rectification r_t.

        rho = 2 / (1 - b2) - 1, rho_t = rho - 2 * t * b2^t / (1 - b2^t)
        r_t = sqrt((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t))

    Raises: OptionError for options out of range.
    Source: Liu et al. 2020, arXiv:1908.03265, algorithm 2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        beta1, beta2 = group["betas"]
        step, mean, square = self.moments(grad, state, group)
        rate, decay = float(group["lr"]) / (1 - beta1**step), beta2**step
        longest = 2 / (1 - beta2) - 1
        if longest <= 5:
            return mean * -rate
        # Numbers decide between both steps, not a branch: a captured step stays one.
        length = longest - 2 * step * decay / (1 - decay)
        is_known = min(1, max(0, math.ceil(length - 5)))
        ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        rectification = is_known * math.sqrt(max(0.0, ratio) * (1 - decay))
        adapted = rectification / (sqrt(square) + group["eps"])
        return mean * ((adapted + (1 - is_known)) * -rate)


class SparseAdam(MomentRule):
    """Adam that leaves rows alone whose gradient is all zeros: their moments and parameters stay.
    Rows are entries along the first axis, as those of an embedding. Gradients are dense.

    Raises: OptionError for options out of range.
    Source: PyTorch's SparseAdam; the moments are Adam's.
    Example:
        >>> table = gh.tensor([[1.0, 1.0], [2.0, 2.0]], requires_grad=True)
        >>> opt = SparseAdam([table], lr=0.5)
        >>> table[1].sum().backward()
        >>> opt.step()
        >>> table.tolist()
        [[1.0, 1.0], [1.500000238418579, 1.500000238418579]]
    """

    ranges: dict[str, tuple[float, float]] = {
        name: MOMENT_RANGES[name] for name in ("lr", "betas", "eps")
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        beta1, beta2 = group["betas"]
        before = dict(state)
        step, mean, square = self.moments(grad, state, group)
        touched = grad != 0
        if grad.ndim > 1:
            touched = any_(touched, axis=tuple(range(1, grad.ndim)), keepdims=True)
        for name in self.buffers:
            state[name] = where(touched, state[name], before.get(name, 0.0))
        rate = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        return where(touched, mean / (sqrt(square) + group["eps"]) * -rate, 0.0)
