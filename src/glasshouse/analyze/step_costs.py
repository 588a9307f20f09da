"""What every analysis of a training step says: its peak taken apart, its kernels, its tables.

`step.StepAnalysis` says it of a step on our engine, `glasshouse.torch.ahead` of PyTorch's own."""

from functools import cached_property
from typing import Any, NamedTuple

from glasshouse.analyze.compare import Compared
from glasshouse.analyze.machine import MachineProfile
from glasshouse.profile.counter import FlopCounter, by_path
from glasshouse.profile.text import milliseconds, percent, scaled, table
from glasshouse.profile.trace import Trace

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


class MemoryRow(NamedTuple):
    """Bytes at the peak, of one kind and module."""

    kind: str
    module: str
    nbytes: int


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


class StepCosts:
    """What a training step will cost; of the last of the steps that were analysed.

    peak_bytes        the most that is in use, in the worst step
    peaks             the same for each step
    memory            rows by kind and module that add up to the peak of the last step
    counter           the FlopCounter of the last step
    kernels           all that computes, with FLOPs, bytes and predicted time
    kernel_ns         their sum
    host_ns           what Python takes between them, where that is known
    predicted_ns      both"""

    host_ns: Any = 0.0
    peaks: list[int]
    counter: FlopCounter
    machine: MachineProfile
    memory: Any
    kernels: Any

    @property
    def peak_bytes(self) -> int:
        return max(self.peaks)

    @cached_property
    def memory_by_kind(self) -> dict[str, int]:
        sums = dict.fromkeys(KINDS, 0)
        for row in self.memory:
            sums[row.kind] += row.nbytes
        return {kind: nbytes for kind, nbytes in sums.items() if nbytes}

    @property
    def kernel_ns(self) -> float:
        return sum(kernel.ns for kernel in self.kernels)

    @property
    def predicted_ns(self) -> float:
        return self.kernel_ns + self.host_ns

    def head(self) -> str:
        """What stands above the tables, as text."""
        raise NotImplementedError

    def work(self) -> str:
        """FLOPs and time, as text."""
        host = f" and {milliseconds(self.host_ns)} of Python" if self.host_ns else ""
        return (
            f"{scaled(self.counter.total(), 'FLOP')} in products, "
            f"{scaled(self.counter.total('all'), 'FLOP')} in all; "
            f"{milliseconds(self.kernel_ns)} in kernels{host} on {self.machine.name}\n"
        )

    def table(self, depth: int = 2) -> str:
        """Memory by kind, then modules with memory, FLOPs and time, as text."""
        rows = self.memory_by_kind.items()
        kinds = [[kind, scaled(n, "B"), percent(n, self.peaks[-1])] for kind, n in rows]
        alive = table(["alive at the peak", "bytes", "%"], kinds)
        return f"{self.head()}{alive}\n\n{self.modules(depth)}"

    def modules(self, depth: int) -> str:
        """The module tree as text."""
        memory = by_path(((row.module, row.nbytes) for row in self.memory), depth)
        time = by_path(((kernel.module, kernel.ns) for kernel in self.kernels), depth)
        flops, lines = self.counter.by_module(depth, "all", "executed"), []
        for path in sorted({*memory, *flops, *time}, key=lambda p: p.split(".")):
            name = "  " * path.count(".") + path.rpartition(".")[2]
            took = milliseconds(time[path]), percent(time[path], self.kernel_ns)
            lines.append([name, scaled(memory[path], "B"), scaled(flops.get(path, 0)), *took])
        return table(["module", "memory at the peak", "FLOPs", "time", "%"], lines) + "\n"

    def beside(self, trace: Trace) -> Compared:
        """This beside the trace of a profile of the same step."""
        return Compared(self, trace)

    def __str__(self):
        return self.table()

    def to_dict(self) -> dict:
        """All of it as what JSON can hold."""
        return {
            "peak_bytes": self.peak_bytes,
            "peaks": self.peaks,
            "memory": [row._asdict() for row in self.memory],
            "flops": self.counter.total(),
            "all_flops": self.counter.total("all"),
            "predicted_ns": self.predicted_ns,
            "machine": self.machine.name,
            "kernels": [kernel._asdict() for kernel in self.kernels],
        }
