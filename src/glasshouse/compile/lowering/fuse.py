"""Fusion: kernels over the same domain that share inputs become one.

Two kernels merge if they may run at one place of the schedule and one of them reads an input or a
result of the other. A reduction along the innermost axis in memory may be followed, row by row in
the same kernel, by the uses of its result; results with no other reader then get no memory."""

from math import prod
from typing import Any

from glasshouse.compile.lowering.lower import MANY_TURNED, Lowering
from glasshouse.compile.steps.expr import Expr, Exprs, parts_of
from glasshouse.compile.steps.steps import (
    MAX_BUFFERS,
    MAX_ROOTS,
    FusedKernel,
    LoweredStep,
    PlannedBuffer,
    innermost,
    kernel_order,
    share_an_operand,
)
from glasshouse.compile.steps.view import View, same_strides
from glasshouse.graph.graph import is_backward

WINDOW = 48  # how many steps back a kernel looks for one to join
MIN_ROWS = 4  # rows that a kernel with a row-by-row reduction needs, to keep the cores busy


def fuse(lowering: Lowering) -> list[FusedKernel | LoweredStep]:
    """Fuse the kernels of a lowering; the steps stay in an order that respects their reads."""
    schedule: list[FusedKernel | LoweredStep] = []
    for step in lowering.steps:
        merged = isinstance(step, FusedKernel) and step.mergeable and join(schedule, step)
        if not merged:
            schedule.append(step)
    schedule = drop_unread(schedule, lowering)
    mark_local(schedule, lowering)
    for step in schedule:
        if isinstance(step, FusedKernel):
            use_locals(step, lowering.exprs)
    return schedule


def join(schedule: list[Any], kernel: FusedKernel) -> bool:
    """Merge the kernel into one of the last steps, if there is one that it may join."""
    reads = kernel.reads()
    for place in range(len(schedule) - 1, max(-1, len(schedule) - 1 - WINDOW), -1):
        other = schedule[place]
        if not isinstance(other, FusedKernel) or not may_merge(other, kernel, reads):
            continue
        later = schedule[place + 1 :]
        made_later = set().union(*(step.writes() for step in later)) if later else set()
        if reads & made_later:  # the kernel cannot run in the other's place: can that wait?
            writes = other.writes()
            if any(writes & step.reads() for step in later):
                continue
            schedule.append(schedule.pop(place))
        other.roots.extend(kernel.roots)
        other.axes = other.axes if other.axes is not None else kernel.axes
        return True
    return False


def may_merge(other: FusedKernel, kernel: FusedKernel, reads: set[PlannedBuffer]) -> bool:
    if not other.mergeable or other.domain != kernel.domain:
        return False
    if None not in (other.axes, kernel.axes) and other.axes != kernel.axes:
        return False
    if len(other.roots) + len(kernel.roots) > MAX_ROOTS or is_early(other, kernel):
        return False
    writes, others = other.writes(), other.reads()
    if len(others | writes | reads | kernel.writes()) > MAX_BUFFERS:
        return False
    shared = share_an_operand(others, reads, prod(kernel.domain))
    common = writes & reads
    fits = reads_in_place(other, kernel, common) if common else shared
    return fits and keeps_rows(other, kernel) and lie_alike(other, kernel)


def is_early(other: FusedKernel, kernel: FusedKernel) -> bool:
    """Whether a forward kernel would recompute a value that only the backward pass reads: it would
    be in memory all the time between."""
    is_remade = all(root.node.origin.phase == "recompute" for root in kernel.roots)
    return is_remade and not any(is_backward(root.node) for root in other.roots)


def lie_alike(other: FusedKernel, kernel: FusedKernel) -> bool:
    """Whether neighbours in memory lie along the same axis for two kernels of which one sums; of
    few elements it does not matter."""
    plain = other.axes is None and kernel.axes is None
    if plain or prod(kernel.domain) < MANY_TURNED:
        return True
    first, second = (innermost(kernel_order(x), x.domain) for x in (other, kernel))
    return first == second


