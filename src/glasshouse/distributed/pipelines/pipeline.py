"""Pipelines: a model cut into stages, each on a rank, through which microbatches pass."""

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import gcd
from typing import Any

from glasshouse.analyze.meta import meta_backend, placed, specs_in
from glasshouse.analyze.step import TrainingStep, own_steps
from glasshouse.analyze.trace import symbolic_trace
from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, ShapeError, Spec
from glasshouse.dispatch.value import Value, cast
from glasshouse.distributed.groups.functions import all_reduce, broadcast
from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.distributed.pipelines.pipeline_run import Links, PipelineRun
from glasshouse.distributed.pipelines.schedules import Schedule, forwards_only, make_schedule
from glasshouse.distributed.pipelines.stages import WHERE, PipelineStage, balanced, cut, part_of
from glasshouse.distributed.replicas.reducers import CoalescingReducer
from glasshouse.distributed.replicas.replicate import ATTRIBUTE, no_sync, share
from glasshouse.ir.graph_module import GraphModule
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_integer, check_type
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor import Tensor, concat, zeros, zeros_like
from glasshouse.tensor.gradients import clip_grads_with_norm_, total_norm


def pipeline(
    model: Module,
    mesh: DeviceMesh,
    axis: str = "pipe",
    *,
    example: Any,
    split: Sequence[str] | str = "balanced",
    microbatches: int = 8,
    schedule: str | Callable[..., Any] = "1f1b",
    stages_per_rank: int = 1,
    data: str | tuple[str, ...] = (),
) -> "Pipeline":
    """Cut `model` into stages along `axis` of the mesh. This rank keeps its own; the memory of the
    other stages' parameters is freed. All ranks call it with the same model.

    example          the arguments of a batch, or (shape, dtype) of each: with them the model is
                     traced
    split            names of the modules at which the second stage begins, the third …; or
                     "balanced", by FLOPs and bytes, into `stages_per_rank` for each rank
    microbatches     parts of a batch that go through the stages one after another
    schedule         "1f1b", "gpipe", "interleaved", or a function as `make_schedule` takes it
    data             axes of the mesh along which ranks hold the same stages, with the values of
                     the first, and train on other batches: gradients and losses are their mean

    Raises: OptionError for a split that names no modules, or another number of stages than the
        schedule takes; ShapeError for a batch that `microbatches` do not divide
    Example:
        >>> model = gh.nn.Sequential(gh.nn.Linear(2, 4), gh.nn.ReLU(), gh.nn.Linear(4, 1))
        >>> mesh = gh.distributed.mesh({"pipe": 1})
        >>> pipe = pipeline(model, mesh, example=((8, 2), "float32"), microbatches=4)
        >>> loss = pipe.step(gh.ones((8, 2)), gh.zeros((8, 1)), gh.nn.functional.mse_loss)
        >>> loss.shape, model[0].weight.grad.shape
        ((), (4, 2))
    """
    check_type(WHERE, model, Module, "a Module", "Subclass nn.Module.")
    fix = 'Write gh.distributed.mesh({"pipe": 2}).'
    group = check_type(WHERE, mesh, DeviceMesh, "a mesh", fix).group(axis)
    beside = mesh.group(*((data,) if isinstance(data, str) else data)) if data else None
    check_integer(WHERE, "microbatches", microbatches, 1)
    stages = group.size * check_integer(WHERE, "stages_per_rank", stages_per_rank, 1)
    example_specs = specs_in(WHERE, example)
    specs = parts_of(
        [example_specs] if isinstance(example_specs, Spec) else list(example_specs), microbatches
    )
    if split == "balanced":
        split = balanced(symbolic_trace(model, specs), stages)
    elif isinstance(split, str):
        fix = 'Write ["blocks.2"], or "balanced".'
        raise OptionError(WHERE, "split as a list of names, or balanced", repr(split), fix)
    plan = make_schedule(
        schedule, ranks=group.size, microbatches=microbatches, stages=len(split) + 1
    )
    return Pipeline(model, group, specs, list(split), plan, beside)


