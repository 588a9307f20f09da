"""The subject of `gh.estimate.fits` for a PyTorch model: its step, and variants of it.

ZeRO is not run. A second pass through the ledger of an analysed step divides sharded bytes by the
number of ranks, and adds gathered ones."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from glasshouse.analyze.planner.blocks import candidates_of
from glasshouse.analyze.step import makes_optimizer, step_maker
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.analyze.trace import forwards_replaced
from glasshouse.estimate.subject import (
    STEPS,
    StepSubject,
    StepVariant,
    VariantCosts,
    kinds_at_worst,
)
from glasshouse.torch.ahead.no_contents import Contentless, ContentlessMode
from glasshouse.torch.ahead.torch_source import TorchSource
from glasshouse.torch.observe.ledger import Allocation, Ledger
from glasshouse.torch.patches.dynamo import uncompiled
from glasshouse.torch.patches.trees import tree_leaves, tree_map

CONTAINERS: set[Any] = {torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict}
ENGINES = {
    "torch": "PyTorch eager",
    "exact": 'torch.compile(backend="glasshouse")',
    "captured": "gh.optimize",
}
GATHERED_BLOCKS = 2  # the running one, and the next


class TorchSubject(StepSubject):
    """A torch.nn.Module with its optimizer, loss and inputs."""

    optimizers: dict[str, Callable[..., Any]] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    checkpoint_code = "torch.utils.checkpoint around each block"
    autocast_code = 'with torch.autocast("cpu", torch.bfloat16):'
    zero_code = "stage {stage} of ZeRO, as FSDP or DeepSpeed"

    def __init__(self, model: Any, loss: Any, optimizer: Any, inputs: Any, options: Any) -> None:
        model = uncompiled(model)
        inputs = [inputs] if isinstance(inputs, (torch.Tensor, dict)) else list(inputs)
        super().__init__(model, loss, optimizer, inputs, options)
        self.blocks: list[str] = candidates_of(model, CONTAINERS)
        self.analysed: dict[StepVariant, StepAnalysis] = {}

    def engine(self) -> str:
        return ENGINES[self.options["convention"]]

    def first_axes(self) -> set[int]:
        tensors = tree_leaves(contentless_inputs(self.inputs))
        return {x.shape[0] for x in tensors if isinstance(x, torch.Tensor) and x.dim()}

    def costs(self, variant: StepVariant) -> VariantCosts:
        analysis = self.analysis(replace(variant, stage=0, ranks=1))
        if variant.stage:
            return self.shared_out(analysis, variant)
        return VariantCosts(analysis.peak_bytes, kinds_at_worst(analysis), analysis)

    def analysis(self, variant: StepVariant) -> StepAnalysis:
        """The analysis of a variant on one device, which several stages of ZeRO start from."""
        if variant not in self.analysed:
            self.analysed[variant] = self.analyse(variant)
        return self.analysed[variant]

    def analyse(self, variant: StepVariant) -> StepAnalysis:
        """Analyse a variant on one device."""
        model, optimizer, inputs = self.model, self.optimizer, self.inputs_of(variant)
        if variant.dtype:
            dtype = getattr(torch, variant.dtype)
            model, optimizer = bare_copy(model, optimizer, dtype)
            inputs = narrowed_inputs(inputs, dtype)
        maker = step_maker(self.where, model, self.options["convention"])
        autocast = variant.autocast or self.options["autocast"]
        step = maker(model, self.loss, optimizer, inputs, autocast)
        step.micro_batches = self.micro_batches(variant)
        with self.checkpoints(model) if variant.checkpoints else nullcontext():
            return step.analyse(STEPS, self.options["machine"])

    def checkpoints(self, model: Any) -> Any:
        """A context in which blocks are checkpointed, by transformers' own models in their way."""
        if getattr(model, "supports_gradient_checkpointing", False):
            return own_checkpoints(model)
        return forwards_replaced(model, self.blocks, checkpointed)

    def shared_out(self, analysis: StepAnalysis, variant: StepVariant) -> VariantCosts:
        """The cost of a step whose state is sharded over ranks (ZeRO)."""
        itemsize = None if variant.dtype is None else getattr(torch, variant.dtype).itemsize
        source = analysis.source
        assert isinstance(source, TorchSource)  # of all steps of PyTorch's models
        ranks = SharedLedger(source.ledger, variant.stage, variant.ranks)
        blocks = sorted(bytes_in(self.model.get_submodule(path), itemsize) for path in self.blocks)
        largest = blocks[-1] if blocks else 0
        if variant.stage >= 2:
            ranks.added["backward"]["gradients"] = largest
        if variant.stage == 3:
            rest = bytes_in(self.model, itemsize) - sum(blocks)
            for phase in ("forward", "backward", "recompute"):
                gathered = rest + sum(blocks[-GATHERED_BLOCKS:])
                ranks.added[phase]["gathered parameters"] = gathered
        peak_bytes, by_kind = ranks.peak()
        return VariantCosts(peak_bytes, by_kind, analysis, is_about=True)


