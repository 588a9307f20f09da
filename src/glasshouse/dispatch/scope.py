"""Where a call belongs: the module whose forward runs, and the pass.

`state.scope` is the innermost running module's Scope (or None), `state.phase` is "forward",
"backward", "recompute" (a checkpoint within a backward pass) or "optimizer". In a backward pass the
scope is that of the forward call that is being differentiated."""

import weakref
from contextlib import contextmanager
from time import perf_counter_ns

from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.watch import tell


class Scope:
    """A running module within the one that called it; equal nestings share one Scope.
    `path`, found on demand, is the outermost module's class and the names down: ResNet.layer1.0."""

    __slots__ = ("module", "parent", "kind", "found", "inner", "__weakref__")

    def __init__(self, module, parent: "Scope | None"):
        self.module = weakref.ref(module)
        self.parent, self.kind = parent, type(module).__name__
        self.found: str | None = None
        self.inner: dict[int, Scope] = {}

    @property
    def path(self) -> str:
        if self.found is None:
            parent = self.parent
            name = None if parent is None else name_within(parent.module(), self.module())
            self.found = self.kind if parent is None else f"{parent.path}.{name or self.kind}"
        return self.found


outermost: dict[int, Scope] = {}


def scope_of(module, parent: Scope | None) -> Scope:
    known = outermost if parent is None else parent.inner
    scope = known.get(id(module))
    if scope is None or scope.module() is not module:
        scope = known[id(module)] = Scope(module, parent)
        weakref.finalize(module, forget, weakref.ref(scope), id(module)).atexit = False
    return scope


def forget(ref, key: int) -> None:
    scope = ref()
    known = scope.parent.inner if scope and scope.parent else outermost
    if scope is not None and known.get(key) is scope:
        del known[key]


def name_within(parent, module) -> str | None:
    if parent is None or module is None:
        return None
    return next((name for name, found in parent.named_modules() if found is module), None)


def path_of(scope: Scope | None) -> str:
    return "" if scope is None else scope.path


def current_module_path() -> str:
    """Where in a model this thread is: the outermost module's class, then the names down to the
    running one ("ResNet.layer1.0.conv1"); "" outside every forward."""
    return path_of(state.scope)


@contextmanager
def phase(name: str):
    """Inside, calls belong to this pass."""
    before = state.phase, state.scope, state.seq
    begin_ns = perf_counter_ns() if watchers else 0
    state.phase = name
    try:
        yield
    finally:
        state.phase, state.scope, state.seq = before
        if begin_ns:
            tell("region", name, begin_ns)
