"""Sweep the cost of a step over one number, such as the batch or the length.

A step is split into its shape (the order of its steps, the lives of its values) and its numbers
(bytes and FLOPs). Where steps for several values have one shape, their numbers are polynomials of
the value; for a value between them memory is laid out and handed out again with its numbers, as
compiler and manager do it, and nothing is recorded or compiled."""

import warnings
from collections.abc import Callable
from functools import lru_cache
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from glasshouse import memory
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import (
    batched,
    step_maker,
)
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.analyze.update import is_separable, places_of, with_update
from glasshouse.base import OptionError, Spec, uint8
from glasshouse.base.units import parse_bytes
from glasshouse.compile.planning.plan import ARENA_TAG, ProgramPlan, no_collection
from glasshouse.compile.planning.plan_memory import Life, aligned_bytes, lives_of, place_all
from glasshouse.compile.steps.steps import PlannedBuffer
from glasshouse.optim import Optimizer
from glasshouse.optim.rules import SGD

MAX_ANCHORS = 4  # values that a polynomial goes through, and is tested on


class Costs(NamedTuple):
    """The cost of a step: the largest peak, the peak of each step, FLOPs in products, and time. For
    our models the time is that of kernels and messages: Python takes the same for all values."""

    peak_bytes: int
    peaks: list[int]
    flops: int
    predicted_ns: float


class StepShape(NamedTuple):
    """Shape that steps of different sizes have in common.

    events   of the memory manager: a kind and the place of the allocation in this list
    plans    for each Program that runs, the number of its plan
    lives    for each plan, (number, first step, last step) of the values in its arena
    work     for each step of each Program, its kind and products, and how many numbers it has
    updates  where each parameter is updated in plain descent"""

    events: tuple[Any, ...]
    plans: tuple[int, ...]
    lives: tuple[Any, ...]
    work: tuple[Any, ...]
    updates: tuple[Any, ...]


class StepRecord(NamedTuple):
    """A step in parts: its shape, which steps of other sizes share, its sizes, and which of these
    are, or include, a library's workspace: they follow no rule of ours. The sizes are bytes of
    allocations, bytes of values in arenas, bytes and FLOPs of steps, FLOPs in products."""

    shape: StepShape
    numbers: np.ndarray
    loose: np.ndarray


def record_step(analysis: StepAnalysis, tape: list[Any]) -> StepRecord:
    """Record an analysed step; the memory manager's events and the runs are on the tape."""
    events, allocated, run_plans = read_tape(tape[: len(tape) - tape[::-1].index("step")])
    plans = list(dict.fromkeys(run_plans))
    lives = [sorted(lives_of(p.schedule), key=lambda x: x.buffers[0].number) for p in plans]
    buffers = [life.buffers[0] for plan_lives in lives for life in plan_lives]
    work = [info.work for run in analysis.runs for info in run.plan.step_infos()]
    numbers = [*allocated, *(buffer.spec.nbytes for buffer in buffers)]
    loose = [False] * len(allocated) + [buffer.node is None for buffer in buffers]
    for (kind, *_), sizes in work:
        numbers += sizes
        loose += [kind.has_scratch, *[False] * (len(sizes) - 1)]  # the first one is bytes
    numbers.append(analysis.counter.total())
    loose.append(False)
    shape = StepShape(
        tuple(events),
        tuple(map(plans.index, run_plans)),
        tuple(
            tuple((x.buffers[0].number, x.first, x.last) for x in plan_lives)
            for plan_lives in lives
        ),
        tuple((what, len(sizes)) for what, sizes in work),
        places_of(analysis.runs),
    )
    return StepRecord(shape, np.array(numbers, float), np.array(loose))


