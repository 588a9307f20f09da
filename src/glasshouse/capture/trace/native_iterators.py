"""Python's own iterators in place of ours, where real code sees them."""

import operator
from typing import TYPE_CHECKING

from glasshouse.capture.frames.frame import CapturedGenerator, CapturedIterator
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Var, last_items

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def make_native(t: "CaptureTracer") -> None:
    """Put Python's own iterators in place of ours, since real code sees them from here on."""
    visited: dict[int, bool] = {}
    for var in [*t.heap.tracked.values(), *t.heap.scopes.values()]:
        nativise(t, var, visited)
    for f in t.frames:
        for var in (*f.locals, *f.stack, *f.saved):
            if var is not None:
                nativise(t, var, visited)


def nativise(t: "CaptureTracer", var: Var, visited: dict[int, bool]) -> bool:
    """Put Python's own iterators in place of ours in a Var; whether it had any."""
    if id(var) not in visited:
        visited[id(var)] = False
        visited[id(var)] = nativise_unvisited(t, var, visited)
    return visited[id(var)]


def nativise_unvisited(t: "CaptureTracer", var: Var, visited: dict[int, bool]) -> bool:
    """`nativise` for a Var that is not visited yet."""
    value, items = var.value, var.items
    if isinstance(value, list) and items is None:
        return nativise_appended(t, var, visited)
    if isinstance(value, CapturedGenerator) and value.running and value.is_polyfill:
        return False  # until it is suspended
    if isinstance(value, (CapturedIterator, CapturedGenerator)):
        var.value = value.native()
        if not t.guards.live:
            t.heap.tracked.pop(id(value), None)  # it may end with its last reference
        return True
    if isinstance(value, (list, tuple)) and isinstance(items, list):
        for x in items:
            if isinstance(x, Var):
                nativise(t, x, visited)
        values = [x.value if isinstance(x, Var) else x for x in items]
        base = list if isinstance(value, list) else tuple
        if all(map(operator.is_, values, base.__iter__(value))):
            return False
        if base is list:
            list.__setitem__(value, slice(None), values)
        elif type(value) is tuple:
            var.value = tuple(values)
        return True
    if isinstance(value, dict) and isinstance(items, dict):
        for key, pair in items.items():
            part = pair[1] if isinstance(pair, tuple) else pair  # as in scopes
            if isinstance(part, Var) and nativise(t, part, visited):
                dict.__setitem__(value, key, part.value)
    elif isinstance(items, dict) and not isinstance(value, (set, frozenset)):
        for name, part in items.items():
            if isinstance(part, Var) and nativise(t, part, visited):
                object.__setattr__(value, name, part.value)
    elif isinstance(items, Var) and nativise(t, items, visited):
        value.cell_contents = items.value
    return False


def nativise_appended(t: "CaptureTracer", var: Var, visited: dict[int, bool]) -> bool:
    """`nativise` for items that were appended to an unread list."""
    natives = {}
    for x in last_items(var):
        value = x.value
        if nativise(t, x, visited):
            natives[id(value)] = value, x.value
    now = [natives[id(x)][1] if id(x) in natives else x for x in list.__iter__(var.value)]
    list.__setitem__(var.value, slice(None), now)
    return bool(natives)
