"""Where a call belongs: the module whose forward runs, and the pass.

`state.scope` is the innermost running module's Scope (or None), `state.phase` is "forward",
"backward", "recompute" (a checkpoint within a backward pass) or "optimizer". In a backward pass the
scope is that of the forward call that is being differentiated.
"""

from contextlib import contextmanager

from glasshouse.dispatch.bind import state


class Scope:
    """A running module within the one that called it; its path is found when it is asked for."""

    __slots__ = ("module", "parent", "found")

    def __init__(self, module, parent: "Scope | None"):
        self.module, self.parent = module, parent
        self.found: str | None = None

    @property
    def path(self) -> str:
        """The outermost module's class, then the names down to this one: "ResNet.layer1.0"."""
        if self.found is None:
            own = type(self.module).__name__
            if self.parent is None:
                self.found = own
            else:
                name = name_within(self.parent.module, self.module)
                self.found = f"{self.parent.path}.{name or own}"
        return self.found


def name_within(parent, module) -> str | None:
    """The dotted name of `module` below `parent`, or None."""
    return next((name for name, found in parent.named_modules() if found is module), None)


def current_module_path() -> str:
    """Where in a model this thread is: the outermost module's class, then the names down to the
    running one ("ResNet.layer1.0.conv1"); "" outside every forward."""
    return "" if state.scope is None else state.scope.path


@contextmanager
def phase(name: str):
    """Inside, calls belong to this pass."""
    before = state.phase, state.scope
    state.phase = name
    try:
        yield
    finally:
        state.phase, state.scope = before