def parts_of(specs: list[Spec], count: int) -> list[Spec]:
    """The specs of one microbatch's arguments.

    Raises: ShapeError
    """
    for spec in specs:
        if not spec.shape or spec.shape[0] % count or not spec.shape[0]:
            expected = f"batches that {count} microbatches divide"
            fix = "Change the batch size (drop_last=True for the last), or microbatches."
            raise ShapeError(WHERE, expected, f"shape {spec.shape}", fix)
    return [Spec((spec.shape[0] // count, *spec.shape[1:]), spec.dtype) for spec in specs]


class StagePlan:
    """Stages of a model for microbatches of some shapes, and the modules of this rank's own."""

    def __init__(self, model: Module, specs: list[Spec], split: list[str], numbers: range) -> None:
        traced = symbolic_trace(model, specs)
        self.traced: Any = traced
        self.stages: list[PipelineStage] = cut(traced, split)
        self.modules: dict[int, GraphModule] = {
            i: self.stages[i].module_of(traced) for i in numbers
        }
        out = traced.graph.nodes[-1].args[0]
        self.result: Any = getattr(out, "meta", {}).get("spec")  # of the whole model

    def part_for(self, stages: range) -> Module:
        """The members that stages read, under their names in the undivided model."""
        return part_of(self.traced, [name for i in stages for name in self.stages[i].members()])


class Pipeline(Module):
    """This rank's stages of a model: the result of `pipeline`. Its parameters and state are those
    of its stages, under their names in the undivided model; `stage_numbers` are their numbers.
    `print(pipe.schedule)` shows the actions of the ranks in `step`."""

    def __init__(
        self,
        model: Module,
        group: Any,
        specs: list[Spec],
        split: list[str],
        schedule: Schedule,
        data: Any,
    ) -> None:
        super().__init__()
        self.__dict__.update(undivided=model, links=Links(group), plans={})
        weakref.finalize(self, self.links.close)
        self.group = group
        self.data = data
        self.split = split
        self.schedule = schedule
        self.reducer: CoalescingReducer | None = None
        self.stage_numbers: range = range(group.rank, schedule.stages, group.size)
        plan = self.plan(specs)
        part = plan.part_for(self.stage_numbers)
        for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[kind].update(part.__dict__[kind])
        self.__dict__["training"] = model.training
        if data is not None and data.size > 1:
            share(self, data)
            self.reducer = CoalescingReducer([*self.parameters()], data)
        self.shared: dict[Any, Any] = self.find_shared(plan)
        self.release()

    def plan(self, specs: list[Spec]) -> StagePlan:
        """The stages for microbatches like these."""
        key = (*specs, self.undivided.training)
        if key not in self.plans:
            self.plans[key] = StagePlan(self.undivided, specs, self.split, self.stage_numbers)
        return self.plans[key]

    def find_shared(self, plan: StagePlan) -> dict[Any, Any]:
        """Parameters that other ranks hold too, with the group of those ranks; they take the value
        of the first of these."""
        holders: dict[int, list[int]] = {}
        for rank, number in enumerate(self.group.ranks):
            stages = range(rank, self.schedule.stages, self.group.size)
            for p in plan.part_for(stages).parameters():
                holders.setdefault(id(p), []).append(number)
        mine = {id(p): p for p in self.parameters()}
        shared = {}
        for key, ranks in holders.items():
            if key in mine and len(ranks) > 1:
                p, group = mine[key], subgroup(self.group, tuple(ranks))
                shared[p] = group
                with no_grad():
                    p.copy_(broadcast(p.detach(), group=group))
        return shared

    def release(self) -> None:
        """Give back the memory of parameters and buffers that other ranks hold."""
        mine = {id(x) for x in (*self.parameters(), *self.buffers())}
        backend = meta_backend()
        for x in (*self.undivided.parameters(), *self.undivided.buffers()):
            if id(x) not in mine:
                x.payload, x.backend, x.grad = placed(x.spec, backend).payload, backend, None

    def train(self, mode: bool = True) -> Any:
        """This pipeline in training mode (or not)."""
        self.undivided.train(mode)
        return super().train(mode)

    # -- running ---------------------------------------------------------------------------------

    def step(self, inputs: Tensor, target: Tensor, loss: Callable[..., Any]) -> Tensor:
        """Train on a batch; return its loss on every rank: the mean of `loss(model(*inputs),
        target)` over its microbatches. The gradients of this rank's parameters are added to their
        `.grad`. Every rank passes the whole batch; the last alone calls `loss`.

        Raises: ShapeError for a batch that the microbatches do not divide
        """
        count = self.schedule.microbatches
        inputs = (inputs,) if isinstance(inputs, Value) else tuple(inputs)
        *specs, _ = parts_of([x.spec for x in (*inputs, target)], count)
        run = PipelineRun(self.plan(specs), self.links, microbatches_of(inputs, count))
        run.targets = [part for (part,) in microbatches_of((target,), count)]
        run.loss = loss
        before = {p: p.grad for p in self.parameters() if p.grad is not None}
        self.zero_grad()
        replica: Any = self.__dict__.get(ATTRIBUTE)  # of ZeRO
        at_end = replica is not None and replica.reducer.sums_first
        with no_sync(self) if at_end else nullcontext():
            run.go(self.schedule.actions[self.group.rank])
        self.sum_gradients()
        for p, grad in before.items():
            p.grad = grad if p.grad is None else grad + p.grad
        if at_end:
            replica.finish()
        return self.spread(run)

    def sum_gradients(self) -> None:
        """Sum the gradients of shared parameters, and take the mean over `data`."""
        for p, holders in self.shared.items():
            p.grad = all_reduce(zeros_like(p) if p.grad is None else p.grad, group=holders)
        if self.reducer is not None:
            self.reducer.finish([p for p in self.parameters() if p.grad is not None])

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """The norm of the gradients of all stages together, on every rank; they are scaled down in
        place if it is above max_norm. A parameter that several ranks hold counts once.

        Raises: OptionError for a negative max_norm
        Source: as gh.optim.clip_grad_norm_'s
        """
        first = {p: holders.ranks[0] == process.rank for p, holders in self.shared.items()}
        counted = [p for p in self.parameters() if p.grad is not None and first.get(p, True)]
        with no_grad():
            shardings = [p.grad.sharding or p.sharding for p in counted]
            norm = total_norm([p.grad for p in counted], 2.0, shardings) if counted else zeros(())
            total = all_reduce(norm * norm, group=self.group, replicated=True) ** 0.5
        clip_grads_with_norm_(self.parameters(), max_norm, total)
        return total

    def spread(self, run: PipelineRun) -> Tensor:
        """Broadcast the last stage's loss to every rank; its mean over `data`."""
        loss = zeros(()) if run.total is None else cast(run.total, zeros(()).dtype)
        shared = broadcast(loss, self.last_rank, group=self.group)
        return shared if self.data is None else all_reduce(shared, "mean", group=self.data)

    @property
    def last_rank(self) -> int:
        """The rank of the group that has the last stage."""
        return (self.schedule.stages - 1) % self.group.size

    def forward(self, *inputs: Any) -> Any:
        """The model's result on every rank, without gradients; it is one tensor.

        Shapes: inputs and result (N, ...)
        """
        count = gcd(self.schedule.microbatches, *(x.shape[0] for x in inputs))
        plan = self.plan(parts_of([x.spec for x in inputs], count))
        if not isinstance(plan.result, Spec):
            fix = "Return one tensor."
            raise OptionError(WHERE, "a model that gives one tensor", "several", fix)
        run = PipelineRun(plan, self.links, microbatches_of(inputs, count))
        with no_grad():
            run.go(forwards_only(self.group.size, self.schedule.stages, count)[self.group.rank])
            rows, *rest = plan.result.shape
            result = concat([run.scores[i] for i in range(count)]) if run.scores else None
            result = (
                zeros((rows * count, *rest), dtype=plan.result.dtype) if result is None else result
            )
            return broadcast(result, self.last_rank, group=self.group)

    def extra_repr(self) -> str:
        stages = ", ".join(map(str, self.stage_numbers))
        return f"stages {stages} of {self.schedule.stages}, {self.schedule.name}"


class PipelineStep(TrainingStep):
    """Step of a pipeline and its optimizer without storage: this rank's part of it."""

    def forward(self, inputs: list[Tensor]) -> Tensor:
        data, target = inputs
        return self.model.step(data, target, self.loss)

    def backward(self, loss: Any) -> Any:
        """Do nothing: the step has done it."""


own_steps[Pipeline] = PipelineStep


def subgroup(parent: ProcessGroup, ranks: tuple[int, ...]) -> ProcessGroup:
    """Group of some ranks of another; these call it."""
    group = ProcessGroup(ranks, f"{parent.name} {'+'.join(map(str, ranks))}")
    if ranks not in process.transports:
        process.transports[ranks] = process.transport(parent).subgroup(group)
    return group


def microbatches_of(tensors: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """The parts of a batch."""
    sizes = [x.shape[0] // count for x in tensors]
    pairs = list(zip(tensors, sizes, strict=True))
    return [tuple(x[i * n : (i + 1) * n] for x, n in pairs) for i in range(count)]
