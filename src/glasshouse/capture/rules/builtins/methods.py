"""Methods of builtin types: containers, exceptions, constants."""

import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import (
    CapturedGenerator,
    CapturedIterator,
    holds_own,
    plain_value,
)
from glasshouse.capture.rules.attributes import set_plain
from glasshouse.capture.rules.builtins.class_checks import ASKED, on_native_check
from glasshouse.capture.rules.builtins.container_methods import container_method, sort
from glasshouse.capture.rules.builtins.context_variables import context_method
from glasshouse.capture.rules.builtins.polyfilled_methods import fromkeys_of, join_of
from glasshouse.capture.rules.builtins.set_methods import note_method
from glasshouse.capture.rules.constants import (
    all_foldable,
    call_concrete,
    compares_in_python,
    concrete_key,
    fold,
)
from glasshouse.capture.rules.containers import whole_dict
from glasshouse.capture.rules.identity import identical
from glasshouse.capture.rules.iteration import generator_method
from glasshouse.capture.rules.polyfill_calls import is_iterable
from glasshouse.capture.values.arities import check_arguments
from glasshouse.capture.values.plain import SCALARS, bound_to, is_heap, static_lookup
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.signatures import without_proxy
from glasshouse.capture.values.var import Break, Kwargs, Recipe, ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


STATELESS = (*SCALARS, tuple, range, frozenset, slice)
PROTOCOL: dict[str, Any] = {
    "__getitem__": operator.getitem,
    "__contains__": operator.contains,
    "__len__": len,
    "__iter__": iter,
}
HANDED_ON = {"__call__", *ASKED.values()}
ATTRIBUTE_METHODS = {
    "__setattr__": 2,
    "__delattr__": 1,
    "__getattribute__": 1,
}  # and how many arguments
TEXTS = {"__str__", "__repr__", "__hash__", "__format__", "__reduce__"}


UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
STEPS = ("__next__", "__iter__")
ITEM_METHODS = ("__getitem__", "__setitem__", "__delitem__", "__contains__")
STRAIGHT = {*ITEM_METHODS, "__len__", "__iter__", "__init__", "keys", "values", "items"}


def is_own_method(value: Any, name: str, fn: Var) -> bool:
    """Whether a builtin method belongs to the builtin base of a container's class: `dict.pop` is
    another method than that of an OrderedDict."""
    inner = fn.origin.parts[1] if fn.is_made("method") else fn
    owner = getattr(getattr(inner, "value", None), "__objclass__", None)
    parts = (x.__dict__[name] for x in type(value).__mro__ if name in x.__dict__)
    method = next((x for x in parts if not isinstance(x, types.FunctionType)), None)
    return owner is None or method is None or owner is getattr(method, "__objclass__", owner)


def method_of(fn: Var, value: Any, name: str) -> Callable[..., Any] | None:
    """The unbound builtin method under a bound one; None for others."""
    inner: Any = fn.origin.parts[1] if fn.is_made("method") else None
    method = inner.value if isinstance(inner, Var) else static_lookup(type(value), name)[0]
    return method if isinstance(method, UNBOUND) else None


def is_hashable(value: Any) -> bool:
    """Whether a value has a hash; no user code runs."""
    try:
        return compares_in_python(value) or hash(value) is not None
    except TypeError:
        return False


def calls_back(value: Any, name: str) -> bool:
    """Whether a method of an OrderedDict calls methods that a subclass defines in Python."""
    if not isinstance(value, OrderedDict) or name in STRAIGHT:
        return False
    methods = (static_lookup(type(value), x)[0] for x in ITEM_METHODS)
    return any(isinstance(x, types.FunctionType) for x in methods)


def call_builtin_method(
    t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any
) -> Any:
    """Call a method of a builtin type, bound to a Var."""
    this, inner = fn.origin.parts
    if isinstance(inner, Var):  # super().method, where the method is builtin
        return builtin_method(t, fn, this, inner.value.__name__, args, kwargs, then)
    return builtin_method(t, fn, this, inner, args, kwargs, then)


