"""Advice on time outside of kernels: Python, loaders, compiling, steps of the host."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from glasshouse.compile.lowering.source_map import ReferenceSteps, StepInfo
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.steps.work import REFERENCE
from glasshouse.profile.advice.evidence import CallGroup, Evidence, short
from glasshouse.profile.advice.finding import Advice
from glasshouse.profile.machine import count_cores
from glasshouse.profile.steps.step_times import InputPipeline
from glasshouse.profile.text import milliseconds, percent

TINY_NS = 2_000  # what the work of a small kernel takes at the machine's limit
REPEATS = 8  # equal calls of one line in a step, from which on it is a loop over parts of the data
SIZES = 3  # sets of sizes of one computation, from which on sizes are said to vary


def waiting_for_data(e: Evidence) -> Iterator[Advice]:
    """Advice where the loop waits for its loader. The gain of workers is unknown: it depends on the
    processor's share in a batch, on the machine's other work, and on their start."""
    ns, cores, threads = e.ns("waiting for data"), count_cores(), e.plain.threads_of_kernels
    yield Advice(
        "waiting for data",
        "the loader's next batch",
        "",
        ns,
        ns,
        f"Nothing is computed while the loop waits.{about_workers(e)}",
        "Make what is costly in the data set once, before the loop; or try num_workers, so that "
        "batches are made while the step before computes, if there are cores for them "
        "(persistent_workers starts them once).",
        f"all of the wait; of {cores} cores kernels use {threads or cores}; workers share them "
        "with what else runs, and take time to start in each epoch",
        e.wall_ns,
        is_bound=True,
    )


def about_workers(e: Evidence) -> str:
    """A sentence on the time of a loader's workers; "" without workers."""
    workers = InputPipeline(e.recording).workers
    if not workers:
        return ""
    times: Counter[str] = sum(map(Counter, workers.values()), Counter())
    parts = ", ".join(f"{name} {percent(ns, times.total())}" for name, ns in times.most_common())
    who = f"{len(workers)} workers spend" if len(workers) > 1 else "worker spends"
    return f" Its {who} the time on {parts}."


def pauses(e: Evidence) -> Iterator[Advice]:
    """Advice on Python that makes no calls."""
    for p in e.pauses[:3]:
        parts = [short(line) for line in (p.before, p.after) if line]
        where = f"between {' and '.join(parts)}" if len(set(parts)) == 2 else "around its line"
        where = "before the first call of a step" if p.between_steps else where
        yield Advice(
            "Python between Programs",
            f"Python that computes nothing with tensors, {where}",
            p.after or p.before,
            p.ns,
            p.ns * (1 - 1 / LEFT),
            f"No kernel runs meanwhile, {p.times / e.loop_steps:,.1f} times a step, "
            f"{milliseconds(p.ns / p.times)} each.",
            BETWEEN_STEPS if p.between_steps else WITHIN_A_STEP,
            f"all of it but a {LEFT}th",
            e.wall_ns,
            is_bound=p.between_steps,
        )


BETWEEN_STEPS = (
    "Reading and preparing data belongs into a DataLoader with num_workers, what does not change "
    "in front of the loop; where steps are this short, larger batches make fewer of them."
)
WITHIN_A_STEP = (
    "Move out of the step what needs none of its tensors; Python that calls of a compiled or "
    "captured function need (guards, wrappers) is the same for larger batches."
)
LEFT = 10  # the part of avoidable Python that is assumed to stay


def loops_of(e: Evidence) -> dict[str, list[CallGroup]]:
    """Calls that a line makes again and again in a step, by line."""
    loops: dict[str, list[CallGroup]] = defaultdict(list)
    for g in e.groups:
        often = g.calls >= REPEATS * e.loop_steps and g.phase != "optimizer"
        if often and g.call.primitive.kind != "create" and (g.at_once or g.own_ns):
            loops[g.line].append(g)
    return loops


def time_of(g: CallGroup) -> float:
    """Return the ns of a group's calls: their own, and of their kernels where these run later."""
    return g.own_ns + (0 if g.at_once else g.kernel_ns)


def beside_work(e: Evidence, g: CallGroup) -> float:
    """The cost of a group's calls apart from their work: Python and dispatch, and starting kernels
    that compute next to nothing."""
    ideal = e.ideal_ns(g.call.cost.flops, g.call.cost.bytes)
    starts = 0.0 if g.at_once or ideal >= TINY_NS else max(0.0, g.kernel_ns - g.calls * ideal)
    return max(0.0, overhead_of(e, g) + starts)


