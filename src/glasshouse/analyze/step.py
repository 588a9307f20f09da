"""A training step, ahead of time: peak memory, FLOPs and time before anything is allocated.

The step runs on meta tensors through the same dispatch, tape, compiler and memory manager as in
earnest, up to the plan of each Program; so what is planned here is what a run allocates."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.meta import address_of, meta_backend, placed, specs_of, without_storage
from glasshouse.analyze.step_costs import KernelCost, MemoryRow, Moment, StepCosts
from glasshouse.analyze.torch_models import is_torch_module, of_torch
from glasshouse.base import OptionError, Spec, check_known, having, type_name
from glasshouse.compile.plan import ProgramPlan, no_collection
from glasshouse.compile.plan_memory import aligned_bytes
from glasshouse.dispatch import Value, state
from glasshouse.dispatch import autocast as autocast_to
from glasshouse.ir.node import all_of, map_nodes
from glasshouse.profile.counter import FlopCounter
from glasshouse.profile.naming import name_of_step
from glasshouse.profile.text import milliseconds, scaled

# What running takes beside arrays, for each primitive of the largest Program, as measured on
# ResNet-50 (`benchmarks/analyze.py`); a process that finds the code on disk takes less.
RUNTIME_BYTES = 4500

CONVENTIONS = ("exact", "torch", "captured")
TORCH_STEPS = {  # modules and classes
    "exact": ("ahead_compiled", "CompiledStep"),
    "torch": ("ahead", "EagerStep"),
    "captured": ("ahead_captured", "WholeStep"),
}


@dataclass(eq=False)
class StepAnalysis(StepCosts):
    """What a training step will cost; of the last of `steps` that were analysed.

    peak_bytes        the most that the memory manager will have allocated, in the worst step
    peaks             the same for each step
    resident          bytes by which the process will grow from before the model, in parts
    arena_bytes       the planned arena of the largest Program
    memory            rows by kind and module that add up to the peak of the last step
    counter           the FlopCounter of the last step
    sent_bytes        what this rank sends to others in it, by collective and group
    kernels           every kernel with FLOPs, bytes and predicted time
    predicted_ns      their sum and that of messages, as if nothing could run beside either
    communication_ns  what collectives take of it, and what stages of a pipeline pass on"""

    runs: list
    peaks: list[int]
    kinds: dict
    modules_of: dict
    outside_bytes: int
    counter: FlopCounter | None
    machine: MachineProfile
    sent_bytes: dict[tuple[str, str], int] = field(default_factory=dict)

    @cached_property
    def communication_ns(self) -> float:
        infos = (info for run in self.runs for info in run.plan.step_infos())
        return sum(self.machine.ns(info) for info in infos if info.group) + self.message_ns

    @property
    def message_ns(self) -> float:
        """The time in which this rank sends what no Program does."""
        messages = {} if self.counter is None else self.counter.messages
        return sum(n * self.machine.sending_ns(nbytes) for (_, nbytes), n in messages.items())

    @property
    def predicted_ns(self) -> float:
        return super().predicted_ns + self.message_ns

    @cached_property
    def arena_bytes(self) -> int:
        return max((run.plan.arena_bytes for run in self.runs), default=0)

    @cached_property
    def resident(self) -> dict[str, int]:
        """What the process grows by: the peak, what NumPy holds, and about what running takes."""
        counts = [
            len(run.plan.graph.nodes) for run in self.runs if isinstance(run.plan, ProgramPlan)
        ]
        return {
            "memory manager": self.peak_bytes,
            "arrays from NumPy": self.outside_bytes,
            "runtime": RUNTIME_BYTES * max(counts, default=0),
        }

    @cached_property
    def memory(self) -> list[MemoryRow]:
        """What is alive at the peak; the rows add up to it."""
        run = max(self.runs, key=lambda run: run.allocated_bytes)
        sums: Counter = Counter()
        for address, (nbytes, tag) in run.live.items():
            if tag.primitive == "arena":
                rows = arena_rows(run.plan, nbytes)
            else:
                kind = self.kinds.get(address, "other results")
                rows = [MemoryRow(kind, self.modules_of.get(address, tag.module), nbytes)]
            for row in rows:
                sums[row.kind, row.module] += row.nbytes
        rounding = run.allocated_bytes - sum(sums.values())
        rows = [MemoryRow(*key, nbytes) for key, nbytes in sums.items()]
        return [*sorted(rows, key=lambda r: -r.nbytes), MemoryRow("rounding", "", rounding)]

    @cached_property
    def timeline(self) -> list[Moment]:
        """Bytes in use at each step of each Program: what lies in the arena, and all else."""
        moments = []
        for number, run in enumerate(self.runs):
            outside = run.allocated_bytes - run.plan.arena_bytes
            infos = run.plan.step_infos()
            inside = occupancy(run.plan)[0] or [0] * len(infos)  # references have no arena
            for i, (info, used) in enumerate(zip(infos, inside, strict=True)):
                moments.append(Moment(number, i, info.name, outside + used))
        return moments

    @cached_property
    def kernels(self) -> list[KernelCost]:
        with no_collection():
            kernels = []
            for number, run in enumerate(self.runs):
                for i, info in enumerate(run.plan.step_infos()):
                    what = (
                        name_of_step(info),
                        info.kind,
                        *info.origins[-1][:2],
                        info.flops,
                        info.bytes,
                    )
                    kernels.append(KernelCost(number, i, *what, self.machine.ns(info)))
            return kernels

    def with_ranks(self, ranks: int) -> float:
        """Predicted ns of a step on `ranks` devices: a ring all-reduce of the gradients follows.

        Raises: OptionError if the machine's profile has no link
        Source: Patarasuk & Yuan 2009, a ring moves 2 (n - 1) / n of the data
        """
        if not self.machine.link_bytes_per_s:
            expected = "a machine profile with link_bytes_per_s"
            raise OptionError("with_ranks", expected, "none", "Set it.")
        gradients = self.memory_by_kind.get("gradients", 0)
        sent = 2 * (ranks - 1) / ranks * gradients
        return self.predicted_ns + 1e9 * sent / self.machine.link_bytes_per_s

    def head(self) -> str:
        """Peak, arena, growth of the process, FLOPs and time, as text."""
        parts = ", ".join(f"{name} {scaled(n, 'B')}" for name, n in self.resident.items())
        return (
            f"peak {self.peak_bytes:,} bytes (by step: {', '.join(f'{p:,}' for p in self.peaks)}), "
            f"arena {self.arena_bytes:,}\n"
            f"the process grows by about {scaled(sum(self.resident.values()), 'B')} ({parts})\n"
            f"{self.work()}{self.sent()}\n"
        )

    def sent(self) -> str:
        """What this rank sends, as text; nothing where it is alone."""
        parts = [f"{name} {group} {scaled(n, 'B')}" for (name, group), n in self.sent_bytes.items()]
        if not parts:
            return ""
        return (
            f"sent: {', '.join(parts)}; {milliseconds(self.communication_ns)} if nothing else ran\n"
        )

    def to_dict(self) -> dict:
        """All of it as what JSON can hold."""
        own = {"arena_bytes": self.arena_bytes, "resident": self.resident}
        own["sent_bytes"] = {" ".join(key): n for key, n in self.sent_bytes.items()}
        return {**super().to_dict(), **own}


def occupancy(plan) -> tuple[list[int], dict]:
    """(bytes of the arena in use at each step, {buffer: (first, last)}); a result that takes the
    place of an operand counts from the step after."""
    life: dict[Any, list[int]] = {}
    for i, step in enumerate(plan.schedule):
        for buffer in (*step.writes(), *step.reads()):
            if buffer.place == "arena" and buffer.host is None:
                life.setdefault(buffer, [i, i])[1] = i
    ends = {(buffer.at, last) for buffer, (first, last) in life.items() if first < last}
    changes = [0] * (len(plan.schedule) + 1)
    spans = {}
    for buffer, (first, last) in life.items():
        begin = first + ((buffer.at, first) in ends)
        spans[buffer] = begin, last
        changes[begin] += aligned_bytes(buffer)
        changes[last + 1] -= aligned_bytes(buffer)
    return list(accumulate(changes[:-1])), spans


def arena_rows(plan, nbytes: int) -> list[MemoryRow]:
    """What an arena holds when it holds most, by kind and module; the rows add up to `nbytes`."""
    used, spans = occupancy(plan)
    fullest = max(range(len(used)), key=used.__getitem__, default=-1)
    infos, sums = plan.step_infos(), Counter()
    for buffer, (first, last) in spans.items():
        if not first <= fullest <= last:
            continue
        node, kind, module = buffer.node, "temporaries", infos[first].origins[0].module
        if node is None:
            kind = "workspace"
        elif node.origin.phase == "forward":
            module = node.origin.module
            if any(origin.phase != "forward" for origin in infos[last].origins):
                kind = "activations"
        sums[kind, module] += aligned_bytes(buffer)
    rows = [MemoryRow(*key, n) for key, n in sums.items()]
    return [*rows, MemoryRow("unused arena", "", nbytes - sum(row.nbytes for row in rows))]


def step_maker(where: str, model, convention: str) -> Callable:
    """The class whose objects analyse steps of such a model in a convention.

    Raises: OptionError for an unknown convention, or one that is not for such a model
    """
    check_known(where, f"one of {', '.join(CONVENTIONS)} as convention", convention, CONVENTIONS)
    if is_torch_module(model):
        name, maker = TORCH_STEPS[convention]
        return getattr(of_torch(name), maker)
    if convention != "exact":
        fix = f'For a {type_name(model)}, say convention="exact".'
        raise OptionError(where, f"a torch.nn.Module with {convention!r}", type_name(model), fix)
    return next((make for kind, make in own_steps.items() if isinstance(model, kind)), TrainingStep)


class TrainingStep:
    """A model with its loss, optimizer and inputs, whose steps run without storage."""

    def __init__(self, model, loss: Callable | None, optimizer, inputs, autocast: str | None):
        if not callable(model):
            raise OptionError("step", "a model to call", type_name(model), "Pass a Module.")
        if loss is not None and not callable(loss):
            fix = "Pass loss(output, *targets), or None if the model returns it."
            raise OptionError("step", "the loss to be a function", type_name(loss), fix)
        self.specs = specs_of(inputs)
        self.model, self.loss, self.optimizer, self.autocast = model, loss, optimizer, autocast

    def run(self, optimizer, inputs) -> None:
        optimizer.zero_grad()
        with autocast_to(self.autocast) if self.autocast else nullcontext():
            loss = self.forward(inputs)
        self.backward(loss)
        optimizer.step()

    def forward(self, inputs) -> Value:
        """The loss."""
        out = self.model(inputs[0])
        return out if self.loss is None else self.loss(out, *inputs[1:])

    def backward(self, loss: Value) -> None:
        """The gradients."""
        loss.backward()

    def analyse(self, steps: int, machine: MachineProfile, tape: list | None = None):
        """The StepAnalysis of the steps, planned one after the other. The `tape` gets what the
        manager does; after each step its runs, and "step"."""
        backend, peaks = meta_backend(), []
        if tape is not None:
            backend.manager.subscribe(tape.append)
        optimizer = self.optimizer
        fixed = optimizer if hasattr(optimizer, "step") else None
        storage = without_storage(self.model, fixed, backend)
        with having(state, backend=backend), storage, no_collection():
            if fixed is None:
                optimizer = self.optimizer(self.model.parameters())
            inputs = map_nodes(self.specs, lambda spec: placed(spec, backend), Spec)
            manager, outside_bytes = backend.manager, self.outside_bytes(inputs)
            for _ in range(steps):
                backend.runs.clear()
                manager.reset_peak()
                kinds, modules = self.owners(optimizer)
                with FlopCounter() as counter:
                    self.run(optimizer, inputs)
                backend.evaluate()
                peaks.append(manager.stats().peak_allocated_bytes)
                if tape is not None:
                    tape.extend([*backend.runs, "step"])
            after = self.owners(optimizer)
            runs = list(backend.runs)
        owners, sent = (kinds | after[0], modules | after[1]), counter.sent_bytes()
        made = StepAnalysis(runs, peaks, *owners, outside_bytes, counter, machine, sent)
        if sent:  # what a rank sends is known while it is part of its world
            made.kernels, made.communication_ns  # noqa: B018
        return made

    def outside_bytes(self, inputs) -> int:
        """Bytes of inputs, weights and buffers that are not the manager's: NumPy holds them."""
        tensors = {*all_of(Value, inputs), *self.model.parameters(), *self.model.buffers()}
        return sum(x.spec.nbytes for x in tensors if address_of(x) is None)

    def owners(self, optimizer) -> tuple[dict[int, str], dict[int, str]]:
        """By address: the kind of what lies there, and the path of its module."""
        kinds: dict[int, str] = {}
        modules: dict[int, str] = {}
        root = type(self.model).__name__

        def add(tensor, kind: str, name: str) -> None:
            address = address_of(tensor)
            if address is not None:
                kinds[address] = kind
                modules[address] = ".".join([root, *name.split(".")[:-1]])

        names = {}
        for name, p in self.model.named_parameters():
            names[id(p)] = name
            add(p, "parameters", name)
            if p.grad is not None:
                add(p.grad, "gradients", name)
        for name, buffer in self.model.named_buffers():
            add(buffer, "buffers", name)
        for p, entry in getattr(optimizer, "state", {}).items():
            for x in entry.values():
                if isinstance(x, Value):
                    add(x, "optimizer state", names.get(id(p), ""))
        return kinds, modules


