"""The optimizer base: parameter groups, the step over all parameters, and the saved state.

A rule is one method, `change(grad, state, group)`, which returns what is added to the parameter. It
is written with tensor operators, so it runs on every backend and under every mode."""

import math
import numbers

import numpy as np

from glasshouse.autograd import enable_grad, no_grad
from glasshouse.base import suggest, type_name
from glasshouse.base.dtype import real_dtype
from glasshouse.base.errors import CheckpointError, DTypeError, GradError, OptionError, ShapeError
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.scope import phase
from glasshouse.ops.cast import bitcast
from glasshouse.tensor import Tensor, asarray, zeros_like


class Optimizer:
    """Updates parameters from their gradients.
    `params` is an iterable of tensors, or of groups: dicts with "params" and options that differ
    from `defaults`. Options of a group may be changed between steps: `opt.param_groups[0]["lr"]`.
    Subclasses define `change`, the `ranges` of their numeric options (low <= value < high), and the
    names of their state: `buffers` are tensors of the parameter's shape.

    Raises: DTypeError for what is no floating or complex tensor, OptionError for no parameters, a
        parameter given twice or an option out of range, GradError for a non-leaf tensor.
    """

    ranges: dict[str, tuple[float, float]] = {}
    pairs: tuple[str, ...] = ()  # options that are two numbers
    buffers: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()  # buffers that only some options use
    counts_steps = True

    def __init__(self, params, defaults: dict):
        self.defaults = defaults
        self.state: dict[Tensor, dict] = {}
        self.param_groups: list[dict] = []
        for group in list_groups(self.where, params):
            self.add_checked(group)

    @property
    def where(self) -> str:
        return type(self).__name__

    def change(self, grad, state: dict, group: dict):
        """What one step adds to a parameter with this gradient; updates its `state`."""
        raise NotImplementedError(f"{self.where}: expected change; got none.")

    def add_param_group(self, group: dict) -> None:
        """Optimize further parameters, with their own options.

        Raises: as the constructor.
        """
        if not isinstance(group, dict):
            raise OptionError(
                self.where,
                "a group as a dict",
                type_name(group),
                "Write {'params': [...], 'lr': ...}.",
            )
        self.add_checked(list_groups(self.where, [group])[0])

    def add_checked(self, group: dict) -> None:
        unknown = set(group) - {"params"} - set(self.defaults) - {"initial_lr"}
        if unknown:
            name = sorted(map(str, unknown))[0]
            raise OptionError(self.where, "an option", repr(name), suggest(name, self.defaults))
        check_params(self.where, group["params"], {id(p) for p in self.parameters()})
        options = {**self.defaults, **group}
        self.check_options(options)
        self.param_groups.append(options)

    def check_options(self, options: dict) -> None:
        """Raise OptionError if an option is outside its range; Python numbers are made of them."""
        for name, (low, high) in self.ranges.items():
            value, pair = options[name], name in self.pairs
            values = tuple(value) if pair and isinstance(value, (tuple, list)) else (value,)
            allowed = all(isinstance(v, numbers.Real) and low <= v < high for v in values)
            if not allowed or len(values) != (2 if pair else 1):
                kind = "two numbers" if pair else "a number"
                raise OptionError(
                    self.where,
                    f"{name} to be {kind} in [{low}, {high})",
                    repr(value),
                    "Check its scale and sign.",
                )
            # NumPy's float64 would promote float32 parameters; Python's float does not.
            values = tuple(map(float, values))
            options[name] = values if pair else values[0]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zeros."""
        for p in self.parameters():
            if p.grad is not None:
                p.grad = None if set_to_none else zeros_like(p)

    def step(self, closure=None):
        """Update every parameter that has a gradient; returns the closure's loss, if one is given.
        The closure clears the gradients, computes the loss, calls backward and returns the loss.

        Raises: ShapeError, DTypeError if a gradient is not like its parameter; all is unchanged.
        """
        with enable_grad():
            loss = None if closure is None else closure()
        with no_grad(), phase("optimizer"):
            work = [(p, group) for group in self.param_groups for p in group["params"]]
            work = [(p, group) for p, group in work if p.grad is not None]
            for p, _ in work:
                check_gradient(self.where, p)
            for p, group in work:
                self.update(p, p.grad.detach(), group)
        backends.current().evaluate()  # what was put off: forward, backward and update, as one
        return loss

    def update(self, p: Tensor, grad, group: dict) -> None:
        """One parameter's step: sign, weight decay, rule, addition."""
        decay, state = group.get("weight_decay", 0.0), dict(self.state.get(p, ()))
        if group.get("maximize"):
            grad = -grad
        if decay and not group.get("decoupled_weight_decay"):
            grad = grad + p * decay
        if p.dtype.is_complex:  # rules see the real and imaginary parts as separate numbers
            parts = bitcast(grad, dtype=real_dtype(p.dtype))
            change = bitcast(self.change(parts, state, group), dtype=p.dtype)
        else:
            change = self.change(grad, state, group)
        if decay and group.get("decoupled_weight_decay"):
            p *= 1 - float(group["lr"]) * decay
        p += change
        self.state[p] = state

    def state_dict(self) -> dict:
        """The state by parameter number, and the options of each group; in PyTorch's layout.
        A snapshot: later steps do not change it."""
        number = {id(p): i for i, p in enumerate(self.parameters())}
        groups = [{**g, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {number[id(p)]: dict(entry) for p, entry in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict) -> None:
        """Go on from `state_dict`, whose groups must have as many parameters as ours.

        Raises: CheckpointError if it does not fit, OptionError for an option out of range; nothing
            is changed then.
        """
        groups = self.checked_groups(state_dict)
        state = {}
        params = dict(enumerate(self.parameters()))
        for key, entry in state_dict["state"].items():
            number = int(key) if isinstance(key, str) and key.isdecimal() else key
            if number not in params:
                raise CheckpointError(
                    self.where,
                    f"state of the parameters 0 to {len(params) - 1}",
                    repr(key),
                    "Load it into an optimizer of the same parameters.",
                )
            state[params[number]] = self.checked_state(number, params[number], entry)
        self.param_groups, self.state = groups, state

    def checked_groups(self, state_dict) -> list[dict]:
        names = {"state", "param_groups"}
        is_state = isinstance(state_dict, dict) and names <= set(state_dict)
        if not is_state or not isinstance(state_dict["state"], dict):
            raise CheckpointError(
                self.where,
                "a dict with 'state' and 'param_groups'",
                describe_dict(state_dict),
                "Pass what state_dict() returned.",
            )
        sizes = [len(group["params"]) for group in self.param_groups]
        try:
            saved = [len(group["params"]) for group in state_dict["param_groups"]]
        except (TypeError, KeyError):
            saved = "something else"
        if sizes != saved:
            raise CheckpointError(
                self.where,
                f"parameter groups of sizes {sizes}",
                saved,
                "Build the optimizer with the groups it was saved with.",
            )
        pairs = zip(self.param_groups, state_dict["param_groups"], strict=True)
        groups = [{**own, **group, "params": own["params"]} for own, group in pairs]
        for options in groups:
            self.check_options(options)
        return groups

    def checked_state(self, number: int, p: Tensor, entry: dict) -> dict:
        """One parameter's saved state, as tensors of its dtype."""
        entry = entry if isinstance(entry, dict) else {}
        names = {name for name, value in entry.items() if value is not None}
        needed = set(self.buffers) | ({"step"} if self.counts_steps else set())
        missing, unknown = needed - names, names - needed - set(self.optional)
        if missing or unknown:
            raise CheckpointError(
                self.where,
                f"the state of parameter {number} to have {sorted(needed)}",
                sorted(names),
                "Load it into the optimizer it came from.",
            )
        shape = (*p.shape, 2) if p.dtype.is_complex else p.shape
        out = {}
        for name in (name for name in entry if name in names):
            array, wanted = np.asarray(entry[name]), () if name == "step" else shape
            if array.shape != wanted or (name == "step" and not array >= 0):
                got = array if array.shape == () else f"shape {array.shape}"
                raise CheckpointError(
                    self.where,
                    f"{name!r} of parameter {number} to have shape {wanted}, and a step to be >= 0",
                    got,
                    "Load it into an optimizer of the same model.",
                )
            value = asarray(entry[name], dtype=real_dtype(p.dtype)).detach()
            out[name] = int(array) if name == "step" else value
        return out

    def parameters(self) -> list[Tensor]:
        """All parameters, group after group; their position is their number in the state."""
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self):
        lines = [f"{self.where}("]
        for i, group in enumerate(self.param_groups):
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
            lines.append(f"  group {i}: {len(group['params'])} parameters, {options}")
        return "\n".join([*lines, ")"])


def list_groups(where: str, params) -> list[dict]:
    if isinstance(params, (Tensor, dict)) or not hasattr(params, "__iter__"):
        raise DTypeError(
            where,
            "an iterable of parameters or of groups",
            type_name(params),
            "Pass model.parameters() or a list.",
        )
    entries = list(params)
    if not entries:
        raise OptionError(
            where,
            "at least one parameter",
            "none",
            "Pass model.parameters(), and note that a generator can be used only once.",
        )
    if not any(isinstance(entry, dict) for entry in entries):
        return [{"params": entries}]
    for entry in entries:
        if not isinstance(entry, dict) or "params" not in entry:
            raise OptionError(
                where,
                "every group to be a dict with 'params'",
                describe_dict(entry),
                "Write {'params': [...], 'lr': ...}.",
            )
    owned = [entry["params"] for entry in entries]
    owned = [[own] if isinstance(own, Tensor) else list(own) for own in owned]
    return [{**entry, "params": own} for entry, own in zip(entries, owned, strict=True)]


def check_params(where: str, params: list, used_ids: set[int]) -> None:
    if not params:
        raise OptionError(where, "every group to have parameters", "an empty group", "Drop it.")
    for i, p in enumerate(params):
        if not isinstance(p, Tensor) or not p.dtype.is_inexact:
            got = f"{type_name(p)}" if not isinstance(p, Tensor) else f"a tensor of {p.dtype.name}"
            raise DTypeError(
                where,
                "floating or complex tensors",
                f"{got} at {i}",
                "Pass the tensors to be trained.",
            )
        if not p.is_leaf:
            raise GradError(
                where,
                "leaf tensors",
                f"the result of an operation at {i}",
                "Pass the tensor it was made from, or detach it.",
            )
        if id(p) in used_ids:
            raise OptionError(
                where,
                "each parameter once",
                f"the one at {i} (shape {p.shape}) twice",
                "Remove it from one of the groups.",
            )
        used_ids.add(id(p))


def check_gradient(where: str, p: Tensor) -> None:
    if isinstance(p.grad, Tensor) and p.grad.spec == p.spec:
        return
    got = p.grad.spec if isinstance(p.grad, Tensor) else type_name(p.grad)
    wrong_shape = isinstance(p.grad, Tensor) and p.grad.shape != p.shape
    error = ShapeError if wrong_shape else DTypeError
    raise error(
        where,
        f"a gradient like its parameter, {p.spec}",
        got,
        "Set .grad to a tensor of that shape and dtype.",
    )


def options(scope: dict) -> dict:
    """The options among the arguments of a constructor, from its `locals()`."""
    return {k: v for k, v in scope.items() if k not in ("self", "params", "__class__")}


def describe_dict(x) -> str:
    return f"a dict with {sorted(map(str, x))}" if isinstance(x, dict) else type_name(x)


def blend(old, new, weight: float):
    """The moving average old + (new - old) * weight; an `old` of None counts as 0."""
    return new * weight if old is None else old + (new - old) * weight


NON_NEGATIVE = (0.0, math.inf)
FRACTION = (0.0, 1.0)
