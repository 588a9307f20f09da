"""Learning-rate schedules.

A schedule is a formula: `lr_at(step, index)` is the rate of group `index` after `step` steps. A
rate changed from outside (by hand, or by a second schedule on the same optimizer) is kept as a
factor on everything that follows, so schedules on one optimizer multiply."""

import math
import numbers
from bisect import bisect_right

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError, type_name
from glasshouse.ops.checks import check_integer, check_option, check_type
from glasshouse.optim.optimizer import Optimizer


class LRScheduler:
    """Sets the learning rates of an optimizer; call `step()` after `optimizer.step()`.
    Making one sets the rates of step 0, relative to each group's rate (kept as "initial_lr").

    Raises: DTypeError if `optimizer` is none.
    """

    scaled = True  # whether a rate changed from outside lasts, as a factor

    def __init__(self, optimizer: Optimizer):
        check_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        groups = optimizer.param_groups
        self.base_lrs = [float(group.setdefault("initial_lr", group["lr"])) for group in groups]
        self.last_lr = list(self.base_lrs)
        self.scales = [1.0] * len(groups)
        self.last_epoch = 0
        self.apply()

    def lr_at(self, step: int, index: int) -> float:
        """The rate of group `index` after `step` steps."""
        raise NotImplementedError(f"{type(self).__name__}: expected lr_at; got none.")

    def momentum_at(self, step: int, index: int) -> float | None:
        """The momentum of group `index` after `step` steps, or None to leave it alone."""
        return None

    def step(self) -> None:
        """Move on by one step and set the rates."""
        self.last_epoch += 1
        self.apply()

    def apply(self) -> None:
        """Set rates (and momenta) of `last_epoch`."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise OptionError(
                type(self).__name__,
                f"the {len(self.base_lrs)} parameter groups it was made for",
                len(groups),
                "Add groups before making the schedule.",
            )
        rates = [float(self.lr_at(self.last_epoch, i)) for i in range(len(groups))]
        for i, group in enumerate(groups):
            if self.scaled and self.last_lr[i] and group["lr"] != self.last_lr[i]:
                self.scales[i] *= group["lr"] / self.last_lr[i]
            group["lr"] = self.last_lr[i] = self.scales[i] * rates[i]
            momentum = self.momentum_at(self.last_epoch, i)
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None:
                group["momentum"] = momentum

    def get_last_lr(self) -> list[float]:
        """The rates set last, one per group."""
        return list(self.last_lr)

    def state_dict(self) -> dict:
        """How far the schedule is, as plain numbers."""
        return {
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
            "scales": list(self.scales),
            "last_lr": list(self.last_lr),
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state`, and set its rates.

        Raises: CheckpointError if it does not fit this schedule; nothing is changed then.
        """
        own = self.state_dict()
        if not has_form(own, state):
            raise CheckpointError(
                type(self).__name__,
                f"a state like {own}",
                repr(state),
                "Pass what state_dict() of the same schedule returned.",
            )
        vars(self).update({k: list(v) if isinstance(own[k], list) else v for k, v in state.items()})
        for group, lr in zip(self.optimizer.param_groups, self.last_lr, strict=True):
            group["lr"] = lr

    def __repr__(self):
        return f"{type(self).__name__}(step {self.last_epoch}, lr {self.last_lr})"


def has_form(own, given) -> bool:
    """Whether `given` has the names, lengths and numbers of `own`; "best" may also be None."""
    if isinstance(own, dict):
        fits = isinstance(given, dict) and given.keys() == own.keys()
        free = {"best": None}.items() if fits else ()  # which may also be None
        return fits and all(has_form(own[k], v) or (k, v) in free for k, v in given.items())
    if isinstance(own, list):
        fits = isinstance(given, (list, tuple)) and len(given) == len(own)
        return fits and all(map(has_form, own, given))
    return isinstance(given, numbers.Real)


def check_optimizer(where: str, optimizer) -> None:
    check_type(where, optimizer, Optimizer, "an optimizer", "Pass e.g. SGD(parameters, lr=0.1).")


def check_range(where: str, name: str, value, low: float, high: float) -> float:
    if not isinstance(value, numbers.Real) or not low <= value <= high:
        raise OptionError(where, f"{name} as a number in [{low}, {high}]", repr(value), "Check it.")
    return float(value)


