"""A training step, ahead of time: peak memory, FLOPs and time before anything is allocated.

The step runs on meta tensors through the same dispatch, tape, compiler and memory manager as in
earnest, up to the plan of each Program; so a run allocates exactly the planned memory."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from glasshouse.analyze.engine_source import OwnSource
from glasshouse.analyze.host import CallCounter, HostWork
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.meta import address_of, meta_backend, placed, specs_of, without_storage
from glasshouse.analyze.step_costs import Owner, StepAnalysis, owned_tensors
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.base import GradError, OptionError, Spec, check_known, having, type_name
from glasshouse.base.flags import flags
from glasshouse.base.upper_storeys import offered
from glasshouse.compile.planning.plan import no_collection
from glasshouse.compile.programs.replay import load_replay
from glasshouse.dispatch import Value, state
from glasshouse.dispatch import autocast as autocast_to
from glasshouse.ir.node import all_of, map_nodes
from glasshouse.nn.functional import cross_entropy
from glasshouse.optim import Optimizer
from glasshouse.profile.counter import FlopCounter
from glasshouse.tensor import Tensor

CONVENTIONS = ("exact", "torch", "captured")


def step_maker(where: str, model: Any, convention: str) -> Callable[..., Any]:
    """Class whose objects analyse steps of such a model in a convention.

    Raises: OptionError for an unknown convention, or one that is not for such a model
    """
    check_known(where, f"one of {', '.join(CONVENTIONS)} as convention", convention, CONVENTIONS)
    if is_torch_module(model):
        return offered("torch", convention)
    if convention in whole_steps:
        return whole_steps[convention]
    if convention != "exact":
        fix = f'For a {type_name(model)}, say convention="exact".'
        raise OptionError(where, f"a torch.nn.Module with {convention!r}", type_name(model), fix)
    return next((make for kind, make in own_steps.items() if isinstance(model, kind)), TrainingStep)


class TrainingStep:
    """A model with its loss, optimizer and inputs, whose steps run without storage."""

    holds_output = False  # whether the model's output lives until the next step has another
    output: Any = None  # that is held
    micro_batches = 1  # batches whose gradients are added up before an update
    counts_host = False  # whether Python's work is counted, in further steps

    def __init__(
        self,
        model: Any,
        loss: Callable[..., Any] | None,
        optimizer: Any,
        inputs: Any,
        autocast: str | None,
    ) -> None:
        if not callable(model):
            raise OptionError("step", "a model to call", type_name(model), "Pass a Module.")
        if loss is not None and not callable(loss):
            fix = "Pass loss(output, *targets), or None if the model returns it."
            raise OptionError("step", "the loss to be a function", type_name(loss), fix)
        self.specs: list[Any] = specs_of(inputs)
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.autocast = autocast

    def run(self, optimizer: Optimizer, inputs: Any) -> None:
        optimizer.zero_grad()
        for _ in range(self.micro_batches):
            with autocast_to(self.autocast) if self.autocast else nullcontext():
                loss = self.forward(inputs)
            self.backward(loss if self.micro_batches == 1 else loss / self.micro_batches)
            if self.micro_batches > 1:  # whose loop reads each loss
                state.backend.evaluate()
        optimizer.step()

    def forward(self, inputs: list[Tensor]) -> Tensor:
        """The loss."""
        out = self.model(inputs[0])
        if self.holds_output:
            self.output = out
        return out if self.loss is None else self.loss(out, *inputs[1:])

    def backward(self, loss: Tensor) -> None:
        """The gradients."""
        loss.backward()

    def analyse(
        self, steps: int, machine: MachineProfile, tape: list[Any] | None = None
    ) -> StepAnalysis:
        """Analyse the steps, planned one after the other. The `tape` gets the manager's events;
        after each step its runs, and "step"."""
        load_replay()  # as a step that runs has it
        backend, peaks = meta_backend(), []
        if tape is not None:
            backend.manager.subscribe(tape.append)
        optimizer = self.optimizer
        fixed = None if makes_optimizer(optimizer) else optimizer
        storage = without_storage(self.model, fixed, backend)
        is_auto = flags.compile == "auto"
        steady = having(flags, compile="always" if is_auto else flags.compile)
        with having(state, backend=backend), storage, steady, no_collection():
            if fixed is None:
                optimizer = self.optimizer(self.model.parameters())
            inputs = map_nodes(self.specs, lambda spec: placed(spec, backend), Spec)
            manager, outside = backend.manager, self.found_outside(inputs)
            for _ in range(steps):
                backend.runs.clear()
                manager.reset_peak()
                owners = self.owners(optimizer)
                with FlopCounter() as counter:
                    self.run(optimizer, inputs)
                backend.evaluate()
                peaks.append(manager.stats().peak_allocated_bytes)
                if tape is not None:
                    tape.extend([*backend.runs, "step"])
            owners |= self.owners(optimizer)
            runs, outside = list(backend.runs), {**outside, **self.made_outside(optimizer)}
            work = self.count_host(optimizer, inputs, steps) if self.counts_host else HostWork()
        source, sent = OwnSource(owners), counter.sent_bytes()
        first = max((run.reference_runs for run in runs), default=0) if is_auto else 0
        result = StepAnalysis(
            source, runs, peaks, counter, machine, outside, sent, first, host_work=work
        )
        if sent:  # a rank's sent bytes are known while it is part of its world
            result.kernels, result.communication_ns  # noqa: B018
        return result

    def count_host(self, optimizer: Optimizer, inputs: list[Any], steps: int) -> HostWork:
        """Count Python's work in a steady step, run after these: the first step creates the
        optimizer's state, and the second records calls for replay. All counts are 0 if the model
        cannot run another step."""
        backend = state.backend
        for _ in range(max(1, 3 - steps)):
            try:
                with backend.counting() as counted, CallCounter(backend) as counter:
                    self.run(optimizer, inputs)
                    backend.evaluate()
            except GradError:
                return HostWork()
        return HostWork(counter.calls, **vars(counted))

    def found_outside(self, inputs: list[Tensor]) -> dict[str, int]:
        """Bytes of inputs, weights and buffers that are not the manager's: NumPy holds them."""
        model = self.model
        kinds = {
            "parameters": model.parameters(),
            "buffers": model.buffers(),
            "inputs": all_of(Value, inputs),
        }
        return {kind: bytes_outside(tensors) for kind, tensors in kinds.items()}

    def made_outside(self, optimizer: Optimizer) -> dict[str, int]:
        """Bytes of gradients and optimizer state that are not the manager's."""
        entries = getattr(optimizer, "state", {}).values()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        state = [x for entry in entries for x in entry.values() if isinstance(x, Value)]
        return {"gradients": bytes_outside(gradients), "optimizer state": bytes_outside(state)}

    def owners(self, optimizer: Optimizer) -> dict[int, Owner]:
        """Owners of the memory of the model, its output and the optimizer, by address."""
        of_output = Owner("other results", type(self.model).__name__, "the model's output")
        pairs = [(x, of_output) for x in all_of(Value, self.output)]
        pairs += owned_tensors([self.model], optimizer, module_of)
        return {at: owner for x, owner in pairs if (at := address_of(x)) is not None}


