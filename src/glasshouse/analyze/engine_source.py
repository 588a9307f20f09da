"""The source of an analysed step on our engine: memory by address, and Python's work."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from glasshouse.analyze.arena import arena_rows, occupancy
from glasshouse.analyze.step_costs import (
    MemoryRow,
    Moment,
    Owner,
    StepAnalysis,
    StepSource,
    rows_of,
)
from glasshouse.compile.planning.plan import ProgramPlan
from glasshouse.profile.text import milliseconds, si_text

# Memory of a running process beside arrays, per primitive of the largest Program; measured on
# ResNet-50 (`benchmarks/analyze.py`); a process that finds the code on disk takes less.
RUNTIME_BYTES = 4500


@dataclass(eq=False)
class OwnSource(StepSource):
    """A step whose memory our manager hands out: by address, the contents and their owner."""

    owners: dict[int, Owner] = field(default_factory=dict)

    def memory(self, runs: list[Any]) -> list[MemoryRow]:
        run = max(runs, key=lambda run: run.allocated_bytes)
        sums: Counter[Any] = Counter()
        for address, (nbytes, tag) in run.live.items():
            if tag.primitive == "arena":
                rows = arena_rows(run.plan, nbytes)
            else:
                between = "activations" if tag.phase == "forward" else "other results"
                default = Owner(between, tag.module, tag.primitive)  # Programs pass activations on
                kind, module, name = self.owners.get(address, default)
                rows = [MemoryRow(kind, module, nbytes, name)]
            for row in rows:
                sums[row.kind, row.module, row.name] += row.nbytes
        rounding = run.allocated_bytes - sum(sums.values())
        rows = rows_of(sums.items())
        return [*sorted(rows, key=lambda r: -r.nbytes), MemoryRow("rounding", "", rounding)]

    def timeline(self, runs: list[Any]) -> list[Moment]:
        moments = []
        for number, run in enumerate(runs):
            outside = run.allocated_bytes - run.plan.arena_bytes
            infos = run.plan.step_infos()
            inside = occupancy(run.plan)[0] or [0] * len(infos)  # references have no arena
            for i, (info, used_bytes) in enumerate(zip(infos, inside, strict=True)):
                moments.append(Moment(number, i, info.name, outside + used_bytes))
        return moments

    def host_ns(self, analysis: StepAnalysis) -> float:
        moved_bytes = sum(kernel.bytes for kernel in analysis.kernels)
        return analysis.machine.host_ns(analysis.host_work, moved_bytes)

    def resident(self, analysis: StepAnalysis) -> dict[str, int]:
        """The peak, NumPy's memory, and an estimate of the rest of a running process."""
        plans = [run.plan for run in analysis.runs]
        counts = [len(plan.graph.nodes) for plan in plans if isinstance(plan, ProgramPlan)]
        return {
            "memory manager": analysis.peak_bytes,
            "arrays from NumPy": analysis.outside_bytes,
            "runtime": RUNTIME_BYTES * max(counts, default=0),
        }

    def head(self, analysis: StepAnalysis) -> str:
        """Peak, arena, growth of the process, FLOPs and time."""
        resident = analysis.resident
        parts = ", ".join(f"{name} {si_text(n, 'B')}" for name, n in resident.items())
        return (
            f"{analysis.peaks_by_step()}, arena {analysis.arena_bytes:,}\n"
            f"the process grows by about {si_text(sum(resident.values()), 'B')} ({parts})\n"
            f"{analysis.work()}{sent(analysis)}\n{beginning(analysis)}"
        )

    def to_dict(self, analysis: StepAnalysis) -> dict[Any, Any]:
        sent_bytes = {" ".join(key): n for key, n in analysis.sent_bytes.items()}
        sizes = {"arena_bytes": analysis.arena_bytes, "resident": analysis.resident}
        steps = {"reference_steps": analysis.reference_steps}
        return {**sizes, **steps, "sent_bytes": sent_bytes}


def beginning(analysis: StepAnalysis) -> str:
    """A sentence on the steps that run on references first; empty if there are none."""
    if not analysis.reference_steps:
        return ""
    return (
        f"about {analysis.reference_steps} steps run on references first, in NumPy's memory and "
        f"more slowly, until compiling is worth it (GH_COMPILE=always: at once)\n"
    )


def sent(analysis: StepAnalysis) -> str:
    """The bytes that this rank sends, as text; empty for a single rank."""
    sums = analysis.sent_bytes.items()
    parts = [f"{name} {group} {si_text(n, 'B')}" for (name, group), n in sums]
    if not parts:
        return ""
    took = milliseconds(analysis.communication_ns)
    return f"sent: {', '.join(parts)}; {took} if nothing else ran\n"
