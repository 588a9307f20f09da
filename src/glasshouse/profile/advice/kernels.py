"""Advice on kernels: work that is needless, or that is done in a costly form."""

import functools
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from glasshouse.base.flags import flags
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.value import as_value
from glasshouse.profile.advice.evidence import CallGroup, Evidence
from glasshouse.profile.advice.finding import Advice
from glasshouse.profile.advice.host import TINY_NS
from glasshouse.profile.text import milliseconds, si_text

BLOCK = 16  # channels that kernels take at once: float32 in a register of 512 bits
FEWEST = 4  # channels of images, which have their own kernels
WASTE = 0.1  # of a convolution's time, from which on other channels are worth saying
MEASURED, MEASURED_S = 3, 0.25  # convolutions that are measured at most, and for how long each
FEWEST_ROUNDS, ROUNDS = 3, 30  # how often, the first time, which compiles, apart
FEW, MANY = 8, 64  # rows that are few, and sizes of a weight that are many, in a product
CASTS = ("cast", "aten::_to_copy", "aten::to")
CLONES = ("aten::clone", "aten::contiguous", "aten::copy_")


def cost_of(g: CallGroup) -> float:
    """Return the ns of a group's calls with their kernels."""
    return g.own_ns if g.at_once else g.kernel_ns


def ideal_of(e: Evidence, g: CallGroup) -> float:
    """The time of one call of a group at the machine's limit."""
    return e.ideal_ns(g.call.cost.flops, g.call.cost.bytes)


def largest(groups: list[CallGroup]) -> CallGroup:
    """The group that takes longest."""
    return max(groups, key=cost_of)


def double_precision(e: Evidence) -> Iterator[Advice]:
    """Advice on float64, which NumPy makes of Python's numbers."""
    groups = [
        g for g in e.groups if "float64" in {s.dtype.name for s in (*g.call.specs, *g.call.outs)}
    ]
    if not groups:
        return
    cost = sum(map(cost_of, groups))
    worked = sum(cost_of(g) for g in groups if ideal_of(e, g) >= TINY_NS)
    first = min(groups, key=lambda g: g.order)
    yield Advice(
        "float64",
        f"{len(groups)} kinds of calls compute in float64, the first {first.where}",
        first.line,
        cost,
        worked / 2,
        "It moves twice the bytes, fills half of a vector register, and products of it have no "
        "kernels of their own.",
        "Make the data float32 where it comes in (numpy's default is float64), unless the "
        "digits are needed.",
        f"half of {e.ms(worked)}, which are for work and not for starting it",
        e.wall_ns,
    )


def casts(e: Evidence) -> Iterator[Advice]:
    """Advice on casts from one dtype to another and back."""
    by_pass: dict[str, dict[tuple[str, str], list[CallGroup]]] = {}
    for g in e.groups:
        if (
            g.name in CASTS
            and g.call.specs
            and g.call.outs
            and g.call.specs[0].dtype != g.call.outs[0].dtype
        ):
            names = g.call.specs[0].dtype.name, g.call.outs[0].dtype.name
            by_pass.setdefault(g.phase, {}).setdefault(names, []).append(g)
    groups = [
        g
        for by_dtypes in by_pass.values()
        for (a, b), gs in by_dtypes.items()
        if (b, a) in by_dtypes
        for g in gs
    ]
    if not groups:
        return
    cost, worst = sum(map(cost_of, groups)), largest(groups)
    count = sum(g.calls for g in groups) / e.loop_steps
    pair = f"{worst.call.specs[0].dtype.name} to {worst.call.outs[0].dtype.name}"
    yield Advice(
        "casts",
        f"{count:,.0f} casts a step, back and forth, the costliest {pair} in {worst.where}",
        worst.line,
        cost,
        cost,
        "A cast reads and writes all of a tensor, and computes nothing.",
        "Keep one dtype from end to end, or leave it to gh.autocast or torch.autocast, "
        "which cast at products alone.",
        "all of it",
        e.wall_ns,
    )


def copies(e: Evidence) -> Iterator[Advice]:
    """Advice on copies that the program asks eager PyTorch for."""
    groups = [g for g in e.groups if g.name in CLONES and g.phase != "optimizer"]
    moved = [g for g in groups if g.call.attrs.get("memory_format") is not None]
    plain = [g for g in groups if g.call.attrs.get("memory_format") is None]
    for cause, members, why, change in (
        (
            "reorders",
            moved,
            "Its operand lies in another order of axes, so each element is moved.",
            "Keep one order of axes from end to end: transpose what is constant once, before the "
            "loop, and write the computation for the order that is there.",
        ),
        (
            "copies",
            plain,
            "It reads and writes all of a tensor, and computes nothing.",
            "Leave out clone() and copy_() where neither copy is written to afterwards.",
        ),
    ):
        if members:
            cost, worst = sum(map(cost_of, members)), largest(members)
            count = sum(g.calls for g in members) / e.loop_steps
            where = f"{count:,.0f} a step, the costliest {worst.where}"
            yield Advice(cause, where, worst.line, cost, cost, why, change, "all of it", e.wall_ns)


