"""The callable that replaces a graph of torch.compile: one Program for each set of sizes."""

import contextlib
import threading
import warnings
from collections import OrderedDict
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch

from glasshouse.base import BackendError, having
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import CompileError, threads_used
from glasshouse.compile.lowering.target import target_for
from glasshouse.compile.planning.plan import no_collection
from glasshouse.compile.programs.new_sizes import NewSizes
from glasshouse.compile.steps.emitted import StaleCode
from glasshouse.dispatch.bind import state, timers
from glasshouse.dispatch.watch import COMPILING, tell, told
from glasshouse.torch.ahead.planned import PlannedVariant, are_contentless
from glasshouse.torch.lowering.eager_variant import EagerVariant
from glasshouse.torch.lowering.graph_source import GraphSource
from glasshouse.torch.lowering.interpreter import ALL, GraphLowering, debug_unknown
from glasshouse.torch.lowering.lowering_cache import key_of as key_of_lowering
from glasshouse.torch.lowering.lowering_cache import load as load_lowered
from glasshouse.torch.lowering.lowering_cache import save as save_lowered
from glasshouse.torch.lowering.options import TorchOptions
from glasshouse.torch.lowering.variant import CompiledVariant, ReferenceVariant
from glasshouse.torch.patches.aot import take_list
from glasshouse.torch.patches.guards import metadata_now
from glasshouse.torch.patches.modes import without_modes
from glasshouse.torch.scopes.passes import place
from glasshouse.torch.tensors.layout import turned

one_at_a_time: "threading.RLock" = (
    threading.RLock()
)  # of traces: TorchDynamo's callers may have several threads
MOST_VARIANTS = 64  # sets of sizes that one graph keeps Programs for
AT_ONCE = 2  # sets of sizes that are compiled when they are first met


def key_of(args: list[torch.Tensor]) -> tuple[Any, ...]:
    """The cache key of a graph's Program: dtype, shape and strides of tensors, other values."""
    return tuple(
        (x.dtype, x.shape, x.stride(), turned(x)) if isinstance(x, torch.Tensor) else (type(x), x)
        for x in args
    )


def visible_results(phase: str) -> int:
    """How many results of the graph under compilation are for the user. The others are saved for
    the backward graph, and we choose their layout."""
    if phase == "backward":
        return 0
    metadata = metadata_now()
    if metadata is None:
        return ALL
    return len(metadata.tokens) + metadata.num_forward_returns


def static_inputs() -> tuple[int, ...]:
    """The numbers of the graph's inputs that are parameters or buffers of modules."""
    metadata = metadata_now()
    return () if metadata is None else tuple(metadata.static_input_indices or ())


def keep_nothing_donated() -> None:
    """Tell PyTorch that the backward graph under compilation overwrites no saved tensor: else
    PyTorch refuses `retain_graph`."""
    metadata = metadata_now()
    if metadata is not None:
        (metadata.bw_donated_idxs or []).clear()


