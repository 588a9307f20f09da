"""A training step of PyTorch's own, ahead of time: peak memory, FLOPs and time of *eager*.

The step runs on tensors without contents through PyTorch's own Python, autograd and optimizers.
The mode below autograd that reports operators to our counter and profiler also reports allocations
and frees, so each storage lives as long as in eager."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from traceback import extract_tb
from typing import Any

import torch

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step_costs import StepAnalysis, owned_tensors
from glasshouse.base.errors import PACKAGE, BackendError, OptionError, type_name
from glasshouse.compile.planning.plan import no_collection
from glasshouse.profile.counter import FlopCounter
from glasshouse.torch.ahead.no_contents import (
    NEEDS_CONTENTS,
    Contentless,
    ContentlessMode,
    without_contents,
)
from glasshouse.torch.ahead.torch_source import TorchSource
from glasshouse.torch.lowering.interpreter import TORCH
from glasshouse.torch.observe.ledger import Ledger
from glasshouse.torch.observe.observer import observe, thread_mode
from glasshouse.torch.patches.fakes import UnsupportedOperator
from glasshouse.torch.patches.trees import tree_leaves


class EagerStep:
    """A model of PyTorch's with its loss, optimizer and inputs, to run without contents."""

    convention = "torch"
    holds_output = False  # whether the model's output lives until the next step's output
    output: object = None  # the held output
    micro_batches = 1  # batches whose gradients are added up before an update

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Callable[..., Any] | None,
        optimizer: Any,
        inputs: list[Any],
        autocast: str | None,
    ) -> None:
        if not callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
            fix = "Pass torch.optim.SGD(model.parameters(), …), or a function that makes it."
            raise OptionError("step", "an optimizer of torch.optim", type_name(optimizer), fix)
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.autocast = autocast
        self.forward = model  # what is called
        is_alone = isinstance(inputs, (torch.Tensor, dict))
        self.inputs: Any = [inputs] if is_alone else list(inputs)

    def run(self, optimizer: torch.optim.Optimizer, inputs: list[Any]) -> None:
        """Run one step, as users write it: output and loss live until it ends."""
        optimizer.zero_grad()
        first, *targets = inputs
        for _ in range(self.micro_batches):
            with self.casting():
                output = self.call(first)
                if self.holds_output:
                    self.output = output
                loss = self.loss_of(output, targets)
            loss = loss if self.micro_batches == 1 else loss / self.micro_batches
            loss.backward()
        optimizer.step()

    def casting(self) -> Any:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast("cpu", getattr(torch, self.autocast))

    def call(self, first: Any) -> Any:
        """The model's output: a dict has its arguments by name, a tuple by position."""
        if isinstance(first, dict):
            return self.forward(**first)
        return self.forward(*first) if isinstance(first, tuple) else self.forward(first)

    def loss_of(self, output: Any, targets: list[Any]) -> torch.Tensor:
        """The loss: of the loss function, or of the model's output."""
        if self.loss is not None:
            return self.loss(output, *targets)
        loss = getattr(output, "loss", None)
        loss = output if loss is None else loss
        if not isinstance(loss, torch.Tensor):
            expected = "a model that returns its loss, or an output with one"
            raise OptionError("step", expected, type_name(output), "Pass loss(output, *targets).")
        return loss

    @contextmanager
    def running(
        self, mode: ContentlessMode, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> Iterator[None]:
        """Inside, the model runs eagerly; compiled functions run as plain ones."""
        with mode, torch.compiler.set_stance("force_eager"):
            yield

    def begin_step(self, ledger: Ledger) -> None:
        """Begin another step."""
        ledger.begin_step()

    def runs(self) -> list[Any]:
        """The Programs of the last step."""
        return []

    def breaks(self) -> list[Any]:
        """The places where the step leaves a captured graph."""
        return []

    def analyse(self, steps: int, machine: MachineProfile) -> StepAnalysis:
        """The StepAnalysis of the steps, one after the other."""
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
        source, runs = TorchSource(ledger, self.convention), self.runs()
        return StepAnalysis(source, runs, peaks, counter, machine, breaks=self.breaks())

    def modules(self) -> list[Any]:
        """The model, and the loss function where that is a module."""
        return [x for x in (self.model, self.loss) if isinstance(x, torch.nn.Module)]

    def watch(
        self, ledger: Ledger, steps: int, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> tuple[Any, ...]:
        """The peak of each step, and the FlopCounter of the last."""
        peaks, counter = [], None
        end = observe(ledger, self.model)
        try:
            self.note_all(ledger, optimizer, inputs)
            for _ in range(steps):
                self.begin_step(ledger)
                with FlopCounter(self.model) as counter:
                    self.run(optimizer, inputs)
                self.name_owners(ledger, optimizer, inputs)
                peaks.append(ledger.peak)
        finally:
            end()
        return peaks, counter

    def note_all(self, ledger: Ledger, optimizer: torch.optim.Optimizer, inputs: list[Any]) -> None:
        """Report all tensors that exist before the first step."""
        storages = thread_mode.mode.storages[ledger]
        tensors = [x for m in self.modules() for x in (*m.parameters(), *m.buffers())]
        tensors += [x.grad for x in tensors if x.grad is not None]
        leaves = tree_leaves((list(optimizer.state.values()), inputs))
        storages.operands([*tensors, *leaves])
        self.name_owners(ledger, optimizer, inputs)

    def name_owners(
        self, ledger: Ledger, optimizer: torch.optim.Optimizer, inputs: list[Any]
    ) -> None:
        """Name the owners of storages: parameters, gradients, buffers, the optimizer, inputs."""
        for x, owner in owned_tensors(self.modules(), optimizer, module_of):
            ledger.name(x, *owner)
        for x in tree_leaves(inputs):
            if isinstance(x, torch.Tensor):
                ledger.name(x, "inputs", "", "an input")

    @contextmanager
    def explaining(self, mode: ContentlessMode) -> Iterator[None]:
        """Inside, errors of operators without contents or sizes name the operator and its place."""
        try:
            yield
        except NEEDS_CONTENTS as error:
            expected = "a step that reads no value of a tensor"
            fix = "Give the model what it asks the tensor for, or leave that part out."
            raise BackendError("step", expected, place_of(mode, error, self.model), fix) from error
        except (UnsupportedOperator, NotImplementedError) as error:
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


def place_of(mode: ContentlessMode, error: Exception, model: torch.nn.Module) -> str:
    """The operator that failed, its module and the user's line."""
    operator, module = mode.failed
    operator = operator or str(getattr(error, "func", error))
    frames = [f for f in extract_tb(error.__traceback__) if is_users(f.filename)]
    line = f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{operator} in {module or type(model).__name__}{line}"


def module_of(root: str, path: str) -> str:
    """The path of a member's module; for the root's own its class, as PyTorch's scopes have it."""
    return path.rpartition(".")[0] or root


def is_users(path: str) -> bool:
    return not path.startswith((PACKAGE, TORCH, "<"))
