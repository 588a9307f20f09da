"""Guards, loads, object creation, cells and globals: each read is guarded, and each write to
something that is not new is logged."""

import types

from glasshouse.capture.frames.frame import CapturedGenerator
from glasshouse.capture.rules.constants import concrete_key
from glasshouse.capture.values.plain import (
    FUNCTIONS,
    SCALARS,
    compares_itself,
    looks_up_itself,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, NewNumber, Recipe, ValueSource, Var

# Kinds of sources that may be missing in a later call.
READ_KINDS = {"get", "cell", "attr", "lookup"}


# -- loading -------------------------------------------------------------------------------


def load(t, value, source: ValueSource | None) -> Var:
    """The Var of a value read at a source; one Var for one object."""
    if t.live and compares_itself(value):
        raise Break("a class whose metaclass defines its equality or hash")
    if t.live and source is not None and source.kind in READ_KINDS:
        t.guards.read.append(source)
    if t.live and type(value) not in t.read_classes.classes:
        t.read_classes.add(type(value))
    if not t.live or source is None or type(value) in SCALARS or isinstance(value, FUNCTIONS):
        return t.loaded(value, source)
    var = t.tracked.get(id(value))
    if var is None:
        if looks_up_itself(type(value)):
            raise Break(f"a {type(value).__name__}, which looks up its attributes itself")
        var = t.tracked[id(value)] = t.loaded(value, source)
    elif isinstance(var.origin, ValueSource) and var.origin is not source:
        t.guards.add("same", source, var.origin)
    return var


def load_in(t, trusted: bool, value, source: ValueSource | None) -> Var:
    """The Var of a value read in a frame; trusted scalars and functions are constants."""
    fixed = trusted and (type(value) in SCALARS or isinstance(value, FUNCTIONS))
    return Var(value) if fixed else t.load(value, source)


def track(t, var: Var) -> Var:
    """Remember something new by its identity."""
    if t.live and type(var.value) not in t.read_classes.classes:
        t.read_classes.add(type(var.value))
    t.tracked[id(var.value)] = var
    return var


def sub(t, var: Var, kind: str, key=None) -> ValueSource | None:
    """The source of a part of a value with a source; else None."""
    if not t.live or not isinstance(var.origin, ValueSource):
        return None
    return t.guards.source(kind, var.origin, key)


def entry_source(t, base: ValueSource | None, key) -> ValueSource | None:
    return None if base is None or not t.live else t.guards.source("get", base, key)


# -- making --------------------------------------------------------------------------------


def hand_over(t, items) -> None:
    """Replace our generators by Python's own in values that are put into something, once
    nothing is learnt any more: real code may see them."""
    for x in items:
        if not t.live and isinstance(x.value, CapturedGenerator) and not x.value.running:
            x.value = x.value.native()
            t.handed_over.append(x)


def new_tuple(t, items: list[Var], cls=tuple) -> Var:
    t.hand_over(items)
    values = tuple(x.value for x in items)
    if cls is not tuple:
        return t.track(Var(tuple.__new__(cls, values), Recipe("tuple", cls), list(items)))
    if all(x.origin is None and x.items is None and type(x) is not NewNumber for x in items):
        return Var(values, None, list(items))
    return Var(values, Recipe("tuple"), list(items))


def new_list(t, items: list[Var]) -> Var:
    t.hand_over(items)
    return t.track(Var([x.value for x in items], Recipe("list"), list(items)))


def new_slice(t, parts: list[Var]) -> Var:
    return Var(slice(*(x.value for x in parts)), Recipe("call", Var(slice), parts))


def new_dict(t, pairs, cls=dict) -> Var:
    pairs = [(concrete_key(t, key), key, value) for key, value in pairs]
    t.hand_over(x for *_, x in pairs)
    value = t.do(cls, [(raw, x.value) for raw, _, x in pairs])
    items: dict = {}
    for raw, key, x in pairs:  # of equal keys, a dict keeps the first
        items[raw] = (items[raw][0] if raw in items else key, x)
    return t.track(Var(value, Recipe("dict", cls), items))


def new_set(t, elements: list[Var], value: set | None = None) -> Var:
    """A set made by adding these elements in order; or `value`, if it is known."""
    keys = [concrete_key(t, x) for x in elements]
    if value is None:
        value = t.do(set, keys)
    items: dict = {}
    for key, x in zip(keys, elements, strict=True):  # of equal ones, a set keeps the first
        items.setdefault(key, (x,))
    return t.track(Var(value, Recipe("set"), items))


def new_cell(t, content: Var | None) -> Var:
    cell = types.CellType() if content is None else types.CellType(content.value)
    return t.track(Var(cell, Recipe("cell"), content if t.live else None))


def new_function(t, f, code, parts: dict) -> Var:
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
        fn.__annotate__ = parts["annotate"].value
    return t.track(Var(fn, Recipe("function", code, f.globals, parts), {}))


def write(t, var: Var, entry: tuple) -> None:
    """Log a write to something that is not new."""
    if not t.live:
        return
    if var.log is None:
        var.log = []
        t.written.append(var)
    var.log.append(entry)