own_steps: dict[type, type[TrainingStep]] = {}  # of models whose forward is no step's beginning


def step(
    model,
    loss,
    optimizer,
    inputs,
    *,
    convention: str = "exact",
    autocast: str | None = None,
    steps: int = 2,
    machine: MachineProfile | str = "cpu2",
) -> StepCosts:
    """What a training step costs, before any of it runs: memory, FLOPs, time.

    model       a Module, with or without storage (`gh.meta()`); it is unchanged afterwards
    loss        function (output, *targets) -> scalar; None if the model returns the loss
    optimizer   an optimizer over the model's parameters, or a function that makes one of them
    inputs      the model's input (or a list, dict, dataclass), then targets: tensors, or
                pairs (shape, dtype)
    convention  "exact": a step on our engine (of a torch.nn.Module: compiled by our backend);
                "torch": of such a module by PyTorch eager; "captured": of such a module, with the
                loss and the update, as gh.optimize captures a whole step
    autocast    "bfloat16" or "float16" for mixed precision
    machine     a profile, a file, or a built-in name, for the predicted time

    Of a torch.nn.Module, an input that is a dict has arguments by name, a tuple by position.

    Raises: OptionError for bad arguments; BackendError, with the line, where a value is read
    Example:
        >>> import glasshouse as gh
        >>> model = gh.nn.Linear(1000, 1000)
        >>> opt = gh.optim.SGD(model.parameters(), lr=0.1)
        >>> loss = gh.nn.functional.mse_loss
        >>> analysis = step(model, loss, opt, [((8, 1000), "float32"), ((8, 1000), "float32")])
        >>> analysis.counter.total()
        32000000
    """
    profile = MachineProfile.load(machine)
    if not isinstance(steps, int) or steps < 1:
        raise OptionError("step", "1 step or more", repr(steps), "Two show the steady state.")
    make = step_maker("step", model, convention)
    return make(model, loss, optimizer, inputs, autocast).analyse(steps, profile)


def batched(model, inputs, batch: int):
    """The model's inputs with another first axis; of our models their specs."""
    if is_torch_module(model):
        return of_torch("no_contents").with_batch(inputs, batch)
    return with_batch(inputs, batch)


def with_batch(inputs, batch: int) -> list:
    """The inputs' specs with another first axis."""

    def changed(s: Spec) -> Spec:
        return Spec((batch, *s.shape[1:]), s.dtype) if s.shape else s

    return map_nodes(specs_of(inputs), changed, Spec)
