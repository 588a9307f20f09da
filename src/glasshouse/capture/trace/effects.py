"""The effects of a trace, which later calls repeat."""

from glasshouse.capture.guards.guard_set import GuardSet
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var


class Effects:
    """Writes to what is not new, of which each Var has a log, and contexts that are entered."""

    def __init__(self, guards: GuardSet):
        self.guards = guards
        self.written: list[Var] = []
        self.scheduled = False  # whether a scheduler's step was logged
        self.contexts: list[Var] = []  # contexts that are entered, outermost first
        self.context_nodes: dict[int, object] = {}
        self.context_changes: dict[int, list[Var]] = {}  # tokens of context variables that are set
        self.has_caught = False  # whether user code may catch errors of the graph
        self.has_checks = False  # whether the graph raises where Python would take another path

    def write(self, var: Var, entry: tuple) -> None:
        """Log a write to something that is not new."""
        if not self.guards.live:
            return
        if var.log is None:
            var.log = []
            self.written.append(var)
        var.log.append(entry)

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