def bound_builtin(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Any], kwargs: Kwargs
) -> tuple[Var, Var]:
    """The method bound to an object, and the object, a dict in place of a proxy of it."""
    proxy, this = this, without_proxy(this)
    value = this.value
    if this is not proxy and hasattr(dict, name):
        fn = Var(getattr(value, name), Recipe("method", this, name))
    if isinstance(fn.value, UNBOUND):
        if isinstance(value, CapturedIterator) and name not in STEPS:
            raise Break(f"method {name} of an iterator", fn, [this, *args], kwargs)
        bound = t.do(bound_to, fn.value, value)
        fn = Var(bound, Recipe("method", this, Var(fn.value)))
    method = method_of(fn, value, name)
    if method is not None:
        check_arguments(Var(method), [this, *args], kwargs)
    return fn, this


def builtin_method(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Any], kwargs: Kwargs, then: Any
) -> Any:
    """this.name(*args) of a builtin type."""
    fn, this = bound_builtin(t, fn, this, name, args, kwargs)
    value = this.value
    if isinstance(value, CapturedGenerator):
        return generator_method(t, this, name, args, then)
    if isinstance(value, ContextVar):
        return context_method(t, fn, this, name, args, kwargs, then)
    if name in ("__init__", "__init_subclass__") and not isinstance(value, (list, dict, set)):
        if name == "__init__":
            initialise(t, fn, this, args, kwargs)
        return t.give(then, None)
    if len(args) == ATTRIBUTE_METHODS.get(name) and not kwargs:
        return attribute_method(t, fn, this, name, args, then)
    if name == "__new__":
        return object_new(t, fn, this, args, kwargs, then)
    if isinstance(value, type) and name in HANDED_ON:
        return method_of_type(t, fn, this, name, args, kwargs, then)
    if name == "__eq__" and t.look_up(type(value), name) is object.__eq__ and args:
        same = identical(t, this, args[0])
        return t.give(then, True if same else NotImplemented)
    if name in TEXTS and not t.foldable(this):
        raise Break(f"{name} of a {type(value).__name__}", fn, args, kwargs)
    if name in PROTOCOL and t.own_method(this, name) is not None:
        return ask_base(t, fn, this, name, args, kwargs, then)
    if name in PROTOCOL and isinstance(value, (list, dict, set, tuple)):
        t.typed(this)
        return t.call(Var(PROTOCOL[name]), [this, *args], kwargs, then)
    if isinstance(value, (list, dict, set)) and not t.is_tensor(this):
        return container_call(t, fn, this, name, args, kwargs, then)
    if this.is_made("view") and name == "__iter__":
        return t.get_iter(this, then)
    if isinstance(value, tuple) and name in ("index", "count"):
        if all_foldable(t, [*t.sequence(this), *args]):
            return t.give(then, call_concrete(t, getattr(t.concretize(this), name), args))
        raise Break(f"method {name} of a tuple", fn, [*args])
    if isinstance(value, str) and name == "join" and len(args) == 1:
        return join(t, fn, this, args[0], then)
    if isinstance(value, str) and name == "format" and not all_foldable(t, args, kwargs):
        raise Break("formatting of a value", fn, args, kwargs)
    if name == "fromkeys" and isinstance(value, type) and issubclass(value, dict) and args:
        return t.call_function(Var(fromkeys_of), [this, *args], kwargs, then)
    return plain_method(t, fn, this, name, args, kwargs, then)


def method_of_type(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    """Call a method of `type` from the same method of a metaclass."""
    cls = this.value
    if name != "__call__":
        return on_native_check(t, Var(getattr(type, name)), [this, *args], kwargs, then)
    if getattr(fn.value, "__objclass__", None) is not type or not is_heap(cls):
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)
    t.concretize(this)
    return t.instantiate(this, cls, args, kwargs, then)


