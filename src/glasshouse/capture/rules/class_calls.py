"""Calls of classes: the rules that make an object, and those of the metaclass."""

import enum
import functools
import types
import typing
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import decoded, original_of
from glasshouse.capture.frames.frame import plain_value
from glasshouse.capture.rules.builtins.builtin_rules import CLASSES, check_count
from glasshouse.capture.rules.class_attributes import member_for
from glasshouse.capture.rules.constants import GETTERS, all_foldable, call_concrete, rely_on_code
from glasshouse.capture.rules.inlining import LIMIT_DEPTH, inline, leave_to_python, why_opaque
from glasshouse.capture.values.plain import MISSING, SCALARS, is_subtype, looks_up_itself
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import POLYFILLS
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Then, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


SPECIAL = {id(cls): rule for cls, rule in CLASSES.items()}  # a metaclass may define the hash
LOOKS_UP = "an object that looks up its attributes itself"


def call_class(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Then) -> Any:
    """Make an instance."""
    cls = t.concretize(fn)
    special = SPECIAL.get(id(cls))
    if special is not None:
        check_count(fn, args, kwargs)
        return special(t, fn, args, kwargs, then)
    if cls in POLYFILLS:
        return t.call_polyfill(fn, args, kwargs, then)
    if cls in GETTERS and all_foldable(t, args, kwargs):
        return t.give(then, call_concrete(t, cls, args, kwargs))
    if cls is functools.partial:
        if not args[0].is_new:
            rely_on_code(t, args[0])
        words = {k: v.value for k, v in kwargs.items()}
        result = functools.partial(args[0].value, *(x.value for x in args[1:]), **words)
        return t.deliver(then, t.heap.track(Var(result, Recipe("call", fn, args, kwargs), {})))
    meta = t.look_up(type(cls), "__call__")
    if meta is not type.__dict__["__call__"]:
        return call_metaclass(t, fn, meta, args, kwargs, then)
    return t.instantiate(fn, cls, args, kwargs, then)


def call_metaclass(
    t: "CaptureTracer",
    fn: Var,
    meta: Callable[..., Any],
    args: list[Var],
    kwargs: Kwargs,
    then: Any,
) -> Any:
    """Call a class whose metaclass defines its call: the result is a member of an enumeration,
    or the metaclass's result, which is new in each call."""
    cls = fn.value
    if typing.is_typeddict(cls):
        return t.call(Var(dict), args, kwargs, then)
    members = getattr(cls, "__members__", None)  # pybind11's enumerations have it too
    if members and all_foldable(t, args, kwargs) and not is_unknown_value(cls, args, kwargs):
        member = call_concrete(t, cls, args, kwargs)
        if isinstance(member, cls):
            return member_for(t, fn, args, kwargs, member, then)
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)
    if isinstance(meta, types.FunctionType):
        return t.call(Var(meta), [fn, *args], kwargs, then)
    raise Break(f"making a {cls.__name__}", fn, args, kwargs)


def is_unknown_value(cls: type[Any], args: list[Var], kwargs: dict[Any, Any]) -> bool:
    """Whether a value belongs to no member of an enumeration in Python: its own code, which is
    traced, looks the value up and asks `_missing_`."""
    if not isinstance(cls, enum.EnumMeta) or len(args) != 1 or kwargs:
        return False
    value = args[0].value
    return type(value) in SCALARS and value not in cls._value2member_map_


