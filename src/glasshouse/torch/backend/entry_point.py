"""The backend that torch.compile finds under the name "glasshouse"."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from glasshouse.compile.planning.plan import no_collection
from glasshouse.torch.aten.foreach import foreach_rules
from glasshouse.torch.aten.recurrent_operators import recurrent_layers_captured
from glasshouse.torch.aten.table import TABLE, name_of
from glasshouse.torch.backend.eager_errors import RaisesAsEager, calls_of, writes_inputs
from glasshouse.torch.backend.graph_cache import cached_compiler, graphs_cached
from glasshouse.torch.backend.partition import DECOMPOSITIONS, partition, partition_within
from glasshouse.torch.backend.runtime import (
    TorchGraphProgram,
    keep_nothing_donated,
    static_inputs,
    visible_results,
)
from glasshouse.torch.backend.trace_hooks import traced_otherwise
from glasshouse.torch.backend.traced_messages import CAN_WAIT, let_messages_wait
from glasshouse.torch.backend.undefined_gradients import WithoutZeros, sizes_vary
from glasshouse.torch.lowering.options import TorchOptions, check_mode, checked_options
from glasshouse.torch.patches.aot import aot_autograd
from glasshouse.torch.patches.graph_cache import IS_THERE as KEEPS_GRAPHS
from glasshouse.torch.patches.operators import core_decompositions
from glasshouse.torch.scopes.module_scope import name_root


def plain_compiler(phase: str, options: TorchOptions, keeps: bool = False) -> Any:
    """A compiler for AOTAutograd to call with the graph of a pass; it caches nothing on disk.
    PyTorch 2.6 to 2.9 cache only inductor's graphs."""

    def compile_graph(graph, _inputs):
        if phase == "backward":
            keep_nothing_donated()
        stable = static_inputs() if keeps else ()
        return TorchGraphProgram(graph, phase, options, visible_results(phase), stable)

    return compile_graph


def graphs_uncached(module: torch.fx.GraphModule, options: TorchOptions) -> Any:
    """A context in which no graph is kept."""
    return contextlib.nullcontext()


COMPILER = cached_compiler if KEEPS_GRAPHS else plain_compiler
CACHE = graphs_cached if KEEPS_GRAPHS else graphs_uncached
if CAN_WAIT:
    let_messages_wait()

# Operators whose PyTorch decompositions differ from eager: they round places differently.
UNLIKE_EAGER = {getattr(torch.ops.aten.linspace, x) for x in torch.ops.aten.linspace.overloads()}


@functools.cache
def decompositions() -> dict[Any, Any]:
    """Decompositions of operators without a table entry: PyTorch's rules, and ours for operators on
    lists of tensors."""
    rules = core_decompositions()
    exceptions = {op for op in rules if name_of(op) in TABLE or op in UNLIKE_EAGER}
    return {op: rule for op, rule in rules.items() if op not in exceptions} | foreach_rules()


class Decompositions(Mapping[Any, Any]):
    """`decompositions()` as a mapping that is made when a graph is traced: a graph from the disk
    needs none."""

    def __getitem__(self, op: Any) -> Callable[..., Any]:
        return decompositions()[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())


@traced_otherwise
def glasshouse(
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    *,
    options: dict[Any, Any] | None = None,
    mode: str | None = None,
) -> Any:
    """The backend: `torch.compile(model, backend="glasshouse")` calls it with each captured graph.

    Raises: OptionError for an unknown option or mode, or a wrong value of an option
    Example:
        >>> import torch
        >>> f = torch.compile(lambda x: x.sin() + 1, backend=glasshouse)
        >>> f(torch.zeros(3)).tolist()
        [1.0, 1.0, 1.0]
    """
    settings = checked_options(options)
    check_mode(mode)
    name_root(module.graph)
    budget = settings.memory_budget
    rules, cut = Decompositions(), partition
    if budget is not None:
        rules, cut = decompositions() | DECOMPOSITIONS, partition_within(budget)

    # Programs write to inputs where no gradient is recorded, as optimizers do.
    writes = not torch.is_grad_enabled()
    compile_graph = aot_autograd(
        fw_compiler=COMPILER("forward", settings),
        bw_compiler=COMPILER("backward", settings),
        inference_compiler=COMPILER("forward", settings, keeps=True),
        decompositions=rules,
        keep_inference_input_mutations=writes,
        partition_fn=cut,
    )
    with CACHE(module, settings), no_collection(), recurrent_layers_captured():
        compiled = compile_graph(module, inputs)
    if not (writes or sizes_vary(inputs)):
        compiled = WithoutZeros(compiled)
    if writes_inputs():
        return RaisesAsEager(compiled, calls_of(module), settings.strict)
    return compiled