def keeps_rows(other: FusedKernel, kernel: FusedKernel) -> bool:
    """Whether sums that the merged kernel reads itself are still sums of rows: a further operand
    may change the order of the loops."""
    axes = kernel.axes if other.axes is None else other.axes
    merged = FusedKernel(other.lowerer, other.domain, [*other.roots, *kernel.roots], axes)
    reduced = {root.store.base for root in merged.roots if root.reduce}
    return reduced.isdisjoint(merged.reads()) or reduces_rows(merged)


def reads_in_place(other: FusedKernel, kernel: FusedKernel, buffers: set[PlannedBuffer]) -> bool:
    """Whether the kernel reads each of the other's results only at the position that makes it."""
    stores = {root.store.base: root for root in other.roots}
    for view in (view for root in kernel.roots for view in root.expr.loads if view.base in buffers):
        producer = stores[view.base]
        if producer.reduce and not reduces_rows(other) or not same_place(view, producer.store):
            return False
    return buffers.isdisjoint(gathered_from(kernel))


def gathered_from(kernel: FusedKernel) -> set[PlannedBuffer]:
    """Buffers that a kernel reads at computed positions; of an axis of size 1 they look fixed."""
    exprs = parts_of([root.expr for root in kernel.roots])
    return {e.view.base for e in exprs if e.op == "gather"}


def same_place(view: View, store: View) -> bool:
    same = view.offset == store.offset and view.shape == store.shape
    return same and same_strides(view, store.strides)


def reduces_rows(kernel: FusedKernel) -> bool:
    """Whether the innermost axis in memory is reduced, and enough rows are left to share out."""
    axes = kernel.axes or ()
    rows = prod([n for i, n in enumerate(kernel.domain) if i not in axes])
    return rows >= MIN_ROWS and innermost(kernel_order(kernel), kernel.domain) in axes


def drop_unread(schedule: list[Any], lowering: Lowering) -> list[Any]:
    needed = {view.base for view in lowering.outputs}
    steps = []
    for step in reversed(schedule):
        if isinstance(step, FusedKernel):
            live, live_buffers = [], set(needed)
            for root in reversed(step.roots):
                if root.store.base in live_buffers:
                    live.append(root)
                    live_buffers |= {v.base for v in root.expr.loads}
            step.roots = live[::-1]
            if not live:
                continue
        elif not needed.intersection(step.results) and not step.node.call.is_collective:
            continue
        needed |= step.reads()
        steps.append(step)
    return steps[::-1]


def mark_local(schedule: list[Any], lowering: Lowering) -> None:
    outside = {view.base for view in lowering.outputs}
    for step in schedule:
        stores = (
            {root.store.base for root in step.roots} if isinstance(step, FusedKernel) else set()
        )
        outside |= step.reads() - stores
    for step in schedule:
        if isinstance(step, FusedKernel) and step.mergeable:
            for root in step.roots:
                root.local = root.store.base not in outside


def use_locals(kernel: FusedKernel, exprs: Exprs) -> None:
    expr_of: dict[PlannedBuffer, Expr] = {}
    for root in kernel.roots:
        root.expr, base = with_locals(root.expr, expr_of, exprs), root.store.base
        if kernel.mergeable:
            reduced = root.reduce and exprs.make("reduced", (), base.dtype, value=base.number)
            expr_of[base] = reduced or root.expr


def with_locals(expr: Expr, locals_of: dict[PlannedBuffer, Expr], exprs: Exprs) -> Expr:
    """Replace each load of a known buffer by the expression of its value."""
    if not any(view.base in locals_of for view in expr.loads):
        return expr
    rewritten: dict[int, Expr] = {}
    for e in parts_of([expr]):
        if e.op == "load" and e.view.base in locals_of:
            rewritten[e.number] = locals_of[e.view.base]
        else:
            args = [rewritten[a.number] for a in e.args]
            same = all(a is b for a, b in zip(args, e.args, strict=True))
            new = e if same else exprs.make(e.op, args, e.dtype, e.view, e.value)
            rewritten[e.number] = new
    return rewritten[expr.number]