def odd_channels(e: Evidence) -> Iterator[Advice]:
    """Advice on convolutions that would be faster with a few channels more or less: those whose
    channels fill their last block badly are measured beside their neighbours."""
    groups = sorted(filter(fills_badly, e.groups), key=lambda g: -g.kernel_ns)
    if sum(g.kernel_ns for g in groups) < WASTE / 2 * e.wall_ns:
        return
    gain, slow = 0.0, []
    for g in groups[:MEASURED]:
        now, other, channels = beside_neighbours(g)
        if now > (1 + WASTE) * other:
            gain += g.kernel_ns * (1 - other / now)
            slow.append((g, now, other, channels))
    if not slow:
        return
    g, now, other, (ins, outs) = slow[0]
    yield Advice(
        "odd channel counts",
        f"{g.where}: {' to '.join(map(str, channels_of(g)))} channels",
        g.line,
        sum(x[0].kernel_ns for x in slow),
        gain,
        f"Kernels take {BLOCK} channels at once, and others where some are left over: measured "
        f"just now, {ins} to {outs} channels take {other / now:.2f} times as long a FLOP.",
        f"Take {ins} to {outs} channels.",
        f"{e.ms(g.kernel_ns)} x (1 - {other / now:.2f}) in the costliest",
        e.wall_ns,
    )


def blocked(channels: int) -> list[int]:
    """Numbers of channels on both sides that fill their blocks; few channels, as images have, do
    not change."""
    if channels <= FEWEST:
        return [channels]
    below = channels // BLOCK * BLOCK
    return [n for n in (below + BLOCK * (below < channels), below) if n]


def channels_of(g: CallGroup) -> tuple[int, int]:
    """Channels in and out of one of our convolutions; (0, 0) for other calls, and for groups, which
    have kernels of another kind."""
    if g.name != "conv" or g.call.specs[0].shape[1] != g.call.specs[1].shape[1]:
        return 0, 0
    return g.call.specs[0].shape[1], g.call.specs[1].shape[0]


def fills_badly(g: CallGroup) -> bool:
    """Whether a convolution's channels leave some over."""
    ins, outs = channels_of(g)
    return bool(ins) and any(n > FEWEST and n % BLOCK for n in (ins, outs))


@functools.cache
def seconds_of_convs(call: Any, *channels: tuple[int, int]) -> list[float]:
    """Seconds a FLOP of convolutions like `call`, by channels in and out: the least of several
    rounds, in which they take turns, so that other load on the machine slows all of them."""
    (n, _, *size), (_, _, *kernel) = (spec.shape for spec in call.specs)
    arrays = [[as_value(np.ones((n, i, *size), np.float32)),
               as_value(np.ones((o, i, *kernel), np.float32))] for i, o in channels]  # fmt: skip
    best, end = [math.inf] * len(channels), time.perf_counter() + MEASURED_S
    with flags.override(compile="always"):
        for r in range(1 + ROUNDS):
            for i, (x, w) in enumerate(arrays):
                begin = time.perf_counter()
                call.primitive(x, w, **call.attrs).numpy()
                best[i] = min(best[i], time.perf_counter() - begin)
            if r >= FEWEST_ROUNDS and time.perf_counter() > end:
                break
    return [seconds / (i * o) for seconds, (i, o) in zip(best, channels, strict=True)]


def beside_neighbours(g: CallGroup) -> tuple[float, float, tuple[int, int]]:
    """Seconds a FLOP of a convolution, those of its faster neighbour, and that one's channels."""
    ins, outs = channels_of(g)
    others = list(zip(blocked(ins), blocked(outs), strict=False))
    now, *times = seconds_of_convs(g.call, (ins, outs), *others)
    other, channels = min(zip(times, others, strict=True))
    return now, other, channels


def small_kernels(e: Evidence) -> Iterator[Advice]:
    """Advice on Programs of many kernels that have next to no work."""
    rows = []
    for r in e.rows:
        info = e.trace.info(r.program, r.step)
        program = e.trace.programs[r.program]
        tiny = e.ideal_ns(r.flops, r.bytes) < TINY_NS
        if tiny and len(program.step_infos()) > 1 and not info.step_kind.is_host:
            rows.append(r)
    runs = sum(r.runs for r in rows) / e.loop_steps
    cost = sum(r.time_ns for r in rows)
    ideal = sum(r.runs * e.ideal_ns(r.flops, r.bytes) for r in rows)
    if not rows or runs < FEW:
        return
    worst = max(rows, key=lambda r: r.time_ns)
    yield Advice(
        "small kernels",
        f"{runs:,.0f} small kernels a step, the costliest {worst.name} {worst.module}".strip(),
        worst.line,
        cost,
        cost - ideal,
        f"Each takes {milliseconds(cost / sum(r.runs for r in rows))}, of which its work takes "
        f"{milliseconds(ideal / sum(r.runs for r in rows))}: starting kernels costs the rest.",
        "Do the same work in fewer, larger calls: stack equal operands on one more axis, or "
        "take larger batches.",
        f"{e.ms(cost)} less {e.ms(ideal)} that the work takes at the machine's limit",
        e.wall_ns,
        is_bound=True,
    )