def per_group(where: str, name: str, value, count: int) -> list:
    """`value` for each of `count` groups: a list of as many, or one for all."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        raise OptionError(
            where,
            f"one {name} for each of {count} parameter groups",
            len(values),
            f"Give one value for all, or a list of {count}.",
        )
    return values


class LambdaLR(LRScheduler):
    """lr = initial_lr * fn(step); one function, or a list of one per group."""

    scaled = False

    def __init__(self, optimizer, lr_lambda):
        check_optimizer("LambdaLR", optimizer)
        fns = per_group("LambdaLR", "lr_lambda", lr_lambda, len(optimizer.param_groups))
        if not all(map(callable, fns)):
            raise DTypeError("LambdaLR", "functions of the step", repr(lr_lambda), "Pass one.")
        self.fns = fns
        super().__init__(optimizer)

    def lr_at(self, step, index):
        return self.base_lrs[index] * self.fns[index](step)


class StepLR(LRScheduler):
    """lr = initial_lr * gamma^floor(step / step_size).

    Raises: OptionError out of range.
    """

    def __init__(self, optimizer, step_size: int, gamma: float = 0.1):
        self.step_size = check_integer("StepLR", "step_size", step_size, 1)
        self.gamma = check_range(type(self).__name__, "gamma", gamma, 0, math.inf)
        super().__init__(optimizer)

    def lr_at(self, step, index):
        return self.base_lrs[index] * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """lr = initial_lr * gamma^(milestones reached).

    Raises: OptionError if a value is negative.
    """

    def __init__(self, optimizer, milestones, gamma: float = 0.1):
        self.milestones = sorted(check_integer("MultiStepLR", "milestones", m) for m in milestones)
        self.gamma = check_range("MultiStepLR", "gamma", gamma, 0, math.inf)
        super().__init__(optimizer)

    def lr_at(self, step, index):
        return self.base_lrs[index] * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(StepLR):
    """lr = initial_lr * gamma^step.

    Raises: OptionError if gamma is negative.
    """

    def __init__(self, optimizer, gamma: float):
        super().__init__(optimizer, 1, gamma)


class LinearLR(LRScheduler):
    """The rate grows (or falls) linearly from start_factor to end_factor times initial_lr.
    Warm-up: reached after `total_iters` steps, and kept from then on.

    Raises: OptionError for factors outside [0, 1], a start_factor of 0, or total_iters below 1.
    Source: Goyal et al. 2017, arXiv:1706.02677, sec. 2.2 (gradual warm-up).
    """

    def __init__(
        self, optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ):
        self.start_factor = check_range("LinearLR", "start_factor", start_factor, 0, 1)
        if self.start_factor == 0:
            raise OptionError("LinearLR", "start_factor > 0", "0", "Pass e.g. 1e-3.")
        self.end_factor = check_range("LinearLR", "end_factor", end_factor, 0, 1)
        self.total_iters = check_integer("LinearLR", "total_iters", total_iters, 1)
        super().__init__(optimizer)

    def lr_at(self, step, index):
        done = min(step, self.total_iters) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return self.base_lrs[index] * factor


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2.

    Raises: OptionError if T_max is below 1 or eta_min negative.
    Source: Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5 (without restarts).
    """

    def __init__(self, optimizer, T_max: int, eta_min: float = 0.0):
        self.T_max = check_integer("CosineAnnealingLR", "T_max", T_max, 1)
        self.eta_min = check_range("CosineAnnealingLR", "eta_min", eta_min, 0, math.inf)
        super().__init__(optimizer)

    def lr_at(self, step, index):
        return anneal_cosine(self.base_lrs[index], self.eta_min, step / self.T_max)


