"""The objects that a trace knows, one Var for each, and its new objects and edits of dicts."""

import types
from typing import Any

from glasshouse.capture.frames.frame import CapturedGenerator
from glasshouse.capture.guards.guard_set import GuardSet
from glasshouse.capture.values.plain import FUNCTIONS, SCALARS, compares_itself, looks_up_itself
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, NewNumber, Recipe, ValueSource, Var

# Kinds of sources that may be missing in a later call.
READ_KINDS = {"get", "cell", "attr", "lookup"}


class TraceHeap:
    """The known objects of one trace. Tables of containers have the ids of their Vars as keys."""

    def __init__(self, guards: GuardSet) -> None:
        self.guards = guards
        self.tracked: dict[int, Var] = {}  # by the object's id
        self.scopes: dict[int, Var] = {}  # globals of modules, by the id of their dict
        self.whole: dict[int, Var] = {}  # dicts of which all is known
        self.deleted: dict[int, set[Any]] = {}  # keys
        self.original_keys: dict[int, tuple[Any, ...]] = {}
        self.blurred: dict[int, list[Any]] = {}  # (key, value) of dicts, at keys that vary
        self.class_items: dict[
            type[Any], dict[Any, Any]
        ] = {}  # attributes that were set on classes
        self.functions: dict[int, Var] = {}  # functions whose attributes were written to
        self.handed_over: list[Var] = []  # generators that Python holds
        self.drained: list[tuple[Any, ...]] = []  # (instruction, iterator, attribute, value before)
        self.folding: set[int] = set()  # Vars in a running call of `foldable`

    # -- loading -------------------------------------------------------------------------------

    def load(self, value: Any, source: ValueSource | None) -> Var:
        """The Var of a value read at a source; one Var for one object."""
        guards = self.guards
        if not guards.live:
            return guards.loaded(value, source)
        if compares_itself(value):
            raise Break("a class whose metaclass defines its equality or hash")
        if source is not None and source.kind in READ_KINDS:
            guards.read.append(source)
        if type(value) not in guards.classes.behaviours:
            guards.classes.add(type(value))
        if source is None or type(value) in SCALARS or isinstance(value, FUNCTIONS):
            return guards.loaded(value, source)
        var = self.tracked.get(id(value))
        if var is None:
            if looks_up_itself(type(value)):
                raise Break(f"a {type(value).__name__}, which looks up its attributes itself")
            var = self.tracked[id(value)] = guards.loaded(value, source)
        elif isinstance(var.origin, ValueSource) and var.origin is not source:
            guards.add("same", source, var.origin)
        return var

    def load_in(self, trusted: bool, value: Any, source: ValueSource | None) -> Var:
        """The Var of a value read in a frame; trusted scalars and functions are constants."""
        fixed = trusted and (type(value) in SCALARS or isinstance(value, FUNCTIONS))
        return Var(value) if fixed else self.load(value, source)

    def track(self, var: Var) -> Var:
        """Remember something new by its identity."""
        if self.guards.live and type(var.value) not in self.guards.classes.behaviours:
            self.guards.classes.add(type(var.value))
        self.tracked[id(var.value)] = var
        return var

    def sub(self, var: Var, kind: str, key: Any = None) -> ValueSource | None:
        """The source of a part of a value with a source; else None."""
        if not self.guards.live or not isinstance(var.origin, ValueSource):
            return None
        return self.guards.source(kind, var.origin, key)

    def entry_source(self, base: ValueSource | None, key: Any) -> ValueSource | None:
        if base is None or not self.guards.live:
            return None
        return self.guards.source("get", base, key)

    def globals_var(self, names: dict[Any, Any]) -> Var:
        """The Var of a module's globals."""
        var = self.scopes.get(id(names))
        if var is None:
            source = self.guards.source("const", None, names, "G")
            var = self.scopes[id(names)] = Var(names, source, {})
        return var

    def forget(self) -> None:
        """Forget all but open generators, since nothing is learnt any more."""
        for var in self.tracked.values():  # their items are read again when needed
            var.items = var.origin = var.log = None
        pairs = self.tracked.items()  # other values may be freed
        self.tracked = {k: x for k, x in pairs if isinstance(x.value, CapturedGenerator)}
        for scope in self.scopes.values():
            scope.items = {}
        self.class_items.clear()
        self.blurred.clear()

    # -- making --------------------------------------------------------------------------------

    def hand_over(self, items: Any) -> None:
        """Replace our generators by Python's own in values that are put into something, once
        nothing is learnt any more: real code may see them."""
        if self.guards.live:
            return
        for x in items:
            if isinstance(x.value, CapturedGenerator) and not x.value.running:
                x.value = x.value.native()
                self.handed_over.append(x)

    def new_tuple(self, items: list[Var], cls: Any = tuple) -> Var:
        self.hand_over(items)
        values = tuple(x.value for x in items)
        if cls is not tuple:
            return self.track(Var(tuple.__new__(cls, values), Recipe("tuple", cls), list(items)))
        if all(x.origin is None and x.items is None and type(x) is not NewNumber for x in items):
            return Var(values, None, list(items))
        return Var(values, Recipe("tuple"), list(items))

    def new_list(self, items: list[Var]) -> Var:
        self.hand_over(items)
        return self.track(Var([x.value for x in items], Recipe("list"), list(items)))

    def new_slice(self, parts: list[Var]) -> Var:
        return Var(slice(*(x.value for x in parts)), Recipe("call", Var(slice), parts))

    def new_cell(self, content: Var | None) -> Var:
        cell = types.CellType() if content is None else types.CellType(content.value)
        return self.track(Var(cell, Recipe("cell"), content if self.guards.live else None))