def python_loops(e: Evidence) -> Iterator[Advice]:
    """Advice on a line that works through rows one by one."""
    for line, groups in loops_of(e).items():
        cost, beside = sum(map(time_of, groups)), sum(beside_work(e, g) for g in groups)
        times = max(g.calls for g in groups) // e.loop_steps
        largest = max(groups, key=time_of)
        yield Advice(
            "Python loop",
            f"{largest.where}: the same call on the same shapes, {times} times a step",
            line,
            cost,
            beside * (1 - 1 / times),
            "Each turn pays for Python and for a call of its own, however little it computes.",
            "Make one call of all turns, on one more axis (gh.vmap or torch.func.vmap writes "
            "it for you), unless each turn needs the result of the one before.",
            f"{times} calls become 1: {e.ms(beside)} beside their work x (1 - 1/{times})",
            e.wall_ns,
        )


def no_capture(e: Evidence) -> Iterator[Advice]:
    """Advice on an ordinary loop, in which each call passes through Python."""
    in_loops = {id(g) for groups in loops_of(e).values() for g in groups}
    groups = [g for g in e.groups if id(g) not in in_loops and g.own_ns and not g.in_graph]
    if not groups:
        return
    cost = sum(overhead_of(e, g) for g in groups)
    calls = sum(g.calls for g in groups) / e.loop_steps
    if calls < 2:
        return
    slowest = max(groups, key=lambda g: overhead_of(e, g))
    change = "Decorate the function of a whole step with gh.optimize: it becomes one Program."
    if any(g.at_once for g in groups) and e.plain.backend != "numpy":
        change = f"Capture the step: {e.how_to_capture}."
    each = cost / max(1, sum(g.calls for g in groups))
    yield Advice(
        "no capture",
        f"{calls:,.0f} calls a step pass Python one by one, the costliest {slowest.where}",
        slowest.line,
        cost,
        cost * (1 - 1 / calls),
        f"Python and dispatch take {milliseconds(each)} of each, beside what it computes.",
        change,
        f"{calls:,.0f} calls become one: {e.ms(cost)} x (1 - 1/{calls:,.0f})",
        e.wall_ns,
    )


def overhead_of(e: Evidence, g: CallGroup) -> float:
    """Return the overhead of calls, their ns beside their work. All of the time of a call that is
    computed at once, and has next to no work, is overhead."""
    if not g.at_once:
        return g.own_ns
    ideal = e.ideal_ns(g.call.cost.flops, g.call.cost.bytes)
    return g.own_ns - (g.calls * ideal if ideal < TINY_NS else g.kernel_ns)


def graph_breaks(e: Evidence) -> Iterator[Advice]:
    """Advice on captured functions that run in parts."""
    stacks = {run.stack for run in e.plain.program_runs}
    places = {place for stack in stacks for place in places_of(e, stack)}
    for c in e.trace.captures:
        breaks = c["breaks"]
        begins = {
            c["place"],
            *(place_of_line(line) for line, *_ in breaks),
        }  # resume functions' too
        if not breaks or not begins & places:
            continue
        line, reason, hint = breaks[0]
        runs = len(e.plain.program_runs) / e.loop_steps
        cost = max(0, e.ns("Python") - sum(p.ns for p in e.pauses))
        parts = len(breaks) + 1
        more = f" and {len(breaks) - 1} more" if len(breaks) > 1 else ""
        yield Advice(
            "graph break",
            f"{c['name']} breaks at {reason}{more}",
            line,
            cost,
            cost * (1 - 1 / parts),
            f"{runs:,.1f} Programs a step run with Python between them.",
            hint[:1].upper() + hint[1:] + "." if hint else "Move it out of the function.",
            f"{parts} parts become one: {e.ms(cost)} of Python x (1 - 1/{parts})",
            e.wall_ns,
        )


def place_of_line(line: str) -> tuple[str, int]:
    """(file, line) of "file.py:12"."""
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


def places_of(e: Evidence, stack: int) -> list[tuple[str, int]]:
    """(file, first line) of the user's functions in a stack."""
    return [(code.co_filename, code.co_firstlineno) for code, _ in e.trace.users(stack)]


