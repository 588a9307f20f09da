"""Rules whose step has a length in proportion to that of the parameter: for large batches."""

import math
from collections.abc import Iterable
from typing import Any

from glasshouse.ops.elementwise import sqrt
from glasshouse.optim.adam import MOMENT_RANGES, MomentRule
from glasshouse.optim.optimizer import Optimizer, blend, non_negative, options
from glasshouse.tensor import Tensor, where
from glasshouse.tensor import sum as sum_
from glasshouse.tensor.gradients import reduced_over


def length(x: Tensor, p: Tensor | None = None) -> Tensor:
    """The Euclidean norm of all elements; those of all ranks that share out the parameter p."""
    return sqrt(squares(x, p))


def squares(x: Tensor, p: Tensor | None = None) -> Tensor:
    """The sum of the squares of all elements, as `length`."""
    groups = () if p is None or p.sharding is None else p.sharding.groups
    return reduced_over(groups, sum_(x * x), "sum")


def trust_ratio(p: Tensor, update: Tensor) -> Tensor:
    """||p|| / ||update||, and 1 where one of them is 0."""
    p_norm, other = length(p, p), length(update, p)
    is_positive = (p_norm > 0) & (other > 0)
    return where(is_positive, p_norm / where(is_positive, other, 1.0), 1.0)


class LARS(Optimizer):
    """Gradient descent with momentum, the rate of each parameter in proportion to its own size:

        r = trust_coefficient * ||p|| / (||g|| + weight_decay * ||p|| + eps)
        b = momentum * b + lr * r * (g + weight_decay * p)
        p = p - b

    r is 1 where ||p|| or ||g|| is 0.

    Raises: OptionError for options out of range.
    Source: You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1.
    """

    ranges: dict[str, tuple[float, float]] = non_negative(
        "lr momentum weight_decay trust_coefficient eps"
    )
    optional: tuple[str, ...] = ("momentum_buffer",)
    counts_steps = False
    decays_itself = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change_at(
        self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, float]
    ) -> Tensor:
        decay = group["weight_decay"]
        p_norm, other = length(p, p), length(grad, p)
        is_positive = (p_norm > 0) & (other > 0)
        below = where(is_positive, other + p_norm * decay + group["eps"], 1.0)
        ratio = where(is_positive, p_norm / below * group["trust_coefficient"], 1.0)
        step = (grad + p * decay) * (ratio * float(group["lr"]))
        if group["momentum"]:
            before = state.get("momentum_buffer")
            step = step if before is None else before * group["momentum"] + step
            state["momentum_buffer"] = step
        return -step


class LAMB(MomentRule):
    """Adam's step with weight decay, scaled to the length of the parameter:

        u = m^ / (sqrt(v^) + eps) + weight_decay * p
        p = p - lr * ||p|| / ||u|| * u              (the ratio is 1 where one of them is 0)

    with m^ and v^ as in Adam.

    Raises: OptionError for options out of range.
    Source: You et al. 2020, arXiv:1904.00962, algorithm 2, with phi(x) = x.
    """

    decays_itself = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change_at(
        self, p: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> Tensor:
        beta1, beta2 = group["betas"]
        step, mean, square = self.moments(grad, state, group)
        correction = math.sqrt(1 - beta2**step)
        scaled = mean / (sqrt(square) + group["eps"] * correction)
        update = scaled * (correction / (1 - beta1**step)) + p * group["weight_decay"]
        return update * (trust_ratio(p, update) * -float(group["lr"]))


class NovoGrad(Optimizer):
    """Momentum of gradients that are divided by their own norm, one number for each parameter:

        v = b2 * v + (1 - b2) * ||g||^2             (v = ||g||^2 at the first step)
        m = b1 * m + g / (sqrt(v) + eps) + weight_decay * p
        p = p - lr * m

    With `grad_averaging` the term added to m is multiplied by 1 - b1.

    Raises: OptionError for options out of range.
    Source: Ginsburg et al. 2019, arXiv:1905.11286, algorithm 1.
    """

    ranges = MOMENT_RANGES
    pairs: tuple[str, ...] = ("betas",)
    buffers: tuple[str, ...] = ("exp_avg",)
    counts_steps = False
    decays_itself = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.95, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def state_shapes(self, shape: Any) -> Any:
        return {"exp_avg": shape, "exp_avg_sq": ()}

    def change_at(
        self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> Tensor:
        beta1, beta2 = group["betas"]
        square, before = squares(grad, p), state.get("exp_avg")
        if "exp_avg_sq" in state:
            square = blend(state["exp_avg_sq"], square, 1 - beta2)
        state["exp_avg_sq"] = square
        step = grad / (sqrt(square) + group["eps"]) + p * group["weight_decay"]
        if group["grad_averaging"]:
            step = step * (1 - beta1)
        state["exp_avg"] = step if before is None else before * beta1 + step
        return state["exp_avg"] * -float(group["lr"])
