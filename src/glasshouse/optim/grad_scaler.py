"""Loss scaling for float16, whose smallest gradients would vanish."""

import math
from typing import Any

from glasshouse.base.errors import CheckpointError, GradError, OptionError
from glasshouse.dispatch.value import cast
from glasshouse.optim.optimizer import Optimizer
from glasshouse.tensor import Tensor, asarray, isfinite, logical_not
from glasshouse.tensor import any as any_
from glasshouse.tensor.gradients import groups_of, reduced_over, sharded_as

KEPT = ("growth_factor", "backoff_factor", "growth_interval")  # options that are saved


class GradScaler:
    """Scales the loss up, the gradients down, and leaves out steps whose gradients overflowed.
    The scale grows by `growth_factor` after `growth_interval` good steps and shrinks by
    `backoff_factor` after a bad one. A step reads one number from the gradients. `device` is
    PyTorch's, and changes nothing; a number in its place is `init_scale`.

    Raises: OptionError for factors that do not grow or shrink.
    Source: Micikevicius et al. 2018, arXiv:1710.03740; the interface is PyTorch's.
    Example:
        >>> p = gh.tensor([1.0], requires_grad=True)
        >>> opt, scaler = gh.optim.SGD([p], lr=0.5), GradScaler(init_scale=8.0)
        >>> scaler.scale((p * p).sum()).backward()
        >>> p.grad.tolist(), scaler.step(opt), scaler.update(), p.tolist()
        ([16.0], None, None, [0.0])
    """

    def __init__(
        self,
        device: str | float = "cpu",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not isinstance(device, str):  # torch.cuda.amp's, whose first argument is the scale
            init_scale = device
        if not (init_scale > 0 and growth_factor > 1 and 0 < backoff_factor < 1):
            expected = "init_scale > 0, growth_factor > 1 and 0 < backoff_factor < 1"
            got = f"{init_scale}, {growth_factor}, {backoff_factor}"
            raise OptionError("GradScaler", expected, got, "Change them.")
        self.factor: float = float(init_scale)
        self.enabled = enabled
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.good_steps: int = 0
        self.overflow_of: dict[int, object] = {}  # by optimizer: a boolean tensor, or None
        self.overflowed: bool = False

    def get_scale(self) -> float:
        """The factor by which losses are multiplied now."""
        return self.factor if self.enabled else 1.0

    def scale(self, outputs: Tensor) -> Tensor:
        """A loss, or a list or tuple of them, multiplied by the scale."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(map(self.scale, outputs))
        return outputs * self.factor if self.enabled else outputs

    def unscale_(self, optimizer: "Optimizer") -> None:
        """Divide the gradients of the optimizer's parameters by the scale, e.g. before clipping.

        Raises: GradError if that was done already since the last update.
        """
        if not self.enabled:
            return
        if id(optimizer) in self.overflow_of:
            expected = "gradients that are still scaled"
            fix = "Call it once a step."
            raise GradError("unscale_", expected, "ones unscaled since the last update()", fix)
        overflow = asarray(False)
        for p in optimizer.parameters():
            if p.grad is not None:
                unscaled = cast(p.grad.detach(), p.dtype) / self.factor
                p.grad = sharded_as(unscaled, p.grad)
                overflow = overflow | any_(logical_not(isfinite(p.grad)))
        groups = groups_of(optimizer.parameters())
        self.overflow_of[id(optimizer)] = reduced_over(groups, overflow, "max")

    def step(self, optimizer: "Optimizer", *args: Any) -> Any:
        """`optimizer.step(*args)` unless a gradient is infinite or NaN."""
        if not self.enabled:
            return optimizer.step(*args)
        if id(optimizer) not in self.overflow_of:
            self.unscale_(optimizer)
        if bool(self.overflow_of[id(optimizer)]):
            self.overflowed = True
            return None
        return optimizer.step(*args)

    def update(self, new_scale: float | None = None) -> None:
        """Adapt the scale to overflows in the steps since the last update."""
        if not self.enabled:
            return
        if new_scale is not None:
            self.factor, self.good_steps = float(new_scale), 0
        elif self.overflowed:
            self.factor, self.good_steps = self.factor * self.backoff_factor, 0
        else:
            self.good_steps += 1
            if self.good_steps >= self.growth_interval:
                grown = self.factor * self.growth_factor
                self.factor, self.good_steps = grown if math.isfinite(grown) else self.factor, 0
        self.overflow_of, self.overflowed = {}, False

    def state_dict(self) -> dict[Any, Any]:
        """The scale and its history; empty if not enabled."""
        if not self.enabled:
            return {}
        settings = {name: getattr(self, name) for name in KEPT}
        return {"scale": self.factor, **settings, "_growth_tracker": self.good_steps}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Restore the result of `state_dict`; does nothing if not enabled.

        Raises: CheckpointError for another state.
        """
        if not self.enabled:
            return
        names = {"scale", "_growth_tracker", *KEPT}
        if not isinstance(state, dict) or not names <= state.keys():
            fix = "Pass the state of a GradScaler that was enabled."
            raise CheckpointError("GradScaler", f"a state with {sorted(names)}", repr(state), fix)
        self.factor, self.good_steps = float(state["scale"]), int(state["_growth_tracker"])
        vars(self).update({name: state[name] for name in KEPT})
