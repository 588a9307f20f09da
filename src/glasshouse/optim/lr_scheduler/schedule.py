"""Learning-rate schedules.

A schedule is a formula: `lr_at(step, index)` is the rate of group `index` after `step` steps. A
rate changed from outside (by hand, or by a second schedule on the same optimizer) is kept as a
factor on everything that follows, so schedules on one optimizer multiply."""

import math
import numbers
from typing import Any

from glasshouse.base.errors import CheckpointError, DTypeError, OptionError
from glasshouse.ops.checks import check_integer, check_type
from glasshouse.optim.optimizer import Optimizer

# Of a schedule's state, PyTorch's names and ours.
TORCH_NAMES = {
    "_last_lr": "last_lr",
    "num_bad_epochs": "num_bad_steps",
    "cooldown_counter": "cooldown_left",
}


class LRScheduler:
    """Sets the learning rates of an optimizer; call `step()` after `optimizer.step()`.
    Making one sets the rates of step `last_epoch` + 1, relative to each group's "initial_lr": its
    rate when the first schedule is made. Subclasses define `lr_at`, or `get_lr` as in PyTorch.

    Raises: DTypeError if `optimizer` is not an Optimizer, OptionError if a schedule is to continue
        with groups that have no "initial_lr".
    """

    scaled = True  # whether a rate changed from outside lasts, as a factor

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        where = type(self).__name__
        check_optimizer(where, optimizer)
        self.optimizer = optimizer
        groups = optimizer.param_groups
        self.last_epoch: Any = check_integer(where, "last_epoch", last_epoch, -1) + 1
        for i, group in enumerate(groups):
            if self.last_epoch == 0:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                expected = f"initial_lr in group {i}, to go on after step {last_epoch}"
                got = f"a group with {sorted(set(group) - {'params'})}"
                fix = "Set it, or load the optimizer's state first."
                raise OptionError(where, expected, got, fix)
        self.base_lrs: list[float] = [float(group["initial_lr"]) for group in groups]
        self.last_lr: list[float] = [float(group["lr"]) for group in groups]
        if self.last_epoch == 0:
            self.last_lr = list(self.base_lrs)
        self.scales: list[float] = [1.0] * len(groups)
        self.apply()

    def lr_at(self, step: int, index: int) -> float:
        """The rate of group `index` after `step` steps."""
        raise NotImplementedError(f"{type(self).__name__}: expected lr_at; got none.")

    def momentum_at(self, step: int, index: int) -> float | None:
        """The momentum of group `index` after `step` steps, or None to leave it alone."""
        return None

    def step(self, epoch: float | None = None) -> None:
        """Move on by one step, or to step `epoch`, and set the rates."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.apply()

    def get_lr(self) -> list[float]:
        """The rates of step `last_epoch`, one per group."""
        groups = self.optimizer.param_groups
        for i, group in enumerate(groups):
            if self.scaled and self.last_lr[i] and group["lr"] != self.last_lr[i]:
                self.scales[i] *= group["lr"] / self.last_lr[i]
        rates = [float(self.lr_at(self.last_epoch, i)) for i in range(len(groups))]
        return [scale * rate for scale, rate in zip(self.scales, rates, strict=True)]

    def apply(self) -> None:
        """Set rates (and momenta) of `last_epoch`."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            expected = f"the {len(self.base_lrs)} parameter groups it was made for"
            fix = "Add groups before making the schedule."
            raise OptionError(type(self).__name__, expected, len(groups), fix)
        for i, (group, rate) in enumerate(zip(groups, self.get_lr(), strict=True)):
            group["lr"] = self.last_lr[i] = rate
            momentum = self.momentum_at(self.last_epoch, i)
            if momentum is not None and "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            elif momentum is not None:
                group["momentum"] = momentum

    def get_last_lr(self) -> list[float]:
        """The rates set last, one per group."""
        return list(self.last_lr)

    def state_dict(self) -> dict[Any, Any]:
        """How far the schedule is, as plain numbers."""
        return {
            "last_epoch": self.last_epoch,
            "base_lrs": list(self.base_lrs),
            "scales": list(self.scales),
            "last_lr": list(self.last_lr),
        }

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Continue from `state`, which may be a PyTorch schedule's, and set its rates.

        Raises: CheckpointError if it does not fit this schedule; nothing is changed then.
        """
        now = self.state_dict()
        if isinstance(state, dict) and "_last_lr" in state:
            state = self.fill_state(now, state)
        if not has_form(now, state):
            fix = "Pass what state_dict() of the same schedule returned."
            raise CheckpointError(type(self).__name__, f"a state like {now}", repr(state), fix)
        vars(self).update({k: list(v) if isinstance(now[k], list) else v for k, v in state.items()})
        for group, lr in zip(self.optimizer.param_groups, self.last_lr, strict=True):
            group["lr"] = lr

    def fill_state(self, current: dict[Any, Any], state: dict[Any, Any]) -> dict[Any, Any]:
        """The state with the values of PyTorch's; a rate off the formula becomes a factor."""
        named = {TORCH_NAMES.get(name, name): value for name, value in state.items()}
        filled = {name: named.get(name, value) for name, value in current.items()}
        if self.scaled and "scales" in current:
            rates = [self.lr_at(filled["last_epoch"], i) for i in range(len(self.base_lrs))]
            pairs = zip(filled["last_lr"], rates, strict=True)
            filled["scales"] = [lr / rate if rate else 1.0 for lr, rate in pairs]
        return filled

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step {self.last_epoch}, lr {self.last_lr})"


def has_form(like: Any, value: Any) -> bool:
    """Whether `value` has the names, lengths and numbers of `like`; "best" may also be None."""
    if isinstance(like, dict):
        fits = isinstance(value, dict) and value.keys() == like.keys()
        free = {"best": None}.items() if fits else ()  # entries that may also be None
        return fits and all(has_form(like[k], v) or (k, v) in free for k, v in value.items())
    if isinstance(like, list):
        fits = isinstance(value, (list, tuple)) and len(value) == len(like)
        return fits and all(map(has_form, like, value))
    return isinstance(value, numbers.Real)


def check_optimizer(where: str, optimizer: Optimizer) -> None:
    check_type(where, optimizer, Optimizer, "an optimizer", "Pass e.g. SGD(parameters, lr=0.1).")


def per_group(where: str, name: str, value: Any, count: int) -> list[Any]:
    """`value` for each of `count` groups: a list of as many, or one for all."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        expected = f"one {name} for each of {count} parameter groups"
        fix = f"Give one value for all, or a list of {count}."
        raise OptionError(where, expected, len(values), fix)
    return values


def check_functions(where: str, optimizer: Optimizer, functions: Any) -> list[Any]:
    """A function of the step for each group."""
    check_optimizer(where, optimizer)
    fns = per_group(where, "lr_lambda", functions, len(optimizer.param_groups))
    if not all(map(callable, fns)):
        raise DTypeError(where, "functions of the step", repr(functions), "Pass one.")
    return fns


def anneal_cosine(start: float, end: float, share: float) -> float:
    """From start (share 0) to end (share 1) along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


ANNEAL: dict[str, Any] = {
    "cos": anneal_cosine,
    "linear": lambda start, end, share: start + (end - start) * share,
}
