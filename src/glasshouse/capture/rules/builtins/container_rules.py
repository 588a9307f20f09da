"""Rules for calls of list, tuple, set, dict and defaultdict."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from glasshouse.capture.rules.containers import merged
from glasshouse.capture.rules.new_objects import new_dict, new_set
from glasshouse.capture.rules.polyfill_calls import is_iterable, is_opaque_iterator
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import items_of, list_of
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def on_sequence(make: Any) -> Any:
    """list(x), tuple(x), set(x)."""

    def handler(t, fn, args, kwargs, then):
        if kwargs or len(args) > 1:
            return t.deliver(then, t.real_call(fn, args, kwargs))  # raises
        if not args:
            return t.deliver(then, make(t, []))
        if not is_iterable(t, args[0]):
            return t.get_iter(args[0], then)  # raises
        if fn.value is tuple and type(args[0].value) is tuple:
            return t.deliver(then, args[0])
        items = merged(t, args[0]) if fn.value is set else t.iterated(args[0])
        if items is not None and fn.value is set and isinstance(args[0].value, (set, frozenset)):
            return t.deliver(then, new_set(t, items, set(args[0].value)))
        if items is not None:
            return t.deliver(then, make(t, list(items)))

        if is_opaque_iterator(t, args[0]):
            reason = f"{fn.value.__name__} over a {type(args[0].value).__name__}"
            raise Break(reason, fn, args, kwargs)

        def done(t2, items):
            result = items if make is as_list else make(t2, t2.sequence(items))
            return t2.deliver(then, result)

        gather = items_of if fn.value is set else list_of
        return t.call_function(Var(gather), args, {}, done)

    return handler


def as_list(t: "CaptureTracer", items: list[Var]) -> Var:
    return t.heap.new_list(items)


def on_dict(cls: Any) -> Any:
    def handler(t, fn, args, kwargs, then):
        if len(args) > 1:
            return t.deliver(then, t.real_call(fn, args, kwargs))  # raises
        new = new_dict(t, [], cls)
        if not args and not kwargs:
            return t.deliver(then, new)
        return fill(t, new, args, kwargs, then)

    return handler


def on_defaultdict(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    factory = args[0] if args else Var(None)
    value = t.do(defaultdict, factory.value)
    new = t.heap.track(Var(value, Recipe("defaultdict", factory), {}))
    if len(args) < 2 and not kwargs:
        return t.deliver(then, new)
    return fill(t, new, args[1:], kwargs, then)


def fill(t: "CaptureTracer", new: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """Deliver a new dictionary after `update` with these arguments."""
    return t.extend(new, "update", *args, kwargs=kwargs, then=lambda t, _: t.deliver(then, new))
