"""Rules whose step has the same size for most elements: the sign of a momentum, or nearly."""

import math
from collections.abc import Iterable
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import GradError, OptionError, ShapeError
from glasshouse.ops.elementwise import maximum
from glasshouse.optim.optimizer import FRACTION, Optimizer, blend, non_negative, options
from glasshouse.tensor import Tensor, asarray, clip, full, sign


class Lion(Optimizer):
    """Steps by the sign of a blend of gradient and momentum; weight decay shrinks the parameter.

        p = p - lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)
        m = b2 * m + (1 - b2) * g

    Raises: OptionError for options out of range.
    Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2.
    Example:
        >>> p = gh.tensor([1.0, -2.0], requires_grad=True)
        >>> opt = Lion([p], lr=0.25)
        >>> (p * p).sum().backward()
        >>> opt.step()
        >>> p.tolist()
        [0.75, -1.75]
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr weight_decay") | {"betas": FRACTION}
    pairs: tuple[str, ...] = ("betas",)
    buffers: tuple[str, ...] = ("exp_avg",)
    counts_steps = False
    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
        inner, outer = group["betas"]
        before = state.get("exp_avg")
        state["exp_avg"] = blend(before, grad, 1 - outer)
        return sign(blend(before, grad, 1 - inner)) * -float(group["lr"])


class Sophia(Optimizer):
    """Momentum divided by a running estimate of the Hessian's diagonal, each element clipped at 1:

        m = b1 * m + (1 - b1) * g
        p = p - lr * weight_decay * p - lr * clip(m / max(rho * h, eps), -1, 1)

    `update_hessian`, called every ten steps or so, moves h. Until then all elements are clipped.

    Raises: OptionError for options out of range.
    Source: Liu et al. 2024, arXiv:2305.14342, algorithm 3.
    """

    ranges: dict[str, tuple[float, float]] = non_negative("lr rho weight_decay")
    ranges |= {"betas": FRACTION, "eps": (2**-1022, math.inf)}
    pairs: tuple[str, ...] = ("betas",)
    buffers: tuple[str, ...] = ("exp_avg",)
    optional: tuple[str, ...] = ("hessian",)
    never_negative: tuple[str, ...] = ("hessian",)
    counts_steps = False
    decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.04,
        weight_decay: float = 0.1,
        eps: float = 1e-12,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def change(self, grad: Any, state: Any, group: Any) -> Any:
        mean = state["exp_avg"] = blend(state.get("exp_avg"), grad, 1 - group["betas"][0])
        if "hessian" not in state:
            return sign(mean) * -float(group["lr"])
        least = full(mean.shape, group["eps"], dtype=mean.dtype)
        scale = maximum(state["hessian"] * group["rho"], least)
        return clip(mean / scale, -1.0, 1.0) * -float(group["lr"])

    def update_hessian(self, batch_size: int | None = None, *, estimates: Any = None) -> None:
        """Move the estimates: h = b2 * h + (1 - b2) * e, for every parameter with a gradient.
        With `batch_size`, e = batch_size * g^2, where g is the gradient of a mean loss whose labels
        were drawn from the model's own distribution (Gauss-Newton-Bartlett). Otherwise e is from
        `estimates`, one for each parameter in order, such as u * (H u) of Hutchinson.

        Raises: OptionError unless one of them is given, or for another number of estimates;
            ShapeError for one unlike its parameter; GradError if no parameter has a gradient.
        Source: arXiv:2305.14342, algorithms 1 and 2.
        """
        params = self.parameters()
        if (batch_size is None) == (estimates is None):
            got = "both" if estimates is not None else "none"
            raise OptionError("update_hessian", "batch_size or estimates", got, "Pass one.")
        if estimates is None and all(p.grad is None for p in params):
            fix = "Call backward() before."
            raise GradError("update_hessian", "gradients of sampled labels", "none", fix)
        if batch_size is not None:
            grads = [p.grad for p in params]
            estimates = [None if g is None else g * g * float(batch_size) for g in grads]
        if len(estimates) != len(params):
            fix = "Pass one for each."
            raise OptionError("update_hessian", f"{len(params)} estimates", len(estimates), fix)
        for p, estimate in zip(params, estimates, strict=True):
            if estimate is not None and estimate.shape != p.shape:
                fix = "Reshape it."
                raise ShapeError("update_hessian", f"an estimate of {p.shape}", estimate.shape, fix)
        self.blend_hessian(estimates)

    @no_grad()
    def blend_hessian(self, estimates: Any) -> None:
        groups = [group for group in self.param_groups for _ in group["params"]]
        for p, group, estimate in zip(self.parameters(), groups, estimates, strict=True):
            if estimate is None:
                continue
            state = dict(self.state.get(p, ()))
            hessian = asarray(estimate, dtype=p.dtype).detach()
            state["hessian"] = blend(state.get("hessian"), hessian, 1 - group["betas"][1])
            state.setdefault("exp_avg", hessian * 0)
            self.state[p] = state
