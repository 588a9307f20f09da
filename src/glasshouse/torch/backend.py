"""What torch.compile finds under the name "glasshouse"."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd

from glasshouse.compile.plan import no_collection
from glasshouse.torch.eager_errors import RaisesAsEager, calls_of, writes_inputs
from glasshouse.torch.foreach import foreach_rules
from glasshouse.torch.options import TorchOptions, check_mode, checked_options
from glasshouse.torch.partition import DECOMPOSITIONS, partition, partition_within
from glasshouse.torch.recurrent import recurrent_layers_captured
from glasshouse.torch.runtime import (
    TorchGraphProgram,
    keep_nothing_donated,
    static_inputs,
    visible_results,
)
from glasshouse.torch.table import TABLE, name_of
from glasshouse.torch.undefined_gradients import WithoutZeros, sizes_vary
from glasshouse.torch.while_traced import traced_otherwise

try:
    from glasshouse.torch.graph_cache import cached_compiler, graphs_cached
except ImportError:  # PyTorch 2.6 to 2.8 keep graphs of inductor alone

    def cached_compiler(phase: str, options: TorchOptions, keeps: bool = False):
        """What AOTAutograd calls with the graph of a pass."""

        def compile_graph(graph, _inputs):
            if phase == "backward":
                keep_nothing_donated()
            stable = static_inputs() if keeps else ()
            return TorchGraphProgram(graph, phase, options, visible_results(phase), stable)

        return compile_graph

    def graphs_cached(module: torch.fx.GraphModule, options: TorchOptions):
        """Nothing is kept."""
        return contextlib.nullcontext()


try:
    from glasshouse.torch.traced_messages import let_messages_wait
except ImportError:  # another PyTorch: a message breaks the graph
    pass
else:
    let_messages_wait()


@functools.cache
def decompositions() -> dict:
    """How what the table has no entry for is taken apart, by PyTorch's own rules, and by ours of
    operators on lists of tensors."""
    rules = core_aten_decompositions()
    return {op: rule for op, rule in rules.items() if name_of(op) not in TABLE} | foreach_rules()


class Decompositions(Mapping):
    """The same, which are many, gathered when a graph is traced: one from the disk needs none."""

    def __getitem__(self, op) -> Callable:
        return decompositions()[op]

    def __iter__(self) -> Iterator:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())


@traced_otherwise
def glasshouse(
    module: torch.fx.GraphModule,
    inputs,
    *,
    options: dict | None = None,
    mode: str | None = None,
):
    """The backend: `torch.compile(model, backend="glasshouse")` calls it with each captured graph.

    Raises: OptionError for an unknown option or mode, or a wrong value of an option
    Example:
        >>> import torch
        >>> f = torch.compile(lambda x: x.sin() + 1, backend=glasshouse)
        >>> f(torch.zeros(3)).tolist()
        [1.0, 1.0, 1.0]
    """
    given = checked_options(options)
    check_mode(mode)
    budget = given.memory_budget
    rules, cut = Decompositions(), partition
    if budget is not None:
        rules, cut = decompositions() | DECOMPOSITIONS, partition_within(budget)

    # Inputs are written to by Programs where no gradient is told of it, as optimizers do.
    writes = not torch.is_grad_enabled()
    compile_graph = aot_autograd(
        fw_compiler=cached_compiler("forward", given),
        bw_compiler=cached_compiler("backward", given),
        inference_compiler=cached_compiler("forward", given, keeps=True),
        decompositions=rules,
        keep_inference_input_mutations=writes,
        partition_fn=cut,
    )
    with graphs_cached(module, given), no_collection(), recurrent_layers_captured():
        compiled = compile_graph(module, inputs)
    if not (writes or sizes_vary(inputs)):
        compiled = WithoutZeros(compiled)
    return RaisesAsEager(compiled, calls_of(module)) if writes_inputs() else compiled
