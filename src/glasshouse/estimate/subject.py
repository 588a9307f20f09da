"""The step that `fits` analyses, and its analysis when something in it is changed."""

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from glasshouse.analyze.meta import specs_of
from glasshouse.analyze.planner.blocks import AppliedBlocks, RematBlock, candidates_of
from glasshouse.analyze.planner.planner import EVERYWHERE
from glasshouse.analyze.step import batched, makes_optimizer, step
from glasshouse.analyze.step_costs import KINDS, StepAnalysis
from glasshouse.base import Spec, as_dtype, type_name
from glasshouse.base.errors import check_known
from glasshouse.distributed.groups.mesh import mesh
from glasshouse.distributed.step_costs import step_costs
from glasshouse.distributed.zero_stages.zero import zero
from glasshouse.ir.node import all_of, map_nodes
from glasshouse.nn.module import Module
from glasshouse.optim import SGD, Adam, AdamW, Optimizer
from glasshouse.profile.text import si_text
from glasshouse.tensor import zeros

MORE = "more in the first step"
STEPS = 2  # that are analysed: the second finds the optimizer's state


@dataclass(frozen=True)
class StepVariant:
    """How a step differs from the original one.

    batch        examples of a micro-batch; None: as asked
    checkpoints  whether each block computes again in the backward pass
    autocast     the dtype of products; None: as asked
    dtype        of parameters, gradients, optimizer state and inputs; None: as they are
    stage        of ZeRO, over
    ranks        so many ranks, each with a batch as asked"""

    batch: int | None = None
    checkpoints: bool = False
    autocast: str | None = None
    dtype: str | None = None
    stage: int = 0
    ranks: int = 1


class VariantCosts(NamedTuple):
    """The peak of a variant, and the bytes alive at it by kind."""

    peak_bytes: int
    by_kind: dict[str, int]
    analysis: StepAnalysis
    is_about: bool = False


class StepSubject:
    """A model with its optimizer, loss and inputs, of one library or another.

    batch    examples of the inputs; 0 where they have no common number
    options  of the analysis: machine, autocast, convention"""

    optimizers: dict[str, Callable[..., Any]] = {}
    where = "fits"
    checkpoint_code = ""
    autocast_code = ""
    zero_code = ""

    def __init__(
        self,
        model: Module,
        loss: Callable[..., Any] | None,
        optimizer: Optimizer,
        inputs: list[Spec],
        options: dict[Any, Any],
    ) -> None:
        self.model = model
        self.loss = loss
        self.inputs = inputs
        self.options = options
        if isinstance(optimizer, str):
            what = f"an optimizer, or one of {', '.join(self.optimizers)}"
            optimizer = self.optimizers[check_known(self.where, what, optimizer, self.optimizers)]
        self.optimizer = optimizer
        sizes = self.first_axes()
        self.batch: int = sizes.pop() if len(sizes) == 1 else 0

    def first_axes(self) -> set[int]:
        """The lengths of the inputs' first axes."""
        raise NotImplementedError

    def costs(self, variant: StepVariant) -> VariantCosts:
        """The peak of the step with a variant, and its bytes by kind."""
        raise NotImplementedError

    def micro_batches(self, variant: StepVariant) -> int:
        """How many batches add up their gradients: two show the memory of any more."""
        return 1 if variant.batch is None else 2

    def inputs_of(self, variant: StepVariant) -> Any:
        """The inputs of a micro-batch."""
        if variant.batch is None:
            return self.inputs
        return batched(self.model, self.inputs, variant.batch)

    def words(self) -> str:
        """The model, its size and dtypes, the optimizer and the engine."""
        dtypes: Counter[str] = Counter()
        for p in self.model.parameters():
            dtypes[str(p.dtype).rpartition(".")[2]] += p.numel()
        of = ", ".join(f"{si_text(n)} parameters in {name}" for name, n in dtypes.most_common())
        name = getattr(self.optimizer, "__name__", None) or type_name(self.optimizer)
        batch = f", batch {self.batch}" if self.batch else ""
        autocast = self.options.get("autocast")
        cast = f", autocast {autocast}" if autocast else ""
        model = type(self.model).__name__
        return f"{model} ({of}), {name.rpartition('.')[2]}{batch}{cast}; {self.engine()}"

    def engine(self) -> str:
        """Name of the engine that computes the step."""
        return "Glasshouse"