def read_tape(tape: list[Any]) -> tuple[list[tuple[str, int]], list[int], list[ProgramPlan]]:
    """Read a tape: events (kind, place of the allocation), bytes of each allocation but arenas, and
    the plan of each Program that runs."""
    events: list[tuple[str, int]] = []
    allocated: list[int] = []
    plans: list[ProgramPlan] = []
    place_of: dict[int, int] = {}  # by address
    for item in tape:
        if item == "step":
            events.append((item, 0))
        elif isinstance(item, memory.MemoryEvent) and item.kind in ("alloc", "free"):
            kind = item.kind
            if kind == "alloc":
                place_of[item.address] = len(events)
                kind = "arena" if item.tag == ARENA_TAG else kind
                allocated += [item.nbytes] if kind == "alloc" else []
            events.append((kind, place_of[item.address]))
        elif isinstance(getattr(item, "plan", None), ProgramPlan):
            plans.append(item.plan)
    return events, allocated, plans


def costs_of(record: StepRecord, machine: MachineProfile) -> Costs:
    """Cost of a step with this record."""
    shape = record.shape
    numbers = iter(np.rint(record.numbers).astype(np.int64).tolist())
    sizes = {place: next(numbers) for kind, place in shape.events if kind == "alloc"}
    arenas = [arena_of(lives, tuple(islice(numbers, len(lives)))) for lives in shape.lives]
    of_runs = iter([arenas[i] for i in shape.plans])
    sizes |= {place: next(of_runs) for kind, place in shape.events if kind == "arena"}
    ns = 0.0
    for what, count in shape.work:
        ns += machine.ns_of(what, [*islice(numbers, count)])
    peaks = peaks_of(shape.events, sizes)
    return Costs(max(peaks), peaks, next(numbers), ns)


@lru_cache(64)
def arena_of(lives: tuple[Any, ...], sizes: tuple[int, ...]) -> int:
    """Bytes of an arena for values with such lives and sizes."""
    return place_all([life_of(n, *life) for n, life in zip(sizes, lives, strict=True)])


def life_of(nbytes: int, number: int, first: int, last: int) -> Life:
    buffer = PlannedBuffer(number, Spec((nbytes,), uint8))
    return Life([buffer], aligned_bytes(buffer), first, last)


def peaks_of(events: Any, sizes: dict[int, int]) -> list[int]:
    """Peak of each step of a manager with these events."""
    manager, peaks = memory.current().simulate(), []
    blocks: dict[int, Any] = {}  # by the place of the allocation
    for kind, place in events:
        if kind == "step":
            peaks.append(manager.counts.peak_allocated_bytes)
            manager.reset_peak()
        elif kind == "free":
            del blocks[place]
        else:
            blocks[place] = manager.alloc(sizes[place])
    return peaks


