"""Tables of a trace: operators, kernels, and the tree of modules."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import check_known
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.dispatch.call import Call
from glasshouse.profile import record as recorded
from glasshouse.profile.at_once import with_kernels
from glasshouse.profile.counter import OUTSIDE, Sums, ordered, prefixes
from glasshouse.profile.grouping import groups_of
from glasshouse.profile.naming import name_of_step
from glasshouse.profile.record import COMPUTED, MODULE, REGION, STEP
from glasshouse.profile.text import Tabular, milliseconds, percent, si_text, table
from glasshouse.profile.trace import Share, Trace


class EventAverage(NamedTuple):
    """One group of events: times in ns; FLOPs and bytes are those of the calls."""

    name: str
    kind: str
    calls: int
    host_ns: int
    self_host_ns: int
    kernel_ns: float
    flops: int
    bytes: int
    shapes: str
    stack: str

    @property
    def host_ns_average(self) -> float:
        return self.host_ns / self.calls

    @property
    def kernel_ns_average(self) -> float:
        return self.kernel_ns / self.calls


# PyTorch's names for the columns to sort by, beside our own.
SORT_KEYS = {
    "cpu_time_total": "host_ns",
    "self_cpu_time_total": "self_host_ns",
    "count": "calls",
    "cpu_time": "host_ns_average",
    **{
        f"{prefix}{device}_time_total": "kernel_ns"
        for prefix in ("", "self_")
        for device in ("cuda", "device")
    },
    "cuda_time": "kernel_ns_average",
    "device_time": "kernel_ns_average",
    **{name: name for name in (*EventAverage._fields[2:8], "host_ns_average", "kernel_ns_average")},
}


class EventAverages(Tabular, list[Any]):
    """Events grouped by name, and on request by operand shapes and stack; prints as a table."""

    def __init__(self, trace: Trace, rows: list[EventAverage], shapes: bool, flops: bool) -> None:
        super().__init__(rows)
        self.trace = trace
        self.shapes = shapes
        self.flops = flops

    def find(self, name: str) -> EventAverage:
        """The group called `name`.

        Raises: OptionError, naming the nearest, if there is none.
        """
        names = [row.name for row in self]
        check_known("key_averages", "the name of a group", name, names)
        return self[names.index(name)]

    def table(self, sort_by: str = "kernel_ns", row_limit: int = 100) -> str:
        """The groups as text, the largest in the column `sort_by` first; all if row_limit is -1.

        Raises: OptionError for an unknown column.
        """
        column = SORT_KEYS[check_known("table", "a column to sort by", sort_by, SORT_KEYS)]
        rows = sorted(self, key=lambda r: (-getattr(r, column), -r.self_host_ns))
        shown = rows if row_limit < 0 else rows[:row_limit]
        wall = self.trace.wall_ns
        headings = ["name", "self host", "%", "host", "kernel", "%", "calls", "kernel/call"]
        headings += ["FLOPs", "bytes"] * self.flops + ["shapes"] * self.shapes
        lines = [
            [
                r.name,
                milliseconds(r.self_host_ns),
                percent(r.self_host_ns, wall),
                milliseconds(r.host_ns),
                milliseconds(r.kernel_ns),
                percent(r.kernel_ns, wall),
                f"{r.calls:,}",
                milliseconds(r.kernel_ns_average),
                *([si_text(r.flops), si_text(r.bytes, "B")] * self.flops),
                *[r.shapes] * self.shapes,
            ]
            for r in shown
        ]
        if others := rows[len(shown) :]:
            lines.append(self.others(others, wall))
        text = table(headings, lines)
        stacks = [f"\n{r.name}:\n    {r.stack}" for r in shown if r.stack]
        return text + "".join(stacks) + "\n" + self.uncounted() + summary(self.trace)

    def others(self, rows: list[EventAverage], wall: int) -> list[str]:
        """Several groups as one row. Host times lie in each other: only their own add up."""
        host_ns, kernel = sum(r.self_host_ns for r in rows), sum(r.kernel_ns for r in rows)
        flops, moved = sum(r.flops for r in rows), sum(r.bytes for r in rows)
        return [
            f"others ({len(rows)})",
            milliseconds(host_ns),
            percent(host_ns, wall),
            "",
            milliseconds(kernel),
            percent(kernel, wall),
            f"{sum(r.calls for r in rows):,}",
            "",
            *([si_text(flops), si_text(moved, "B")] * self.flops),
            *[""] * self.shapes,
        ]

    def uncounted(self) -> str:
        sums = Sums()
        for r in self:
            if r.kind in ("op", "copy") and not r.flops and r.kernel_ns:
                sums.add(r.name, r.calls, r.kernel_ns)
        parts = [f"{name} {n:,} calls {milliseconds(ns)}" for name, (n, ns) in sums.items()]
        return f"without FLOPs: {', '.join(parts)}\n" if parts and self.flops else ""


def summary(trace: Trace) -> str:
    lines = [
        f"wall {milliseconds(trace.wall_ns)}, in kernels {milliseconds(trace.kernel_ns)} "
        f"({percent(trace.kernel_ns, trace.wall_ns)}), {len(trace.events):,} events, "
        f"{len(trace.steps.step):,} kernel runs"
        + (f"; compiling {milliseconds(trace.compile_ns)}" if trace.compile_ns else "")
    ]
    if trace.dropped or trace.dropped_memory or trace.dropped_runs:
        lines.append(
            f"dropped: {trace.dropped:,} events, {trace.dropped_memory:,} allocations, "
            f"{trace.dropped_runs:,} program runs. Raise max_events, or use a "
            "schedule."
        )
    if trace.unwatched_threads:
        names = ", ".join(trace.unwatched_threads)
        lines.append(f"PyTorch's operators are not seen in threads that began before: {names}.")
    lines += [f"fallback: {line}" for line in trace.fallbacks.lines()]
    return "\n".join(lines) + "\n"


def key_averages(
    trace: Trace, group_by_input_shape: bool = False, group_by_stack_n: int = 0, flops: bool = True
) -> EventAverages:
    events = trace.events
    names: dict[tuple[Any, ...], int] = {}
    what = events["what"].astype(np.int64)
    what[events["kind"] == STEP] = 0
    what[events["kind"] == MODULE] = events["scope"][events["kind"] == MODULE]
    stack = events["stack"] * bool(group_by_stack_n)
    first, inverse = groups_of(what, stack, events["kind"])
    group = np.zeros(len(first), np.int64)
    for i, place in enumerate(first):
        label = label_of(trace, events[place], group_by_input_shape, group_by_stack_n)
        group[i] = names.setdefault(label, len(names))
    of_event = group[inverse]
    columns = (
        np.ones(len(events)),
        events["end"] - events["begin"],
        trace.self_ns,
        trace.kernel_ns_of_events,
        *costs_of(trace),
    )
    sums = np.array([np.bincount(of_event, column, len(names)) for column in columns]).T
    groups = Sums(zip(names, sums.tolist(), strict=True))
    add_captured(trace, groups, group_by_input_shape, group_by_stack_n)
    kinds = (int, int, int, float, int, int)
    rows = [
        EventAverage._make((name, kind, *(of(x) for of, x in zip(kinds, total)), shapes, frames))
        for (name, kind, shapes, frames), total in groups.items()
    ]
    return EventAverages(trace, rows, group_by_input_shape, flops)


def add_captured(trace: Trace, groups: Sums, shapes: bool, stack_n: int) -> None:
    for share, ns, runs in trace.unseen:
        call, line = share.call, trace.line(share.program, share.place)
        kind, operands = ("op", listed(call)) if call else ("copy", "")
        label = trace.name_of_share(share), kind, operands * shapes, line if stack_n else ""
        flops, moved = (call.cost.flops, call.cost.bytes) if call else (0, 0)
        groups.add(label, runs, 0, 0, ns, flops * runs, moved * runs)


def listed(call: Call) -> str:
    return ", ".join(str(list(spec.shape)) for spec in call.specs)


def label_of(trace: Trace, event: Any, shapes: bool, stack_n: int) -> tuple[str, str, str, str]:
    is_op = event["kind"] <= COMPUTED
    kind = "op" if is_op else ("module", "region", "annotation", "pull", "step")[event["kind"] - 2]
    name = "ProfilerStep" if event["kind"] == STEP else trace.name_of(event)
    if event["kind"] == MODULE:
        name = trace.scopes[event["scope"]]
    operands = listed(recorded.calls[event["what"]]) if shapes and is_op else ""
    frames = "\n    ".join(trace.frames(event["stack"])[:stack_n]) if stack_n else ""
    return name, kind, operands, frames


def costs_of(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    numbers, inverse = np.unique(trace.events["what"][trace.is_op], return_inverse=True)
    costs = [recorded.calls[number].cost for number in numbers.tolist()]
    counts = np.zeros((2, len(trace.events)))
    counts[:, trace.is_op] = np.array([(c.flops, c.bytes) for c in costs]).reshape(-1, 2)[inverse].T
    return counts[0], counts[1]


class KernelRow(NamedTuple):
    """One step of a Program, over all runs: time in ns; FLOPs and bytes of one run. `line` is the
    user's, where stacks were recorded or the function is captured. `exact_flops` are the necessary
    ones: without those of a padding's zeros, and those that its algorithm saves."""

    program: int
    step: int
    name: str
    kind: str
    module: str
    phase: str
    runs: int
    time_ns: int
    flops: int
    bytes: int
    line: str
    exact_flops: int

    @property
    def flops_per_s(self) -> float:
        return self.flops * self.runs * 1e9 / self.time_ns if self.time_ns else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.bytes * self.runs * 1e9 / self.time_ns if self.time_ns else 0.0


