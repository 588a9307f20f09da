"""The optimizer base: parameter groups, the step over all parameters, and the saved state.

A rule is one method, `change(grad, state, group)`, which returns the update to add to the
parameter, or `change_at(p, grad, state, group)` if the update depends on the parameter. It is
written with tensor operators, so it runs on every backend and under every mode."""

import math
import numbers
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base import CheckpointError, OptionError, real_dtype, suggest, type_name
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import phase, state
from glasshouse.dispatch.value import cast
from glasshouse.ops.cast import bitcast
from glasshouse.ops.checks import check_option
from glasshouse.optim import checks
from glasshouse.optim.hooks import OptimizerHooks
from glasshouse.tensor import Tensor, asarray, zeros_like

# Options of PyTorch's that choose how it computes a step; here, all parameters are updated at once.
CHOICES: dict[str, Any] = {
    "foreach": (None, False, True),
    "fused": (None, False, True),
    "capturable": (False, True),
    "differentiable": (False,),
    "maximize": (False, True),
    "nesterov": (False, True),
    "amsgrad": (False, True),
    "centered": (False, True),
    "decoupled_weight_decay": (False, True),
}


class Optimizer(OptimizerHooks):
    """Updates parameters from their gradients.
    `params` is an iterable of tensors, of (name, tensor) pairs, or of groups: dicts with "params"
    and options that differ from `defaults`. Options of a group may be changed between steps:
    `opt.param_groups[0]["lr"]`.
    Subclasses define `change`, the `ranges` of their numeric options (low <= value < high), and the
    names of their state: `buffers` are tensors of the parameter's shape, `numbers` Python's. Or
    they define `step`, as in PyTorch, and keep any state in `self.state[p]`.

    Raises: DTypeError for a parameter that is not a floating or complex tensor, OptionError for no
        parameters, a repeated one or an option out of range, GradError for a non-leaf tensor.
    """

    ranges: dict[str, tuple[float, float]] = {}
    pairs: tuple[str, ...] = ()  # options that are two numbers
    buffers: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()  # buffers that only some options use
    numbers: tuple[str, ...] = ()  # beside "step"
    counts_steps = True
    decoupled = False  # whether weight decay shrinks the parameter, where no option says
    decays_itself = False  # whether the rule has weight decay in its formula
    takes_complex = True
    by_parts = True  # whether the parts of a parameter that ranks share out may be updated apart

    def __init__(self, params: Iterable[Any], defaults: dict[Any, Any]) -> None:
        self.defaults = defaults
        self.state: dict[Tensor, dict[Any, Any]] = defaultdict(
            dict
        )  # as programs of PyTorch use it
        self.param_groups: list[dict[Any, Any]] = []
        self.hooks: dict[str, OrderedDict[Any, Any]] = {}
        for group in checks.list_groups(self.where, params):
            self.add_checked(group)

    @property
    def where(self) -> str:
        return type(self).__name__

    def change(self, grad: Any, state: dict[Any, Any], group: dict[Any, Any]) -> Any:
        """The change that one step adds to a parameter with this gradient; updates its `state`."""
        raise NotImplementedError(f"{self.where}: expected change; got none.")

    def change_at(
        self, p: Tensor, grad: Tensor, state: dict[Any, Any], group: dict[Any, Any]
    ) -> Tensor:
        """`change`, for a rule that also depends on the parameter."""
        return self.change(grad, state, group)

    def add_param_group(self, group: dict[Any, Any]) -> None:
        """Optimize further parameters, with their own options.

        Raises: as the constructor.
        """
        if not isinstance(group, dict):
            fix = "Write {'params': [...], 'lr': ...}."
            raise OptionError(self.where, "a group as a dict", type_name(group), fix)
        self.add_checked(checks.list_groups(self.where, [group])[0])

    def add_checked(self, group: dict[Any, Any]) -> None:
        unknown = set(group) - {"params"} - set(self.defaults) - FREE
        if unknown:
            name = sorted(map(str, unknown))[0]
            raise OptionError(self.where, "an option", repr(name), suggest(name, self.defaults))
        param_ids = {id(p) for p in self.parameters()}
        checks.check_params(self.where, group["params"], param_ids, self.takes_complex)
        if not self.by_parts:
            checks.check_whole(self.where, group["params"])
        options = {**self.defaults, **group}
        self.check_options(options)
        self.param_groups.append(options)

    def check_options(self, options: dict[Any, Any]) -> None:
        """Raise OptionError if an option is outside its range; make Python numbers of them."""
        for name in CHOICES.keys() & options.keys():
            check_option(self.where, name, options[name], CHOICES[name])
        for name, (low, high) in self.ranges.items():
            value, pair = options[name], name in self.pairs
            value = value.item() if isinstance(value, Tensor) and value.ndim == 0 else value
            values = tuple(value) if pair and isinstance(value, (tuple, list)) else (value,)
            allowed = all(isinstance(v, numbers.Real) and low <= float(v) < high for v in values)
            if not allowed or len(values) != (2 if pair else 1):
                kind = "two numbers" if pair else "a number"
                expected = f"{name} to be {kind} in [{low}, {high})"
                raise OptionError(self.where, expected, repr(value), "Check its scale and sign.")
            # NumPy's float64 would promote float32 parameters; Python's float does not.
            values = tuple(map(float, values))
            options[name] = values if pair else values[0]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zeros."""
        for p in self.parameters():
            if p.grad is not None:
                p.grad = None if set_to_none else zeros_like(p)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the closure's loss, if one is given.
        The closure clears the gradients, computes the loss, calls backward and returns the loss.

        Raises: ShapeError, DTypeError if a gradient is not like its parameter; all is unchanged.
        """
        if not self.hooks:
            return self.advance(closure)
        call_args = (self,) if closure is None else (self, closure)
        args, kwargs = self.arguments_of_step(call_args, {})
        loss = self.advance(*args[1:], **kwargs)
        for hook in self.hooks_of("step_post"):
            hook(self, args, kwargs)
        return loss

    def advance(self, closure: Callable[[], Any] | None = None) -> int:
        """Update each parameter that has a gradient, without the hooks around a step; the loss."""
        loss = checks.loss_of(f"{self.where}.step", closure)
        with no_grad(), phase("optimizer"):
            work = [(p, group) for group in self.param_groups for p in group["params"]]
            work = [(p, group) for p, group in work if p.grad is not None]
            for p, _ in work:
                checks.check_gradient(self.where, p)
            for p, group in work:
                self.update(p, p.grad.detach(), group)
        evaluate_step()
        return loss

    def update(self, p: Tensor, grad: Tensor, group: dict[Any, Any]) -> None:
        """One parameter's step: sign, weight decay, rule, addition."""
        state = dict(self.state.get(p, ()))
        decay = 0.0 if self.decays_itself else group.get("weight_decay", 0.0)
        decoupled = group.get("decoupled_weight_decay", self.decoupled)
        if group.get("maximize"):
            grad = -grad
        if decay and not decoupled:
            grad = grad + p * decay
        if p.dtype.is_complex:  # rules see the real and imaginary parts as separate numbers
            real = real_dtype(p.dtype)
            parts = bitcast(p, dtype=real), bitcast(grad, dtype=real)
            parts[0].sharding = p.sharding
            change = bitcast(self.change_at(*parts, state, group), dtype=p.dtype)
        else:
            change = self.change_at(p, grad, state, group)
        if decay and decoupled:
            p *= 1 - float(group["lr"]) * decay
        p += change
        if state:
            self.state[p] = state

    def state_dict(self) -> dict[Any, Any]:
        """The state by parameter number, and the options of each group; in PyTorch's layout.
        A snapshot: later steps do not change it."""
        for hook in self.hooks_of("state_dict_pre"):
            hook(self)
        number = {id(p): i for i, p in enumerate(self.parameters())}
        groups = [{**g, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {number[id(p)]: self.saved_state(p, entry) for p, entry in self.state.items()}
        return self.passed_through("state_dict_post", {"state": state, "param_groups": groups})

    def saved_state(self, p: Tensor, entry: dict[Any, Any]) -> dict[Any, Any]:
        """One parameter's state as it is saved: of a complex parameter, complex."""
        if self.owns_state:
            return mapped(entry, lambda _, x: x.detach() if isinstance(x, Tensor) else x)
        if not p.dtype.is_complex:
            return dict(entry)
        parts = (*p.shape, 2)
        is_parts = {name: isinstance(x, Tensor) and x.shape == parts for name, x in entry.items()}
        return {n: bitcast(x, dtype=p.dtype) if is_parts[n] else x for n, x in entry.items()}

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        """Continue from `state_dict`, whose groups must have as many parameters as ours.

        Raises: CheckpointError if it does not fit, OptionError for an option out of range; nothing
            is changed then.
        """
        is_dict = isinstance(state_dict, dict)
        state_dict = self.passed_through(
            "load_state_dict_pre", dict(state_dict) if is_dict else state_dict
        )
        groups = self.checked_groups(state_dict)
        state: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)
        params = dict(enumerate(self.parameters()))
        for key, entry in state_dict["state"].items():
            number = int(key) if isinstance(key, str) and key.isdecimal() else key
            if number not in params:
                expected = f"state of the parameters 0 to {len(params) - 1}"
                fix = "Load it into an optimizer of the same parameters."
                raise CheckpointError(self.where, expected, repr(key), fix)
            state[params[number]] = self.checked_state(number, params[number], entry)
        self.param_groups, self.state = groups, state
        for hook in self.hooks_of("load_state_dict_post"):
            hook(self)

    def checked_groups(self, state_dict: Any) -> list[dict[Any, Any]]:
        names = {"state", "param_groups"}
        is_state = isinstance(state_dict, dict) and names <= set(state_dict)
        if not is_state or not isinstance(state_dict["state"], dict):
            expected = "a dict with 'state' and 'param_groups'"
            fix = "Pass what state_dict() returned."
            raise CheckpointError(self.where, expected, checks.describe_dict(state_dict), fix)
        sizes = [len(group["params"]) for group in self.param_groups]
        try:
            saved = [len(group["params"]) for group in state_dict["param_groups"]]
        except (TypeError, KeyError):
            saved = "something else"
        if sizes != saved:
            fix = "Build the optimizer with the groups it was saved with."
            raise CheckpointError(self.where, f"parameter groups of sizes {sizes}", saved, fix)
        pairs = zip(self.param_groups, state_dict["param_groups"], strict=True)
        groups = [{**current, **group, "params": current["params"]} for current, group in pairs]
        for options in groups:
            self.check_options(options)
        return groups

    @property
    def owns_state(self) -> bool:
        """Whether it has its own `step`, as programs of PyTorch do, that keeps in `self.state`
        whatever it likes, which is saved and loaded as it is."""
        declares = self.buffers or self.optional or self.numbers
        return type(self).step is not Optimizer.step and not declares

    def state_shapes(self, shape: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
        """The shape of each tensor that the state of a parameter must have."""
        return dict.fromkeys(self.buffers, shape)

    def optional_shapes(self, shape: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
        """The shape of each tensor that it may have."""
        return dict.fromkeys(self.optional, shape)

    def checked_state(self, number: int, p: Tensor, entry: dict[Any, Any]) -> dict[Any, Any]:
        """One parameter's saved state, as tensors of its dtype."""
        entry = entry if isinstance(entry, dict) else {}
        if self.owns_state:
            return mapped(entry, partial(loaded_value, p))
        names = {name for name, value in entry.items() if value is not None}
        shape = (*p.shape, 2) if p.dtype.is_complex else p.shape
        numbers = dict.fromkeys((*("step",) * self.counts_steps, *self.numbers), ())
        needed = {**self.state_shapes(shape), **numbers}
        allowed_shapes = {**self.optional_shapes(shape), **needed}
        if not needed.keys() <= names <= allowed_shapes.keys():
            expected = f"the state of parameter {number} to have {sorted(needed)}"
            fix = "Load it into the optimizer it came from; a rule names its state in `buffers`."
            raise CheckpointError(self.where, expected, sorted(names), fix)
        out = {}
        for name in (name for name in entry if name in names):
            value = self.checked_entry(number, p, name, entry[name], allowed_shapes[name])
            kind = int if name == "step" else float
            out[name] = kind(value) if name in numbers else value
        return out

    def checked_entry(
        self, number: int, p: Tensor, name: str, entry: Tensor | int, shape: tuple[Any, ...]
    ) -> Any:
        """One tensor or number of a parameter's saved state."""
        array = np.asarray(entry)
        if p.dtype.is_complex and array.dtype.kind == "c":
            array = np.stack([array.real, array.imag], axis=-1)
            entry = array
        if array.shape != shape or (name == "step" and not array >= 0):
            raise CheckpointError(
                self.where,
                f"{name!r} of parameter {number} to have shape {shape}, and a step to be >= 0",
                array if array.shape == () else f"shape {array.shape}",
                "Load it into an optimizer of the same model.",
            )
        if shape == () and (name == "step" or name in self.numbers):
            return array
        return asarray(entry, dtype=real_dtype(p.dtype)).detach()

    def parameters(self) -> list[Tensor]:
        """All parameters, group after group; their position is their number in the state."""
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{self.where}("]
        for i, group in enumerate(self.param_groups):
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k not in OWNED)
            lines.append(f"  group {i}: {len(group['params'])} parameters, {options}")
        return "\n".join([*lines, ")"])


def options(scope: dict[Any, Any]) -> dict[Any, Any]:
    """The options among the arguments of a constructor, from its `locals()`."""
    return {k: v for k, v in scope.items() if k not in ("self", "params", "__class__")}


def mapped(x: Any, function: Callable[..., Any], name: str = "") -> Any:
    """A state with `function(name, value)` for each value in it, which may lie in dicts, lists and
    tuples."""
    if isinstance(x, dict):
        return {key: mapped(value, function, key) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(mapped(value, function, name) for value in x)
    return function(name, x)


def loaded_value(p: Tensor, name: str, value: Any) -> Any:
    """A value of a user's state as PyTorch loads it: arrays become tensors, floating ones of the
    parameter's dtype but for a step's."""
    if not hasattr(value, "__array__") or np.isscalar(value):
        return value
    x = asarray(value).detach()
    is_cast = x.dtype.is_floating and p.dtype.is_floating and name != "step"
    return cast(x, p.dtype) if is_cast else x


def evaluate_step() -> None:
    """Compute the deferred forward pass, backward pass and update as one. A step inside another
    optimizer's leaves that to the outer one."""
    if state.phase != "optimizer":
        backends.current().evaluate()


def blend(old: Tensor | None, new: Tensor, weight: float) -> Tensor:
    """The moving average old + (new - old) * weight; an `old` of None counts as 0."""
    return new * weight if old is None else old + (new - old) * weight


def non_negative(names: str) -> dict[str, tuple[float, float]]:
    """Ranges of options that may be 0 or more, for the `ranges` of a rule."""
    return dict.fromkeys(names.split(), NON_NEGATIVE)


OWNED = {"params", "param_names"}  # of a group, beside its options
FREE = {"params", "param_names", "initial_lr", "swa_lr"}
NON_NEGATIVE = (0.0, math.inf)
FRACTION = (0.0, 1.0)
