"""PyTorch's names of arguments beside the Array API's: `dim` is `axis`, `keepdim` is `keepdims`."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import OptionError

# PyTorch's name of an argument, and the names that it may have here.
OTHER_NAMES = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "keepdim": ("keepdims",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "dim0": ("axis1",),
    "dim1": ("axis2",),
    "shifts": ("shift",),
    "diagonal": ("k",),
    "steps": ("num",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
}


def named_as_here(where: str, own_names: dict[str, str], named: dict[Any, Any]) -> dict[Any, Any]:
    """The arguments under the names that they have here.

    Raises: OptionError for one that is given under both names, and for `out`.
    """
    if "out" in named:
        fix = "Write y = …, or y.copy_(…) to keep the handle."
        raise OptionError(where, "no argument out: results are new tensors", "out=…", fix)
    arguments = dict(named)
    for name in named.keys() & own_names.keys():
        own_name = own_names[name]
        if own_name in named:
            got = f"{name}={named[name]!r} and {own_name}={named[own_name]!r}"
            raise OptionError(where, f"{own_name}, or {name} as PyTorch calls it", got, "Give one.")
        arguments[own_name] = arguments.pop(name)
    return arguments


def takes_names_of_pytorch(fn: Callable[..., Any]) -> Any:
    """`fn`, which takes its arguments also under the names that PyTorch has for them."""
    parameters = inspect.signature(fn).parameters
    own_names = {
        name: next(own_name for own_name in names if own_name in parameters)
        for name, names in OTHER_NAMES.items()
        if name not in parameters and not parameters.keys().isdisjoint(names)
    }
    if "out" not in parameters:
        own_names["out"] = "out"

    @functools.wraps(fn)
    def call(*args, **named):
        if named and not own_names.keys().isdisjoint(named):
            named = named_as_here(fn.__name__, own_names, named)
        return fn(*args, **named)

    return call
