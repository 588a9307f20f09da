"""Attributes of a class that C computes, such as `__name__` and `__dict__`."""

from glasshouse.capture.values.plain import is_heap
from glasshouse.capture.values.var import Break, Var, constant

CLASS_TEXTS = {"__doc__", "__name__", "__qualname__", "__module__", "__annotations__"}


def part_of_class(trace, cls: Var, name: str) -> Var:
    """An attribute that a data descriptor of the metaclass reads, such as `__name__`."""
    value = cls.value
    if name == "__dict__" and trace.class_items.get(value):
        reason = "the __dict__ of a class that was written to"
        raise Break(reason, Var(getattr), [cls, Var(name)])
    part = trace.do(getattr, value, name)
    trace.rely_on_bases(value)
    if name == "__dict__":
        trace.rely_on_namespace(cls)
    if not trace.live or name not in CLASS_TEXTS or not is_heap(value):
        return constant(part)
    return trace.load(part, trace.source_in(cls, "attr", name))