def plain_method(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    """Call a method without a rule: folded if its result is constant."""
    value = this.value
    stateless = isinstance(value, (*STATELESS, type)) or t.front.is_constant(value)
    stateless = stateless and name not in ("__subclasses__", "__enter__", "__exit__")
    if stateless and all_foldable(t, [this, *args], kwargs):
        if (method := method_of(fn, value, name)) is not None:
            return fold(t, Var(method), method, [this, *args], kwargs, then)
        method = getattr(t.concretize(this), name) if not isinstance(fn.value, type) else fn.value
        return fold(t, fn, method, args, kwargs, then)
    if name == "__iter__":
        return t.get_iter(this, then)
    if name == "__next__":
        return t.next_of(this, None, then)
    if type(value) is deque and name in ("append", "appendleft") and len(args) == 1:
        return append_to_deque(t, fn, this, name, args, kwargs, then)
    raise Break(f"method {name} of a {type(value).__name__}", fn, args, kwargs)


def ask_base(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: Any, kwargs: Any, then: Any
) -> Any:
    """Call a builtin method of a container whose class overrides it: only the item of a dict,
    or whether it exists."""
    reads_item = isinstance(this.value, dict) and name in ("__getitem__", "__contains__")
    if not reads_item or len(args) != 1 or kwargs:
        kind = type(this.value).__name__
        raise Break(f"{name} of a builtin base of a {kind}", fn, args, kwargs)
    item = t.entry(this, concrete_key(t, args[0]))
    if name == "__contains__":
        return t.give(then, item is not None)
    if item is None and t.call_own(this, "__missing__", args, then):
        return None
    if item is None:
        t.fail(KeyError(args[0].value))
    return t.deliver(then, item)


def initialise(t: "CaptureTracer", fn: Var, this: Var, args: list[Var], kwargs: Kwargs) -> None:
    """Call the `__init__` of a property, or of a builtin type without state of its own in C."""
    if this.is_made("property") and fn.value.__objclass__ is property:
        t.do(fn.value, *map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()})
        this.origin = Recipe("property", type(this.value), args, kwargs)
        return
    if not is_plain_init(t, fn.value):
        raise Break(f"__init__ of a {type(this.value).__name__}", fn, args, kwargs)
    if isinstance(this.value, BaseException) and this.is_new:
        t.do(fn.value, *(x.value for x in args), **kwargs)  # with keywords it raises
        this.origin = Recipe("exception", type(this.value), args)
    else:
        t.do(fn.value, *map(plain_value, args), **kwargs)  # may raise


def is_plain_init(t: "CaptureTracer", fn: Callable[..., Any]) -> bool:
    """Whether a builtin `__init__` does nothing but keep an exception's arguments."""
    owner: Any = getattr(fn, "__objclass__", None)
    small = BaseException.__basicsize__
    error = isinstance(owner, type) and issubclass(owner, BaseException)
    return owner is object or error and owner.__basicsize__ == small


def join(t: "CaptureTracer", fn: Var, this: Var, parts: Var, then: Any) -> Any:
    """str.join."""
    if not is_iterable(t, parts):
        t.typed(parts)
        t.do(str.join, t.concretize(this), parts.value)  # raises
    items = t.sequence(parts)
    if items is None:
        return t.call_function(Var(join_of), [this, parts], {}, then)
    if not all(t.foldable(x) for x in items):
        raise Break("joining of values", fn, [t.heap.new_list(items)])
    values = [t.concretize(x) for x in items]
    return t.give(then, t.do(t.concretize(this).join, values))


