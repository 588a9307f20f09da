"""The loops of a fused kernel: axes of its domain in memory order, neighbours merged."""

from math import prod
from typing import Any

from glasshouse.base.flags import flags
from glasshouse.compile.steps.expr import Expr, parts_of
from glasshouse.compile.steps.steps import FusedKernel, Root, kernel_order
from glasshouse.compile.steps.view import View

PARALLEL_WORK = 20_000  # cycles or so below which starting the other cores costs more than it saves
CHUNK = 4096  # elements that one thread takes at a time from a row without outer axes
LANES = 16  # sums that the elements of a row go to in turn, a power of two
FEW_ROWS = 64  # or elements of a row
BLOCK = 128  # rows that are added up in float32 before a sum in float64
MAX_BLOCKS = 256  # of rows whose sums are added up apart
MAX_PARTIALS = 1 << 20  # elements of partial results that a kernel may keep


class Loop:
    """One loop over neighbouring axes that every view of the kernel crosses evenly."""

    def __init__(self, axes: tuple[int, ...], size: int, name: str = "i") -> None:
        self.axes = axes
        self.size = size
        self.name = name

    def stride(self, view: View) -> int:
        """Elements that a view moves per step of the loop, by its innermost axis."""
        return view.strides[self.axes[-1]] if self.axes else 0


def merge_axes(
    axes: list[int], domain: tuple[int, ...], strides: set[tuple[int, ...]]
) -> list[Loop]:
    """Loops over the axes, outermost first; neighbours merge where the strides of all views allow
    it."""
    loops: list[Loop] = []
    for axis in axes:
        if loops:
            last = loops[-1].axes[-1]
            if all(steps[last] == steps[axis] * domain[axis] for steps in strides):
                loops[-1] = Loop((*loops[-1].axes, axis), loops[-1].size * domain[axis])
                continue
        loops.append(Loop((axis,), domain[axis]))
    return loops


class KernelLoops:
    """The loops of a kernel, outermost first: those over the `kept` axes, those over axes that are
    `summed` row by row, and the one along the `inner` axis, which is the vector loop. `parts` are
    all of the kernel's expressions."""

    domain: tuple[int, ...]
    kept: list[Loop]
    summed: list[Loop]
    inner: list[Loop]

    def __init__(self, kernel: FusedKernel) -> None:
        axes, self.domain = kernel.axes or (), kernel.domain
        order = [i for i in kernel_order(kernel) if kernel.domain[i] > 1]
        reduced = [i for i in order if i in axes]
        self.inner_reduced: bool = kernel.axes is not None and (not reduced or order[-1] in axes)
        inside: list[int] = []
        if axes and not self.inner_reduced:
            inside = [i for i in order[order.index(reduced[0]) :] if i not in axes]
        groups = [[i for i in order if i not in (*axes, *inside)], reduced, inside]
        self.parts: list[Expr] = parts_of([root.expr for root in kernel.roots])
        strides = {root.store.strides for root in kernel.roots}
        strides.update([e.view.strides for e in self.parts if e.view is not None])
        kept, summed, inner = (merge_axes(group, kernel.domain, strides) for group in groups)
        if axes and not self.inner_reduced:
            kept, inner = kept + inner[:-1], inner[-1:]
        elif axes:
            summed, inner = summed[:-1], summed[-1:]
        else:
            kept, inner = kept[:-1], kept[-1:]
        self.kept, self.summed, self.inner = kept, summed, inner or [Loop((), 1)]
        for name, loops in (("p", kept), ("q", summed)):
            for k, loop in enumerate(loops):
                loop.name = f"{name}{k}"
        self.work: int = prod(kernel.domain) * max([r.expr.cost for r in kernel.roots])

    @property
    def all(self) -> list[Loop]:
        return [*self.kept, *self.summed, *self.inner]

    # -- cuts of the work, which depend on the sizes alone ---------------------------------------

    @property
    def has_rows(self) -> bool:
        """Whether cores share the rows, and not the parts of a row."""
        if flags.deterministic and self.inner_reduced:
            return True  # a row is added up in one way, however many there are
        return prod([loop.size for loop in self.kept]) >= 4 or prod(self.domain) <= CHUNK

    @property
    def rest(self) -> float:
        """The share of a row's elements that fill no vector, of half of the widest length; none of
        long rows, nor of few ones, which take next to no time."""
        size, rows = self.inner[0].size, prod([loop.size for loop in self.kept + self.summed])
        return size % (LANES // 2) / size if size < FEW_ROWS <= rows else 0.0

    @property
    def is_parallel(self) -> bool:
        return self.work > PARALLEL_WORK

    @property
    def summed_rows(self) -> int:
        """Number of rows that are added up to one."""
        return prod([loop.size for loop in self.summed])

    @property
    def units(self) -> int:
        """Number of parts, each summed at once, of a result with few rows."""
        return self.summed_rows if self.summed else -(-self.inner[0].size // CHUNK)

    @property
    def split_blocks(self) -> int:
        """Number of blocks of units that are added up separately."""
        return min(self.units, MAX_BLOCKS)

    @property
    def column_blocks(self) -> int:
        """Number of blocks of rows that are added up separately, where columns are summed."""
        most = min(64, -(-self.summed_rows // BLOCK), MAX_PARTIALS // self.inner[0].size)
        return max(1, most)


def sweeps_of(kernel: FusedKernel) -> list[list[Root]]:
    """Sweeps: the roots, grouped by the number of dependent reductions that they need."""
    level: dict[int, int] = {}
    level_of_result: dict[int, int] = {}
    sweeps: list[list[Root]] = []
    for root in kernel.roots:
        for expr in parts_of([root.expr]):
            if expr.number in level:
                continue
            depth = level_of_result.get(expr.value, -1) + 1 if expr.op == "reduced" else 0
            level[expr.number] = max([depth, *(level[a.number] for a in expr.args)])
        at = level[root.expr.number]
        if root.reduce is not None:
            level_of_result[root.number] = at
        elif root.local:
            continue
        while len(sweeps) <= at:
            sweeps.append([])
        sweeps[at].append(root)
    return [sweep for sweep in sweeps if sweep]


def decoded(flat: str, axes: Any) -> list[str]:
    """Statements for the index of each axis (name, size) from the flat index over all of them."""
    lines, below = [], 1
    for k, (name, size) in reversed(list(enumerate(axes))):
        text = f"{flat} / {below}" if below != 1 else flat
        lines.append(f"const int64_t {name} = {f'({text}) % {size}' if k else text};")
        below *= size
    return lines