class sweep:
    """How the costs of a training step depend on a number: `costs = sweep(…)`, then `costs(n)`.

    A value between others whose steps have one shape takes milliseconds; any other is analysed, and
    is one of those from then on. `inputs` is a function n -> inputs; the arguments are else those
    of `step`. `costs(n, optimizer, autocast)` asks for another optimizer of ours or of the same
    make, or for another dtype. Both take milliseconds for the value that was asked about first
    (plain descent is then analysed too, in each of the `dtypes`: autocast's, None for none) and for
    those that `prepare` was given; for others they begin with an analysis. Of PyTorch's modules
    each value is analysed.

    Example:
        >>> import glasshouse as gh
        >>> model = gh.nn.Linear(1000, 1000)
        >>> opt = gh.optim.SGD(model.parameters(), lr=0.1)
        >>> costs = sweep(
        ...     model, gh.nn.functional.mse_loss, opt, lambda n: [((n, 1000), "float32")] * 2
        ... )
        >>> [costs(n).flops for n in (8, 32, 16)]
        [32000000, 128000000, 64000000]
    """

    is_recorded: bool

    def __init__(
        self,
        model: Any,
        loss: Any,
        optimizer: Any,
        inputs: Callable[[int], Any],
        *,
        convention: str = "exact",
        autocast: str | None = None,
        steps: int = 2,
        machine: MachineProfile | str = "cpu2",
        dtypes: Any = (None, "bfloat16"),
    ) -> None:
        make = step_maker("sweep", model, convention)
        self.step_for: Callable[..., Any] = lambda n: make(
            model, loss, optimizer, inputs(n), autocast
        )
        self.is_recorded = not is_torch_module(model)  # steps, so that others follow from them
        dtypes = dtypes if self.is_recorded else ()
        self.machine: MachineProfile = MachineProfile.load(machine)
        self.steps = steps
        self.records: dict[int, StepRecord] = {}
        self.costs: dict[int, Costs] = {}
        self.optimizer = optimizer
        self.autocast = autocast
        self.dtypes: Any = dtypes
        self.sweeps: dict[Any, sweep] = {}
        self.updates: dict[Any, Any] = {}  # of plain descent
        self.another: Callable[..., sweep] = lambda opt, dtype: sweep(
            model,
            loss,
            opt,
            inputs,
            convention=convention,
            autocast=dtype,
            steps=steps,
            machine=self.machine,
            dtypes=(),
        )

    def __call__(self, n: int, optimizer: Any = None, autocast: str | None = "") -> Costs:
        if optimizer is not None or autocast not in ("", self.autocast):
            autocast = self.autocast if autocast == "" else autocast
            return self.costs_with(n, optimizer or self.optimizer, autocast)
        if not self.records and self.dtypes:
            self.analyse(n)
            self.prepare((n,), self.dtypes)
        if n not in self.costs:
            record = self.between(n)
            if record is None:
                return self.analyse(n)
            with no_collection():
                self.costs[n] = costs_of(record, self.machine)
        return self.costs[n]

    def prepare(
        self, values: tuple[int, ...], dtypes: tuple[str | None, ...] = (None, "bfloat16")
    ) -> "sweep":
        """Analyse the steps from which questions about these values, all optimizers and these
        dtypes (autocast's; None for none) follow: then each takes milliseconds."""
        for n, autocast in product(values, dtypes):
            self(n, autocast=autocast)
            if is_separable(self.optimizer):
                base = self.descent(self.optimizer, autocast)
                base.analyse(n)
                costs_of(base.records[n], self.machine)  # places the arena, which is kept
        return self

    def descent(self, optimizer: Optimizer, autocast: str | None) -> "sweep":
        """Sweep of plain descent of the same parameters; its analyses are kept."""
        key = autocast, *map(id, optimizer.parameters())
        if key not in self.sweeps:
            plain = SGD(optimizer.parameters())
            is_ours = autocast == self.autocast and is_alike(plain, self.optimizer)
            self.sweeps[key] = self if is_ours else self.another(plain, autocast)
        return self.sweeps[key]

    def costs_with(self, n: int, optimizer: Any, autocast: str | None) -> Costs:
        """Costs with another optimizer or dtype: all before the update from steps of plain descent,
        where the optimizer allows it."""
        record = self.updated(n, optimizer, autocast) if is_separable(optimizer) else None
        if record is not None:
            with no_collection():
                return costs_of(record, self.machine)
        key = autocast, id(optimizer)
        if optimizer is not self.optimizer:
            return self.another(optimizer, autocast)(n)
        if key not in self.sweeps:
            self.sweeps[key] = self.another(optimizer, autocast)
        return self.sweeps[key](n)

    def updated(self, n: int, optimizer: Optimizer, autocast: str | None) -> StepRecord | None:
        """Record of plain descent with another optimizer's update, where that is possible."""
        base = self.descent(optimizer, autocast)
        with no_collection():
            return with_update(base.record(n), base.optimizer, optimizer, self.steps, base.updates)

    def analyse(self, n: int) -> Costs:
        """Analyse a step for its costs."""
        if self.is_recorded and n not in self.records:
            tape: list[Any] = []
            analysis = self.step_for(n).analyse(self.steps, self.machine, tape)
            self.records[n] = record_step(analysis, tape)
            self.costs[n] = costs_of_analysis(analysis)
        elif n not in self.costs:
            self.costs[n] = costs_of_analysis(self.step_for(n).analyse(self.steps, self.machine))
        return self.costs[n]

    def record(self, n: int) -> StepRecord:
        """Record for n, from the records around it or an analysis: always an analysis under
        autocast, where packed operands, which come in steps, are most of the loose numbers."""
        record = self.records.get(n) or (None if self.autocast else self.between(n))
        if record is None:
            self.analyse(n)
        return record or self.records[n]

    def between(self, n: int) -> StepRecord | None:
        """Record for n, if those around it have one shape, and at least one fits the polynomial
        through the others; loose numbers that do not fit are the larger of the two beside n."""
        below = max((m for m in self.records if m < n), default=n)
        above = min((m for m in self.records if m > n), default=n)
        if n in (below, above) or self.records[below].shape != self.records[above].shape:
            return None
        shape, numbers, loose = self.records[below]
        alike = [m for m in self.records if self.records[m].shape == shape]
        nearest = sorted(alike, key=lambda m: abs(m - n))[:MAX_ANCHORS]
        for count in range(2, len(nearest)):
            fit, rest = nearest[:count], nearest[count:]
            off = np.any([np.rint(self.at(m, fit)) != self.at(m, [m]) for m in rest], axis=0)
            if not np.any(off & ~loose):
                larger = np.maximum(numbers, self.records[above].numbers)
                return StepRecord(shape, np.where(off, larger, self.at(n, fit)), loose)
        return None

    def at(self, n: int, values: list[int]) -> np.ndarray:
        """Numbers at n of the polynomial through these values."""
        total: Any = 0.0
        for m in values:
            weight = np.prod([(n - other) / (m - other) for other in values if other != m])
            total = total + weight * self.records[m].numbers
        return total


