"""What is the same in each call, and what a class has: found without running anything."""

import functools
import sys
import types
import weakref
from collections import OrderedDict
from types import FunctionType

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
CACHED = type(functools.lru_cache(len))
OF_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
)
PROXIES = weakref.ProxyTypes
WITHOUT_EFFECT = {"super", "object", "__class__", "__getattribute__", "AttributeError"}
MISSING = object()
TRUSTED = ["glasshouse."]  # libraries whose functions and classes are taken not to change


def is_instance(value, kinds) -> bool:
    """isinstance by the type alone: Python's own also asks `value.__class__`, which a user's class
    may compute."""
    return issubclass(type(value), kinds)


def static_lookup(cls: type, name: str):
    """(class attribute, the class that has it) along the method resolution order."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name], base
    return MISSING, None


def getter_of_class(class_value):
    """The function in a property inside of a classmethod, which reads an attribute of its class;
    None for others. Python had these up to 3.12."""
    if sys.version_info >= (3, 13) or not is_instance(class_value, classmethod):
        return None
    inner = class_value.__func__
    return inner.fget if is_instance(inner, property) else None


def builtin_base(value) -> type:
    """The builtin type of a container whose class may have methods in Python."""
    return next(x for x in (OrderedDict, dict, list, set, frozenset) if isinstance(value, x))


def has_plain_items(cls: type) -> bool:
    """Whether a class of sequences is read as its builtin base is, in a row and by places, where
    it has no Python for that. What is written in C (torch.Size) reads as its base."""
    base = next(x for x in (list, tuple, range, str, bytes) if issubclass(cls, x))
    return cls.__iter__ is base.__iter__ and type(cls.__getitem__) is not FunctionType


def is_heap(cls: type) -> bool:
    """Whether a class was made by Python code, and so can be changed."""
    return bool(cls.__flags__ & 1 << 9)


def looks_up_itself(cls: type) -> bool:
    """Whether any look at an object of a class, `isinstance` among them, runs the user's code."""
    if not is_heap(cls):
        return cls in PROXIES
    own_class = static_lookup(cls, "__class__")
    if not is_native(*own_class) and not is_library(own_class[1]):
        return True
    getter = static_lookup(cls, "__getattribute__")
    return not is_native(*getter) and not (
        has_no_effect(getter[0]) and static_lookup(cls, "__getattr__")[0] is MISSING
    )


def has_no_effect(method) -> bool:
    """Whether a `__getattribute__` only picks what it returns: nobody sees that it was called."""
    if not isinstance(method, types.FunctionType):
        return False
    code = method.__code__
    return WITHOUT_EFFECT.issuperset((*code.co_names, *code.co_freevars))


def is_library(cls: type) -> bool:
    return is_trusted(cls.__module__)


def is_trusted(module: str) -> bool:
    """Whether a module is of a library whose functions and classes are taken not to change."""
    return f"{module}.".startswith(tuple(TRUSTED))


def is_native(class_value, owner: type) -> bool:
    """Whether what a class has under a name is what C code put there."""
    return not is_heap(owner) or type(class_value) in OF_C and class_value.__objclass__ is owner
