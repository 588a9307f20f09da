"""Steps that run: a kernel in C, a call of native code, or a call of the host.

All of it can be pickled: a process finds the code of Programs that another one made."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from glasshouse.base import Spec
from glasshouse.compile.building.toolchain import PRELUDE
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node


class StaleCode(Exception):
    """Stored code no longer fits this process; it has to be made again."""


class EmittedStep(NamedTuple):
    """A step that runs: `what` is a `CKernel`, a `NativeCall` or a `HostCall`. An argument is
    (buffer, offset in elements), ("scalar", number), ("error", 0) or ("size", number). A kernel's
    text has no offsets or sizes, so one function serves all slices of a value, and values of all
    sizes."""

    args: list[tuple[Any, Any]]
    what: Any


class CKernel(NamedTuple):
    """A kernel in C: `text` is the body of a function of its arguments, `void **a`, without a name;
    `helpers` stand before the function, `attributes` at its head. Equal kernels are one function.
    """

    text: str
    helpers: str = ""
    attributes: str = ""

    def named(self, name: str) -> str:
        """The function, with a name."""
        return f"{self.helpers}{self.attributes}void {name}(void **a) {{\n{self.text}}}\n"


@dataclass(frozen=True)
class Dialect:
    """Dialect of a target's kernels: `prelude` comes before them, `options` are the C compiler's;
    without `openmp` its pragmas are left out."""

    prelude: str = PRELUDE
    options: tuple[str, ...] = ()
    openmp: bool = True

    def adapted(self, kernel: CKernel) -> CKernel:
        """A kernel in this dialect."""
        if self.openmp:
            return kernel
        lines = kernel.text.splitlines(keepends=True)
        rest = (line for line in lines if not line.lstrip().startswith("#pragma omp"))
        return kernel._replace(text="".join(rest))

    def file_of(self, functions: Iterable[Any]) -> str:
        """Write a C file with these functions."""
        return self.prelude + "\n".join(functions)


class LoadedCall(NamedTuple):
    """Addresses of `int function(void *extra, void **args, int32_t count)`, which returns 0 on
    success, and of `extra`; `keep` has the objects that they point to."""

    function: int
    extra: int
    keep: Any


class NativeCall:
    """A step that native code of a target runs. A subclass can be pickled, and has `load`; loaded,
    it keeps about `nbytes` of memory, which calls with equal `shares` have in common."""

    nbytes = 0

    @property
    def shares(self) -> Any:
        return id(self)

    def load(self) -> LoadedCall:
        """Load the code that the runner calls.

        Raises: StaleCode, CompileError
        """
        raise NotImplementedError


class BufferPlace(NamedTuple):
    """A view of a buffer and its place: `kind` is "arena", "input" or "output"."""

    kind: str
    at: int
    buffer: Spec
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, view: View) -> "BufferPlace":
        buffer = view.base
        return cls(buffer.place, buffer.at, buffer.spec, view.offset, view.shape, view.strides)


class MissingKernel(NamedTuple):
    """Reason why there is no kernel for a call, and the remedy."""

    reason: str
    fix: str


class CollectiveStep(NamedTuple):
    """A step of a collective: its "start", or the "wait" for its end; all of it if `part` is ""."""

    node: Node
    source: BufferPlace
    result: BufferPlace
    part: str


class HostCall(NamedTuple):
    """A step that a user's function computes, or, for want of a kernel, a card's reference:
    `missing` has the reason."""

    node: Node
    sources: list[BufferPlace]
    results: list[BufferPlace]
    missing: MissingKernel | None = None
