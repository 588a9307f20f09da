"""Calibration of this machine: rates of kernels (`machine.py`), and the time of Python beside them.

Python's costs are found on training steps of small synthetic networks, each of which has much of
one thing: calls, nodes, parameters, or runs of Programs. Python's work in each is counted as in an
analysis, its time is the thread's processor time without that of kernels, and the costs are those
that explain the times best. Whole steps are measured, because a function in a tight loop takes half
the time that it takes among others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from glasshouse import nn, optim
from glasshouse.analyze.host import HostWork
from glasshouse.analyze.kernel_rates import REPEATS, calibrate_kernels
from glasshouse.analyze.machine import CPU2, HOST_COSTS, KERNEL_COSTS, SWEPT_BYTES, MachineProfile
from glasshouse.analyze.step import TrainingStep, whole_steps
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import SMALL_BYTES
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.watch import ProgramRun, Watcher
from glasshouse.nn import functional as F
from glasshouse.tensor import asarray, exp, mean, sin, sqrt, stack, sum, tanh, where
from glasshouse.tensor.standard import creation

ROUNDS, SMOKE_ROUNDS = 40, 3  # rounds in which the steps take turns; their medians count
SWEPT = np.empty(SWEPT_BYTES, np.uint8)
WARM_STEPS = 4  # runs until all is compiled, and calls are replayed
IN_A_ROW = 6  # steps of a kind before one that is timed, as in a loop: the first ones are slower


def ones_vectors(count: int, width: int) -> nn.ParameterList:
    """Parameters of ones."""
    return nn.ParameterList([nn.Parameter(creation.ones((width,))) for _ in range(count)])


class Waves(nn.Module):
    """Many elementwise functions of one operand and a few numbers."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weights: nn.ParameterList = ones_vectors(count, width)

    def forward(self, x: Any) -> Any:
        for w in self.weights:
            x = sin(x * w) + tanh(x) - exp(-x * x) * 0.5
            x = where(x > 0.1, x, x * 0.3) / sqrt(mean(x * x, axis=-1, keepdims=True) + 1e-5)
        return x


class ManyWeights(nn.Module):
    """A sum of products with many weights."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weights: nn.ParameterList = ones_vectors(count, width)

    def forward(self, x: Any) -> Any:
        return sum(stack([x * w for w in self.weights]), axis=0)


class NormBlocks(nn.Module):
    """Residual blocks whose layers consist of many primitives each."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.norms: nn.ModuleList = nn.ModuleList([nn.LayerNorm(width) for _ in range(count)])
        self.mixes: nn.ModuleList = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])
        self.head: nn.Linear = nn.Linear(width, 5)

    def forward(self, x: Any) -> Any:
        for norm, mix in zip(self.norms, self.mixes, strict=True):
            x = x + F.softmax(F.gelu(mix(norm(x))), axis=-1)
        return self.head(x)


class Nest(nn.Module):
    """A module of modules, down to one that scales: much Python for few primitives."""

    def __init__(self, depth: int, fan: int) -> None:
        super().__init__()
        self.scale: nn.Parameter | None = nn.Parameter(creation.ones((5,))) if not depth else None
        self.parts: nn.ModuleList = nn.ModuleList(
            [Nest(depth - 1, fan) for _ in range(fan if depth else 0)]
        )

    def forward(self, x: Any) -> Any:
        options = {name: getattr(self, name) for name in ("training", "scale", "parts")}
        if options["scale"] is not None:
            return x * options["scale"] if isinstance(x.shape, tuple) and options["training"] else x
        return sum(stack([part(x) for part in self.parts]), axis=0)


