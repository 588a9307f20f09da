"""Whether a call works on PyTorch's tensors, by its arguments, closure and globals.

No user code runs: we read `type(value)`, never `value.__class__`, and read attributes in C."""

import functools
import types
from typing import Any

import torch

from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import is_slot, own_dict, static_lookup
from glasshouse.dispatch.value import Value
from glasshouse.nn.module import Module

OF_TORCH = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
OURS = (Value, Module)
OWN = "glasshouse."
DEFINITIONS = (types.FunctionType, types.BuiltinFunctionType)
PARTS_OF_PARTIAL = [getattr(functools.partial, x).__get__ for x in ("func", "args", "keywords")]
module_of_class = type.__dict__["__module__"].__get__
namespace_of: Any = vars(types.ModuleType)["__dict__"].__get__
NOT_OPENED = (type, types.ModuleType)
DEPTH, NAMED_DEPTH = 2, 3  # of nested parts; of functions that name functions
MOST_LOOKED_AT = 32  # the most parts read of one container or object


def is_of_torch(fn: types.FunctionType, slots: tuple[Any, ...]) -> bool:
    """Whether a call has tensors or modules of PyTorch. Where it has none at all, whether the
    function names an object of PyTorch."""
    kinds = [kind for x in slots if (kind := kind_of(x)) is not None]
    if kinds:
        return "torch" in kinds and "ours" not in kinds
    return names_torch(fn)


def kind_of(value: Any, depth: int = DEPTH) -> str | None:
    """The owner of the tensors in a value, "torch" or "ours"; None where it has none."""
    kind = type(value)
    if issubclass(kind, OF_TORCH):
        return "torch"
    if issubclass(kind, OURS):
        return "ours"
    if depth == 0:
        return None
    parts = ()
    if issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        parts = base.__getitem__(value, slice(MOST_LOOKED_AT))
    elif issubclass(kind, dict):
        parts = [x for x, _ in zip(dict.values(value), range(MOST_LOOKED_AT), strict=False)]
    elif issubclass(kind, types.CellType):
        parts = contents_of(value)
    elif issubclass(kind, types.FunctionType):
        return "torch" if names_torch(value, depth - 1) else None
    elif issubclass(kind, types.MethodType):
        parts = [value.__self__, value.__func__]
    elif issubclass(kind, functools.partial):
        fn, args, keywords = (read_partial(value) for read_partial in PARTS_OF_PARTIAL)
        parts = [fn, *args, *dict.values(keywords)]
    elif not issubclass(kind, NOT_OPENED) and is_slot(static_lookup(kind, "__dict__")[0]):
        attributes = own_dict(value)
        parts = list(attributes.values())[:MOST_LOOKED_AT] if type(attributes) is dict else ()
    return next((owner for x in parts if (owner := kind_of(x, depth - 1)) is not None), None)


def names_torch(fn: types.FunctionType, depth: int = NAMED_DEPTH) -> bool:
    """Whether a function, or one in its names or closure, names an object of PyTorch."""
    if f"{fn.__module__}.".startswith(OWN):
        return False
    names = fn.__code__.co_names
    values = [fn.__globals__[name] for name in names if name in fn.__globals__]
    values += [x for cell in fn.__closure__ or () for x in contents_of(cell)]
    return any(leads_to_torch(x, names, depth) for x in values if x is not fn)


def leads_to_torch(value: Any, names: tuple[str, ...], depth: int) -> bool:
    """Whether a value belongs to PyTorch, or leads there: a function by its names, a module by its
    members in `names`."""
    if value is torch or kind_of(value, min(depth, DEPTH)) == "torch":
        return True
    if callable(value) and f"{module_of(value)}.".startswith("torch."):
        return True
    if isinstance(value, types.FunctionType):
        return depth > 0 and names_torch(value, depth - 1)
    if not isinstance(value, types.ModuleType):
        return False
    space = namespace_of(value)
    name = f"{space.get('__name__')}."
    if name.startswith((OWN, "torch.")):
        return name.startswith("torch.")
    parts = [space[name] for name in names if name in space] if depth else ()
    return any(leads_to_torch(x, names, depth - 1) for x in parts)


def module_of(value: Any) -> str:
    """The name of the module that defines a function or class, or the class of another object."""
    if isinstance(value, DEFINITIONS):
        return value.__module__
    return module_of_class(value if isinstance(value, type) else type(value))


def contents_of(cell: types.CellType) -> list[Any]:
    """The contents of a closure's cell as a list; empty if it is not set."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