class KernelRows(Tabular, list[Any]):
    """Steps of Programs, the longest first; prints as a table."""

    def __init__(self, rows: list[KernelRow], wall_ns: int) -> None:
        super().__init__(rows)
        self.wall_ns = wall_ns

    def table(self, row_limit: int = 40) -> str:
        """The longest as text; all if row_limit is -1."""
        shown = self if row_limit < 0 else self[:row_limit]
        lined = any(r.line for r in shown)
        headings = ["kernel", "module", "pass", *["line"] * lined]
        headings += ["time", "%", "runs", "FLOPs", "FLOP/s", "B/s"]
        lines = [
            [
                r.name,
                r.module,
                r.phase,
                *[Path(r.line).name] * lined,
                milliseconds(r.time_ns),
                percent(r.time_ns, self.wall_ns),
                f"{r.runs:,}",
                si_text(r.flops),
                si_text(r.flops_per_s),
                si_text(r.bytes_per_s, "B"),
            ]
            for r in shown
        ]
        if others := self[len(shown) :]:
            ns, runs = sum(r.time_ns for r in others), sum(r.runs for r in others)
            times = [milliseconds(ns), percent(ns, self.wall_ns), f"{runs:,}"]
            lines.append([f"others ({len(others)})", *[""] * (2 + lined), *times, "", "", ""])
        return table(headings, lines, left=3 + lined)


