"""The guards that a trace collects, and all else that later calls rely on."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.assumptions import Assumptions
from glasshouse.capture.guards.class_reads import ReadClasses
from glasshouse.capture.guards.program import Guard
from glasshouse.capture.guards.read_audit import ReadPlace, TraceReads
from glasshouse.capture.values.var import ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.frame_stack import FrameStack


BY_VALUE = {"same", "distinct", "absent", "kind", "call", "lacks"}  # a source may have several


class GuardSet:
    """The guards of one trace, each once, and their sources. `frames` are those that run; `reads`
    notes reads for an audit, or is None."""

    def __init__(self, frames: "FrameStack", reads: TraceReads | None = None) -> None:
        self.frames = frames
        self.reads = reads
        self.live = True  # whether anything is still being learnt
        self.sources: dict[tuple[Any, ...], ValueSource] = {}
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.read: list[ValueSource] = []  # sources that must exist in later calls
        self.classes: ReadClasses = ReadClasses()
        self.outcomes: set[tuple[Any, ...]] = set()  # guarded outcomes of expressions of numbers
        self.guarded: set[int] = set()  # sources of tensors and modules with all their guards
        self.once: dict[type[Any], Any] = {}  # checks that a trace has once, by their class
        self.assumptions: Assumptions = Assumptions(Counter())

    def source(
        self, kind: str, base: ValueSource | None, key: Any = None, named: str | None = None
    ) -> ValueSource:
        """The one ValueSource of a path; only a path without a base needs a name."""
        name = (kind, base, id(key) if kind in ("const", "get") and type(key) is not str else key)
        source = self.sources.get(name)
        if source is None:
            source = self.sources[name] = ValueSource(kind, base, key, named)
        return source

    def add(self, kind: str, source: ValueSource, value: Any) -> None:
        """Add a guard, unless it exists or always holds."""
        if kind == "is" and source.kind == "const" and source.key is value:
            return  # it always holds
        name = kind, source, None
        if kind in BY_VALUE:
            name = kind, source, value if isinstance(value, (str, tuple)) else id(value)
        if name not in self.guards:
            self.guards[name] = Guard(kind, source, value, self.frames.line)

    def has(self, kind: str, source: ValueSource) -> bool:
        return (kind, source, None) in self.guards

    def note_read(self, kind: str, owner: Any, key: Any, holder: Any) -> None:
        """Note a read of something of `holder`; see `ReadPlace`."""
        if self.reads is not None and self.live:
            self.reads.note(ReadPlace(kind, owner, key), holder, self.frames.user_line())

    def note_global(self, f: "CaptureFrame", name: str) -> None:
        """Note that a global was looked up in a frame."""
        if not f.trusted:
            self.note_read("item", f.globals, name, f.globals)

    def loaded(self, value: Any, source: ValueSource | None) -> Var:
        """The Var of a value read at a source."""
        if self.reads is None or source is None:
            return Var(value, source)
        return self.reads.loaded(value, source)
