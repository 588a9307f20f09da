"""Methods of sets, applied to the real values, which keep the first of equal elements."""

from typing import TYPE_CHECKING, Any

from glasshouse.capture.rules.constants import concrete_key
from glasshouse.capture.rules.containers import merged, set_key, whole_set
from glasshouse.capture.rules.new_objects import new_set
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import stored_keys
from glasshouse.capture.values.var import Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


SET_ALGEBRA = {
    "union",
    "intersection",
    "difference",
    "symmetric_difference",
    "issubset",
    "issuperset",
    "isdisjoint",
    "update",
    "intersection_update",
    "difference_update",
    "symmetric_difference_update",
}


def set_method(t: "CaptureTracer", this: Var, name: str, args: list[Var]) -> Var | None:
    whole_set(t, this)
    items, value = this.items, this.value
    if name in ("add", "discard", "remove"):
        key = concrete_key(t, args[0]) if name == "add" else set_key(t, args[0])
        if name == "remove" and not set.__contains__(value, key):
            t.fail(KeyError(args[0].value))  # the key itself, not the frozenset
        t.do(getattr(set, name), value, key)
        items.pop(key, None) if name != "add" else items.setdefault(key, (args[0],))
    elif name == "clear":
        set.clear(value)
        items.clear()
    elif name == "copy":
        return new_set(t, [x[0] for x in items.values()], set(value))
    elif name == "pop" and value:
        return items.pop(pop_element(t, this))[0]
    elif name in SET_ALGEBRA:
        return set_algebra(t, this, name, args)
    else:
        return None
    note_method(t, this, name, args)
    return Var(None)


def set_algebra(t: "CaptureTracer", this: Var, name: str, args: list[Var]) -> Var | None:
    """Combine this set with others: a new set, a change of this one, or an answer.

    Python does it on the real values, since the way a set is made decides its order."""
    is_read = name == "isdisjoint"
    others: list[Any] = [t.iterated(x) if is_read else merged(t, x) for x in args]
    if None in others:
        return None
    real = [
        x.value if isinstance(x.value, (set, frozenset)) else [concrete_key(t, y) for y in other]
        for x, other in zip(args, others, strict=True)
    ]
    # The identity of an element tells its Var, also among equal ones.
    elements = {id(y.value): y for other in (merged(t, this) or (), *others) for y in other}
    result = t.do(getattr(set, name), this.value, *real)
    if isinstance(result, (set, frozenset)):
        return new_set(t, [elements[id(x)] for x in result], result)
    if result is not None:
        return Var(result)
    arguments = [new_set(t, other, set(x)) for other, x in zip(others, real, strict=True)]
    this.items = {x: (elements[id(x)],) for x in stored_keys(this.value)}
    note_method(t, this, name, arguments)
    return Var(None)


def pop_element(t: "CaptureTracer", this: Var) -> Any:
    """Take an element out of a set."""
    element = set.pop(this.value)
    if not this.is_new:
        t.effects.write(this, ("method", "discard", [Var(element)]))
    return element


def note_method(t: "CaptureTracer", this: Var, name: str, args: list[Any]) -> None:
    if not this.is_new:
        t.effects.write(this, ("method", name, list(args)))
