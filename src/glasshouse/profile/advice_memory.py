"""Advice on what is kept or computed for nobody, and on memory near its limit."""

from collections.abc import Iterator

from glasshouse.profile.advice_kernels import largest
from glasshouse.profile.evidence import CallGroup, Evidence
from glasshouse.profile.finding import Advice
from glasshouse.profile.memory import MemoryTimeline
from glasshouse.profile.text import scaled

LISTS = ("aten::_foreach", "aten::_fused")  # operators on all weights at once
NEAR = 0.9  # of the limit of memory: the next larger step may fail


def unused_gradients(e: Evidence) -> Iterator[Advice]:
    """A backward pass that no update follows."""
    back = [g for g in e.groups if g.phase == "backward"]
    if not back or len(e.plain.regions("optimizer")) or has_updates(e):
        return
    cost = sum(g.own_ns + (0 if g.at_once else g.kernel_ns) for g in back)
    worst = largest(back)
    yield Advice(
        "unused gradients",
        f"{sum(g.count for g in back) / e.loop_steps:,.0f} backward calls a step, the "
        f"costliest {worst.where}",
        worst.line,
        cost,
        cost,
        "Gradients were computed, and no optimizer used them while this was recorded.",
        "Leave backward() out, or call it only where an update follows; freeze what is not "
        "trained with requires_grad_(False).",
        "all of the backward pass",
        e.wall_ns,
    )


def has_updates(e: Evidence) -> bool:
    """Whether weights seem to be written: a call outside of the backward pass gives what has the
    shape of a product's second operand, as only an update does; or is an optimizer's. In doubt
    there are some."""
    weights = {
        shape
        for g in e.groups
        if g.is_product and g.phase != "backward"
        for spec in g.call.specs[1:]
        for shape in (spec.shape, spec.shape[::-1])
    }
    return any(
        g.phase == "optimizer" or g.name.startswith(LISTS) or g.call.outs[0].shape in weights
        for g in e.groups
        if g.phase != "backward" and g.call.outs and not is_weight_made(g)
    )


def is_weight_made(g: CallGroup) -> bool:
    """Whether a call is a product, or only makes or shows what is there."""
    return g.is_product or g.call.primitive.kind in ("create", "movement") or not g.call.cost.flops


def unused_tape(e: Evidence) -> Iterator[Advice]:
    """Gradients noted in evaluation."""
    tracked = [g for g in e.groups if g.tracked]
    if not tracked or any(g.phase == "backward" for g in e.groups):
        return
    kept = sum(out.nbytes * g.count for g in tracked for out in g.call.outs) // e.loop_steps
    peak = MemoryTimeline(e.plain).peak_bytes if e.plain.with_memory else 2 * kept
    calls = sum(g.count for g in tracked) / e.loop_steps
    worst = max(tracked, key=lambda g: sum(out.nbytes for out in g.call.outs))
    yield Advice(
        "gradients noted in evaluation",
        f"{calls:,.0f} calls a step are noted for a backward pass that never comes, the "
        f"largest result {worst.where}",
        worst.line,
        0,
        0,
        "What a backward pass would read is kept until the result goes.",
        "Evaluate under gh.no_grad() or torch.no_grad() (torch.inference_mode()).",
        f"{scaled(kept, 'B')} of results a step are noted, of a peak of {scaled(peak, 'B')}",
        e.wall_ns,
        min(kept, peak),
        max(1, peak),
    )


def memory_near_limit(e: Evidence) -> Iterator[Advice]:
    """A peak at the limit."""
    limit = e.plain.memory_limit
    if not e.plain.with_memory or not limit:
        return
    timeline = MemoryTimeline(e.plain)
    if timeline.peak_bytes < NEAR * limit:
        return
    owner = timeline.alive[0]
    yield Advice(
        "memory near its limit",
        f"{scaled(timeline.peak_bytes, 'B')} at the peak of {scaled(limit, 'B')} allowed, the "
        f"largest part {owner.tag}",
        "",
        0,
        0,
        "The next larger step fails, and near the limit memory is given back and taken again.",
        "Compute parts again in the backward pass (gh.checkpoint, gh.optimize with "
        "memory_budget), take smaller batches and accumulate, or gh.autocast for half the "
        "bytes.",
        f"what lives from the forward to the backward pass, {scaled(owner.nbytes, 'B')} in the "
        "largest part, falls with either",
        e.wall_ns,
        owner.nbytes,
        timeline.peak_bytes,
        urgent=True,
    )


MEMORY_RULES = (
    unused_gradients,
    unused_tape,
    memory_near_limit,
)
