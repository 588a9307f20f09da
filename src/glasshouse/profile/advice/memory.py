"""Advice on results that nobody uses, and on memory near its limit."""

from collections.abc import Iterator

from glasshouse.profile.advice.evidence import CallGroup, Evidence
from glasshouse.profile.advice.finding import Advice
from glasshouse.profile.advice.kernels import largest
from glasshouse.profile.holders import OTHERS
from glasshouse.profile.memory import MemoryTimeline
from glasshouse.profile.text import si_text

LISTS = ("aten::_foreach", "aten::_fused")  # operators on all weights at once
NEAR = 0.9  # of the limit of memory: the next larger step may fail
SUMS = 2  # sets of gradients that accumulation adds: those before, and the sums
SMALLER_BATCHES = (
    "Take half of the batch, twice a step, and let gradients add up before the update; or, of a "
    "model of many equal blocks, compute each block again in the backward pass (gh.checkpoint, "
    "gh.optimize with memory_budget)."
)
LESS_STATE = (
    "Share parameters and the optimizer's state out among ranks (gh.distributed.zero), or take an "
    "optimizer with less state; gh.estimate.fits says what each change gives."
)


def unused_gradients(e: Evidence) -> Iterator[Advice]:
    """Advice on a backward pass that no update follows."""
    back = [g for g in e.groups if g.phase == "backward"]
    if not back or len(e.plain.regions("optimizer")) or has_updates(e):
        return
    cost = sum(g.own_ns + (0 if g.at_once else g.kernel_ns) for g in back)
    worst = largest(back)
    yield Advice(
        "unused gradients",
        f"{sum(g.calls for g in back) / e.loop_steps:,.0f} backward calls a step, the "
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
    """Whether weights seem to be updated: a call outside of the backward pass returns the shape of
    a product's second operand, as only an update does; or it belongs to an optimizer. In doubt
    there are updates."""
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
    """Whether a call is a product, or only creates or views values."""
    return g.is_product or g.call.primitive.kind in ("create", "movement") or not g.call.cost.flops


def unused_tape(e: Evidence) -> Iterator[Advice]:
    """Advice on gradients recorded in evaluation."""
    tracked = [g for g in e.groups if g.tracked]
    if not tracked or any(g.phase == "backward" for g in e.groups):
        return
    computed = [g for g in tracked if g.call.primitive.kind != "movement"]
    kept_bytes = sum(out.nbytes * g.calls for g in computed for out in g.call.outs) // e.loop_steps
    largest_two = sorted((out.nbytes for g in computed for out in g.call.outs), reverse=True)[:2]
    kept_bytes = max(
        0, kept_bytes - sum(largest_two)
    )  # an operand and its result are there in any case
    peak = MemoryTimeline(e.recording).peak_bytes if e.plain.with_memory else 2 * kept_bytes
    calls = sum(g.calls for g in tracked) / e.loop_steps
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
        f"{si_text(kept_bytes, 'B')} of results a step are kept beside the two largest, of a peak "
        f"of {si_text(peak, 'B')}",
        e.wall_ns,
        min(kept_bytes, peak),
        max(1, peak),
    )


def memory_near_limit(e: Evidence) -> Iterator[Advice]:
    """Advice on a peak near the limit. The gain of smaller batches is known: half of the bytes that
    the forward pass saves, less those that adding up gradients takes."""
    limit = e.plain.memory_limit
    if not e.plain.with_memory or not limit:
        return
    timeline = MemoryTimeline(e.recording)
    if timeline.peak_bytes < NEAR * limit:
        return
    forward_bytes = sum(
        t.nbytes for t in timeline.tensors if t.kind == OTHERS and t.tag.phase == "forward"
    )
    adding = SUMS * gradient_bytes(e, timeline)
    freed = max(0, forward_bytes // 2 - adding)
    yield Advice(
        "memory near its limit",
        f"{si_text(timeline.peak_bytes, 'B')} at the peak of {si_text(limit, 'B')} allowed, the "
        f"largest part {timeline.tensors[0].tag}",
        "",
        0,
        0,
        "The next larger step fails, and near the limit memory is given back and taken again.",
        SMALLER_BATCHES if freed else LESS_STATE,
        f"half of the {si_text(forward_bytes, 'B')} that the forward pass keeps"
        + (f", less {si_text(adding, 'B')} for sums of gradients" if adding else "")
        if freed
        else "most of the peak does not grow with the batch",
        e.wall_ns,
        freed,
        timeline.peak_bytes,
        urgent=True,
        is_bound=not freed,
    )


def gradient_bytes(e: Evidence, timeline: MemoryTimeline) -> int:
    """Bytes of all gradients, equal to those of the parameters; 0 without a backward pass."""
    if not any(g.phase == "backward" for g in e.groups):
        return 0
    kinds = timeline.kinds()
    return max(kinds.get("parameters", 0), kinds.get("gradients", 0))


MEMORY_RULES = (
    unused_gradients,
    unused_tape,
    memory_near_limit,
)
