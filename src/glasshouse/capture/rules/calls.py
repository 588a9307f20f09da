"""Rules of calls: inlined, folded, put into the graph, or left to Python by a break."""

import functools
import gc
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from glasshouse.base.interrupts import let_through
from glasshouse.capture.bytecode.instructions import decoded
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import caller_of
from glasshouse.capture.rules.builtins.builtin_rules import BUILTINS, PURE, check_count
from glasshouse.capture.rules.builtins.cached_calls import call_cached
from glasshouse.capture.rules.builtins.frame_readers import FRAME_READERS
from glasshouse.capture.rules.builtins.library_rules import fold_numbers, is_of_numbers
from glasshouse.capture.rules.builtins.methods import builtin_method, call_builtin_method
from glasshouse.capture.rules.class_calls import call_class
from glasshouse.capture.rules.constants import (
    GETTERS,
    MUTABLE,
    all_foldable,
    call_concrete,
    fold,
    rely_on_code,
)
from glasshouse.capture.rules.inlining import LIMIT_DEPTH, inline, leave_to_python, why_opaque
from glasshouse.capture.rules.numbers import is_number_call, of_numbers
from glasshouse.capture.rules.opcodes import COLLECTS
from glasshouse.capture.rules.operators import (
    OPERATORS,
    UNARY,
    binary,
    unary,
)
from glasshouse.capture.rules.polyfill_calls import call_getter
from glasshouse.capture.values.plain import CACHED
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import NATIVES, POLYFILLS
from glasshouse.capture.values.var import Break, Kwargs, Then, ValueSource, Var, constant, pending

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# Functions that show lifetimes of objects, which differ while a function is captured.
LIFETIMES: set[Any] = {weakref.ref, weakref.proxy, weakref.finalize, gc.collect, sys.getrefcount}
BUILTIN_KINDS: tuple[Any, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    type(functools.reduce),
)


@pending
def call(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Then = None) -> Any:
    """Call; the result goes to `then`, or onto the stack of the frame that runs now."""
    f = fn.value
    if not t.guards.live:
        rule = FRAME_READERS.get(f) if type(f) in READER_KINDS else None
        if rule is not None and not args and not kwargs:
            return t.deliver(then, rule(t))
        return t.deliver(then, t.real_call(fn, args, kwargs))
    if type(f) in READER_KINDS and f in LIFETIMES and all(x.is_new for x in args):
        return leave_to_python(t, f"a call of {f.__name__}", fn, args, kwargs, then)
    frame = t.frames[-1]
    if frame.at in frame.code.opaque:
        if isinstance(f, types.FunctionType):
            fn = Var(NATIVES[f]) if f in NATIVES else fn
        raise Break("a call that could not be captured before", fn, args, kwargs)
    if t.front.call(t, fn, args, kwargs, then):
        return None
    named = fn.is_made("method")
    if isinstance(f, types.MethodType) and not (named and isinstance(fn.origin.parts[1], str)):
        return call_method_object(t, fn, args, kwargs, then)
    if isinstance(f, types.FunctionType):
        return t.call_function(fn, args, kwargs, then)
    if isinstance(f, type):
        return call_class(t, fn, args, kwargs, then)
    if named:
        return call_builtin_method(t, fn, args, kwargs, then)
    if isinstance(f, functools.partial):
        inner, more = partial_parts(t, fn)
        return t.call(inner[0], [*inner[1:], *args], {**more, **kwargs}, then)
    if isinstance(f, BUILTIN_KINDS):
        return call_builtin(t, fn, args, kwargs, then)
    if isinstance(f, native().Dispatcher):
        return t.call(Var(t.concretize(fn).fn), args, kwargs, then)
    if isinstance(f, CACHED):
        return call_cached(t, fn, args, kwargs, then)
    if isinstance(f, GETTERS) and len(args) == 1 and not kwargs:
        return call_getter(t, fn, args[0], then)
    method = t.look_up(type(f), "__call__")
    if isinstance(method, types.FunctionType):
        t.typed(fn)
        return t.call(Var(method), [fn, *args], kwargs, then)
    if is_of_numbers(t, f, args, kwargs):
        return fold_numbers(t, fn, args, kwargs, then)
    if not callable(f):
        t.typed(fn)
        return t.give(then, t.do(f))
    raise Break(f"call of a {type(f).__name__}", fn, args, kwargs)


def real_call(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs) -> Var:
    """Have Python make a call; its result."""
    t.heap.hand_over((*args, *kwargs.values()))
    values = {k: v.value for k, v in kwargs.items()}
    with let_through():
        if t.frames:
            call = caller_of(t.frames[-1])
            return Var(t.do(call, fn.value, [x.value for x in args], values))
        return Var(t.do(fn.value, *(x.value for x in args), **values))