class TorchGraphProgram:
    """The callable that replaces a graph of torch.compile; a new set of sizes compiles a Program.

    The first `visible` results are for the user. `stable` numbers the inputs that are parameters,
    which are seldom written to."""

    def __init__(
        self,
        source: GraphSource | torch.fx.GraphModule,
        phase: str,
        options: TorchOptions,
        visible: int = ALL,
        stable: tuple[int, ...] = (),
    ) -> None:
        self.source: GraphSource = (
            source if isinstance(source, GraphSource) else GraphSource(source)
        )
        self.phase = phase
        self.options = options
        self.visible = visible
        self.stable = stable
        self.advised: bool = False
        self.variants: OrderedDict[tuple[Any, ...], object] = OrderedDict()
        self.latest: CompiledVariant | None = None  # the variant that ran last
        self.sizes: NewSizes = NewSizes(AT_ONCE)
        self.eager: EagerVariant | None = None  # runs sizes that are not compiled yet
        take_list(self)

    @property
    def module(self) -> torch.fx.GraphModule:
        """The graph with its nodes."""
        return self.source.module

    def __call__(self, args: list[torch.Tensor]) -> list[torch.Tensor | None]:
        if self.options.threads:
            with threads_used(self.options.threads):
                return self.run(args, self.options.threads)
        return self.run(args, torch.get_num_threads())

    def run(self, args: list[torch.Tensor], threads: int) -> list[Any]:
        """The results of the variant for these arguments, and so many threads."""
        if not timers or not place.looking:
            return self.run_variant(args, threads)
        place.mode.follow_engine()
        begin_ns = perf_counter_ns()
        results = self.run_variant(args, threads)
        if self.phase != "backward":
            place.mode.graph_ended(begin_ns)
        return results

    def run_variant(self, args: Any, threads: int) -> list[Any]:
        """The results of the variant for these arguments, compiled if there is none."""
        latest = self.latest
        if latest is not None and latest.threads == threads:
            results = latest.run(args)
            if results is not None:
                return results
        variant = self.variant_of(args, threads)
        self.latest = variant if isinstance(variant, CompiledVariant) else None
        return variant.run(args)

    def variant_of(self, args: list[torch.Tensor], threads: int) -> Any:
        """The Program for these arguments, compiled if there is none yet."""
        with one_at_a_time, having(state, modes=self.options.modes), target_for(threads):
            key = (threads, *key_of(args))
            variant = self.variants.get(key)
            if variant is None and self.may_wait(args) and not self.sizes.is_due(key):
                self.eager = self.eager or EagerVariant(self.module)
                return self.eager
            if variant is None:
                begin_ns = perf_counter_ns()
                with told([], []), no_collection():  # the calls are counted with each run
                    variant = self.variants[key] = self.compile_variant(args)
                tell("region", COMPILING, begin_ns)
                if len(self.variants) > MOST_VARIANTS:
                    self.drop_variant()
            else:
                self.variants.move_to_end(key)
        return variant

    def may_wait(self, args: list[torch.Tensor]) -> bool:
        """Whether PyTorch may compute the graph for sizes that are not compiled yet: no option
        needs a Program, and no plan runs on tensors without contents."""
        options = self.options
        is_bound = options.strict or options.modes or options.memory_budget is not None
        return not (is_bound or flags.strict or are_contentless(args))

    def drop_variant(self) -> None:
        """Drop the least recently used Program; the first time, give advice."""
        self.variants.popitem(last=False)
        if not self.advised:
            self.advised = True
            warnings.warn(
                f"glasshouse: a graph of torch.compile met more than {MOST_VARIANTS} sets of "
                f"sizes; each has a Program of its own, and older ones are dropped. Pad inputs to "
                f"fewer sizes (multiples of 64, say).",
                stacklevel=2,
            )

    def compile_variant(self, args: list[torch.Tensor]) -> Any:
        """The Program for these arguments; PyTorch's own graph where there is none, with a warning.

        Raises: BackendError under the option strict, with the reason
        """
        settings = self.phase, self.visible, self.stable
        try:
            variant = make_variant(self.source, args, *settings, self.options)
        except Exception as error:
            fix = f" {error.fix}" if isinstance(error, CompileError) else ""
            if self.options.strict or flags.strict:
                if fix:
                    expected = "a graph that compiles, since strict is set"
                    raise BackendError("torch.compile", expected, error, fix[1:]) from error
                raise
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"glasshouse: a graph of torch.compile is left to PyTorch, and runs as eager does "
                f"({reason}).{fix} options={{'strict': True}} makes this an error.",
                stacklevel=2,
            )
            return EagerVariant(self.module)
        debug_unknown(variant.unknown)
        return variant


def make_variant(
    source: GraphSource,
    inputs: list[torch.Tensor],
    phase: str,
    visible: int,
    stable: tuple[int, ...],
    options: TorchOptions,
) -> Any:
    """The variant of a graph for these inputs. `stable` numbers those that are parameters, which
    are seldom written to. Tensors without contents get a plan; other variants may come from the
    disk."""
    planned = are_contentless(inputs)
    key = "" if planned else key_of_lowering(source, inputs, phase, visible, stable, options)
    from_disk = load_lowered(key)
    if from_disk is not None:
        with contextlib.suppress(StaleCode, CompileError):
            return CompiledVariant(source, from_disk, inputs)
    with without_modes() if planned else contextlib.nullcontext():
        nested = partial(TorchGraphProgram, phase=phase, options=options)
        lowered = GraphLowering(source.module, inputs, phase, visible, stable, nested).run()
        if lowered.recording is None or flags.compile == "never":
            return ReferenceVariant(source, lowered, inputs)
        variant_type = PlannedVariant if planned else CompiledVariant
        variant = variant_type(source, lowered, inputs)
    save_lowered(key, lowered, variant.program)
    source.forget_nodes()
    return variant
