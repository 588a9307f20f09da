"""Schedules that are one formula of the step."""

import math
from bisect import bisect_right
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.ops.checks import check_integer, check_range, check_several
from glasshouse.optim.lr_scheduler.schedule import (
    LRScheduler,
    anneal_cosine,
    check_functions,
)
from glasshouse.optim.optimizer import Optimizer

__all__ = ["ConstantLR", "CosineAnnealingLR", "ExponentialLR", "InverseSqrtLR", "LambdaLR",
           "LinearLR", "MultiStepLR", "MultiplicativeLR", "PolynomialLR", "StepLR",
           "WarmupCosineLR"]  # fmt: skip


class LambdaLR(LRScheduler):
    """lr = initial_lr * fn(step); one function, or a list of one per group."""

    scaled = False

    def __init__(self, optimizer: "Optimizer", lr_lambda: Any, last_epoch: int = -1) -> None:
        self.fns: list[Any] = check_functions("LambdaLR", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        return self.base_lrs[index] * self.fns[index](step)


class MultiplicativeLR(LRScheduler):
    """lr = initial_lr * fn(1) * ... * fn(step); one function, or a list of one per group."""

    products: list[list[float]]

    def __init__(self, optimizer: "Optimizer", lr_lambda: Any, last_epoch: int = -1) -> None:
        self.fns: list[Any] = check_functions("MultiplicativeLR", optimizer, lr_lambda)
        self.products = [[1.0] for _ in self.fns]  # up to each step that was asked for
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        products = self.products[index]
        for k in range(len(products), step + 1):
            products.append(products[-1] * self.fns[index](k))
        return self.base_lrs[index] * products[step]


class StepLR(LRScheduler):
    """lr = initial_lr * gamma^floor(step / step_size).

    Raises: OptionError out of range.
    """

    def __init__(
        self, optimizer: "Optimizer", step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size: int = check_integer("StepLR", "step_size", step_size, 1)
        self.gamma: float = check_range(type(self).__name__, "gamma", gamma, 0, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: int, index: int) -> float:
        return self.base_lrs[index] * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """lr = initial_lr * gamma^(milestones reached).

    Raises: OptionError if a value is negative.
    """

    def __init__(
        self, optimizer: "Optimizer", milestones: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        steps = check_several("MultiStepLR", milestones, "a list of milestones", "Pass [30, 80].")
        self.milestones: list[int] = sorted(
            check_integer("MultiStepLR", "milestones", m) for m in steps
        )
        self.gamma: float = check_range("MultiStepLR", "gamma", gamma, 0, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        return self.base_lrs[index] * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(StepLR):
    """lr = initial_lr * gamma^step.

    Raises: OptionError if gamma is negative.
    """

    def __init__(self, optimizer: "Optimizer", gamma: float, last_epoch: int = -1) -> None:
        super().__init__(optimizer, 1, gamma, last_epoch)


class LinearLR(LRScheduler):
    """The rate grows (or falls) linearly from start_factor to end_factor times initial_lr.
    Warm-up: reached after `total_iters` steps, and kept from then on.

    Raises: OptionError for factors outside [0, 1], a start_factor of 0, or total_iters below 1.
    Source: Goyal et al. 2017, arXiv:1706.02677, sec. 2.2 (gradual warm-up).
    """

    def __init__(
        self,
        optimizer: "Optimizer",
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor: float = check_range("LinearLR", "start_factor", start_factor, 0, 1)
        if self.start_factor == 0:
            raise OptionError("LinearLR", "start_factor > 0", "0", "Pass e.g. 1e-3.")
        self.end_factor: float = check_range("LinearLR", "end_factor", end_factor, 0, 1)
        self.total_iters: int = check_integer("LinearLR", "total_iters", total_iters, 1)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        fraction = min(step, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * fraction
        return self.base_lrs[index] * factor


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2.

    Raises: OptionError if T_max is below 1 or eta_min negative.
    Source: Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5 (without restarts).
    """

    def __init__(
        self, optimizer: "Optimizer", T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max: int = check_integer("CosineAnnealingLR", "T_max", T_max, 1)
        self.eta_min: float = check_range("CosineAnnealingLR", "eta_min", eta_min, 0, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        return anneal_cosine(self.base_lrs[index], self.eta_min, step / self.T_max)


class ConstantLR(LRScheduler):
    """lr = factor * initial_lr for `total_iters` steps, then initial_lr.

    Raises: OptionError for a factor outside [0, 1], or total_iters below 0.
    """

    def __init__(
        self,
        optimizer: "Optimizer",
        factor: float = 1 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.factor: float = check_range("ConstantLR", "factor", factor, 0, 1)
        self.total_iters: int = check_integer("ConstantLR", "total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        return self.base_lrs[index] * (self.factor if step < self.total_iters else 1.0)


class PolynomialLR(LRScheduler):
    """lr = initial_lr * (1 - step / total_iters)^power, and 0 from step `total_iters` on.

    Raises: OptionError for total_iters below 1.
    """

    def __init__(
        self, optimizer: "Optimizer", total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters: int = check_integer("PolynomialLR", "total_iters", total_iters, 1)
        self.power: float = check_range("PolynomialLR", "power", power, -math.inf, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        remaining = 1 - min(step, self.total_iters) / self.total_iters
        return self.base_lrs[index] * remaining**self.power


class WarmupCosineLR(LRScheduler):
    """From 0 to initial_lr in a line over `warmup_steps`, then to eta_min along half a cosine,
    reached at step `total_steps`.

    Raises: OptionError unless 0 <= warmup_steps < total_steps.
    Source: Goyal et al. 2017, arXiv:1706.02677, sec. 2.2; Loshchilov & Hutter 2017,
        arXiv:1608.03983, eq. 5.
    Example:
        >>> opt = gh.optim.SGD([gh.tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = WarmupCosineLR(opt, warmup_steps=2, total_steps=4)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: "Optimizer",
        warmup_steps: int,
        total_steps: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.warmup_steps: int = check_integer("WarmupCosineLR", "warmup_steps", warmup_steps)
        least = self.warmup_steps + 1
        self.total_steps: int = check_integer("WarmupCosineLR", "total_steps", total_steps, least)
        self.eta_min: float = check_range("WarmupCosineLR", "eta_min", eta_min, 0, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        most, warmup = self.base_lrs[index], self.warmup_steps
        if step < warmup:
            return most * step / warmup
        share = min(1.0, (step - warmup) / (self.total_steps - warmup))
        return anneal_cosine(most, self.eta_min, share)


class InverseSqrtLR(LRScheduler):
    """lr = initial_lr * min(step / warmup_steps, sqrt(warmup_steps / step)).

    Raises: OptionError for warmup_steps below 1.
    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 3, with initial_lr as the largest rate.
    """

    def __init__(self, optimizer: "Optimizer", warmup_steps: int, last_epoch: int = -1) -> None:
        self.warmup_steps: int = check_integer("InverseSqrtLR", "warmup_steps", warmup_steps, 1)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: int, index: int) -> float:
        warmup = self.warmup_steps
        factor = step / warmup if step < warmup else math.sqrt(warmup / step)
        return self.base_lrs[index] * factor
