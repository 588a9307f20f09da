"""Schedules that rise and fall, once or again and again."""

import math
from typing import Any

from glasshouse.base.errors import DTypeError, OptionError
from glasshouse.ops.checks import check_integer, check_option, check_range
from glasshouse.optim.lr_scheduler.schedule import (
    ANNEAL,
    LRScheduler,
    anneal_cosine,
    check_optimizer,
    per_group,
)
from glasshouse.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR", "SWALR"]


def momenta_of(
    where: str, optimizer: "Optimizer", base_momentum: Any, max_momentum: Any
) -> list[tuple[float, float]]:
    """The least and the largest momentum of each group, for schedules that move it.

    Raises: OptionError for a momentum outside [0, 1], or an optimizer without.
    """
    if not {"momentum", "betas"} & set(optimizer.defaults):
        expected = "an optimizer with momentum or betas"
        raise OptionError(where, expected, type(optimizer).__name__, "Pass cycle_momentum=False.")
    count = len(optimizer.param_groups)
    low = per_group(where, "base_momentum", base_momentum, count)
    high = per_group(where, "max_momentum", max_momentum, count)
    low = [check_range(where, "base_momentum", value, 0, 1) for value in low]
    return [
        (least, check_range(where, "max_momentum", most, 0, 1))
        for least, most in zip(low, high, strict=True)
    ]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts after T_0 steps, then after T_mult times as many …

        lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * t / T)) / 2

    t is the number of steps since the last start, of T until the next. `step` takes fractions of an
    epoch: `schedule.step(epoch + batch / batches)`.

    Raises: OptionError if T_0 or T_mult is below 1.
    Source: Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5.
    """

    scaled = False

    def __init__(
        self,
        optimizer: "Optimizer",
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        where = "CosineAnnealingWarmRestarts"
        self.T_0 = check_integer(where, "T_0", T_0, 1)
        self.T_mult: int = check_integer(where, "T_mult", T_mult, 1)
        self.eta_min: float = check_range(where, "eta_min", eta_min, 0, math.inf)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, step: Any, index: Any) -> Any:
        length = self.T_0
        if self.T_mult == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.T_mult
        return anneal_cosine(self.base_lrs[index], self.eta_min, step / length)


CYCLIC_MODES: dict[str, Any] = {
    "triangular": lambda gamma, cycle, step: 1.0,
    "triangular2": lambda gamma, cycle, step: 1 / 2.0 ** (cycle - 1),
    "exp_range": lambda gamma, cycle, step: gamma**step,
}


class CyclicLR(LRScheduler):
    """The rate rises from base_lr to max_lr in `step_size_up` steps and falls back in
    `step_size_down` (by default as many), again and again.

    The height of a cycle is multiplied by 1 ("triangular"), by 1/2 from cycle to cycle
    ("triangular2"), or by gamma^step ("exp_range"); or by `scale_fn` of the number of the cycle,
    from 1, or with `scale_mode` "iterations" of the step. With `cycle_momentum` the momentum (Adam:
    the first beta) moves the other way between max_momentum and base_momentum.

    Raises: OptionError for options out of range, or a momentum to cycle that there is not.
    Source: Smith 2017, arXiv:1506.01186, sec. 3.2.
    """

    scaled = False

    def __init__(
        self,
        optimizer: "Optimizer",
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Any = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        where = "CyclicLR"
        check_optimizer(where, optimizer)
        count = len(optimizer.param_groups)
        starts, peaks = (
            [check_range(where, name, x, 0, math.inf) for x in per_group(where, name, lr, count)]
            for name, lr in (("base_lr", base_lr), ("max_lr", max_lr))
        )
        rising = check_integer(where, "step_size_up", step_size_up, 1)
        falling = rising if step_size_down is None else step_size_down
        self.length: int = rising + check_integer(where, "step_size_down", falling, 1)
        self.share: float = rising / self.length
        self.gamma: float = check_range(where, "gamma", gamma, 0, math.inf)
        self.mode: Any = check_option(where, "mode", mode, CYCLIC_MODES)
        check_option(where, "scale_mode", scale_mode, ("cycle", "iterations"))
        if scale_fn is not None and not callable(scale_fn):
            raise DTypeError(where, "scale_fn as a function", repr(scale_fn), "Pass a function.")
        self.scale_fn = scale_fn
        self.scales_cycles: bool = scale_mode == "cycle"
        self.ranges: list[tuple[float, float]] = list(zip(starts, peaks, strict=True))
        moves = cycle_momentum
        self.momenta: list[tuple[float, float]] = (
            momenta_of(where, optimizer, base_momentum, max_momentum) if moves else []
        )
        if last_epoch == -1:
            for group, start in zip(optimizer.param_groups, starts, strict=True):
                group["lr"] = group["initial_lr"] = start
        super().__init__(optimizer, last_epoch)

    def height(self, step: float) -> float:
        """How far up the cycle is at `step`, from 0 to 1 times the scale."""
        cycle = math.floor(1 + step / self.length)
        x = 1 + step / self.length - cycle
        up = x / self.share if x <= self.share else (x - 1) / (self.share - 1)
        if self.scale_fn is not None:
            return up * self.scale_fn(cycle if self.scales_cycles else step)
        return up * CYCLIC_MODES[self.mode](self.gamma, cycle, step)

    def lr_at(self, step: Any, index: Any) -> Any:
        start, peak = self.ranges[index]
        return start + (peak - start) * self.height(step)

    def momentum_at(self, step: Any, index: Any) -> Any:
        if not self.momenta:
            return None
        least, most = self.momenta[index]
        return most - (most - least) * self.height(step)


class SWALR(LRScheduler):
    """From the rate that a group has at the first step to `swa_lr`, in `anneal_epochs` steps, along
    half a cosine ("cos") or a line ("linear"); it stays there.

    Raises: OptionError for options out of range.
    Source: Izmailov et al. 2018, arXiv:1803.05407, sec. 3.2.
    Example:
        >>> opt = gh.optim.SGD([gh.tensor([1.0], requires_grad=True)], lr=1.0)
        >>> schedule = SWALR(opt, 0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.75]
    """

    scaled = False

    def __init__(
        self,
        optimizer: "Optimizer",
        swa_lr: int,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        check_optimizer("SWALR", optimizer)
        count = len(optimizer.param_groups)
        rates = per_group("SWALR", "swa_lr", swa_lr, count)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = check_range("SWALR", "swa_lr", rate, 0, math.inf)
        self.anneal: Any = ANNEAL[check_option("SWALR", "anneal_strategy", anneal_strategy, ANNEAL)]
        self.anneal_epochs: int = check_integer("SWALR", "anneal_epochs", anneal_epochs)
        super().__init__(optimizer, last_epoch)

    def share(self, step: float) -> float:
        """The fraction of the way that is done after `step` steps."""
        return self.anneal(0.0, 1.0, max(0.0, min(1.0, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> Any:
        step = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self.share(step - 1), self.share(step)
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            start = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + start * (1 - now))
        return rates


class OneCycleLR(LRScheduler):
    """The rate rises from max_lr / div_factor to max_lr, then falls far below its start.
    It rises over the share `pct_start` of `total_steps` (or epochs * steps_per_epoch) and falls to
    max_lr / div_factor / final_div_factor; with `three_phase` it first falls back to its start as
    fast as it rose. With `cycle_momentum` the momentum (Adam: the first beta) moves the other way,
    between max_momentum and base_momentum. Steps beyond total_steps are an error.

    Raises: OptionError for options out of range, or a momentum to cycle that there is not.
    Source: Smith & Topin 2018, arXiv:1708.07120; phases as in PyTorch.
    """

    scaled = False

    def __init__(
        self,
        optimizer: "Optimizer",
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer("OneCycleLR", optimizer)
        count = len(optimizer.param_groups)
        self.anneal: Any = ANNEAL[check_option("OneCycleLR", "strategy", anneal_strategy, ANNEAL)]
        self.total_steps: int = count_steps(total_steps, epochs, steps_per_epoch)
        share = check_range("OneCycleLR", "pct_start", pct_start, 0, 0.5 if three_phase else 1)
        first, last = share * self.total_steps - 1, self.total_steps - 1
        self.ends: list[Any] = [0, first, 2 * first, last] if three_phase else [0, first, last]
        div = check_range("OneCycleLR", "div_factor", div_factor, 1e-12, math.inf)
        final = check_range("OneCycleLR", "final_div_factor", final_div_factor, 1e-12, math.inf)
        self.rates: list[Any] = []
        self.momenta: list[Any] = []
        for peak in per_group("OneCycleLR", "max_lr", max_lr, count):
            start = check_range("OneCycleLR", "max_lr", peak, 0, math.inf) / div
            self.rates.append([start, peak, *[start] * three_phase, start / final])
        if cycle_momentum:
            for least, most in momenta_of("OneCycleLR", optimizer, base_momentum, max_momentum):
                self.momenta.append([most, least, *[most] * three_phase, most])
        for group, rates in zip(optimizer.param_groups, self.rates, strict=True):
            if last_epoch == -1:
                group["initial_lr"] = rates[0]
        super().__init__(optimizer, last_epoch)

    def between(self, values: list[float], step: int) -> float:
        """The value at `step` on the way through `values`, reached at the steps `ends`."""
        if step > self.total_steps:
            expected = f"at most total_steps = {self.total_steps} steps"
            fix = "Make the schedule with the number of steps that you train."
            raise OptionError("OneCycleLR", expected, f"step {step}", fix)
        phase = next((k for k, end in enumerate(self.ends) if k and step <= end), -1)
        start, end = self.ends[phase - 1], self.ends[phase]
        share = (step - start) / (end - start) if end != start else 1.0
        return self.anneal(values[phase - 1], values[phase], share)

    def lr_at(self, step: Any, index: Any) -> Any:
        return self.between(self.rates[index], step)

    def momentum_at(self, step: Any, index: Any) -> Any:
        return self.between(self.momenta[index], step) if self.momenta else None


def count_steps(total_steps: int | None, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is not None:
        return check_integer("OneCycleLR", "total_steps", total_steps, 1)
    if epochs is None or steps_per_epoch is None:
        got = f"epochs={epochs!r}, steps_per_epoch={steps_per_epoch!r}"
        fix = "Pass them."
        raise OptionError("OneCycleLR", "total_steps, or epochs and steps_per_epoch", got, fix)
    epochs = check_integer("OneCycleLR", "epochs", epochs, 1)
    return epochs * check_integer("OneCycleLR", "steps_per_epoch", steps_per_epoch, 1)
