"""A training step of PyTorch's own, ahead of time: peak memory, FLOPs and time of *eager*.

The step runs on tensors without contents through PyTorch's own Python, autograd and optimizers.
What eager would allocate and give back is told by the mode below autograd that tells our counter
and profiler of operators, so each storage lives as long as it would."""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from traceback import extract_tb

import torch
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step_costs import KernelCost, MemoryRow, Moment, StepCosts
from glasshouse.base.errors import PACKAGE, BackendError, OptionError, type_name
from glasshouse.compile.plan import no_collection
from glasshouse.compile.work import FLAT, StepKind, StepWork
from glasshouse.memory import Tag
from glasshouse.profile.counter import FlopCounter, Sums
from glasshouse.profile.text import milliseconds, scaled
from glasshouse.torch.ledger import Ledger
from glasshouse.torch.lowering import TORCH
from glasshouse.torch.no_contents import (
    NEEDS_CONTENTS,
    Contentless,
    ContentlessMode,
    without_contents,
)
from glasshouse.torch.observe import observe, own
from glasshouse.torch.operator_cost import Operator

PYTHON_NS = 5_000.0  # what Python takes from one of PyTorch's operators to the next, about
CALL_NS = 2_000.0  # what a call takes in PyTorch's dispatcher, about


class OperatorKind(StepKind):
    """A call of PyTorch's operator: its products run at the rates of ours."""

    label = "operator"

    def work_of(self, info) -> StepWork:
        """What takes time in it."""
        (source,) = info.sources
        cost, name = source.call.cost, source.call.name
        if not cost.matrix_flops:
            return StepWork((self,), [info.bytes, cost.flops])
        product = "conv" if "conv" in name else FLAT
        others = cost.flops - cost.matrix_flops
        what = self, f"{product} {source.call.specs[0].dtype.name}"
        return StepWork(what, [info.bytes, others, cost.matrix_flops])

    def estimate(self, products, numbers, machine) -> float:
        return CALL_NS + super().estimate(products, numbers, machine)


OPERATOR = OperatorKind()


@dataclass(eq=False)
class EagerStepAnalysis(StepCosts):
    """What a training step of eager PyTorch will cost; of the last of the steps that were analysed.

    peak_bytes        the most bytes that storages of tensors have, in the worst step
    peaks             the same for each step
    peak_at           the operator that reaches it in the last step, with module and pass
    new_bytes         of memory that the system has to make for PyTorch's operators, about
    memory            rows by kind and module that add up to the peak of the last step
    timeline          bytes in use after each operator that allocates
    counter           the FlopCounter of the last step
    kernels           operators by module and pass, with FLOPs, bytes and predicted time
    kernel_ns         their sum
    host_ns           what Python takes between them, about
    predicted_ns      both"""

    ledger: Ledger
    peaks: list[int]
    counter: FlopCounter
    machine: MachineProfile

    @property
    def peak_at(self) -> Tag:
        events = self.ledger.events[: self.ledger.peak_place]
        return events[-1][0].tag if events else Tag()

    @property
    def new_bytes(self) -> int:
        return sum(self.ledger.new_bytes().values())

    @cached_property
    def memory(self) -> list[MemoryRow]:
        """What is alive at the peak; the rows add up to it."""
        sums = Sums()
        for allocation in self.ledger.alive_at_peak():
            sums.add((allocation.kind_at_peak(), allocation.module), allocation.nbytes)
        rows = [MemoryRow(*key, nbytes) for key, (nbytes,) in sums.items()]
        return sorted(rows, key=lambda row: -row.nbytes)

    @cached_property
    def timeline(self) -> list[Moment]:
        """Bytes in use after each allocation."""
        now, moments = sum(x.nbytes for x in self.ledger.began), []
        for allocation, nbytes in self.ledger.events:
            now += nbytes
            if nbytes > 0:
                moments.append(Moment(0, len(moments), allocation.tag.primitive, now))
        return moments

    @cached_property
    def kernels(self) -> list[KernelCost]:
        """Operators by module and pass; the time is that of each call as a kernel of its own."""
        return self.operators(0)

    @property
    def host_ns(self) -> float:
        """What Python takes between the operators, views among them."""
        calls = self.counter.counts.items()
        return PYTHON_NS * sum(times for (call, _), (times,) in calls if is_torchs(call))

    def operators(self, program: int) -> list[KernelCost]:
        """PyTorch's operators as kernels of what stands for a Program."""
        sums = Sums()
        for (call, origin), (times,) in self.counter.counts.items():
            if self.is_operator(call):
                cost, ns = call.cost, self.machine.ns_of_call(call, OPERATOR)
                numbers = (cost.flops * times, cost.bytes * times, ns * times)
                sums.add((call.name, OPERATOR.label, origin.module, origin.phase), *numbers)
        for tag, nbytes in self.ledger.new_bytes().items():
            key = tag.primitive, OPERATOR.label, tag.module, tag.phase
            sums.add(key, 0, 0, self.machine.new_pages_ns(nbytes))
        items = enumerate(sums.items())
        return [KernelCost(program, i, *key, *numbers) for i, (key, numbers) in items]

    def is_operator(self, call) -> bool:
        """Whether a call is one of PyTorch's that computes; cards are parts of Programs."""
        return is_torchs(call) and call.primitive.kind != "movement"

    def head(self) -> str:
        """Peak and where it is, FLOPs and time, as text."""
        at = self.peak_at
        where = " ".join(part for part in (f"in {at.primitive}", at.module, at.phase) if part)
        return (
            f"PyTorch eager: peak {self.peak_bytes:,} bytes "
            f"(by step: {', '.join(f'{p:,}' for p in self.peaks)}), {where}\n{self.work()}\n"
        )

    def work(self) -> str:
        """FLOPs and time, as text, and what of it is for new memory."""
        if not self.new_bytes:
            return super().work()
        took = milliseconds(self.machine.new_pages_ns(self.new_bytes))
        return f"{super().work()}{scaled(self.new_bytes, 'B')} of new memory take {took} of that\n"

    def to_dict(self) -> dict:
        """All of it as what JSON can hold."""
        own = {"convention": "torch", "peak_at": self.peak_at._asdict()}
        return {**super().to_dict(), **own, "new_bytes": self.new_bytes}