class OwnSubject(StepSubject):
    """A Module of ours with its optimizer, loss and inputs."""

    optimizers: dict[str, Callable[..., Any]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
    checkpoint_code = "gh.analyze.plan(…, budget): the cheapest that fit"
    autocast_code = 'with gh.autocast("bfloat16"):'
    zero_code = "gh.distributed.zero(…, stage={stage})"

    def __init__(
        self,
        model: Any,
        loss: Any,
        optimizer: Optimizer,
        inputs: list[Any],
        options: dict[str, Any],
    ) -> None:
        super().__init__(model, loss, optimizer, specs_of(inputs), options)

    def first_axes(self) -> set[int]:
        return {spec.shape[0] for spec in all_of(Spec, self.inputs) if spec.shape}

    def costs(self, variant: StepVariant) -> VariantCosts:
        inputs, options = self.inputs_of(variant), {"steps": STEPS, **self.options}
        options["micro_batches"] = self.micro_batches(variant)
        options["autocast"] = variant.autocast or self.options.get("autocast")
        if variant.dtype:
            inputs = map_nodes(inputs, lambda spec: narrowed(spec, variant.dtype), Spec)
        with ExitStack() as stack:

            def checkpointed(model):
                if variant.checkpoints:
                    blocks = [EVERYWHERE, *map(RematBlock, candidates_of(model))]
                    stack.enter_context(AppliedBlocks(model, blocks))
                return model

            def build():
                model, optimizer = bare_copy(self.model, self.optimizer, variant.dtype)
                checkpointed(model)
                if variant.stage:
                    across = mesh({"data": variant.ranks})
                    optimizer = zero(model, optimizer, across, stage=variant.stage)
                return model, self.loss, optimizer, inputs

            if variant.stage or variant.dtype:
                (analysis,) = step_costs(build, variant.ranks, ranks=[0], **options)
            else:
                model = checkpointed(self.model)
                analysis = step(model, self.loss, self.optimizer, inputs, **options)
        kinds = Counter(analysis.outside) + Counter(kinds_at_worst(analysis))
        return VariantCosts(analysis.peak_bytes + analysis.outside_bytes, in_order(kinds), analysis)


def kinds_at_worst(analysis: StepAnalysis) -> dict[str, int]:
    """Bytes alive at the peak by kind, which is known for the last step; if the first step takes
    more, the rest counts as another kind."""
    kinds, more = dict(analysis.memory_by_kind), analysis.peak_bytes - analysis.peaks[-1]
    return {**kinds, MORE: more} if more else kinds


def in_order(kinds: dict[str, int]) -> dict[str, int]:
    """Bytes by kind in the order of all tables."""
    return {kind: kinds[kind] for kind in sorted(kinds, key=(*KINDS, MORE).index)}


def narrowed(spec: Spec, dtype: Any) -> Spec:
    """A spec of floats in another dtype; that of whole numbers as it is."""
    return Spec(spec.shape, as_dtype(dtype)) if spec.dtype.is_floating else spec


def bare_copy(model: Module, optimizer: Any, dtype: str | None) -> tuple[Any, ...]:
    """Model and optimizer copied without contents, on the backend in use; floats in a dtype."""
    memo: dict[int, Any] = {}
    for x in (*model.parameters(), *model.buffers()):
        spec = narrowed(x.spec, dtype) if dtype else x.spec
        new: Any = type(x).__new__(type(x), zeros(spec.shape, spec.dtype))
        memo[id(x)] = new.requires_grad_(x.requires_grad)
    copied = deepcopy(model, memo)
    if makes_optimizer(optimizer):
        return copied, optimizer(copied.parameters())
    memo[id(optimizer.state)] = defaultdict(dict)
    return copied, deepcopy(optimizer, memo)