def kernels(trace: Trace) -> KernelRows:
    """Every step of every Program that ran, and calls that were computed at once, the longest
    first."""
    trace = with_kernels(trace)
    owner: dict[tuple[int, int], Share] = {}
    for share in trace.shares:
        largest = owner.setdefault((share.program, share.step), share)
        if share.part > largest.part:
            owner[share.program, share.step] = share
    rows = []
    for (program, step), (ns, runs) in trace.time_of_steps.items():
        info = trace.info(program, step)
        share = owner[program, step]
        rows.append(
            KernelRow(
                program,
                step,
                name_of_step(info),
                info.kind,
                share.module,
                share.phase,
                runs,
                ns,
                info.flops,
                info.bytes,
                trace.line(program, share.place),
                exact_flops_of(info),
            )
        )
    return KernelRows(sorted(rows, key=lambda r: -r.time_ns), trace.wall_ns)


def exact_flops_of(info: StepInfo) -> int:
    """FLOPs that one run of a step has to do."""
    return max(0, sum(s.call.cost.exact_flops for s in info.sources) - info.saved_flops)


def kernel_table(trace: Trace, row_limit: int = 30) -> str:
    """The longest steps as text, all others in one row, and a table by kind."""
    rows, total = kernels(trace), trace.wall_ns
    lines = [
        [
            f"{r.kind} {r.name}",
            f"{r.module} {r.phase} {Path(r.line).name}".strip(),
            milliseconds(r.time_ns),
            percent(r.time_ns, total),
            f"{r.runs:,}",
            si_text(r.flops),
            si_text(r.bytes, "B"),
            si_text(r.flops_per_s, "FLOP/s"),
            si_text(r.bytes_per_s, "B/s"),
        ]
        for r in rows[:row_limit]
    ]
    if others := rows[row_limit:]:
        lines.append([f"others ({len(others)})", *summed(others, total)])
    headings = ["kernel", "for", "time", "%", "runs", "FLOPs", "bytes", "rate", "bandwidth"]
    return table(headings, lines, left=2) + "\n\n" + kind_table(rows, total)


def kind_table(rows: list[KernelRow], total: int) -> str:
    """All steps as text, by kind; the share is of `total` ns."""
    by_kind: dict[str, list[KernelRow]] = {}
    for r in rows:
        by_kind.setdefault(r.kind, []).append(r)
    ordered_kinds = sorted(by_kind.items(), key=lambda x: -sum(r.time_ns for r in x[1]))
    lines = [[kind, *summed(group, total)] for kind, group in [*ordered_kinds, ("all", rows)]]
    headings = ["kind", "steps", "time", "%", "runs", "FLOPs", "bytes", "rate", "bandwidth"]
    return table(headings, lines) + "\n"