def costs_of_analysis(analysis: StepAnalysis) -> Costs:
    """Costs of a step, from its analysis."""
    flops, ns = analysis.counter.total(), analysis.predicted_ns
    return Costs(analysis.peak_bytes, analysis.peaks, flops, ns)


def vary(*args: Any, **options: Any) -> sweep:
    """`sweep`, under its former name."""
    warnings.warn("gh.analyze.vary is called sweep now.", DeprecationWarning, stacklevel=2)
    return sweep(*args, **options)


def is_alike(lhs: SGD, rhs: SGD) -> bool:
    """Whether optimizers update the same parameters, by one rule with different rates."""
    rules = [
        [{**group, "lr": 0, "params": [*map(id, group["params"])]} for group in x.param_groups]
        for x in (lhs, rhs)
        if type(x) is type(lhs)
    ]
    return len(rules) == 2 and rules[0] == rules[1]


def max_batch(
    model: Any,
    loss: Callable[..., Any],
    optimizer: Any,
    inputs: Any,
    budget_bytes: int | str,
    *,
    limit: int = 1 << 16,
    **options: Any,
) -> int:
    """Find the largest batch whose step stays within `budget_bytes`, a whole number or a text such
    as "4GiB": that one fits, the next does not.

    The first axis of every input is the batch. Options are those of `sweep`.

    Raises: OptionError, with the least that is needed, if not even one example fits
    """
    options, budget_bytes = {"dtypes": (), **options}, parse_bytes("max_batch", budget_bytes)
    costs = sweep(model, loss, optimizer, lambda n: batched(model, inputs, n), **options)
    if (least := costs(1).peak_bytes) > budget_bytes:
        expected = f"a budget of at least {least:,} bytes, for one example"
        fix = "Use gh.checkpoint, autocast or a smaller model."
        raise OptionError("max_batch", expected, f"{budget_bytes:,} bytes", fix)
    low, high = 1, 2
    while high <= limit and costs(high).peak_bytes <= budget_bytes:
        low, high = high, 2 * high
    # The second time in earnest: polynomials may be wrong where sizes are equal by chance.
    for ask in (costs, costs.analyse):
        first, last = low, min(high, limit + 1)
        while last - first > 1:
            middle = (first + last) // 2
            fits = ask(middle).peak_bytes <= budget_bytes
            first, last = (middle, last) if fits else (first, middle)
        ends = [n for n in (first, last) if n <= limit]
        if all((costs.analyse(n).peak_bytes <= budget_bytes) == (n == first) for n in ends):
            break
    return first
