"""Steps of a plan and the memory they use: buffers, fused kernels, and lowerers' own steps."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from glasshouse.base import DType
from glasshouse.base.shape import Spec
from glasshouse.compile.steps import view as views
from glasshouse.compile.steps.expr import Expr
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph.graph import Node
from glasshouse.graph.record import may_refuse

MAX_ROOTS = 16  # results of one kernel
MAX_BUFFERS = 24  # pointers and cache ways that one kernel may use


class PlannedBuffer:
    """Memory for one value: its spec, the order of its axes in memory, and its place. `place` is
    "input" (number), "output" (number) or "arena" (offset in bytes); a value in the memory of an
    output that is not yet written has that output as its `host`."""

    __slots__ = ("number", "spec", "order", "place", "at", "node", "source", "host")

    def __init__(
        self,
        number: int,
        spec: Spec,
        order: tuple[int, ...] | None = None,
        node: Node | None = None,
    ) -> None:
        self.number: int = number
        self.spec: Spec = spec
        self.node: Node | None = node
        self.order: tuple[int, ...] = (
            tuple(range(len(spec.shape))) if order is None else tuple(order)
        )
        self.place: str = "arena"
        self.at: int = 0
        self.host: PlannedBuffer | None = None
        self.source: PlannedBuffer | None = None  # the donated input whose memory this output takes

    @property
    def dtype(self) -> DType:
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def is_row_major(self) -> bool:
        return views.same_strides(self.view(), strides_of(self.shape))

    def view(self) -> View:
        return View(self, 0, self.shape, strides_of(self.shape, self.order))

    def __repr__(self) -> str:
        return f"b{self.number}"


@dataclass
class Root:
    """One result of a kernel: `expr` over the domain, reduced by `reduce` or stored as it is."""

    store: View
    expr: Expr
    reduce: str | None = None
    node: Any = None
    local: bool = False  # no step outside the kernel reads it

    @property
    def number(self) -> int:
        return self.store.base.number


@dataclass(eq=False)
class FusedKernel:
    """A fused kernel: roots over one domain; `axes` are those that its reductions reduce."""

    lowerer: Any
    domain: tuple[int, ...]
    roots: list[Root]
    axes: tuple[int, ...] | None = None
    mergeable: bool = True

    node = None  # it computes several
    worth_keeping = True

    def reads(self) -> set[PlannedBuffer]:
        return {v.base for root in self.roots for v in root.expr.loads}

    def writes(self) -> set[PlannedBuffer]:
        return {root.store.base for root in self.roots if not root.local}

    def views(self) -> list[View]:
        """Views of memory that others wrote, which the kernel reads."""
        local = {root.store.base for root in self.roots if root.local}
        return [v for root in self.roots for v in root.expr.loads if v.base not in local]

    def is_empty(self) -> bool:
        return prod(self.domain) == 0


@dataclass(eq=False)
class LoweredStep:
    """A step that a lowerer planned, for `node`: it reads `sources` (views), writes `results` and
    `scratch` (buffers), and has the values of the nodes that it `computes`. Results from parameters
    alone stay from run to run, unless it is not `worth_keeping`. Other steps may run between two
    steps whose `part` is "start" and "wait"."""

    lowerer: Any
    node: Node
    sources: list[View]
    results: list[PlannedBuffer]
    plan: Any = None
    scratch: list[PlannedBuffer] = field(default_factory=list)
    computes: list[Node] = field(default_factory=list)
    worth_keeping: bool = True
    part: str = ""

    def reads(self) -> set[PlannedBuffer]:
        return {v.base for v in self.sources}

    def writes(self) -> set[PlannedBuffer]:
        return {*self.results, *self.scratch}

    def views(self) -> list[View]:
        return self.sources

    def is_empty(self) -> bool:
        """Whether there is nothing to compute: no rank waits for it, and no index is checked."""
        is_empty = all(buffer.spec.size == 0 for buffer in self.results)
        return is_empty and not self.node.call.is_collective and not may_refuse(self.node)


Step = FusedKernel | LoweredStep


def share_an_operand(first: set[PlannedBuffer], second: set[PlannedBuffer], size: int) -> bool:
    """Whether two kernels over `size` elements share an operand that is worth a single read."""
    return any(2 * b.spec.size >= size for b in first & second)


def order_of(expr: Expr, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of axes in memory of the first load that covers the domain; None: row-major."""
    size = prod(shape)
    for view in expr.loads:
        if len(view.shape) == len(shape) and view.base.spec.size * 2 > size > 0:
            pairs = zip(view.strides, view.shape, strict=True)
            if not any(s == 0 and n > 1 for s, n in pairs):
                return order_of_view(view)
    return None


def order_of_view(view: View) -> tuple[int, ...]:
    """Axes of a view from the widest stride to the narrowest; those of size 1 keep their places."""
    moving = [i for i, n in enumerate(view.shape) if n > 1]
    ordered = iter(sorted(moving, key=lambda i: -abs(view.strides[i])))
    return tuple(next(ordered) if n > 1 else i for i, n in enumerate(view.shape))


def innermost(order: tuple[int, ...] | None, shape: tuple[int, ...]) -> int:
    """The axis along which neighbours in memory lie, for axes in this order; None: row-major."""
    moving = [i for i in order or range(len(shape)) if shape[i] > 1]
    return moving[-1] if moving else len(shape) - 1


def kernel_order(kernel: FusedKernel) -> tuple[int, ...]:
    """The axes of the domain from the outermost loop to the innermost."""
    for root in kernel.roots:
        plain = root.reduce is None
        order = order_of_view(root.store) if plain else order_of(root.expr, kernel.domain)
        if order is not None:
            return order
    return tuple(range(len(kernel.domain)))
