"""What is the same in each call, and what a class has: found without running anything."""

import types
from collections import OrderedDict

import numpy as np

ARRAY_SCALARS = tuple(np.dtype(kind).type for kind in "?bhilBHILefdFD")  # NumPy's own numbers
SCALARS = (
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    *ARRAY_SCALARS,
)
NUMBERS = (int, float)
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.ModuleType,
    type,
)
MISSING = object()


def static_lookup(cls: type, name: str):
    """(class attribute, the class that has it) along the method resolution order."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name], base
    return MISSING, None


def own_method(var, name: str) -> types.FunctionType | None:
    """The method of a Var's class if it is written in Python, else None."""
    attribute, _ = static_lookup(type(var.value), name)
    return attribute if isinstance(attribute, types.FunctionType) else None


def builtin_base(value) -> type:
    """The builtin type of a container whose class may have methods in Python."""
    return next(x for x in (OrderedDict, dict, list, set) if isinstance(value, x))
