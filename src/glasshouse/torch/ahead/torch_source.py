"""The source of an analysed step of PyTorch: a ledger of storages, and counted operators."""

from dataclasses import dataclass
from typing import Any

from glasshouse.analyze import MachineProfile
from glasshouse.analyze.arena import arena_rows
from glasshouse.analyze.step_costs import (
    KernelCost,
    MemoryRow,
    Moment,
    StepAnalysis,
    StepSource,
    rows_of,
)
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.planning.plan import ARENA_TAG
from glasshouse.compile.steps.work import FLAT, StepKind, StepWork
from glasshouse.dispatch.call import Call
from glasshouse.memory import Tag
from glasshouse.profile.counter import Sums
from glasshouse.torch.observe.ledger import Ledger
from glasshouse.torch.observe.operator_cost import Operator

PROGRAM_NS = 100_000.0  # of TorchDynamo, autograd and our call around a Program, about
PYTHON_NS = 5_000.0  # of Python from one PyTorch operator to the next, about
CALL_NS = 2_000.0  # of a call in PyTorch's dispatcher, about


class OperatorKind(StepKind):
    """A call of PyTorch's operator: its products run at the rates of ours."""

    label = "operator"

    def work_of(self, info: StepInfo) -> StepWork:
        """The work of the call, from which its time is predicted."""
        (source,) = info.sources
        cost, name = source.call.cost, source.call.name
        if not cost.matrix_flops:
            return StepWork((self,), [info.bytes, 0, cost.flops])
        product = "conv" if "conv" in name else FLAT
        others = cost.flops - cost.matrix_flops
        what = self, f"{product} {source.call.specs[0].dtype.name}"
        return StepWork(what, [info.bytes, 0, others, cost.matrix_flops])

    def estimate(self, products: list[str], numbers: list[int], machine: MachineProfile) -> float:
        return CALL_NS + super().estimate(products, numbers, machine)


OPERATOR = OperatorKind()

TITLES = {  # by convention
    "torch": "PyTorch eager",
    "exact": "compiled by Glasshouse",
    "captured": "captured by gh.optimize",
}


@dataclass(eq=False)
class TorchSource(StepSource):
    """A step whose storages a ledger lists: run by PyTorch alone, or with our Programs."""

    ledger: Ledger
    convention: str

    @property
    def peak_at(self) -> Tag:
        events = self.ledger.events[: self.ledger.peak_place]
        return events[-1][0].tag if events else Tag()

    @property
    def new_bytes(self) -> int:
        return sum(self.ledger.new_bytes().values())

    def memory(self, runs: list[Any]) -> list[MemoryRow]:
        sums = Sums()
        for allocation in self.ledger.alive_at_peak():
            if allocation.tag == ARENA_TAG:
                for row in arena_rows(self.run_at_peak(runs).plan, allocation.nbytes):
                    sums.add((row.kind, row.module, row.name), row.nbytes)
            else:
                key = allocation.kind_at_peak(), allocation.module, allocation.name
                sums.add(key, allocation.nbytes)
        rows = rows_of((key, nbytes) for key, (nbytes,) in sums.items() if nbytes)
        return sorted(rows, key=lambda row: -row.nbytes)

    def run_at_peak(self, runs: list[Any]) -> Any:
        """The Program whose arena was allocated last before the peak."""
        events = self.ledger.events[: self.ledger.peak_place]
        count = sum(allocation.tag == ARENA_TAG and nbytes > 0 for allocation, nbytes in events)
        return [run for run in runs if run.takes_arena][count - 1]

    def timeline(self, runs: list[Any]) -> list[Moment]:
        """Bytes in use after each allocation."""
        now = sum(x.nbytes for x in self.ledger.began)
        moments: list[Moment] = []
        for allocation, nbytes in self.ledger.events:
            now += nbytes
            if nbytes > 0:
                moments.append(Moment(0, len(moments), allocation.tag.primitive, now))
        return moments

    def operators(self, analysis: StepAnalysis) -> list[KernelCost]:
        """Operators by module and pass; the time is for each call as a separate kernel."""
        sums, machine = Sums(), analysis.machine
        for (call, origin), (times,) in analysis.counter.counts.items():
            if is_torchs(call) and call.primitive.kind != "movement":
                cost, ns = call.cost, machine.ns_of_call(call, OPERATOR)
                numbers = (cost.flops * times, cost.bytes * times, ns * times)
                sums.add((call.name, OPERATOR.label, origin.module, origin.phase), *numbers)
        for tag, nbytes in self.ledger.new_bytes().items():
            key = tag.primitive, OPERATOR.label, tag.module, tag.phase
            sums.add(key, 0, 0, machine.new_pages_ns(nbytes))
        program = len(analysis.runs)
        items = enumerate(sums.items())
        return [KernelCost(program, i, *key, *numbers) for i, (key, numbers) in items]

    def host_ns(self, analysis: StepAnalysis) -> float:
        """Nanoseconds of Python around Programs and between operators, views included."""
        calls = analysis.counter.counts.items()
        operators = sum(times for (call, _), (times,) in calls if is_torchs(call))
        return PYTHON_NS * operators + PROGRAM_NS * len(analysis.runs)

    def head(self, analysis: StepAnalysis) -> str:
        """Peak and where it is, arena, FLOPs and time."""
        at = self.peak_at
        where = " ".join(part for part in (f"in {at.primitive}", at.module, at.phase) if part)
        arena = "" if self.convention == "torch" else f"; arena {analysis.arena_bytes:,}"
        title = TITLES[self.convention]
        return f"{title}: {analysis.peaks_by_step()}, {where}{arena}\n{analysis.work()}\n"

    def to_dict(self, analysis: StepAnalysis) -> dict[Any, Any]:
        peak_at, new_bytes = self.peak_at._asdict(), self.new_bytes
        fields = {"convention": self.convention, "peak_at": peak_at, "new_bytes": new_bytes}
        if self.convention != "torch":
            fields["arena_bytes"] = analysis.arena_bytes
        if self.convention == "captured":
            fields["breaks"] = [one._asdict() for one in analysis.breaks]
        return fields


def is_torchs(call: Call) -> bool:
    """Whether a call is one of PyTorch's operators."""
    return isinstance(call.primitive, Operator)