def anneal_cosine(start: float, end: float, share: float) -> float:
    """From start (share 0) to end (share 1) along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


ANNEAL = {"cos": anneal_cosine, "linear": lambda start, end, share: start + (end - start) * share}


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
        optimizer,
        max_lr,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ):
        check_optimizer("OneCycleLR", optimizer)
        count = len(optimizer.param_groups)
        self.anneal = ANNEAL[check_option("OneCycleLR", "strategy", anneal_strategy, ANNEAL)]
        self.total_steps = count_steps(total_steps, epochs, steps_per_epoch)
        share = check_range("OneCycleLR", "pct_start", pct_start, 0, 0.5 if three_phase else 1)
        first, last = share * self.total_steps - 1, self.total_steps - 1
        self.ends = [0, first, 2 * first, last] if three_phase else [0, first, last]
        div = check_range("OneCycleLR", "div_factor", div_factor, 1e-12, math.inf)
        final = check_range("OneCycleLR", "final_div_factor", final_div_factor, 1e-12, math.inf)
        self.rates, self.momenta = [], []
        for peak in per_group("OneCycleLR", "max_lr", max_lr, count):
            start = check_range("OneCycleLR", "max_lr", peak, 0, math.inf) / div
            self.rates.append([start, peak, *[start] * three_phase, start / final])
        if cycle_momentum:
            if not {"momentum", "betas"} & set(optimizer.defaults):
                raise OptionError(
                    "OneCycleLR",
                    "an optimizer with momentum or betas",
                    type(optimizer).__name__,
                    "Pass cycle_momentum=False.",
                )
            low = per_group("OneCycleLR", "base_momentum", base_momentum, count)
            high = per_group("OneCycleLR", "max_momentum", max_momentum, count)
            for least, most in zip(low, high, strict=True):
                least = check_range("OneCycleLR", "base_momentum", least, 0, 1)
                most = check_range("OneCycleLR", "max_momentum", most, 0, 1)
                self.momenta.append([most, least, *[most] * three_phase, most])
        for group, rates in zip(optimizer.param_groups, self.rates, strict=True):
            group["initial_lr"] = rates[0]
        super().__init__(optimizer)

    def between(self, values: list[float], step: int) -> float:
        """The value at `step` on the way through `values`, reached at the steps `ends`."""
        if step > self.total_steps:
            raise OptionError(
                "OneCycleLR",
                f"at most total_steps = {self.total_steps} steps",
                f"step {step}",
                "Make the schedule with the number of steps that you train.",
            )
        phase = next((k for k, end in enumerate(self.ends) if k and step <= end), -1)
        start, end = self.ends[phase - 1], self.ends[phase]
        share = (step - start) / (end - start) if end != start else 1.0
        return self.anneal(values[phase - 1], values[phase], share)

    def lr_at(self, step, index):
        return self.between(self.rates[index], step)

    def momentum_at(self, step, index):
        return self.between(self.momenta[index], step) if self.momenta else None


def count_steps(total_steps, epochs, steps_per_epoch) -> int:
    if total_steps is not None:
        return check_integer("OneCycleLR", "total_steps", total_steps, 1)
    if epochs is None or steps_per_epoch is None:
        raise OptionError(
            "OneCycleLR",
            "total_steps, or epochs and steps_per_epoch",
            f"epochs={epochs!r}, steps_per_epoch={steps_per_epoch!r}",
            "Pass them.",
        )
    epochs = check_integer("OneCycleLR", "epochs", epochs, 1)
    return epochs * check_integer("OneCycleLR", "steps_per_epoch", steps_per_epoch, 1)


class SequentialLR(LRScheduler):
    """One schedule after another: each starts at its milestone, counting its steps from 0.

    Raises: OptionError unless there is one milestone between every two schedules, in rising order,
        and all belong to `optimizer`.
    Example:
        >>> opt = gh.optim.SGD([gh.tensor([1.0], requires_grad=True)], lr=1.0)
        >>> parts = [LinearLR(opt, 0.5, total_iters=2), CosineAnnealingLR(opt, 4)]
        >>> schedule = SequentialLR(opt, parts, milestones=[2])
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer, schedulers, milestones):
        check_optimizer("SequentialLR", optimizer)
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        for part in self.schedulers:
            if not isinstance(part, LRScheduler) or isinstance(part, ReduceLROnPlateau):
                raise OptionError(
                    "SequentialLR",
                    "schedules of the step alone",
                    type_name(part),
                    "Step a plateau schedule by itself.",
                )
            if part.optimizer is not optimizer:
                raise OptionError(
                    "SequentialLR",
                    "schedules of its own optimizer",
                    "one of another",
                    "Make all of them with the same optimizer.",
                )
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
        super().__init__(optimizer)

    def at(self, step: int):
        """(the schedule in force, its own step)."""
        which = bisect_right(self.milestones, step)
        return self.schedulers[which], step - (self.milestones[which - 1] if which else 0)

    def lr_at(self, step, index):
        part, own_step = self.at(step)
        return part.lr_at(own_step, index)

    def momentum_at(self, step, index):
        part, own_step = self.at(step)
        return part.momentum_at(own_step, index)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` after more than `patience` steps without a better metric.
    `step(metric)` takes the metric: smaller is better with mode "min", larger with "max". Better
    means by more than `threshold`, as a share of |best| ("rel") or absolute ("abs"); NaN is never
    better.

    Raises: OptionError for options out of range.
    """

    def __init__(
        self,
        optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr=0.0,
        eps: float = 1e-8,
    ):
        check_optimizer("ReduceLROnPlateau", optimizer)
        where = "ReduceLROnPlateau"
        self.mode = check_option(where, "mode", mode, ("min", "max"))
        self.threshold_mode = check_option(where, "threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor = check_range(where, "factor", factor, 0, 1 - 1e-12)
        self.patience = check_integer(where, "patience", patience, 0)
        self.cooldown = check_integer(where, "cooldown", cooldown, 0)
        self.threshold = check_range(where, "threshold", threshold, 0, math.inf)
        self.min_lrs = per_group(where, "min_lr", min_lr, len(optimizer.param_groups))
        self.eps = check_range(where, "eps", eps, 0, math.inf)
        self.best, self.num_bad_steps, self.cooldown_left = None, 0, 0
        super().__init__(optimizer)

    def apply(self) -> None:
        """Note the rates; only `reduce` changes them."""
        self.last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, metric) -> None:
        """Take in the metric of one step, and lower the rates if it is time."""
        self.last_epoch += 1
        metric = float(metric)
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

    def state_dict(self):
        own = ("best", "num_bad_steps", "cooldown_left")
        return {**super().state_dict(), **{name: getattr(self, name) for name in own}}
