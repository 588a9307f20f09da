"""Schedules composed of others, and one that follows a metric."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, type_name
from glasshouse.ops.checks import check_integer, check_option, check_range
from glasshouse.optim.lr_scheduler.schedule import (
    LRScheduler,
    check_optimizer,
    per_group,
)
from glasshouse.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


class SequentialLR(LRScheduler):
    """One schedule after another: each starts at its milestone, counting its steps from 0.

    Raises: OptionError unless there is one milestone between every two schedules, in rising order,
        and all belong to `optimizer`.
    Example:
        >>> opt = gh.optim.SGD([gh.tensor([1.0], requires_grad=True)], lr=1.0)
        >>> halves = gh.optim.LinearLR(opt, 0.5, total_iters=2)
        >>> parts = [halves, gh.optim.CosineAnnealingLR(opt, 4)]
        >>> schedule = SequentialLR(opt, parts, milestones=[2])
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: "Optimizer",
        schedulers: Sequence[Any],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        check_optimizer("SequentialLR", optimizer)
        self.schedulers: list[LRScheduler] = check_parts("SequentialLR", schedulers, optimizer)
        self.milestones: list[int] = list(milestones)
        marks = [check_integer("SequentialLR", "milestones", m, 1) for m in self.milestones]
        if len(marks) != len(self.schedulers) - 1 or marks != sorted(set(marks)):
            raise OptionError(
                "SequentialLR",
                f"{len(self.schedulers) - 1} rising milestones for "
                f"{len(self.schedulers)} schedules",
                self.milestones,
                "Give one less milestone than schedules.",
            )
        for group in optimizer.param_groups:  # take back what making the parts has set
            group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def at(self, step: int) -> Any:
        """(the schedule in force, its own step)."""
        which = bisect_right(self.milestones, step)
        return self.schedulers[which], step - (self.milestones[which - 1] if which else 0)

    def lr_at(self, step: Any, index: Any) -> Any:
        part, own_step = self.at(step)
        return part.lr_at(own_step, index)

    def momentum_at(self, step: Any, index: Any) -> Any:
        part, own_step = self.at(step)
        return part.momentum_at(own_step, index)


