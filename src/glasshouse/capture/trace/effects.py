"""The effects of a trace, which later calls repeat."""

from collections.abc import Iterator
from typing import Any

from glasshouse.capture.guards.guard_set import GuardSet
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var


class Effects:
    """Writes to existing objects, and entered contexts. `sections` has all writes in order, and
    each Var has a log of its own: within a section, writes to other objects may come between
    those to one. No write moves from one section to another."""

    def __init__(self, guards: GuardSet) -> None:
        self.guards = guards
        self.written: list[Var] = []
        self.sections: list[list[tuple[Var, tuple[Any, ...]]]] = [[]]
        self.scheduled = False  # whether a scheduler's step was logged
        self.contexts: list[Var] = []  # contexts that are entered, outermost first
        self.context_nodes: dict[int, Any] = {}
        self.context_changes: dict[int, list[Var]] = {}  # tokens of context variables that are set
        self.has_caught = False  # whether user code may catch errors of the graph
        self.has_checks = False  # whether the graph raises where Python would take another path

    def write(self, var: Var, entry: tuple[Any, ...]) -> None:
        """Log a write to an existing object."""
        if not self.guards.live:
            return
        if var.log is None:
            var.log = []
            self.written.append(var)
        var.log.append(entry)
        self.sections[-1].append((var, entry))

    def write_apart(self, var: Var, entry: tuple[Any, ...]) -> None:
        """Log a call that may touch the targets of other writes."""
        self.sections.append([])
        self.write(var, entry)
        self.sections.append([])

    def take_back(self, var: Var) -> None:
        """Cancel the last write to an object."""
        log: Any = var.log
        entry = log.pop()
        for section in self.sections:
            section[:] = [x for x in section if x[1] is not entry]
        if not var.log:
            var.log = None
            self.written.remove(var)

    def in_order(self) -> Iterator[tuple[Var, list[tuple[Any, ...]]]]:
        """The objects of each section, in the order of their first writes, with these writes."""
        for section in self.sections:
            logs: dict[int, tuple[Var, list[tuple[Any, ...]]]] = {}
            for var, entry in section:
                logs.setdefault(id(var), (var, []))[1].append(entry)
            yield from logs.values()

    def keep_apart(self, tracked: dict[int, Var]) -> None:
        """Guard that objects that were written to are not reached by another source too."""
        apart = {}
        for var in self.written:
            if isinstance(var.origin, ValueSource):
                apart[id(var)] = var
        for var in apart.values():
            for other in list(tracked.values()):
                same_kind = type(other.value) is type(var.value) and other is not var
                if same_kind and isinstance(other.origin, ValueSource):
                    self.guards.add("distinct", var.origin, other.origin)
