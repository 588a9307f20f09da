"""The entries of a captured function: their descriptions and lifetimes."""

import weakref
from types import CodeType
from typing import Any

from glasshouse.capture.bytecode.instructions import original_of
from glasshouse.capture.guards.program import Guard, WeakLink, referent
from glasshouse.capture.sessions.export import ExportedTrace
from glasshouse.capture.values.var import ValueSource, varying_name


class EntryInfo:
    """A description of an entry: its guards, graph, source, how it ended."""

    def __init__(
        self, code: CodeType, name: str, guards: list[Guard], about: list[Guard | None], owner: Any
    ) -> None:
        self.root: CodeType = original_of(code)[0]  # of which it may be a part
        self.name = name
        self.guards = guards
        self.about = about
        self.owner = owner
        self.is_bound: bool = is_bound(guards)
        self.graph: Any = None  # a GraphModule, once it is compiled
        self.source = ""
        self.reason = self.where = ""  # of the break that it ends with
        self.capture_ns = self.compile_ns = 0
        self.exported: ExportedTrace | None = None  # for export

    @property
    def operations(self) -> int:
        """How many operations the graph has."""
        nodes = () if self.graph is None else self.graph.graph.nodes
        return sum(node.op.startswith("call_") for node in nodes)


def entries_of(dispatcher: Any) -> list[Any]:
    """The entries of a dispatcher that are alive, newest first."""
    entries = (x() if type(x) is WeakLink else x for x in dispatcher.entries)
    return [x for x in entries if x is not None]


class EntryRemover:
    """Removes an entry from its dispatcher's list when an object dies that it depends on."""

    __slots__ = ("dispatcher", "entry", "relied_on")

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher: weakref.ref[Any] = weakref.ref(dispatcher)
        self.entry: Any = None
        self.relied_on: list[tuple[WeakLink, str]] = []

    def __call__(self, link: WeakLink) -> None:
        dispatcher, entry = self.dispatcher(), self.entry and self.entry()
        if entry is not None:
            entry.die()
        if dispatcher is not None:
            dead = {name for link, name in self.relied_on if link() is None}
            dispatcher.capture.varying |= dead
            gone = None, entry
            dispatcher.entries[:] = [x for x in dispatcher.entries if referent(x) not in gone]

    def rely_on(self, guards: list[Guard]) -> None:
        """Note the objects that a resume function gets: those that die were made for one call."""
        dispatcher: Any = self.dispatcher()
        code = dispatcher.fn.__code__
        if original_of(code)[0] is not code:
            identities = (x for x in guards if x.kind == "is" and type(x.value) is WeakLink)
            self.relied_on = [(x.value, varying_name(x.source)) for x in identities]


def owner_of(slots: tuple[Any, ...]) -> Any:
    """The object whose method is called, for counting the entries of each object; else None."""
    first = slots[0] if slots else None
    return first if type(first).__dictoffset__ and not hasattr(type(first), "shape") else None


def is_bound(guards: list[Guard]) -> bool:
    """Whether an entry fits only the object that it was captured with: a guard is on the identity
    of that object or a part of it, but not of an attribute of its class."""
    return any(g.kind == "is" and type(g.value) is WeakLink and is_inside(g.source) for g in guards)


def is_inside(source: ValueSource) -> bool:
    """Whether a source is the first argument or a part of it, not of its class."""
    while source.base is not None:
        if source.kind in ("type", "lookup"):
            return False
        source = source.base
    return source.kind == "slot" and source.key == 0


def counts_for(entry: Any, owner: Any) -> bool:
    """Whether an entry counts for an object: it was captured with that, or with one that died."""
    captured_with = referent(entry.info.owner)
    return captured_with is None or captured_with is owner


def link_to(value: Any) -> WeakLink | None:
    """A WeakLink to a value, or the value if it has no weak references."""
    return WeakLink(value) if type(value).__weakrefoffset__ else value
