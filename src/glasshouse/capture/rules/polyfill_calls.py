"""Calls of builtins that are interpreted as Python, and the checks that they make at once."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator, type_of
from glasshouse.capture.values.arities import check_arguments
from glasshouse.capture.values.plain import MISSING
from glasshouse.capture.values.polyfills import POLYFILLS, call_named, get_attributes, get_items
from glasshouse.capture.values.var import Break, Kwargs, Then, Var, constant

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


# Builtins that draw all items at once, and arguments that others turn into iterators at once.
CONSUMING: set[Any] = {any, all, sum, min, max, sorted}
EAGER: dict[Any, Any] = {f: range(99) for f in (zip, itertools.zip_longest)} | {map: range(1, 99)}
EAGER |= dict.fromkeys((enumerate, itertools.cycle, itertools.pairwise, itertools.accumulate), (0,))
EAGER |= dict.fromkeys((filter, itertools.filterfalse, itertools.starmap), (1,))
EAGER |= dict.fromkeys((itertools.takewhile, itertools.dropwhile), (1,))
EAGER |= {itertools.compress: (0, 1), itertools.groupby: (0,)}
ITERATED = {"iterable", "iterables", "data", "selectors"}  # parameters of polyfills
# Parameters that are numbers, with their places; the call checks others itself.
COUNTS: dict[Any, Any] = {
    itertools.repeat: {"times": 1},
    itertools.count: {"start": 0, "step": 1},
    itertools.product: {"repeat": None},
}


def iterated_by(code: CodeType, args: list[Var]) -> list[Var]:
    """The arguments that a polyfill iterates over."""
    names, count = code.co_varnames, code.co_argcount
    rest = names[count + code.co_kwonlyargcount] if code.co_flags & 4 else ""
    return [x for i, x in enumerate(args) if (names[i] if i < count else rest) in ITERATED]


def counts_of(f: Callable[..., Any], args: list[Var], kwargs: Kwargs) -> Iterator[Any]:
    """The arguments of a builtin's call that have to be numbers."""
    for name, place in COUNTS.get(f, {}).items():
        if name in kwargs:
            yield kwargs[name]
        elif place is not None and place < len(args):
            yield args[place]


def is_count(tracer: "CaptureTracer", f: type[Any], x: Var) -> bool:
    """Whether a builtin takes a value as a number without converting it."""
    value = tracer.typed(x)
    if f is itertools.product:
        return type(value) is int and tracer.concretize(x) >= 0
    return type(value) is int or type(value) is float and f is itertools.count


def is_iterable(tracer: "CaptureTracer", x: Var) -> bool:
    """Whether a value can be iterated over, by its type."""
    kind = type_of(tracer.typed(x))
    names = ("__iter__", "__getitem__")
    return tracer.is_tensor(x) or any(tracer.look_up(kind, name) is not MISSING for name in names)


def call_polyfill(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Then) -> Any:
    """Interpret the polyfill of a builtin, after the checks that the builtin makes at once."""
    f = fn.value
    check_arguments(fn, args, kwargs)
    if f in CONSUMING and args and is_opaque_iterator(t, args[0]):
        raise Break(f"{f.__name__} over a {type(args[0].value).__name__}", fn, args, kwargs)
    if any(not is_iterable(t, x) for x in iterated_by(POLYFILLS[f].__code__, args)):
        raise Break(f"{f.__name__} of what is no iterable", fn, args, kwargs)
    if not all(is_count(t, f, x) for x in counts_of(f, args, kwargs)):
        raise Break(f"{f.__name__} with another number than it takes", fn, args, kwargs)
    if f is map and len(args) < 2:
        raise Break("map of nothing", fn, args, kwargs)
    if any(x.value is id for x in args):
        raise Break(f"{f.__name__} of ids, which tell new objects apart", fn, args, kwargs)
    places = [i for i in EAGER.get(f, ()) if i < len(args) and iterates_in_python(t, args[i])]

    def call(tracer, ready):
        return tracer.call_function(Var(POLYFILLS[f]), ready, kwargs, then)

    return call_with_iterators(t, places, list(args), call)


def call_with_iterators(
    t: "CaptureTracer", places: list[int], args: list[Var], call: Callable[..., Any]
) -> Any:
    """Call with iterators in place of the arguments at some places, made in order."""
    if not places:
        return call(t, args)
    at, *more = places

    def iterated(tracer, iterator):
        ready = [*args[:at], iterator, *args[at + 1 :]]
        return call_with_iterators(tracer, more, ready, call)

    return t.get_iter(args[at], iterated)


def is_opaque_iterator(t: "CaptureTracer", x: Var) -> bool:
    """Whether something is an iterator with unknown items."""
    value = x.value
    if isinstance(value, (CapturedGenerator, CapturedIterator)) or t.is_tensor(x):
        return False
    return t.has(x, "__next__") and t.own_method(x, "__next__") is None


def iterates_in_python(t: "CaptureTracer", x: Var) -> bool:
    """Whether iterating over something runs user code, or raises."""
    value = x.value
    if isinstance(value, (CapturedGenerator, CapturedIterator)) or t.is_tensor(x):
        return False
    return not is_iterable(t, x) or t.own_method(x, "__iter__") is not None


def call_getter(t: "CaptureTracer", fn: Var, obj: Var, then: Any) -> Any:
    """operator.itemgetter, attrgetter, methodcaller."""
    if fn.origin is not None and not fn.is_new:
        t.guards.add("is", fn.origin, fn.value)
    maker, parts = fn.value.__reduce__()[:2]
    names = t.heap.new_tuple([constant(x) for x in parts])
    if isinstance(fn.value, operator.itemgetter):
        return t.call_function(Var(get_items), [obj, names], {}, then)
    if isinstance(fn.value, operator.attrgetter):
        return t.call_function(Var(get_attributes), [obj, names], {}, then)
    words = constant(dict(maker.keywords) if isinstance(maker, functools.partial) else {})
    if isinstance(maker, functools.partial):
        parts = (*maker.args, *parts)
    rest = t.heap.new_tuple([constant(x) for x in parts[1:]])
    return t.call_function(Var(call_named), [obj, Var(parts[0]), rest, words], {}, then)