class ChainedScheduler(LRScheduler):
    """Several schedules of one optimizer, stepped together: their factors multiply.

    Raises: OptionError without schedules, or for those of several optimizers or of a metric.
    Example:
        >>> opt = gh.optim.SGD([gh.tensor([1.0], requires_grad=True)], lr=1.0)
        >>> halves = [gh.optim.ExponentialLR(opt, 0.5) for _ in range(2)]
        >>> chain = ChainedScheduler(halves)
        >>> chain.step()
        >>> chain.get_last_lr()
        [0.25]
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Any = None) -> None:
        self.schedulers: list[Any] = list(schedulers)
        if not self.schedulers:
            raise OptionError("ChainedScheduler", "at least one schedule", "none", "Pass some.")
        optimizer = optimizer or getattr(self.schedulers[0], "optimizer", None)
        parts = check_parts("ChainedScheduler", self.schedulers, optimizer)
        self.optimizer: Optimizer = parts[0].optimizer

    @property
    def last_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    @last_lr.setter
    def last_lr(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    @property
    def last_epoch(self) -> int:
        return self.schedulers[0].last_epoch

    def step(self, epoch: Any = None) -> None:
        for part in self.schedulers:
            part.step(epoch)

    def state_dict(self) -> Any:
        return {"schedulers": [part.state_dict() for part in self.schedulers]}

    def load_state_dict(self, state: Any) -> None:
        states = (
            state.get("schedulers", state.get("_schedulers")) if isinstance(state, dict) else None
        )
        if not isinstance(states, list) or len(states) != len(self.schedulers):
            expected = f"the states of {len(self.schedulers)} schedules"
            fix = "Pass what state_dict() of the same chain returned."
            raise CheckpointError("ChainedScheduler", expected, repr(state), fix)
        before = self.state_dict()["schedulers"]
        try:
            for part, part_state in zip(self.schedulers, states, strict=True):
                part.load_state_dict(part_state)
        except CheckpointError:
            for part, part_state in zip(self.schedulers, before, strict=True):
                part.load_state_dict(part_state)
            raise


def check_parts(where: str, schedulers: Sequence[Any], optimizer: Any) -> list[LRScheduler]:
    """Check the parts of a schedule: of the same optimizer, and of the step alone."""
    parts = list(schedulers)
    for part in parts:
        if not isinstance(part, LRScheduler) or isinstance(part, ReduceLROnPlateau):
            fix = "Step a plateau schedule by itself."
            raise OptionError(where, "schedules of the step alone", type_name(part), fix)
        if part.optimizer is not optimizer:
            fix = "Make all of them with the same optimizer."
            raise OptionError(where, "schedules of its own optimizer", "one of another", fix)
    return parts


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` after more than `patience` steps without a better metric.
    `step(metric)` takes the metric: smaller is better with mode "min", larger with "max". Better
    means by more than `threshold`, as a share of |best| ("rel") or absolute ("abs"); NaN is never
    better.

    Raises: OptionError for options out of range.
    """

    scaled = False  # it lowers the rates that are there

    def __init__(
        self,
        optimizer: "Optimizer",
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_optimizer("ReduceLROnPlateau", optimizer)
        where = "ReduceLROnPlateau"
        self.mode: Any = check_option(where, "mode", mode, ("min", "max"))
        self.threshold_mode: Any = check_option(
            where, "threshold_mode", threshold_mode, ("rel", "abs")
        )
        self.factor: float = check_range(where, "factor", factor, 0, 1 - 1e-12)
        self.patience: int = check_integer(where, "patience", patience, 0)
        self.cooldown: int = check_integer(where, "cooldown", cooldown, 0)
        self.threshold: float = check_range(where, "threshold", threshold, 0, math.inf)
        self.min_lrs: list[Any] = per_group(where, "min_lr", min_lr, len(optimizer.param_groups))
        self.eps: float = check_range(where, "eps", eps, 0, math.inf)
        self.best: Any = None
        self.num_bad_steps: int = 0
        self.cooldown_left: int = 0
        super().__init__(optimizer)

    def apply(self) -> None:
        """Note the rates; only `reduce` changes them."""
        self.last_lr: list[Any] = [group["lr"] for group in self.optimizer.param_groups]

    # PyTorch's signature, which other schedules' does not allow: a metric comes first.
    def step(self, metrics: Any, epoch: float | None = None) -> None:  # type: ignore[override]
        """Take in the metric of one step, and lower the rates if it is time."""
        try:
            metric = float(metrics)
        except (TypeError, ValueError):
            fix = "Pass the validation loss."
            expected = "a number"
            raise DTypeError("ReduceLROnPlateau.step", expected, f"{metrics!r:.40}", fix) from None
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(metric):
            self.best, self.num_bad_steps = metric, 0
        else:
            self.num_bad_steps += 1
        if self.cooldown_left:
            self.cooldown_left -= 1
            self.num_bad_steps = 0
        if self.num_bad_steps > self.patience:
            self.reduce()
            self.cooldown_left, self.num_bad_steps = self.cooldown, 0
        self.apply()

    def reduce(self) -> None:
        """Lower every rate that can still be lowered by more than eps."""
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            lower = max(group["lr"] * self.factor, least)
            if group["lr"] - lower > self.eps:
                group["lr"] = lower

    def is_better(self, metric: float) -> bool:
        """Whether the metric improves on the best so far by more than the threshold."""
        sign = 1 if self.mode == "max" else -1
        if self.best is None:
            return sign * metric > -math.inf
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        return sign * (metric - self.best) > margin

    def state_dict(self) -> dict[str, Any]:
        names = ("best", "num_bad_steps", "cooldown_left")
        return {**super().state_dict(), **{name: getattr(self, name) for name in names}}

    def fill_state(self, current: Any, state: Any) -> Any:
        """PyTorch's best is infinite before the first metric."""
        filled = super().fill_state(current, state)
        return {**filled, "best": filled["best"] if math.isfinite(filled["best"]) else None}
