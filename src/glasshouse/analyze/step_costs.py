"""Analysis of a training step: the parts of its peak, its kernels, its tables.

One class serves steps on our engine and on PyTorch's. For facts of an engine it asks a
`StepSource`: ours is `engine_source.OwnSource`, PyTorch's is `torch_source.TorchSource`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from glasshouse.analyze.compare import Compared
from glasshouse.analyze.host import HostWork
from glasshouse.analyze.machine import MachineProfile
from glasshouse.base import OptionError
from glasshouse.compile.planning.plan import no_collection
from glasshouse.memory import Tag
from glasshouse.profile.counter import FlopCounter, by_path
from glasshouse.profile.holders import (
    BUFFER,
    PARAMETER,
    first_path,
    held_by_model,
    held_by_optimizer,
    kind_of,
)
from glasshouse.profile.naming import name_of_step
from glasshouse.profile.text import milliseconds, percent, si_text, table
from glasshouse.profile.trace import Trace

OWNED = ("parameters", "buffers", "gradients", "optimizer state")  # whose names are paths
KINDS = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer state",
    "inputs",
    "activations",
    "temporaries",
    "workspace",
    "other results",
    "unused arena",
    "rounding",
)
MOST_TENSORS = 10  # of those at the peak that a table lists by name


class MemoryRow(NamedTuple):
    """Bytes at the peak, of one kind and module, under one name: the path of a parameter, "gradient
    of" it, "exp_avg of" it; of other tensors the operator that computed them."""

    kind: str
    module: str
    nbytes: int
    name: str = ""

    @property
    def label(self) -> str:
        """Name, with the module where the name does not have it."""
        is_path = self.kind in OWNED or not self.module
        return self.name if is_path else f"{self.name} in {self.module}"


class Owner(NamedTuple):
    """Owner of a block of memory: its kind, the path of its module, and its name."""

    kind: str
    module: str
    name: str


def owned_tensors(
    modules: list[Any], optimizer: Any, place: Callable[[str, str], str]
) -> list[tuple[Any, Owner]]:
    """Tensors that modules and an optimizer hold, each with its owner, whose module is
    `place(class of the root, path of the tensor)`."""
    paths: dict[int, str] = {}
    rows = [(x, tag, type(m).__name__) for m in modules for x, tag in held_by_model(m, paths)]
    roots = {tag.module: root for _, tag, root in reversed(rows)}
    state = held_by_optimizer(optimizer, paths)
    rows += [(x, tag, roots.get(tag.module, "")) for x, tag in state]
    owners = []
    for x, tag, root in rows:
        path = tag.module
        name = path if tag.primitive in (PARAMETER, BUFFER) else f"{tag.primitive} {path}"
        owners.append((x, Owner(kind_of(tag), place(root, first_path(path)), name)))
    return owners


def rows_of(sums: Any) -> list[MemoryRow]:
    """Rows of bytes by (kind, module, name)."""
    return [MemoryRow(kind, module, nbytes, name) for (kind, module, name), nbytes in sums]


class KernelCost(NamedTuple):
    """A step of a Program with its predicted time."""

    program: int
    step: int
    name: str
    kind: str
    module: str
    phase: str
    flops: int
    bytes: int
    ns: float


class Moment(NamedTuple):
    """Bytes in use while one step of a Program runs."""

    program: int
    step: int
    name: str
    nbytes: int


class StepSource:
    """The part of an analysed step that depends on the engine: memory in use, operators that run
    between Programs, and Python's time."""

    @property
    def new_bytes(self) -> int:
        """Bytes, about, that the system has to make for operators beside Programs."""
        return 0

    @property
    def peak_at(self) -> Tag:
        """The operator that reaches the peak, with module and pass, where it is known."""
        return Tag()

    def memory(self, runs: list[Any]) -> list[MemoryRow]:
        """Rows for the memory alive at the peak of the last step. They sum to the peak."""
        raise NotImplementedError

    def timeline(self, runs: list[Any]) -> list[Moment]:
        """Bytes in use over the course of the step."""
        raise NotImplementedError

    def operators(self, analysis: "StepAnalysis") -> list[KernelCost]:
        """Operators that run outside Programs."""
        return []

    def host_ns(self, analysis: "StepAnalysis") -> float:
        """Nanoseconds of Python between kernels."""
        raise NotImplementedError

    def resident(self, analysis: "StepAnalysis") -> dict[str, int]:
        """Growth of the process in bytes, in parts."""
        return {"tensors": analysis.peak_bytes}

    def head(self, analysis: "StepAnalysis") -> str:
        """The text above the tables."""
        raise NotImplementedError

    def to_dict(self, analysis: "StepAnalysis") -> dict[Any, Any]:
        """Fields to add to the analysis when it is saved as JSON."""
        raise NotImplementedError