def object_new(
    t: "CaptureTracer", fn: Var, this: Var, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    """object.__new__(cls)."""
    cls = t.concretize(args[0]) if args else None
    plain = isinstance(cls, type) and cls.__new__ is object.__new__
    if plain or fn.value is object.__new__ or this.value is object:
        words = {k: v.value for k, v in kwargs.items()}
        value = t.do(object.__new__, *(x.value for x in args), **words)
        obj = Var(value, Recipe("object", cls), {})
        return t.deliver(then, t.heap.track(obj))
    raise Break("a call of __new__", fn, args, kwargs)


# -- containers ----------------------------------------------------------------------------


def container_call(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Any], kwargs: Kwargs, then: Any
) -> Any:
    """Call a method of a list, dict or set."""
    value = this.value
    t.typed(this)
    makes = isinstance(value, defaultdict) and name == "__init__"
    if makes or not is_own_method(value, name, fn) or calls_back(value, name):
        raise Break(f"method {name} of a {type(value).__name__}", fn, args, kwargs)
    if name in ("__ior__", "__iadd__") and len(args) == 1:
        if isinstance(value, set) and not isinstance(args[0].value, (set, frozenset)):
            raise Break(f"{name} of a set", fn, args, kwargs)
        how = "extend" if isinstance(value, list) else "update"
        return t.extend(this, how, *args, then=lambda t, v: t.deliver(then, this))
    if name in ("extend", "update", "__init__"):
        if not args and not kwargs and (name != "__init__" or isinstance(value, dict)):
            return t.give(then, None)
        how = "extend" if isinstance(value, list) else "update"
        if name == "__init__" and not isinstance(value, dict):
            container_method(t, this, "clear", [])
        if not args and not kwargs:
            return t.give(then, None)
        return t.extend(this, how, *args, kwargs=kwargs, then=lambda t, v: t.give(then, None))
    if name == "sort" and isinstance(value, list):
        return sort(t, fn, this, args, kwargs, then)
    if name in ("__setitem__", "__delitem__"):
        t.store_item(this, args[0], args[1] if name == "__setitem__" else None)
        return t.give(then, None)
    if isinstance(value, dict) and name in ("get", "setdefault", "pop") and 0 < len(args) < 3:
        if kwargs:
            raise Break(f"method {name} of a dict with keywords", fn, args, kwargs)
        entry = dict_get(t, this, name, args)
        if entry is not None:
            return t.deliver(then, entry)
    return t.deliver(then, container_method(t, this, name, args, kwargs, fn))


def append_to_deque(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    """Append to a deque that is passed: to read one breaks the graph."""
    is_argument = isinstance(this.origin, ValueSource)
    if not is_argument or kwargs or holds_own(args[0].value):
        raise Break(f"method {name} of a deque", fn, args, kwargs)
    t.typed(this)
    getattr(deque, name)(this.value, args[0].value)
    note_method(t, this, name, args)
    return t.give(then, None)


def dict_get(t: "CaptureTracer", this: Var, name: str, args: list[Any]) -> Var | None:
    """get, setdefault and pop of a dict; None where there is no such key and no default."""
    key = args[0]
    default = args[1] if len(args) > 1 else (None if name == "pop" else Var(None))
    empty = name == "pop" and type(this.value) is dict and not this.value
    if empty and not is_hashable(key.value):
        whole_dict(t, this)  # an empty dict asks for no hash
        value = None
    else:
        value = t.entry(this, concrete_key(t, key))
    if value is not None:
        if name == "pop":
            t.store_item(this, key, None)
        return value
    if default is None:
        t.fail(KeyError(key.value))
    if name == "setdefault":
        t.store_item(this, key, default)
    return default


def attribute_method(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: Any, then: Any
) -> Any:
    """`__getattribute__`, `__setattr__` or `__delattr__` of object, called by name."""
    value = this.value
    if name != "__getattribute__" and isinstance(value, type):
        raise Break(f"{name} of a class", fn, args)
    if name == "__getattribute__":
        if isinstance(value, (type, types.ModuleType)):
            raise Break(f"{name} of a {type(value).__name__}", fn, args)
        return t.get_attribute(this, t.concretize(args[0]), then, plain=True)
    new_value = args[1] if name == "__setattr__" else None
    return set_plain(t, this, t.concretize(args[0]), new_value, then)
