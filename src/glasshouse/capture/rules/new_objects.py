"""New dicts, sets and functions; simpler objects are made by the heap of the trace."""

import types
from types import CodeType
from typing import TYPE_CHECKING, Any

from glasshouse.capture.rules.constants import concrete_key
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Recipe, Var

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.tracer import CaptureTracer


def new_dict(t: "CaptureTracer", pairs: Any, cls: Any = dict) -> Var:
    pairs = [(concrete_key(t, key), key, value) for key, value in pairs]
    t.heap.hand_over(x for *_, x in pairs)
    value = t.do(cls, [(raw, x.value) for raw, _, x in pairs])
    items: dict[Any, Any] = {}
    for raw, key, x in pairs:  # of equal keys, a dict keeps the first
        items[raw] = (items[raw][0] if raw in items else key, x)
    return t.heap.track(Var(value, Recipe("dict", cls), items))


def new_set(t: "CaptureTracer", elements: list[Var], value: set[Any] | None = None) -> Var:
    """A set made by adding these elements in order; or `value`, if it is known."""
    keys = [concrete_key(t, x) for x in elements]
    if value is None:
        value = t.do(set, keys)
    items: dict[Any, Any] = {}
    for key, x in zip(keys, elements, strict=True):  # of equal ones, a set keeps the first
        items.setdefault(key, (x,))
    return t.heap.track(Var(value, Recipe("set"), items))


def new_function(
    t: "CaptureTracer", f: "CaptureFrame", code: CodeType, parts: dict[Any, Any]
) -> Var:
    # Python 3.13 sets the closure later.
    closure = tuple(types.CellType() for _ in code.co_freevars)
    if "closure" in parts:
        closure = tuple(x.value for x in parts["closure"].items)
    fn = types.FunctionType(code, f.globals, code.co_name, None, closure)
    if "defaults" in parts:
        fn.__defaults__ = tuple(parts["defaults"].value)
    if "kwdefaults" in parts:
        fn.__kwdefaults__ = dict(parts["kwdefaults"].value)
    if "annotations" in parts:
        flat = parts["annotations"].value
        pairs = zip(flat[::2], flat[1::2], strict=True) if isinstance(flat, tuple) else flat
        fn.__annotations__ = dict(pairs)
    if "annotate" in parts:
        fn.__annotate__ = parts["annotate"].value  # type: ignore[attr-defined]  # since 3.14
    return t.heap.track(Var(fn, Recipe("function", code, f.globals, parts), {}))
