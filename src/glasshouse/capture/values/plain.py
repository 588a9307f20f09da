"""Constant values, and the attributes of classes: read without running the user's code."""

import functools
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeGuard, TypeVar, overload

import numpy as np

from glasshouse.capture.bytecode.versions import bytecode

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
T = TypeVar("T")
TRUSTED = ["glasshouse."]  # libraries whose functions and classes are assumed not to change


@overload
def is_instance(value: object, kinds: type[T]) -> TypeGuard[T]: ...
@overload
def is_instance(value: object, kinds: tuple[Any, ...] | types.UnionType) -> bool: ...
def is_instance(value: object, kinds: Any) -> bool:
    """isinstance by the type alone. Python's own also reads `value.__class__`, which a user's class
    may compute."""
    return issubclass(type(value), kinds)


def is_subtype(cls: type[Any], base: type[Any]) -> bool:
    """issubclass by the bases alone, as the interpreter asks; a metaclass may answer otherwise."""
    return any(base is x for x in type.__dict__["__mro__"].__get__(cls))


def static_lookup(cls: type[Any], name: str) -> Any:
    """(class attribute, the class that has it) along the method resolution order."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name], base
    return MISSING, None


def bound_to(descriptor: Callable[..., Any], value: Any) -> Callable[..., Any]:
    """A method of C bound to a value. `__get__` takes None to mean no value and returns the
    descriptor itself, so a method of None is read as an attribute of None."""
    if value is not None:
        return descriptor.__get__(value, type(value))
    name = descriptor.__name__
    if static_lookup(type(None), name)[0] is descriptor:
        return getattr(None, name)
    return functools.partial(descriptor, None)


def getter_of_class(class_value: Any) -> Callable[..., Any] | None:
    """The function in a property inside of a classmethod, which reads an attribute of its class;
    None for others. Python had these up to 3.12."""
    if not bytecode.class_properties or not is_instance(class_value, classmethod):
        return None
    inner = class_value.__func__
    return inner.fget if is_instance(inner, property) else None


def compares(value: Any) -> bool:
    """Whether values of this type are compared by their contents, in C."""
    if type(value) is slice:
        return all(type(x) in (int, type(None)) for x in (value.start, value.stop, value.step))
    return type(value) in (*SCALARS, range)


def is_small(value: int) -> bool:
    """Whether CPython has one object for all ints that are equal to this one."""
    return value + 1 - 1 is value


def builtin_base(value: Any) -> type[Any]:
    """The builtin type of a container whose class may have methods in Python."""
    return next(x for x in (OrderedDict, dict, list, set, frozenset) if isinstance(value, x))


def stored_keys(value: Any) -> tuple[Any, ...]:
    """The keys of a dict or elements of a set, without methods of its class."""
    return tuple(builtin_base(value).__iter__(value))


def has_plain_items(cls: type[Any]) -> bool:
    """Whether a class of sequences iterates and reads items like its builtin base, without Python
    code. A class in C, such as torch.Size, does."""
    base = next(x for x in (list, tuple, range, str, bytes) if issubclass(cls, x))
    return cls.__iter__ is base.__iter__ and type(cls.__getitem__) is not FunctionType


def is_heap(cls: type[Any]) -> bool:
    """Whether a class can change, such as one made by Python code."""
    return bool(cls.__flags__ & 1 << 9)


def looks_up_itself(cls: type[Any]) -> bool:
    """Whether any look at an object of a class, even `isinstance`, runs user code."""
    if not is_heap(cls):
        return cls in PROXIES
    own_class = static_lookup(cls, "__class__")
    if not is_native(*own_class) and not is_library(own_class[1]):
        return True
    getter = static_lookup(cls, "__getattribute__")
    return not is_native(*getter) and not (
        has_no_effect(getter[0]) and static_lookup(cls, "__getattr__")[0] is MISSING
    )


def compares_itself(value: Any) -> bool:
    """Whether a class, or the class of a value, has a metaclass that defines its equality or hash:
    any look into a table of classes calls them."""
    cls = type(value)
    if type(cls) is type and not issubclass(cls, type):
        return False
    metas = [meta for meta in (cls, type(cls)) if meta is not type and issubclass(meta, type)]
    methods = [static_lookup(meta, x)[0] for meta in metas for x in ("__eq__", "__hash__")]
    return any(type(x) is not types.WrapperDescriptorType for x in methods)


def has_own_equality(cls: type[Any]) -> bool:
    """Whether a class defines the equality or hash of its objects in Python."""
    methods = (static_lookup(cls, name)[0] for name in ("__eq__", "__hash__"))
    return any(is_instance(x, FunctionType) for x in methods)


def has_no_effect(method: Any) -> bool:
    """Whether a `__getattribute__` only selects its result, so that calls of it are invisible."""
    if not isinstance(method, types.FunctionType):
        return False
    code = method.__code__
    return WITHOUT_EFFECT.issuperset((*code.co_names, *code.co_freevars))


def is_library(cls: type[Any]) -> bool:
    return is_trusted(cls.__module__)


def is_trusted(module: str) -> bool:
    """Whether a module belongs to a library whose functions and classes count as constant."""
    return f"{module}.".startswith(tuple(TRUSTED))


def is_native(class_value: Any, owner: type[Any]) -> bool:
    """Whether an attribute of a class was put there by C code."""
    return not is_heap(owner) or type(class_value) in OF_C and class_value.__objclass__ is owner


def is_empty(cell: types.CellType) -> bool:
    """Whether a cell has no contents."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def is_unset(value: Any, descriptor: Any) -> bool:
    """Whether a slot of an object has no value."""
    try:
        descriptor.__get__(value, type(value))
    except AttributeError:
        return True
    return False