class SharedLedger:
    """The ledger of a step whose allocations are sharded over ranks.

    added   extra bytes of a rank while a pass runs, by kind"""

    def __init__(self, ledger: Ledger, stage: int, ranks: int) -> None:
        self.ledger = ledger
        self.ranks = ranks
        self.kinds: tuple[str, ...] = ("optimizer state", "gradients", "parameters")[:stage]
        self.added: dict[str, Counter[str]] = defaultdict(Counter)

    def bytes_of(self, allocation: Allocation) -> int:
        """The bytes of a rank's shard of an allocation. The update runs on a rank's own rows."""
        kind = allocation.kind_at_peak()
        if kind in self.kinds or kind == "temporaries" and allocation.tag.phase == "optimizer":
            return -(-allocation.nbytes // self.ranks)
        return allocation.nbytes

    def peak(self) -> tuple[int, dict[str, int]]:
        """The peak of a rank in bytes, and these by kind."""
        now = most = sum(map(self.bytes_of, self.ledger.began))
        at, phase = 0, ""
        for place, (allocation, nbytes) in enumerate(self.ledger.events, 1):
            rank_bytes = self.bytes_of(allocation)
            now += rank_bytes if nbytes > 0 else -rank_bytes
            whole = now + self.added[allocation.tag.phase].total()
            if nbytes > 0 and whole > most:
                most, at, phase = whole, place, allocation.tag.phase
        kinds = Counter(self.added[phase])
        for allocation in self.ledger.alive_after(at):
            kinds[allocation.kind_at_peak()] += self.bytes_of(allocation)
        return most, dict(kinds.most_common())


def checkpointed(path: str, module: Any) -> Any:
    """The forward of a block, as a checkpoint."""
    return partial(checkpoint, module.forward, use_reentrant=False)


@contextmanager
def own_checkpoints(model: Any) -> Iterator[None]:
    """Inside, a model of transformers uses its own checkpoints, and no cache of keys and values."""
    before = model.is_gradient_checkpointing
    model.gradient_checkpointing_enable({"use_reentrant": False})
    try:
        yield
    finally:
        if not before:
            model.gradient_checkpointing_disable()


def bytes_in(module: Any, itemsize: int | None) -> int:
    """Bytes of a module's parameters, with elements of `itemsize`, by default their own."""
    return sum(p.numel() * (itemsize or p.itemsize) for p in module.parameters())


def bare_copy(model: Any, optimizer: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    """Model and optimizer copied to the meta device, with floats in a dtype."""
    memo: dict[int, Any] = {}
    for x in (*model.parameters(), *model.buffers()):
        x_dtype = dtype if x.is_floating_point() else x.dtype
        copy = torch.empty_like(x, device="meta", dtype=x_dtype)
        if isinstance(x, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, x.requires_grad)
        memo[id(x)] = copy
    copied = deepcopy(model, memo)
    if makes_optimizer(optimizer):
        return copied, optimizer
    memo[id(optimizer.state)] = defaultdict(dict)
    return copied, deepcopy(optimizer, memo)


def contentless_inputs(inputs: list[Any]) -> list[Any]:
    """The inputs as tensors without contents."""
    mode = ContentlessMode()
    contentless = Contentless(mode)
    with mode:
        return [contentless.input_of(x) for x in inputs]


def narrowed_inputs(inputs: list[Any], dtype: torch.dtype) -> list[Any]:
    """The inputs with their floats in a dtype, on the meta device."""

    def narrowed(x):
        is_float = isinstance(x, torch.Tensor) and x.is_floating_point()
        return torch.empty_like(x, dtype=dtype, device="meta") if is_float else x

    return tree_map(narrowed, contentless_inputs(inputs))