class Filters(nn.Module):
    """Small convolutions with group norms and pooling between them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.convs: nn.ModuleList = nn.ModuleList(
            [nn.Conv1d(4, 4, 3, padding=1) for _ in range(count)]
        )
        self.norms: nn.ModuleList = nn.ModuleList([nn.GroupNorm(2, 4) for _ in range(count)])
        self.head: nn.Linear = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.silu(norm(conv(x)))
        return self.head(mean(F.avg_pool1d(x, 2), axis=-1))


class Cells(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.cell: nn.RNNCell = nn.RNNCell(6, 6)
        self.head: nn.Linear = nn.Linear(6, 5)
        self.length = length

    def forward(self, x: Any) -> Any:
        state = creation.zeros((x.shape[0], 6))
        for _ in range(self.length):
            state = self.cell(x, state)
        return self.head(state)


class Turns(nn.Module):
    """Recurrent layers, whose loops are compiled."""

    def __init__(self, layer: type[Any], width: int) -> None:
        super().__init__()
        self.layer: Any = layer(7, width, batch_first=True)
        self.head: nn.Linear = nn.Linear(width, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


def synthetic_steps(smoke: bool) -> list["SyntheticStep"]:
    """Training steps that differ in Python's main work."""
    rng = np.random.default_rng(0)
    count = 1 if smoke else 4

    def batch(*shape):
        return asarray(rng.standard_normal(shape, np.float32))

    classes = asarray(rng.integers(0, 5, 3))
    x, y = batch(3, 5), batch(3, 5)
    large = 2 * SMALL_BYTES // 4  # whose arrays are the memory manager's
    large_batch = batch(3, large), batch(3, large)
    wide_batch = batch(3, 7), classes
    captured = [
        SyntheticStep(nn.Linear(5, 5), F.mse_loss, optim.SGD, x, y, convention="captured"),
        SyntheticStep(Waves(count, 5), F.mse_loss, optim.Adam, x, y, convention="captured"),
        SyntheticStep(
            NormBlocks(2 * count, 7),
            F.cross_entropy,
            optim.AdamW,
            *wide_batch,
            convention="captured",
        ),
        SyntheticStep(
            ManyWeights(8 * count, large),
            F.mse_loss,
            optim.AdamW,
            *large_batch,
            convention="captured",
        ),
    ]
    return [
        SyntheticStep(nn.Linear(5, 5), F.mse_loss, optim.SGD, x, y),
        SyntheticStep(nn.Linear(5, 5), F.cross_entropy, optim.SGD, x, classes),
        SyntheticStep(Waves(2 * count, 5), F.mse_loss, optim.SGD, x, y),
        SyntheticStep(Waves(count, large), F.l1_loss, optim.Adam, *large_batch),
        SyntheticStep(ManyWeights(8 * count, large), F.mse_loss, optim.AdamW, *large_batch),
        SyntheticStep(NormBlocks(2 * count, 7), F.cross_entropy, optim.AdamW, batch(3, 7), classes),
        SyntheticStep(NormBlocks(count, 40), F.mse_loss, optim.RMSprop, batch(3, 40), y),
        SyntheticStep(Nest(3, 2 + count // 2), F.mse_loss, optim.SGD, x, y),
        SyntheticStep(Filters(count), F.cross_entropy, optim.Adagrad, batch(3, 4, 8), classes),
        SyntheticStep(Cells(2 * count), F.cross_entropy, optim.SGD, batch(3, 6), classes),
        SyntheticStep(Turns(nn.GRU, 24), F.mse_loss, optim.SGD, batch(3, 3 * count, 7), y),
        SyntheticStep(Turns(nn.LSTM, 9), F.mse_loss, optim.Adam, batch(3, 5 * count, 7), y),
        *captured,
    ]


class KernelTime(Watcher):
    """Measures the time of Programs' kernels."""

    ns: int = 0

    def program(self, run: ProgramRun) -> None:
        if len(run.ends_ns):
            self.ns += int(run.ends_ns[-1]) - (run.first_ns or run.begin_ns)


class SyntheticStep:
    """A step that is counted, and also runs."""

    def __init__(
        self,
        model: Any,
        loss: Callable[..., Any],
        optimizer: type[Any],
        *inputs: Any,
        convention: str = "exact",
    ) -> None:
        instance = optimizer(model.parameters(), lr=1e-3)
        make = whole_steps.get(convention, TrainingStep)
        self.step: TrainingStep = make(model, loss, instance, inputs, None)
        self.step.counts_host = True
        self.inputs: tuple[Any, ...] = inputs
        self.work: HostWork = HostWork()
        self.times: list[int] = []
        self.warm_times: list[int] = []
        self.kernel_times: list[int] = []
        self.analysis: StepAnalysis | None = None

    def prepare(self) -> None:
        """Count Python's work, and run until all is compiled, and captured again after that."""
        for _ in range(WARM_STEPS):
            self.train()
        self.analysis = self.step.analyse(2, CPU2)
        self.work = self.analysis.host_work
        for _ in range(WARM_STEPS):
            self.train()

    def train(self) -> None:
        self.step.run(self.step.optimizer, self.inputs)
        backends.current().evaluate()

    def measure(self) -> None:
        """Time a step right after others of its kind, and one after caches were swept."""
        for times in (self.warm_times, self.times):
            for _ in range(IN_A_ROW):
                self.train()
            if times is self.times:
                SWEPT.fill(0)
            begin_ns = thread_time_ns()
            self.train()
            times.append(thread_time_ns() - begin_ns)

    def measure_kernels(self) -> None:
        """Time a step's kernels."""
        watcher = KernelTime()
        watcher.watch()
        try:
            self.train()
        finally:
            watcher.unwatch()
        self.kernel_times.append(watcher.ns)

    def kernel_starts(self, machine: MachineProfile) -> tuple[list[int], float, float]:
        """How many kernels, products and calls in loops the step runs, the ns that its kernels take
        beyond the rates, and in all."""
        assert self.analysis is not None
        free: dict[str, Any] = dict.fromkeys(KERNEL_COSTS, 0.0)
        plain = replace(machine, **free)
        one_each: list[dict[str, Any]] = [{name: 1.0} for name in KERNEL_COSTS]
        plain_ns, *more_ns = (
            replace(self.analysis, machine=replace(plain, **costs)).kernel_ns
            for costs in ({}, *one_each)
        )
        counts = [round(ns - plain_ns) for ns in more_ns]
        return counts, median(self.kernel_times) - plain_ns, median(self.kernel_times)

    @property
    def host_ns(self) -> float:
        """Usual ns of Python after kernels that moved much."""
        return max(1.0, median(self.times) - min(self.kernel_times))

    @property
    def warm(self) -> float:
        """Usual time of Python in a step after another, as a part of `host_ns`."""
        host_ns = max(1.0, median(self.warm_times) - min(self.kernel_times))
        return min(1.0, host_ns / self.host_ns)


class HostCalibration:
    """Measures Python's time for each kind of work in a step, round by round."""

    def __init__(self, smoke: bool = False) -> None:
        self.rounds = SMOKE_ROUNDS if smoke else ROUNDS
        with flags.override(compile="always"):
            self.steps: list[SyntheticStep] = synthetic_steps(smoke)
            for step in self.steps:
                step.prepare()

    def measure(self) -> None:
        """One round: each step in turn."""
        with flags.override(compile="always"):
            for step in self.steps:
                step.measure()
                if len(step.kernel_times) < REPEATS:
                    step.measure_kernels()

    def complete(self, machine: MachineProfile) -> MachineProfile:
        """Add the costs measured by these steps to a profile that has the rates of kernels."""
        counts, beyond_ns, all_ns = zip(
            *(step.kernel_starts(machine) for step in self.steps), strict=True
        )
        starts = costs_that_explain(counts, beyond_ns, all_ns)
        kernel_costs: dict[str, Any] = dict(zip(KERNEL_COSTS, starts, strict=True))
        return replace(machine, **kernel_costs, **self.costs())

    def costs(self) -> dict[str, Any]:
        """Costs in ns and the part of them while caches are warm, as a MachineProfile has them."""
        works = [step.work for step in self.steps]
        times = [step.host_ns for step in self.steps]
        costs = costs_that_explain(works, times, times)
        warm = median(step.warm for step in self.steps)
        return dict(zip(HOST_COSTS, costs, strict=True)) | {"warm": warm}


def costs_that_explain(
    works: Sequence[Any], times_ns: Sequence[float], sizes_ns: Sequence[float]
) -> list[float]:
    """Fit the cost of each kind of work, at least 0, such that the sums come closest to the times,
    in proportion to these sizes."""
    sizes = np.array(sizes_ns)
    counts, times = np.array(works, float) / sizes[:, None], np.array(times_ns) / sizes
    costs, active = np.zeros(counts.shape[1]), np.ones(counts.shape[1], bool)
    while active.any():
        costs[:] = 0
        costs[active] = np.linalg.lstsq(counts[:, active], times)[0]
        if (costs >= 0).all():
            break
        active &= costs > 0
    return costs.tolist()


def calibrate(name: str = "here", smoke: bool = False) -> MachineProfile:
    """Calibrate a profile of this machine, with small programs that run for about a minute."""
    host = HostCalibration(smoke)
    for _ in range(host.rounds):
        host.measure()
    return host.complete(calibrate_kernels(name, smoke))
