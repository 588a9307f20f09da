"""Checks of an optimizer: they refuse wrong parameters, groups and gradients."""

from collections.abc import Callable
from typing import Any

from glasshouse.autograd import enable_grad
from glasshouse.base import DTypeError, GradError, OptionError, ShapeError, type_name
from glasshouse.tensor import Tensor


def list_groups(where: str, params: Any) -> list[dict[Any, Any]]:
    if isinstance(params, (Tensor, dict)) or not hasattr(params, "__iter__"):
        fix = "Pass model.parameters() or a list."
        raise DTypeError(where, "an iterable of parameters or of groups", type_name(params), fix)
    entries = list(params)
    if not entries:
        fix = "Pass model.parameters(), and note that a generator can be used only once."
        raise OptionError(where, "at least one parameter", "none", fix)
    if not any(isinstance(entry, dict) for entry in entries):
        return [split_names(where, entries)]
    for entry in entries:
        if not isinstance(entry, dict) or "params" not in entry:
            expected = "every group to be a dict with 'params'"
            fix = "Write {'params': [...], 'lr': ...}."
            raise OptionError(where, expected, describe_dict(entry), fix)
    owned = [entry["params"] for entry in entries]
    owned = [[x] if isinstance(x, Tensor) else list(x) for x in owned]
    pairs = zip(entries, owned, strict=True)
    return [{**entry, **split_names(where, group)} for entry, group in pairs]


def split_names(where: str, params: list[Any]) -> dict[Any, Any]:
    """Parameters as a group has them; of (name, parameter) pairs, both."""
    named = [isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in params]
    if not any(named):
        return {"params": params}
    if not all(named):
        expected = "all parameters with names, or none"
        fix = "Pass model.named_parameters()."
        raise OptionError(where, expected, f"{sum(named)} of {len(named)} with one", fix)
    return {"params": [p for _, p in params], "param_names": [name for name, _ in params]}


def check_params(where: str, params: list[Any], used_ids: set[int], takes_complex: bool) -> None:
    if not params:
        raise OptionError(where, "every group to have parameters", "an empty group", "Drop it.")
    for i, p in enumerate(params):
        if not isinstance(p, Tensor) or not p.dtype.is_inexact:
            got = f"{type_name(p)}" if not isinstance(p, Tensor) else f"a tensor of {p.dtype.name}"
            fix = "Pass the tensors to be trained."
            raise DTypeError(where, "Glasshouse tensors, floating or complex", f"{got} at {i}", fix)
        if p.dtype.is_complex and not takes_complex:
            fix = "Use another rule for it."
            raise DTypeError(where, "real parameters", f"{p.dtype.name} at {i}", fix)
        if not p.is_leaf:
            fix = "Pass the tensor it was made from, or detach it."
            raise GradError(where, "leaf tensors", f"the result of an operation at {i}", fix)
        if id(p) in used_ids:
            expected = "each parameter once"
            fix = "Remove it from one of the groups."
            raise OptionError(where, expected, f"the one at {i} (shape {p.shape}) twice", fix)
        used_ids.add(id(p))


def loss_of(where: str, closure: Callable[[], Any] | None) -> Any:
    """Call the closure of a step with gradients on, and return its loss; None without one."""
    if closure is None:
        return None
    if not callable(closure):
        fix = "Pass a function that returns the loss, or nothing."
        raise DTypeError(where, "a closure", f"{closure!r:.40} ({type_name(closure)})", fix)
    with enable_grad():
        return closure()


def check_whole(where: str, params: list[Any]) -> None:
    """Refuse parameters that ranks share out, for a rule that needs them whole."""
    for i, p in enumerate(params):
        if p.sharding is not None and p.sharding.groups:
            expected = "whole parameters, which its rule sees as matrices or as one vector"
            got = f"the part {p.shape} of {p.sharding.shape} at {i}"
            fix = "Use a rule like AdamW or LAMB, or do not shard the parameters."
            raise OptionError(where, expected, got, fix)


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


def describe_dict(x: Any) -> str:
    return f"a dict with {sorted(map(str, x))}" if isinstance(x, dict) else type_name(x)