# The types that attributes in C convert values to.
CONVERTED: dict[str, Any] = {"args": tuple, "__annotations__": dict, "start": int, "end": int}


def is_slot(descriptor: Any) -> bool:
    """Whether a descriptor is a slot in the object itself, as `__slots__` makes them."""
    return is_instance(descriptor, (types.MemberDescriptorType, types.GetSetDescriptorType))


def is_data_descriptor(class_value: Any) -> bool:
    """Whether a class attribute takes precedence over one of the instance."""
    cls = type(class_value)
    return has_data_protocol(cls) if is_heap(cls) else has_data_protocol_in_c(cls)


def has_data_protocol(cls: type[Any]) -> bool:
    """Whether objects of a class are data descriptors."""
    get, *writes = (
        static_lookup(cls, name)[0] is not MISSING for name in ("__get__", "__set__", "__delete__")
    )
    return get and any(writes)


has_data_protocol_in_c: Any = functools.cache(has_data_protocol)  # of classes that cannot change


def converts(descriptor: Any, value: Any) -> bool:
    """Whether an attribute in C converts a value that it is set to."""
    in_c = is_slot(descriptor) and not is_heap(descriptor.__objclass__)
    kind = CONVERTED.get(descriptor.__name__) if in_c else None
    return kind is not None and type(value) is not kind


def defers_annotations(value: Any) -> bool:
    """Whether user code makes the annotations of a function, class or module at the first read, as
    from Python 3.14 on."""
    if is_instance(value, types.ModuleType):
        return "__annotate__" in value.__dict__
    kind = type if is_instance(value, type) else types.FunctionType
    getter = kind.__dict__.get("__annotate__")
    if getter is None or not is_instance(value, kind):
        return False
    try:
        return getter.__get__(value) is not None
    except AttributeError:  # of a class in C
        return False


def has_plain_name(cls: type[Any]) -> bool:
    """Whether the name of a class is stored in `type`, not computed by a metaclass."""
    return static_lookup(type(cls), "__name__")[1] is type


def attribute_of_c(value: Any, name: str) -> Any:
    """An attribute as the innermost class in C finds it, without code of the user's class."""
    for base in type(value).__mro__:
        getter = base.__dict__.get("__getattribute__")
        if type(getter) is types.WrapperDescriptorType:
            return getter(value, name)
    return object.__getattribute__(value, name)


def own_dict(value: Any) -> dict[Any, Any] | None:
    """The dict of an object's attributes, or None; no user code runs."""
    try:
        return attribute_of_c(value, "__dict__")
    except AttributeError:
        return None


def type_name(cls: type[Any]) -> str:
    """A type's name as in Python's own messages."""
    bare = is_heap(cls) or cls.__module__ == "builtins"
    return cls.__name__ if bare else f"{cls.__module__}.{cls.__name__}"
