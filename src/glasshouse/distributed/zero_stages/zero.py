"""ZeRO: the ranks of data parallel share out the optimizer's state (stage 1), gradients too (2),
parameters too (3).

In stages 1 and 2 a step of the optimizer sees this rank's rows of each parameter, and gathers the
whole ones, in the memory of those before. Stage 3 is in units.py."""

from collections.abc import Callable, Sequence
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, as_dtype
from glasshouse.base.shape import Shape
from glasshouse.dispatch.scope import phase
from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.distributed.groups.placement import Sharding, sharding_of
from glasshouse.distributed.pipelines.pipeline import Pipeline
from glasshouse.distributed.replicas.reducers import BUCKET_BYTES, OverlappedReducer, buckets_of
from glasshouse.distributed.replicas.replicate import ATTRIBUTE, Replica, check_same, share
from glasshouse.distributed.zero_stages.rows import (
    ROWS,
    can_cut,
    flat_of,
    gathered,
    mean_rows,
    own_rows,
    wholes_of,
)
from glasshouse.distributed.zero_stages.units import shard_parameters, units_of
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_option
from glasshouse.ops.process import ProcessGroup
from glasshouse.optim import Optimizer
from glasshouse.optim.checks import loss_of
from glasshouse.optim.optimizer import evaluate_step
from glasshouse.optim.wrappers import OptimizerWrapper
from glasshouse.tensor import Tensor, zeros

Plan = dict[Tensor, Sharding]  # cuts of the parameters while the optimizer steps


class ScatterReducer(OverlappedReducer):
    """Reduces buckets as they become ready, and each rank takes its rows of the mean; a gradient
    has then fewer rows than its parameter, and its `sharding` says which. Whole ones do not add up
    over microbatches."""

    sums_first = False

    def __init__(
        self,
        parameters: list[Tensor],
        group: Any,
        plan: Plan,
        cutting: ProcessGroup,
        beside: Any,
        **options: Any,
    ) -> None:
        super().__init__(parameters, group, **options)
        self.plan = plan
        self.cutting = cutting
        self.beside = beside
        self.earlier: dict[Tensor, Tensor] = {}  # rows of the mean of earlier backward passes
        for p in parameters:
            if p in plan:
                p.register_hook(lambda g, p=p: self.set_aside(p))

    def set_aside(self, p: Tensor) -> None:
        """Set rows apart from a whole gradient before something is added to it."""
        if p.grad is None:
            self.earlier.pop(p, None)
        elif p.grad.sharding is not None and p.grad.shape != p.shape:
            self.earlier[p], p.grad = p.grad, None

    def reduce(self, parameters: list[Tensor]) -> None:
        cut = [p for p in parameters if p in self.plan]
        if rest := [p for p in parameters if p not in self.plan]:
            super().reduce(rest)
        if not cut:
            return
        whole = [zeros(p.shape, p.dtype) if p.grad is None else p.grad.detach() for p in cut]
        flat, shapes = flat_of(whole, self.cutting.size), [p.shape for p in cut]
        rows = mean_rows(flat, shapes, self.cutting, self.beside, self.sent_as)
        for p, mean in zip(cut, rows, strict=True):
            before = self.earlier.pop(p, None)
            p.grad = mean if before is None else before + mean
            p.grad.sharding = self.plan[p]