def module_of(root: str, path: str) -> str:
    """The path of a member's module, as scopes have it: they begin with the root's class."""
    return ".".join([root, *path.split(".")[:-1]])


def bytes_outside(tensors: Any) -> int:
    """Bytes of tensors in memory that is not the manager's."""
    return sum(x.spec.nbytes for x in set(tensors) if address_of(x) is None)


own_steps: dict[
    type[Any], type[TrainingStep]
] = {}  # of models whose forward is no step's beginning
whole_steps: dict[str, type[TrainingStep]] = {}  # by convention, those that are no plain steps


def step(
    model: Any,
    loss: Any,
    optimizer: Any,
    inputs: Any,
    *,
    convention: str = "exact",
    autocast: str | None = None,
    steps: int = 2,
    machine: MachineProfile | str = "cpu2",
    holds_output: bool = False,
    micro_batches: int = 1,
) -> StepAnalysis:
    """Analyse the cost of a training step before any of it runs: memory, FLOPs, time.

    model       a Module, with or without storage (`gh.meta()`); it is unchanged afterwards
    loss        function (output, *targets) -> scalar; None if the model returns the loss
    optimizer   an optimizer over the model's parameters, or a function that makes one of them
    inputs      the model's input (or a list, dict, dataclass), then targets: tensors, or
                pairs (shape, dtype)
    convention  "exact": a step on our engine (of a torch.nn.Module: compiled by our backend);
                "torch": of such a module by PyTorch eager; "captured": with the loss and the
                update, as gh.optimize captures a whole step
    autocast    "bfloat16" or "float16" for mixed precision
    machine     a profile, a file, or a built-in name, for the predicted time
    holds_output  whether the loop keeps the model's output until the next step, as
                `out = model(x)` does; `loss(model(x), y)` keeps none
    micro_batches  how many batches of `inputs` add up their gradients before an update; the loop
                reads each one's loss
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
    if not isinstance(micro_batches, int) or micro_batches < 1:
        fix = "One is a step without accumulation."
        raise OptionError("step", "1 micro-batch or more", repr(micro_batches), fix)
    maker = step_maker("step", model, convention)(model, loss, optimizer, inputs, autocast)
    maker.holds_output, maker.micro_batches = holds_output, micro_batches
    maker.counts_host = True
    return maker.analyse(steps, profile)


def makes_optimizer(x: Any) -> bool:
    """Whether it is a function or class that makes an optimizer, and no optimizer itself."""
    return callable(x) and (isinstance(x, type) or not hasattr(x, "step"))


def usual_loss(model: Any, inputs: list[tuple[tuple[Any, ...], str]]) -> Callable[..., Any] | None:
    """Default loss: cross-entropy with the inputs after the model's; a model without targets
    returns its own loss."""
    if is_torch_module(model):
        has_targets = isinstance(inputs, (list, tuple)) and len(inputs) > 1
        return sys.modules["torch"].nn.functional.cross_entropy if has_targets else None
    return cross_entropy if len(specs_of(inputs)) > 1 else None


def batched(model: Any, inputs: list[Any], batch: int) -> list[Any]:
    """The model's inputs with another first axis; of our models their specs."""
    if is_torch_module(model):
        return offered("torch", "with_batch")(inputs, batch)
    return with_batch(inputs, batch)


def with_batch(inputs: list[Any], batch: int) -> list[Any]:
    """The inputs' specs with another first axis."""

    def changed(s: Spec) -> Spec:
        return Spec((batch, *s.shape[1:]), s.dtype) if s.shape else s

    return map_nodes(specs_of(inputs), changed, Spec)
