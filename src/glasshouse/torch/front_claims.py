"""Whether a call is one on PyTorch's tensors, by what its arguments, closure and globals have."""

import types

import torch

from glasshouse.dispatch.value import Value
from glasshouse.nn.module import Module

OF_TORCH = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
OURS = (Value, Module)
MOST_LOOKED_AT = 32  # parts of one container or object


def is_of_torch(fn: types.FunctionType, slots) -> bool:
    """Whether a call has tensors or modules of PyTorch; where it has none of anybody's, whether the
    function names something of PyTorch's."""
    kinds = [kind for x in slots if (kind := kind_of(x)) is not None]
    if kinds:
        return "torch" in kinds and "ours" not in kinds
    return names_torch(fn)


def kind_of(value, depth: int = 2) -> str | None:
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
        try:
            parts = [value.cell_contents]
        except ValueError:  # not set yet
            return None
    elif kind.__module__ != "builtins" and not issubclass(kind, type):
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return None
        parts = list(own.values())[:MOST_LOOKED_AT] if type(own) is dict else ()
    return next((owner for x in parts if (owner := kind_of(x, depth - 1)) is not None), None)


def names_torch(fn, depth: int = 3) -> bool:
    """Whether a function, or one that it names, names something of PyTorch's."""
    for name in fn.__code__.co_names:
        value = fn.__globals__.get(name)
        if value is torch or issubclass(type(value), OF_TORCH):
            return True
        module = getattr(value, "__module__", None) if callable(value) else None
        if isinstance(module, str) and f"{module}.".startswith("torch."):
            return True
        if isinstance(value, types.ModuleType) and f"{value.__name__}.".startswith("torch."):
            return True
        inner = isinstance(value, types.FunctionType) and depth and value is not fn
        if inner and value.__globals__ is fn.__globals__ and names_torch(value, depth - 1):
            return True
    return any(kind_of(cell) == "torch" for cell in fn.__closure__ or ())
