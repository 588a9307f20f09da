"""Where a call belongs: the module whose forward runs, and the pass.

`state.scope` is the innermost running module's Scope (or None), `state.phase` is "forward",
"backward", "recompute" (a checkpoint within a backward pass) or "optimizer". In a backward pass the
scope is that of the forward call that is being differentiated."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

from glasshouse.base import having
from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.watch import tell


class Origin(NamedTuple):
    """Where a call comes from: path of the calling module, pass, position in the recording;
    `rerun` counts the runs of checkpointed regions up to there; `function` is the composed function
    that made it, once it is part of a graph."""

    module: str = ""
    phase: str = ""
    place: int = -1
    rerun: int = 0
    function: str = ""


NOWHERE = Origin()


class Origins(dict[Any, Any]):
    """The origin of calls in one module, by pass."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, phase: str) -> Origin:
        return self.setdefault(phase, Origin(self.module, phase))


class Scope:
    """A running module within the one that called it; equal nestings share one Scope. `path`,
    worked out on demand, is the outermost module's class and the names down: ResNet.layer1.0."""

    __slots__ = ("module", "parent", "kind", "full_name", "inner", "origins", "__weakref__")

    parent: "Scope | None"
    kind: str

    def __init__(self, module: Any, parent: "Scope | None") -> None:
        self.module: Callable[[], Any] = weakref.ref(
            module, partial(forget, weakref.ref(self), id(module))
        )
        self.parent, self.kind = parent, type(module).__name__
        self.full_name: str | None = None
        self.inner: dict[int, Scope] = {}
        self.origins: Origins | None = None

    @property
    def path(self) -> str:
        if self.full_name is None:
            parent = self.parent
            name = None if parent is None else name_within(parent.module(), self.module())
            self.full_name = self.kind if parent is None else f"{parent.path}.{name or self.kind}"
        return self.full_name


outermost: dict[int, Scope] = {}
# Copies that run in the place of a module, which have its name: a weak reference to the module.
originals: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
outside: Origins = Origins("")


def origin_of(scope: Scope | None, phase: str) -> Origin:
    """The origin of calls there, one object for each module and pass."""
    if scope is None:
        return outside[phase]
    if scope.origins is None:
        scope.origins = Origins(scope.path)
    return scope.origins[phase]


def outermost_scopes() -> dict[int, Scope]:
    """The outermost scope of the module of each origin, by the id of that origin."""
    root_of, stack = {}, [(scope, scope) for scope in tuple(outermost.values())]
    while stack:
        scope, root = stack.pop()
        root_of.update({id(origin): root for origin in tuple((scope.origins or {}).values())})
        stack.extend((inner, root) for inner in tuple(scope.inner.values()))
    return root_of


def scope_of(module: Any, parent: Scope | None, kind: type[Scope] = Scope) -> Scope:
    """The scope of a module within another one's, of this class."""
    siblings = outermost if parent is None else parent.inner
    scope = siblings.get(id(module))
    if scope is None or scope.module() is not module:
        scope = siblings[id(module)] = kind(module, parent)
    return scope


def forget(ref: Any, key: int, _: Any) -> None:
    """Drop the scope of a module that is gone."""
    scope = ref()
    siblings = scope.parent.inner if scope and scope.parent else outermost
    if scope is not None and siblings.get(key) is scope:
        del siblings[key]


def name_within(parent: Any, module: Any) -> str | None:
    if parent is None or module is None:
        return None
    module = originals.get(module, lambda: module)()
    return next((name for name, inner in parent.named_modules() if inner is module), None)


def path_of(scope: Scope | None) -> str:
    return "" if scope is None else scope.path


def current_module_path() -> str:
    """Where in a model this thread is: the outermost module's class, then the names down to the
    running one ("ResNet.layer1.0.conv1"); "" outside every forward."""
    return path_of(state.scope)


def in_module(module: Any) -> having:
    """A context in which calls belong to `module`, within the one that runs."""
    return having(state, scope=scope_of(module, state.scope))


@contextmanager
def phase(name: str) -> Iterator[None]:
    before = state.phase, state.scope, state.seq
    begin_ns = perf_counter_ns() if watchers else 0
    state.phase = name
    try:
        yield
    finally:
        state.phase, state.scope, state.seq = before
        if begin_ns:
            tell("region", name, begin_ns)