def call_method_object(
    t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Any
) -> Any:
    """A bound method."""
    if fn.is_made("method"):
        this, inner = fn.origin.parts
        return t.call(inner, [this, *args], kwargs, then)
    if fn.origin is None:
        return t.call(Var(fn.value.__func__), [Var(fn.value.__self__), *args], kwargs, then)
    t.typed(fn)
    this = t.heap.load(fn.value.__self__, t.heap.sub(fn, "attr", "__self__"))
    inner = t.heap.load(fn.value.__func__, t.heap.sub(fn, "attr", "__func__"))
    return t.call(inner, [this, *args], kwargs, then)


def partial_parts(t: "CaptureTracer", fn: Var) -> tuple[Any, ...]:
    """(function and arguments, keywords) of a functools.partial."""
    if fn.is_made("call"):
        _, args, kwargs = (*fn.origin.parts, {})[:3]
        return list(args), dict(kwargs)
    p = fn.value
    t.typed(fn)
    names = ("func", "args", "keywords")
    parts = [t.heap.load(getattr(p, name), t.heap.sub(fn, "attr", name)) for name in names]
    keywords = {k.value: v for k, v in t.entries(parts[2])}
    return [parts[0], *t.sequence(parts[1])], keywords


# -- Python functions ----------------------------------------------------------------------


def call_own(t: "CaptureTracer", this: Var, name: str, args: list[Any], then: Then) -> bool:
    """Call a method that the class defines in Python; False if it has none."""
    method = t.own_method(this, name)
    if method is None:
        return False
    t.call(Var(method), [this, *args], {}, then)
    return True


def call_function(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Then) -> Any:
    """Inline a Python function, or break."""
    f = fn.value
    if f in POLYFILLS or f in BUILTINS or f in t.config.constant_results:
        t.concretize(fn)  # a rule is for the function, not for its code
    if f in POLYFILLS:
        return t.call_polyfill(fn, args, kwargs, then)
    if f in BUILTINS:
        return BUILTINS[f](t, fn, args, kwargs, then)
    if f in t.config.constant_results:
        return t.deliver(then, constant(call_concrete(t, f, args, kwargs)))
    reason = why_opaque(t, f, args, kwargs)
    if reason is None and len(t.frames) > LIMIT_DEPTH:
        reason = "deep recursion"
    if decoded(f.__code__).unknown == COLLECTS:
        return leave_to_python(t, reason, fn, args, kwargs, then)
    rely_on_code(t, fn)
    if reason:
        raise Break(reason, fn, args, kwargs)
    return inline(t, fn, args, kwargs, then)


# -- builtins ------------------------------------------------------------------------------


def call_builtin(t: "CaptureTracer", fn: Var, args: list[Any], kwargs: Kwargs, then: Then) -> Any:
    """Call a builtin function: by a rule, folded, or with a break."""
    f = fn.value
    owner = getattr(f, "__self__", None)
    bound = owner is not None and not isinstance(owner, types.ModuleType)
    if isinstance(fn.origin, ValueSource) and (not bound or isinstance(owner, type)):
        t.guards.add("is", fn.origin, f)
    if f in BUILTINS:
        check_count(fn, args, kwargs)
        return BUILTINS[f](t, fn, args, kwargs, then)
    number = of_numbers(t, f, args) if is_number_call(t, args) and not kwargs else None
    if number is not None:
        return t.deliver(then, number)
    result = t.front.of_held_numbers(t, f, args) if f in PURE and not kwargs else None
    if result is not None:
        return t.deliver(then, result)
    if f in PURE and all_foldable(t, args, kwargs):
        return fold(t, fn, f, args, kwargs, then)
    if f in POLYFILLS:
        return t.call_polyfill(fn, args, kwargs, then)
    if bound:
        if isinstance(fn.origin, ValueSource):
            this = t.heap.load(owner, t.heap.sub(fn, "attr", "__self__"))
        elif isinstance(owner, MUTABLE):  # shared by all calls
            this = t.heap.load(owner, t.guards.source("const", None, owner, "owner"))
        else:
            this = t.heap.tracked.get(id(owner)) or constant(owner)
        return builtin_method(t, fn, this, f.__name__, args, kwargs, then)
    if isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
        return builtin_method(t, fn, args[0], f.__name__, args[1:], kwargs, then)
    if f in (abs, pow) and not kwargs and t.is_tensor(args[0]):
        return t.deliver(then, t.front.operate(t, f, args))
    if f in OPERATORS and len(args) == 2 and not kwargs:
        return binary(t, f, args[0], args[1], then)
    if f in UNARY and len(args) == 1 and not kwargs:
        return unary(t, f, args[0], then)
    raise Break(f"call of {getattr(f, '__qualname__', f)}", fn, args, kwargs)


READER_KINDS = (type, types.BuiltinFunctionType)  # and no metaclass, which may define a hash