def instantiate(
    t: "CaptureTracer", fn: Var, cls: type[Any], args: list[Var], kwargs: Kwargs, then: Then
) -> Any:
    """Make an object of a user's class: __new__, then __init__, inlined."""
    if len(t.frames) > LIMIT_DEPTH:
        raise Break("deep recursion", fn, args, kwargs)
    if t.look_up(cls, "__del__") is not MISSING:
        return leave_to_python(t, f"a {cls.__name__} with __del__", fn, args, kwargs, then)
    if looks_up_itself(cls):
        for frame in t.frames:
            decoded(original_of(frame.root)[0]).unknown = frame.code.unknown = LOOKS_UP
        raise Break(f"a {cls.__name__}, which looks up its attributes itself")
    new, init = (t.look_up(cls, name) for name in ("__new__", "__init__"))
    new = new.__func__ if isinstance(new, staticmethod) else new
    if issubclass(cls, BaseException) and not isinstance(new, types.FunctionType):
        return make_exception(t, fn, cls, init, args, kwargs, then)
    if isinstance(new, types.FunctionType):

        def initialise(tracer, obj):
            kind = type(obj.value)
            begin = tracer.look_up(kind, "__init__") if is_subtype(kind, cls) else None
            if isinstance(begin, types.FunctionType):
                return inline(tracer, Var(begin), [obj, *args], kwargs, then, obj)
            if begin not in (None, object.__init__):
                finish = lambda t, v: t.deliver(then, obj)  # noqa: E731
                return tracer.call(Var(begin), [obj, *args], kwargs, finish)
            return tracer.deliver(then, obj)

        return t.call(Var(new), [fn, *args], kwargs, initialise)
    if new is not object.__new__:
        return make_builtin(t, fn, cls, init, args, kwargs, then)
    instance = t.heap.track(Var(t.do(object.__new__, cls), Recipe("object", cls), {}))
    if isinstance(init, types.FunctionType):
        reason = why_opaque(t, init, args, kwargs)
        if reason:
            hint = reason.partition(": ")[2]
            raise Break(f"making a {cls.__name__}", fn, args, kwargs, hint=hint)
        return inline(t, Var(init), [instance, *args], kwargs, then, instance)
    if init is object.__init__:
        if args or kwargs:
            t.do(cls, *map(plain_value, args), **kwargs)  # raises
        return t.deliver(then, instance)
    raise Break(f"making a {cls.__name__}", fn, args, kwargs)


def make_exception(
    t: "CaptureTracer",
    fn: Var,
    cls: Any,
    init: Callable[..., Any],
    args: list[Var],
    kwargs: Kwargs,
    then: Then,
) -> Any:
    """Make an exception, by a call of its class if that runs no user code."""
    if isinstance(init, types.FunctionType):
        value = t.do(cls.__new__, cls, *(x.value for x in args))
        base = Var(value, Recipe("exception", cls, args), {})
        return inline(t, Var(init), [t.heap.track(base), *args], kwargs, then, base)
    value = t.do(cls, *(x.value for x in args), **{k: v.value for k, v in kwargs.items()})
    return t.deliver(then, t.heap.track(Var(value, Recipe("call", fn, args, kwargs), {})))


def make_builtin(
    t: "CaptureTracer",
    fn: Var,
    cls: Any,
    init: Callable[..., Any],
    args: list[Var],
    kwargs: Kwargs,
    then: Any,
) -> Any:
    """Make an instance of a subclass of a builtin container or of property."""
    if cls.__new__ is property.__new__:
        obj = t.heap.track(Var(cls.__new__(cls), Recipe("property", cls, [], {}), {}))
        return t.call(Var(init), [obj, *args], kwargs, lambda t, _: t.deliver(then, obj))
    bases = (OrderedDict, dict, list)
    base = next((b for b in bases if issubclass(cls, b) and cls.__new__ is b.__new__), None)
    if base is None:
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)
    items: Any
    kind, how, items = ("list", "extend", []) if base is list else ("dict", "update", {})
    obj = t.heap.track(Var(cls.__new__(cls), Recipe(f"sub{kind}", cls), items))
    if isinstance(init, types.FunctionType):
        return inline(t, Var(init), [obj, *args], kwargs, then, obj)
    if not args and not kwargs and issubclass(cls, getattr(init, "__objclass__", type)):
        return t.deliver(then, obj)
    if base is list and (kwargs or len(args) > 1):
        return t.deliver(then, t.real_call(fn, args, kwargs))  # raises
    setter = t.look_up(cls, "__setitem__")  # which OrderedDict calls
    if init is not base.__init__ or base is OrderedDict and setter is not base.__setitem__:
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)  # as defaultdict does
    return t.extend(obj, how, *args, kwargs=kwargs, then=lambda t, v: t.deliver(then, obj))