class ZeroOptimizer(OptimizerWrapper):
    """An optimizer that updates this rank's rows of each parameter, and has the state of those
    alone."""

    def __init__(
        self, optimizer: Optimizer, plan: Plan, group: ProcessGroup, bucket_bytes: int
    ) -> None:
        super().__init__(optimizer)
        self.plan = plan
        self.group = group
        self.bucket_bytes = bucket_bytes
        self.wholes: dict[Tensor, tuple[Shape, Any]] = {p: (p.shape, p.sharding) for p in plan}

    def own_state(self) -> Any:
        return {}

    def load_own_state(self, state: Any) -> None:
        pass

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the state of this rank's rows; another wrapper's is left out."""
        wholes = {p: p.detach() for p in self.plan}
        with no_grad():
            for p, whole in wholes.items():
                p.rebind(own_rows(whole, self.group))
        try:
            self.inner.load_state_dict({k: v for k, v in state_dict.items() if k != self.where})
        finally:
            with no_grad():
                for p, whole in wholes.items():
                    p.rebind(whole)

    def state_sharding(self, p: Tensor) -> Sharding:
        """Sharding of a parameter's state."""
        return self.plan.get(p) or sharding_of(p)

    def advance(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of("ZeroOptimizer.step", closure)
        cut = [p for p in self.parameters() if p in self.plan and p.grad is not None]
        whole_gradients = {}
        with no_grad(), phase("optimizer"):
            for p in cut:  # before the gradients: what comes first gives its memory to the result
                p.rebind(own_rows(p, self.group))
                p.sharding = self.plan[p]
            for p in cut:
                if p.grad.shape == self.wholes[p][0] and p.grad.sharding is None:
                    whole_gradients[p] = p.grad
                    p.grad = own_rows(p.grad.detach(), self.group)
        try:
            with phase("optimizer"):
                self.inner.step()
        finally:
            with no_grad(), phase("optimizer"):
                self.gather_again(cut)
            for p, gradient in whole_gradients.items():
                p.grad = gradient
        evaluate_step()
        return loss

    def gather_again(self, parameters: list[Tensor]) -> None:
        """Make parameters whole again, from their rows on the ranks."""
        for bucket in buckets_of(parameters, self.bucket_bytes // self.group.size):
            shapes = [self.wholes[p][0] for p in bucket]
            flat = gathered(bucket, shapes, self.group)
            for p, value in zip(bucket, wholes_of(flat, shapes), strict=True):
                p.rebind(value)
                p.sharding = self.wholes[p][1]


def zero(
    module: Module,
    optimizer: Optimizer,
    mesh: DeviceMesh,
    axis: str | tuple[str, ...] = "data",
    *,
    stage: int = 3,
    units: Sequence[str] | None = None,
    bucket_bytes: int = BUCKET_BYTES,
    compress: str | None = None,
) -> Optimizer:
    """Return the optimizer for the ranks along `axis`, which train `module` on parts of a batch and
    share out the optimizer's state (stage 1), gradients too (2), parameters too (3).

    Each rank has some rows of a parameter, its state and its gradient; parameters with fewer rows
    than there are ranks stay whole. In stage 3 the `units`, patterns of names of modules (by
    default the members of lists and sequences), gather their parameters when they are called,
    those of the next unit at the same time, and again in the backward pass. Gradients are means
    over the ranks, so `replicate` is not needed; of several axes the first shares out, and along
    the others, such as "context", gradients are averaged only.

    Raises: OptionError for a rule that needs whole parameters (Muon, Shampoo, Adafactor, LBFGS), an
        optimizer with a state, another model on some rank, patterns that match nothing, and stage 3
        of a Pipeline
    Source: Rajbhandari et al. 2020, arXiv:1910.02054
    Example:
        >>> model = gh.nn.Linear(2, 1)
        >>> opt = gh.optim.AdamW(model.parameters())
        >>> opt = gh.distributed.zero(model, opt, gh.distributed.mesh({"data": 1}), stage=2)
    """
    check_option("zero", "stage", stage, (1, 2, 3))
    check_module(module, stage)
    check_optimizer(optimizer)
    inside = units_of(module, units) if stage == 3 else []
    axis, *others = (axis,) if isinstance(axis, str) else axis
    group, beside = mesh.group(axis), mesh.group(*others)
    sent_as = None if compress is None else as_dtype(compress)
    options = {"bucket_bytes": bucket_bytes, "sent_as": sent_as}
    if group.size == beside.size == 1:
        return optimizer
    check_same(module, mesh.group(axis, *others))
    share(module, mesh.group(axis, *others))
    trained = [p for p in module.parameters() if p.requires_grad]
    plan = {
        p: sharding_of(p).with_cut(mesh, axis, ROWS)
        for p in trained
        if can_cut(p.shape, group.size)
    }
    everyone = mesh.group(axis, *others)
    if stage == 2:
        reducer = ScatterReducer(trained, everyone, plan, group, beside, **options)
    else:
        whole = [p for p in trained if stage == 1 or p not in plan]
        reducer = OverlappedReducer(whole, everyone, **options)
    replica = module.__dict__[ATTRIBUTE] = Replica(reducer)
    if stage == 3:
        shard_parameters(module, plan, (group, beside), inside, replica)
    return optimizer if stage == 3 else ZeroOptimizer(optimizer, plan, group, bucket_bytes)


def check_module(module: Module, stage: int) -> None:
    if module.__dict__.get(ATTRIBUTE) is not None:
        raise OptionError("zero", "a model that is not replicated", "one that is", "Leave it out.")
    if stage == 3 and isinstance(module, Pipeline):
        fix = "Take stage 2; each rank has the parameters of its own stages alone."
        raise OptionError("zero", "stage 1 or 2 for a pipeline", "stage=3", fix)


def check_optimizer(optimizer: Optimizer) -> None:
    if not optimizer.by_parts:
        expected = "an optimizer whose rule can be applied to parts of a parameter"
        fix = "Use one like SGD, AdamW, LAMB or LARS, or replicate(model, mesh)."
        raise OptionError("zero", expected, repr(getattr(optimizer, "inner", optimizer).where), fix)
    if optimizer.state:
        fix = "Call zero before the first step, and load its state afterwards."
        raise OptionError("zero", "an optimizer without a state", f"{optimizer.where} with", fix)
