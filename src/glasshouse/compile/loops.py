"""The loops of a fused kernel: axes of its domain in memory order, neighbours merged."""

from glasshouse.compile.expr import walk
from glasshouse.compile.steps import FusedKernel, Root, kernel_order
from glasshouse.compile.view import View


class Loop:
    """One loop over neighbouring axes that every view of the kernel crosses evenly."""

    def __init__(self, axes: tuple[int, ...], size: int, name: str = "i"):
        self.axes, self.size, self.name = axes, size, name

    def stride(self, view: View) -> int:
        """Elements that a view moves per step; that of its innermost axis."""
        return view.strides[self.axes[-1]] if self.axes else 0


def merge_axes(axes, domain, views) -> list[Loop]:
    """Loops over the axes, outermost first; neighbours merge where all views allow it."""
    loops: list[Loop] = []
    for axis in axes:
        if loops:
            last = loops[-1].axes[-1]
            if all(v.strides[last] == v.strides[axis] * domain[axis] for v in views):
                loops[-1] = Loop((*loops[-1].axes, axis), loops[-1].size * domain[axis])
                continue
        loops.append(Loop((axis,), domain[axis]))
    return loops


class KernelLoops:
    """The loops of a kernel, outermost first: those over the `kept` axes, those over axes that are
    `summed` row by row, and the one along the `inner` axis, which is the vector loop."""

    def __init__(self, kernel: FusedKernel):
        axes = kernel.axes or ()
        order = [i for i in kernel_order(kernel) if kernel.domain[i] > 1]
        reduced = [i for i in order if i in axes]
        self.inner_reduced = kernel.axes is not None and (not reduced or order[-1] in axes)
        inside: list[int] = []
        if axes and not self.inner_reduced:
            inside = [i for i in order[order.index(reduced[0]) :] if i not in axes]
        groups = [[i for i in order if i not in (*axes, *inside)], reduced, inside]
        shown = [e.view for e in walk(root.expr for root in kernel.roots) if e.view is not None]
        views = [*(root.store for root in kernel.roots), *shown]
        kept, summed, inner = (merge_axes(group, kernel.domain, views) for group in groups)
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


def sweeps_of(kernel: FusedKernel) -> list[list[Root]]:
    """The roots by the number of reductions, each needing the one before, that they need."""
    level: dict[int, int] = {}
    level_of_result: dict[int, int] = {}
    sweeps: list[list[Root]] = []
    for root in kernel.roots:
        for expr in walk([root.expr]):
            own = level_of_result.get(expr.value, -1) + 1 if expr.op == "reduced" else 0
            level[expr.number] = max([own, *(level[a.number] for a in expr.args)])
        at = level[root.expr.number]
        if root.reduce is not None:
            level_of_result[root.number] = at
        elif root.local:
            continue
        while len(sweeps) <= at:
            sweeps.append([])
        sweeps[at].append(root)
    return [sweep for sweep in sweeps if sweep]


def decoded(flat: str, axes) -> list[str]:
    """Statements for the index of each axis (name, size) from the flat index over all of them."""
    lines, below = [], 1
    for k, (name, size) in reversed(list(enumerate(axes))):
        text = f"{flat} / {below}" if below != 1 else flat
        lines.append(f"const int64_t {name} = {f'({text}) % {size}' if k else text};")
        below *= size
    return lines