@dataclass(eq=False)
class StepAnalysis:
    """The predicted cost of a training step: the last of `steps` that were analysed. Steps on our
    engine count as compiled, unless GH_COMPILE is never. A short one runs on references at first.

    source            the engine's facts about it: ours, or PyTorch's
    runs              the Programs of the last step, in order, with their plans
    peak_bytes        the most bytes that are in use, in the worst step
    peaks             the same for each step
    peak_at           the operator that reaches it in the last step, where PyTorch does
    memory            rows by kind and module that add up to the peak of the last step
    timeline          bytes in use at each step of each Program, or after each allocation
    arena_bytes       the planned arena of the largest Program
    outside           bytes that NumPy holds beside, by kind; `outside_bytes` in all
    resident          predicted growth of the process in bytes from before the model, in parts
    new_bytes         of memory that the system has to make for PyTorch's operators, about
    counter           the FlopCounter of the last step
    kernels           all kernels, with FLOPs, bytes and predicted time: the steps of
                      Programs, then PyTorch's operators by module and pass
    kernel_ns         their sum
    sent_bytes        bytes that this rank sends to others, by collective and group
    communication_ns  time of collectives, and of messages between stages of a pipeline
    device_ns         kernels and messages, as if nothing could run beside either
    host_work         Python's work beside them: calls, nodes that it records, runs of Programs
    host_ns           the estimated time of that work
    predicted_ns      both
    reference_steps   number of first steps that run on references, in NumPy's memory
    breaks            where Python runs between the graphs of a captured step, and why"""

    source: StepSource
    runs: list[Any]
    peaks: list[int]
    counter: FlopCounter
    machine: MachineProfile
    outside: dict[str, int] = field(default_factory=dict)
    sent_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    reference_steps: int = 0
    host_work: HostWork = HostWork()
    breaks: list[Any] = field(default_factory=list)

    @property
    def peak_bytes(self) -> int:
        return max(self.peaks)

    @property
    def peak_at(self) -> Tag:
        return self.source.peak_at

    @property
    def new_bytes(self) -> int:
        return self.source.new_bytes

    @property
    def outside_bytes(self) -> int:
        return sum(self.outside.values())

    @cached_property
    def arena_bytes(self) -> int:
        return max((run.plan.arena_bytes for run in self.runs), default=0)

    @cached_property
    def resident(self) -> dict[str, int]:
        return self.source.resident(self)

    @cached_property
    def memory(self) -> list[MemoryRow]:
        return self.source.memory(self.runs)

    @cached_property
    def timeline(self) -> list[Moment]:
        return self.source.timeline(self.runs)

    @cached_property
    def memory_by_kind(self) -> dict[str, int]:
        sums = dict.fromkeys(KINDS, 0)
        for row in self.memory:
            sums[row.kind] += row.nbytes
        return {kind: nbytes for kind, nbytes in sums.items() if nbytes}

    @cached_property
    def kernels(self) -> list[KernelCost]:
        with no_collection():
            kernels = []
            for number, run in enumerate(self.runs):
                for i, info in enumerate(run.plan.step_infos()):
                    origin = info.origins[-1]
                    place = name_of_step(info), info.kind, origin.module, origin.phase
                    work = info.flops, info.bytes, self.machine.ns(info)
                    kernels.append(KernelCost(number, i, *place, *work))
            return kernels + self.source.operators(self)

    @cached_property
    def communication_ns(self) -> float:
        infos = (info for run in self.runs for info in run.plan.step_infos())
        return sum(self.machine.ns(info) for info in infos if info.group) + self.message_ns

    @property
    def message_ns(self) -> float:
        """Ns in which this rank sends the messages of no Program."""
        messages = self.counter.messages.items()
        return sum(n * self.machine.sending_ns(nbytes) for (_, nbytes), n in messages)

    @property
    def kernel_ns(self) -> float:
        return sum(kernel.ns for kernel in self.kernels)

    @property
    def device_ns(self) -> float:
        return self.kernel_ns + self.message_ns

    @property
    def host_ns(self) -> float:
        return self.source.host_ns(self)

    @property
    def predicted_ns(self) -> float:
        return self.device_ns + self.host_ns

    def with_ranks(self, ranks: int) -> float:
        """Predict the ns of a step on `ranks` devices: a ring all-reduce of the gradients follows.

        Raises: OptionError if the machine's profile has no link
        Source: Patarasuk & Yuan 2009, a ring moves 2 (n - 1) / n of the data
        """
        if not self.machine.link_bytes_per_s:
            expected = "a machine profile with link_bytes_per_s"
            raise OptionError("with_ranks", expected, "none", "Set it.")
        gradients = self.memory_by_kind.get("gradients", 0)
        sent = 2 * (ranks - 1) / ranks * gradients
        return self.predicted_ns + 1e9 * sent / self.machine.link_bytes_per_s

    def work(self) -> str:
        """FLOPs and time as text, with the part for new memory."""
        host = f" and {milliseconds(self.host_ns)} of Python" if self.host_ns else ""
        work = (
            f"{si_text(self.counter.total(), 'FLOP')} in products, "
            f"{si_text(self.counter.total('all'), 'FLOP')} in all; "
            f"{milliseconds(self.kernel_ns)} in kernels{host} on {self.machine.name}\n"
        )
        if not self.new_bytes:
            return work
        took = milliseconds(self.machine.new_pages_ns(self.new_bytes))
        return f"{work}{si_text(self.new_bytes, 'B')} of new memory take {took} of that\n"

    def peaks_by_step(self) -> str:
        """The peak, and that of each step, as text."""
        by_step = ", ".join(f"{peak:,}" for peak in self.peaks)
        return f"peak {self.peak_bytes:,} bytes (by step: {by_step})"

    def head(self) -> str:
        """The text above the tables: peak, FLOPs and time."""
        return self.source.head(self)

    def table(self, depth: int = 2) -> str:
        """Memory by kind, the largest tensors, modules with memory, FLOPs and time, as text."""
        rows = self.memory_by_kind.items()
        kinds = [[kind, si_text(n, "B"), percent(n, self.peaks[-1])] for kind, n in rows]
        alive = table(["alive at the peak", "bytes", "%"], kinds)
        return f"{self.head()}{alive}\n\n{self.largest()}{self.modules(depth)}"

    def largest(self, most: int = MOST_TENSORS) -> str:
        """The largest tensors at the peak, those of one name together, as text."""
        rows = sorted((row for row in self.memory if row.name), key=lambda row: -row.nbytes)[:most]
        peak = self.peaks[-1]
        lines = [[r.label, r.kind, si_text(r.nbytes, "B"), percent(r.nbytes, peak)] for r in rows]
        return f"{table(['largest at the peak', 'kind', 'bytes', '%'], lines, left=2)}\n\n"

    def modules(self, depth: int) -> str:
        """The module tree as text."""
        memory = by_path(((row.module, row.nbytes) for row in self.memory), depth)
        time = by_path(((kernel.module, kernel.ns) for kernel in self.kernels), depth)
        flops, lines = self.counter.by_module(depth, "all", "executed"), []
        for path in sorted({*memory, *flops, *time}, key=lambda p: p.split(".")):
            name = "  " * path.count(".") + path.rpartition(".")[2]
            took = milliseconds(time[path]), percent(time[path], self.kernel_ns)
            lines.append([name, si_text(memory[path], "B"), si_text(flops.get(path, 0)), *took])
        return table(["module", "memory at the peak", "FLOPs", "time", "%"], lines) + "\n"

    def beside(self, trace: Trace) -> Compared:
        """Compare this with the trace of a profile of the same step."""
        return Compared(self, trace)

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[Any, Any]:
        """All of it as JSON."""
        return {
            "peak_bytes": self.peak_bytes,
            "peaks": self.peaks,
            "memory": [row._asdict() for row in self.memory],
            "flops": self.counter.total(),
            "all_flops": self.counter.total("all"),
            "predicted_ns": self.predicted_ns,
            "host_ns": self.host_ns,
            "machine": self.machine.name,
            "kernels": [kernel._asdict() for kernel in self.kernels],
            **self.source.to_dict(self),
        }
