"""Cells and globals, with guards on reads and a log of writes."""

import builtins
import types
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import original_of
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.rebound_globals import is_rebound
from glasshouse.capture.values.var import Break, Var

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.tracer import CaptureTracer


def cell_get(t: "CaptureTracer", cell: Var, name: str) -> Var:
    if isinstance(cell.items, Var):
        return cell.items
    try:
        value = cell.value.cell_contents
    except ValueError:
        is_free = name in original_of(t.frames[-1].root)[0].co_freevars
        if is_free or not cell.is_new:  # which may be set in a later call
            args = [cell, Var(name), Var(is_free)]
            raise Break("an unset cell is read", Var(read_cell), args) from None
        t.fail(unset_error(name, is_free))
    return t.heap.load(value, t.heap.sub(cell, "cell", None))


def cell_set(t: "CaptureTracer", cell: Var, var: Var | None) -> None:
    if var is None:
        del cell.value.cell_contents
    else:
        cell.value.cell_contents = var.value
    cell.items = var if t.guards.live else None
    if not cell.is_new:
        t.effects.write(cell, ("cell", var))


def load_global(t: "CaptureTracer", f: "CaptureFrame", name: str) -> Var:
    scope = t.heap.globals_var(f.globals)
    if name in scope.items:
        var = scope.items[name]
        if var is not None:
            return var
    elif name in f.globals:
        value = f.globals[name]
        source = t.heap.entry_source(scope.origin, name)
        fixed = f.trusted and not is_rebound(f.globals, name)
        if fixed:
            source = t.guards.source("const", None, value, name)
        var = t.heap.load_in(fixed, value, source)
        t.guards.note_global(f, name)
        return var
    table = f.globals.get("__builtins__", builtins)
    table = table if isinstance(table, dict) else table.__dict__
    if t.guards.live and not f.trusted:
        place = t.guards.source("const", None, table, "builtins")
        if name not in scope.items:  # else the trace deleted it
            t.guards.add("absent", scope.origin, name)
        if name in table:
            t.guards.add("is", t.guards.source("get", place, name), table[name])
        else:
            t.guards.add("absent", place, name)
        if name not in scope.items:
            t.guards.note_global(f, name)
    if name not in table:
        t.fail(NameError(f"name '{name}' is not defined", name=name))
    return Var(table[name])


def rely_on_global(t: "CaptureTracer", f: Any, scope: Var, name: str) -> None:
    """Guard whether a module has a global that is deleted."""
    if name in f.globals:
        load_global(t, f, name)
    elif t.guards.live and not f.trusted:
        t.guards.add("absent", scope.origin, name)


def store_global(t: "CaptureTracer", f: "CaptureFrame", name: str, var: Var | None) -> None:
    scope = t.heap.globals_var(f.globals)
    if var is None and name not in scope.items:
        rely_on_global(t, f, scope, name)
    if var is None and name not in f.globals:
        t.fail(NameError(f"name '{name}' is not defined", name=name))
    if var is None:
        del f.globals[name]
    else:
        f.globals[name] = var.value
    if t.guards.live:
        scope.items[name] = var
    t.effects.write(scope, ("item", Var(name), var))


def read_cell(cell: types.CellType, name: str, is_free: bool) -> Any:
    """Read a cell, or raise as Python does: in a resume function a free variable is a local."""
    try:
        return cell.cell_contents
    except ValueError:
        pass  # no context, and no name for the error: with its frame it would be a cycle
    raise unset_error(name, is_free)


def unset_error(name: str, is_free: bool) -> NameError:
    """The error of a variable in a cell that has no value."""
    what = "where it is not associated with a value"
    if is_free:
        return NameError(
            f"cannot access free variable '{name}' {what} in enclosing scope", name=name
        )
    return UnboundLocalError(f"cannot access local variable '{name}' {what}", name=name)