def recompilation(e: Evidence) -> Iterator[Advice]:
    """Advice where one computation runs with ever new sizes."""
    kinds: dict[Any, list[int]] = defaultdict(list)
    for number, program in enumerate(e.plain.programs):
        names = [s.call.name for info in program.step_infos() for s in info.sources]
        kinds[tuple(sorted(names))].append(number)
    for numbers in kinds.values():
        sizes = {sizes_of(e.plain.programs[n]): n for n in numbers}
        if len(sizes) < SIZES:
            continue
        cost = cost_of_sizes(e, set(numbers), len(numbers) / len(e.plain.programs))
        first, other = list(sizes)[:2]
        was, now = next((a, b) for a, b in zip(first, other, strict=True) if a != b)
        run = next(r for r in e.plain.runs if r.program is e.plain.programs[numbers[-1]])
        yield Advice(
            "recompilation",
            f"one computation ran with {len(sizes)} sets of sizes, such as {was} and {now}",
            e.line_of_stack(run.stack),
            cost,
            cost * (1 - 1 / len(sizes)),
            "Each set of sizes is captured and compiled for itself, or runs uncompiled.",
            "Pad to one size or to a few (drop_last for the rest of an epoch).",
            f"{len(sizes)} sets become one: {e.ms(cost)} x (1 - 1/{len(sizes)})",
            e.wall_ns,
        )


def sizes_of(program: Program | ReferenceSteps) -> tuple[str, ...]:
    """Calls of a Program with their shapes, which identify it among Programs of its kind."""
    sources = [s for info in program.step_infos() for s in info.sources]
    return tuple(sorted(repr(s.call) for s in sources))


def cost_of_sizes(e: Evidence, numbers: set[int], part: float) -> float:
    """Return the ns that new Programs cost: compiling, capture, and steps by references."""
    trace, references = e.plain, 0.0
    for (program, step), (ns, _) in trace.time_of_steps.items():
        if program in numbers and trace.info(program, step).step_kind == REFERENCE:
            references += ns
    return e.ns("compiling") * part + references


def host_steps(e: Evidence) -> Iterator[Advice]:
    """Advice on steps that stop the native runner for Python, but for collectives."""
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for r in e.rows:
        info = e.trace.info(r.program, r.step)
        if info.step_kind.is_host and not info.group and not is_double(info):
            groups[r.name, r.line, info.fallback].append(r)
    for (name, line, why), rows in groups.items():
        cost = sum(r.time_ns for r in rows)
        ideal = sum(r.runs * e.ideal_ns(r.flops, r.bytes) for r in rows)
        r = rows[0]
        reason = why or "it is computed by a function in Python"
        yield Advice(
            "host step",
            f"{name}{f' in {r.module}' if r.module else ''}, {r.phase}",
            line,
            cost,
            max(0, cost - ideal),
            f"The Program stops for Python here: {reason}.",
            "Write it with functions that have kernels, or give its card a kernel "
            "(docs/how_to/write_a_primitive.md), and it is fused with what stands around it.",
            f"{e.ms(cost)} less what {sum(r.runs for r in rows) / e.loop_steps:,.3g} "
            f"runs a step take at the machine's limit, {e.ms(ideal)}",
            e.wall_ns,
            is_bound=True,
        )


def is_double(info: StepInfo) -> bool:
    """Whether a step works in double precision."""
    return any(spec.dtype.name == "float64" for s in info.sources for spec in s.call.specs)


def not_compiled(e: Evidence) -> Iterator[Advice]:
    """Advice on recordings that run as references because they are short and rare."""
    rows = [r for r in e.rows if e.trace.info(r.program, r.step).step_kind == REFERENCE]
    cost = sum(r.time_ns for r in rows)
    ideal = sum(r.runs * e.ideal_ns(r.flops, r.bytes) for r in rows)
    line = rows[0].line if rows else ""
    if rows:
        yield Advice(
            "not compiled",
            f"{len(rows)} kinds of steps ran as references in Python",
            line,
            cost,
            max(0, cost - ideal),
            "Short recordings run so until they have cost as much as compiling them would.",
            "Let it run for longer, or set GH_COMPILE=always.",
            f"{e.ms(cost)} less {e.ms(ideal)} at the machine's limit",
            e.wall_ns,
            is_bound=True,
        )


HOST_RULES = (
    waiting_for_data,
    pauses,
    python_loops,
    no_capture,
    graph_breaks,
    host_steps,
    not_compiled,
)
LASTING_RULES = (recompilation,)  # of all steps but those of the warm-up