def is_torchs(call) -> bool:
    """Whether a call is one of PyTorch's operators."""
    return isinstance(call.primitive, Operator)


class EagerStep:
    """A model of PyTorch's with its loss, optimizer and inputs, to run without contents."""

    def __init__(self, model, loss: Callable | None, optimizer, inputs, autocast: str | None):
        if not callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
            fix = "Pass torch.optim.SGD(model.parameters(), …), or a function that makes it."
            raise OptionError("step", "an optimizer of torch.optim", type_name(optimizer), fix)
        self.model, self.loss, self.optimizer, self.autocast = model, loss, optimizer, autocast
        self.forward = model  # what is called
        is_alone = isinstance(inputs, (torch.Tensor, dict))
        self.inputs = [inputs] if is_alone else list(inputs)

    def run(self, optimizer, inputs: list) -> None:
        """One step, as users write it: output and loss are there until it ends."""
        optimizer.zero_grad()
        first, *targets = inputs
        with self.casting():
            output = self.call(first)
            loss = self.loss_of(output, targets)
        loss.backward()
        optimizer.step()

    def casting(self):
        if self.autocast is None:
            return nullcontext()
        return torch.autocast("cpu", getattr(torch, self.autocast))

    def call(self, first):
        """The model's output: a dict has its arguments by name, a tuple by position."""
        if isinstance(first, dict):
            return self.forward(**first)
        return self.forward(*first) if isinstance(first, tuple) else self.forward(first)

    def loss_of(self, output, targets: list) -> torch.Tensor:
        """The loss function's, or the model's own."""
        if self.loss is not None:
            return self.loss(output, *targets)
        loss = getattr(output, "loss", None)
        loss = output if loss is None else loss
        if not isinstance(loss, torch.Tensor):
            expected = "a model that returns its loss, or an output with one"
            raise OptionError("step", expected, type_name(output), "Pass loss(output, *targets).")
        return loss

    @contextmanager
    def running(self, mode: ContentlessMode, optimizer, inputs: list):
        """Inside, the model is called as it will be; nothing that was compiled is."""
        with mode, torch.compiler.set_stance("force_eager"):
            yield

    def begin_step(self, ledger: Ledger) -> None:
        """Another step begins."""
        ledger.begin_step()

    def analysis_of(self, ledger, peaks, counter, machine) -> EagerStepAnalysis:
        """What is told of the steps."""
        return EagerStepAnalysis(ledger, peaks, counter, machine)

    def analyse(self, steps: int, machine: MachineProfile) -> EagerStepAnalysis:
        """The EagerStepAnalysis of the steps, one after the other."""
        mode, ledger = ContentlessMode(), Ledger()
        contentless = Contentless(mode)
        optimizer = self.optimizer
        fixed = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        with (
            without_contents(self.modules(), fixed, contentless),
            self.explaining(mode),
            no_collection(),
        ):
            with mode:
                if fixed is None:
                    optimizer = self.optimizer(self.model.parameters())
                inputs = [contentless.input_of(x) for x in self.inputs]
            contentless.forget()
            with self.running(mode, optimizer, inputs):
                peaks, counter = self.watch(ledger, steps, optimizer, inputs)
        return self.analysis_of(ledger, peaks, counter, machine)

    def modules(self) -> list:
        """The model, and the loss function where that is a module."""
        return [x for x in (self.model, self.loss) if isinstance(x, torch.nn.Module)]

    def watch(self, ledger: Ledger, steps: int, optimizer, inputs: list) -> tuple:
        """The peak of each step, and the FlopCounter of the last."""
        peaks, counter = [], None
        end = observe(ledger, self.model)
        try:
            self.note_all(ledger, self.modules(), optimizer, inputs)
            for _ in range(steps):
                self.begin_step(ledger)
                with FlopCounter(self.model) as counter:
                    self.run(optimizer, inputs)
                self.name_owners(ledger, self.modules(), optimizer, inputs)
                peaks.append(ledger.peak)
        finally:
            end()
        return peaks, counter

    def note_all(self, ledger: Ledger, modules: list, optimizer, inputs: list) -> None:
        """Enter what is there before the first step."""
        storages = own.mode.storages[ledger]
        tensors = [x for module in modules for x in (*module.parameters(), *module.buffers())]
        tensors += [x.grad for x in tensors if x.grad is not None]
        leaves = torch.utils._pytree.tree_leaves((list(optimizer.state.values()), inputs))
        storages.operands([*tensors, *leaves])
        self.name_owners(ledger, modules, optimizer, inputs)

    def name_owners(self, ledger: Ledger, modules: list, optimizer, inputs: list) -> None:
        """Say what parameters, gradients, buffers, the optimizer and the inputs hold."""
        names: dict[torch.Tensor, str] = {}
        for module in modules:
            root = type(module).__name__
            for name, p in module.named_parameters():
                names[p] = name.rpartition(".")[0] or root
                ledger.name(p, "parameters", names[p])
                if p.grad is not None:
                    ledger.name(p.grad, "gradients", names[p])
            for name, buffer in module.named_buffers():
                ledger.name(buffer, "buffers", name.rpartition(".")[0] or root)
        for p, entry in optimizer.state.items():
            for x in torch.utils._pytree.tree_leaves(entry):
                if isinstance(x, torch.Tensor):
                    ledger.name(x, "optimizer state", names.get(p, ""))
        for x in torch.utils._pytree.tree_leaves(inputs):
            if isinstance(x, torch.Tensor):
                ledger.name(x, "inputs", "")

    @contextmanager
    def explaining(self, mode: ContentlessMode):
        """Errors of operators that ask for contents, or have no sizes, say which one and where."""
        try:
            yield
        except NEEDS_CONTENTS as error:
            expected = "a step that reads no value of a tensor"
            fix = "Give the model what it asks the tensor for, or leave that part out."
            raise BackendError("step", expected, place_of(mode, error, self.model), fix) from error
        except (UnsupportedOperatorException, NotImplementedError) as error:
            expected = "operators that run without contents"
            fix = "Register one with torch.library.register_fake."
            raise BackendError("step", expected, place_of(mode, error, self.model), fix) from error
        except RuntimeError as error:
            if error is not mode.error:  # the program's own
                raise
            place, fix = place_of(mode, error, self.model), "Run that part eagerly to see it there."
            expected = "operands that fit their operators"
            raise BackendError("step", expected, f"{error}: {place}", fix) from error
        finally:
            mode.error = None


def place_of(mode: ContentlessMode, error: Exception, model) -> str:
    """The operator that failed, its module and the user's line."""
    operator, module = mode.failed
    operator = operator or str(getattr(error, "func", error))
    frames = [f for f in extract_tb(error.__traceback__) if is_users(f.filename)]
    line = f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{operator} in {module or type(model).__name__}{line}"


def is_users(path: str) -> bool:
    return not path.startswith((PACKAGE, TORCH, "<"))