def summed(rows: list[KernelRow], total: int) -> list[str]:
    """Sum several steps into one row: their number, and the time and work of all their runs."""
    ns = sum(r.time_ns for r in rows)
    flops = sum(r.flops * r.runs for r in rows)
    moved = sum(r.bytes * r.runs for r in rows)
    per_s = 1e9 / ns if ns else 0.0
    runs = f"{sum(r.runs for r in rows):,}"
    return [
        f"{len(rows):,}",
        milliseconds(ns),
        percent(ns, total),
        runs,
        si_text(flops),
        si_text(moved, "B"),
        si_text(flops * per_s, "FLOP/s"),
        si_text(moved * per_s, "B/s"),
    ]


class ModuleRow(NamedTuple):
    """A module with all below it, in one pass or in all (""): measured ns, and executed work.
    `exact_flops` are those that its kernels have to do, as in KernelRow."""

    module: str
    phase: str
    kernel_ns: float
    host_ns: float
    flops: float
    bytes: float
    exact_flops: float
    calls: int


class ModuleTree(Tabular):
    """Time, FLOPs and bytes by module and pass; a fused kernel is shared out among its calls."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def own_sums(self) -> dict[tuple[str, str], list[float]]:
        """[kernel ns, host ns, FLOPs, bytes, exact FLOPs, calls] of each module itself, by pass."""
        trace, sums = self.trace, Sums()

        def add(module: str, phase: str, *values) -> None:
            sums.add((module or OUTSIDE, phase), *values)

        for share in trace.shares:
            ns, runs = trace.time_of_steps.get((share.program, share.step), (0, 0))
            info = trace.info(share.program, share.step)
            flops = share.call.cost.flops * runs if share.call else 0
            moved = info.bytes * runs * share.part
            exact = flops * exact_flops_of(info) / info.flops if info.flops else 0
            add(share.module, share.phase, ns * share.part, 0, flops, moved, exact, 0)
        self.add_events(add)
        return sums

    def add_events(self, add: Callable[..., Any]) -> None:
        """Add host times of calls and passes, calls of modules, and calls computed at once."""
        trace, events = self.trace, self.trace.events
        counted = events["kind"] != STEP
        first, inverse = groups_of(*(events[name][counted] for name in ("scope", "phase", "kind")))
        host = np.bincount(inverse, trace.self_ns[counted], len(first))
        flops, moved = (np.bincount(inverse, x[counted], len(first)) for x in costs_of(trace))
        keys = events[["scope", "phase", "kind"]][counted][first].tolist()
        for key, ns, f, b, n in zip(keys, host, flops, moved, np.bincount(inverse)):
            scope, phase, kind = trace.scopes[key[0]], trace.phases[key[1]], key[2]
            if kind == COMPUTED:
                add(scope, phase, ns, 0, f, b, f, 0)
            else:
                add(scope, phase, 0, ns if kind != REGION else 0, 0, 0, 0, n * (kind == MODULE))

    def rows(self, depth: int | None = None) -> list[ModuleRow]:
        """Each module with all below it: a row for all passes, then one for each."""
        sums = Sums()
        for (module, phase), (*values, calls) in self.own_sums.items():
            for path in prefixes(module, depth):
                for part in ("", phase):
                    sums.add((path, part), *values, calls * (path == module))
        return [
            ModuleRow._make((path, phase, *values, int(calls)))
            for (path, phase), (*values, calls) in sums.items()
        ]

    def table(self, depth: int | None = 3) -> str:
        """The tree as text, all of it first."""
        rows, total = self.rows(depth), self.trace.wall_ns
        phases = [p for p in self.trace.phases if any(r.phase == p and r.kernel_ns for r in rows)]
        by = {(r.module, r.phase): r for r in rows}
        roots = [r for r in rows if "." not in r.module]
        for p in ("", *phases) if rows else ():
            values = zip(*(r[2:] for r in roots if r.phase == p), strict=True)
            by["", p] = ModuleRow("", p, *map(sum, values))

        def line(path: str) -> list[str]:
            r = by[path, ""]
            times = [milliseconds(by[path, p].kernel_ns) if (path, p) in by else "" for p in phases]
            rate = si_text(r.flops * 1e9 / r.kernel_ns, "FLOP/s") if r.kernel_ns else ""
            return [
                "  " * path.count(".") + (path.rpartition(".")[2] or "total"),
                f"{r.calls:,}",
                milliseconds(r.kernel_ns),
                percent(r.kernel_ns, total),
                *times,
                milliseconds(r.host_ns),
                si_text(r.flops),
                si_text(r.bytes, "B"),
                rate,
            ]

        paths = ordered([r.module for r in rows if not r.phase])
        headings = ["module", "calls", "kernels", "%", *phases, "host", "FLOPs", "bytes", "rate"]
        lines = [line(path) for path in ("", *paths)] if rows else []
        return table(headings, lines) + "\n" + summary(self.trace)