def small_batches(e: Evidence) -> Iterator[Advice]:
    """Advice on weights that are moved for a few rows."""
    groups = [g for g in e.groups if is_thin(g)]
    products = [g for g in e.groups if g.is_product]
    if not groups or 2 * sum(map(cost_of, groups)) < sum(map(cost_of, products)):
        return
    updates = [g for g in e.groups if g.phase == "optimizer"]
    cost = sum(map(cost_of, groups)) + sum(map(cost_of, updates))
    worst = largest(groups)
    rows = thinnest(worst.call)
    yield Advice(
        "small batches",
        f"{worst.where}: {' x '.join(map(str, worst.call.specs))}",
        worst.line,
        cost,
        cost * (1 - 1 / FEW),
        f"Weights are read{', their gradients written and updated' * bool(updates)} for "
        f"{rows} row{'s' * (rows != 1)} at a time: memory is what it waits for.",
        f"Take {FEW} times as many rows a step.",
        f"{e.ms(cost)} that do not grow with the batch, shared by {FEW} times the rows",
        e.wall_ns,
        is_bound=True,
    )


def thinnest(call: Call) -> int:
    """The smallest of a product's three sizes."""
    shapes = [s.shape for s in call.specs if len(s.shape) == 2][-2:]
    return min(min(shape) for shape in shapes) if len(shapes) == 2 else FEW + 1


def is_thin(g: CallGroup) -> bool:
    """Whether a matrix product has few rows, and large weights."""
    shapes = [s.shape for s in g.call.specs if len(s.shape) == 2][-2:]
    if not g.is_product or len(shapes) != 2 or thinnest(g.call) > FEW:
        return False
    largest_one = max(prod(shape) for shape in (*shapes, *(out.shape for out in g.call.outs)))
    return largest_one >= MANY * MANY * thinnest(g.call)


def unfused(e: Evidence) -> Iterator[Advice]:
    """Advice on elementwise operators one after the other, each through memory."""
    trace = e.plain
    groups = {g.order: g for g in e.groups if g.at_once}
    order = sorted(groups)
    chains: dict[tuple[Any, ...], list[CallGroup]] = defaultdict(list)
    for before, after in pairwise(order):
        a, b = groups[before], groups[after]
        if (
            is_elementwise(e, a)
            and is_elementwise(e, b)
            and a.call.outs[0].shape == b.call.outs[0].shape
        ):
            chains[a.phase, a.call.outs[0].shape] += [a, b]
    members = list({id(g): g for gs in chains.values() for g in gs}.values())
    if not members or not trace.wall_ns:
        return
    cost = sum(map(cost_of, members))
    moved = sum(g.call.cost.bytes * g.calls for g in members)
    count = sum(g.calls for g in members) / e.loop_steps
    needed = sum(2 * gs[0].call.outs[0].nbytes * min(g.calls for g in gs) for gs in chains.values())
    gain = cost * max(0.0, 1 - needed / moved)
    yield Advice(
        "unfused operators",
        f"{count:,.0f} operators a step on elements, the costliest {largest(members).where}",
        largest(members).line,
        cost,
        gain,
        "Each reads its operands from memory and writes its result there, for one operation.",
        f"Capture them: {e.how_to_capture}, makes one kernel of such a chain.",
        f"{si_text(moved, 'B')} moved now, {si_text(needed, 'B')} by fused kernels, "
        f"of {e.ms(cost)}",
        e.wall_ns,
    )


def is_elementwise(e: Evidence, g: CallGroup) -> bool:
    """Whether a call that PyTorch computed is elementwise, on enough elements to be bound by
    memory."""
    call = g.call
    if g.is_product or not call.specs or len(call.outs) != 1 or g.name in (*CASTS, *CLONES):
        return False
    numel = call.outs[0].size
    same = all(s.size in (numel, 1) for s in call.specs)
    big = e.ideal_ns(0, call.cost.bytes) * 4 > g.kernel_ns / g.calls
    return same and numel > 1 and big and 0 < call.cost.flops < 64 * numel


KERNEL_RULES = (
    double_precision,
    casts,
    copies,
    odd_channels,
    small_kernels,
    small_batches,
    unfused,
)
