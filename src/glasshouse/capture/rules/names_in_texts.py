"""Guards names of classes and functions in a text: the program may change them between calls."""

import functools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from glasshouse.capture.rules.class_lookups import has_open_attributes, may_change, source_in
from glasshouse.capture.values.plain import has_plain_name, is_heap
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


NAMES = ("__name__", "__qualname__", "__module__")
PARTS: dict[Any, Any] = {  # attributes whose names are part of the text
    types.MethodType: ("__func__", "__self__"),
    types.GenericAlias: ("__origin__", "__args__"),
    types.UnionType: ("__args__",),
    functools.partial: ("func", "args", "keywords"),
}


def rely_on_names(tracer: "CaptureTracer", text: str, values: tuple[Any, ...]) -> None:
    """Guard the names in a text about some values: names of the classes and functions among them,
    and of their types."""
    for named in named_in(values, set()):
        names = {name: getattr(named, name) for name in NAMES} if is_plain(tracer, named) else {}
        if not any(x in text for x in (names.get("__name__"), names.get("__qualname__")) if x):
            continue
        for name, value in names.items():
            tracer.concretize(tracer.heap.load(value, source_in(tracer, Var(named), "attr", name)))


def rely_on_names_of_error(
    tracer: "CaptureTracer", error: BaseException, values: tuple[Any, ...]
) -> None:
    """Guard the names in the text of a builtin error about some values."""
    texts = [part for part in error.args if type(part) is str]
    if tracer.guards.live and texts and not is_heap(type(error)):
        rely_on_names(tracer, " ".join(texts), values)


def is_plain(tracer: "CaptureTracer", named: Any) -> bool:
    """Whether a class or function has names that may change and that no metaclass computes."""
    if isinstance(named, type):
        return may_change(tracer, named) and has_plain_name(named)
    return has_open_attributes(tracer, named)


def named_in(values: Any, visited: set[int]) -> Iterator[Any]:
    """The classes and functions among values and in their containers, and the values' types."""
    for value in values:
        if id(value) in visited:
            continue
        visited.add(id(value))
        yield from (x for x in (type(value), value) if isinstance(x, type | types.FunctionType))
        if isinstance(value, dict):
            yield from named_in([*dict.keys(value), *dict.values(value)], visited)
        elif isinstance(value, list | tuple | set | frozenset):
            kind = next(x for x in (list, tuple, set, frozenset) if isinstance(value, x))
            yield from named_in(kind.__iter__(value), visited)
        parts = PARTS.get(type(value), ())
        yield from named_in([getattr(value, name) for name in parts], visited)
