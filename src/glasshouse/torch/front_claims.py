"""Whether a call is one on PyTorch's tensors, by what its arguments, closure and globals have."""

import functools
import types

import torch

from glasshouse.dispatch.value import Value
from glasshouse.nn.module import Module

OF_TORCH = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
OURS = (Value, Module)
OWN = "glasshouse."
DEPTH, NAMED_DEPTH = 2, 3  # of parts of parts; of functions that name functions
MOST_LOOKED_AT = 32  # parts of one container or object


def is_of_torch(fn: types.FunctionType, slots) -> bool:
    """Whether a call has tensors or modules of PyTorch; where it has none of anybody's, whether the
    function names something of PyTorch's."""
    kinds = [kind for x in slots if (kind := kind_of(x)) is not None]
    if kinds:
        return "torch" in kinds and "ours" not in kinds
    return names_torch(fn)


def kind_of(value, depth: int = DEPTH) -> str | None:
    """Whose tensors, "torch" or "ours", a value is or has in it; None for nobody's."""
    kind = type(value)
    if issubclass(kind, OF_TORCH):
        return "torch"
    if issubclass(kind, OURS):
        return "ours"
    if depth == 0:
        return None
    parts = ()
    if issubclass(kind, (list, tuple)):
        parts = value[:MOST_LOOKED_AT]
    elif issubclass(kind, dict):
        parts = [x for x, _ in zip(dict.values(value), range(MOST_LOOKED_AT), strict=False)]
    elif issubclass(kind, types.CellType):
        parts = contents_of(value)
    elif issubclass(kind, types.FunctionType):
        return "torch" if names_torch(value, depth - 1) else None
    elif issubclass(kind, types.MethodType):
        parts = [value.__self__, value.__func__]
    elif issubclass(kind, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif kind.__module__ != "builtins" and not issubclass(kind, type):
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return None
        parts = list(own.values())[:MOST_LOOKED_AT] if type(own) is dict else ()
    return next((owner for x in parts if (owner := kind_of(x, depth - 1)) is not None), None)


def names_torch(fn: types.FunctionType, depth: int = NAMED_DEPTH) -> bool:
    """Whether a function, or one that it names or has in its closure, names something of
    PyTorch's."""
    if f"{fn.__module__}.".startswith(OWN):
        return False
    names = fn.__code__.co_names
    values = [fn.__globals__[name] for name in names if name in fn.__globals__]
    values += [x for cell in fn.__closure__ or () for x in contents_of(cell)]
    return any(leads_to_torch(x, names, depth) for x in values if x is not fn)


def leads_to_torch(value, names: tuple[str, ...], depth: int) -> bool:
    """Whether a value that a function has is of PyTorch's, or leads there: by what a function
    names, or a module has under one of `names`."""
    if value is torch or kind_of(value, min(depth, DEPTH)) == "torch":
        return True
    module = getattr(value, "__module__", None) if callable(value) else None
    if isinstance(module, str) and f"{module}.".startswith("torch."):
        return True
    if isinstance(value, types.FunctionType):
        return depth > 0 and names_torch(value, depth - 1)
    if not isinstance(value, types.ModuleType) or f"{value.__name__}.".startswith(OWN):
        return False
    if f"{value.__name__}.".startswith("torch."):
        return True
    parts = [vars(value)[name] for name in names if name in vars(value)] if depth else ()
    return any(leads_to_torch(x, names, depth - 1) for x in parts)


def contents_of(cell: types.CellType) -> list:
    """What a cell of a closure has, if it is set."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
