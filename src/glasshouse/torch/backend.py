"""What torch.compile finds under the name "glasshouse"."""

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd

from glasshouse.torch.options import checked_options
from glasshouse.torch.partition import DECOMPOSITIONS, partition_within
from glasshouse.torch.runtime import TorchGraphProgram
from glasshouse.torch.table import TABLE, name_of


def decompositions() -> dict:
    """PyTorch's own decompositions of what the table has no entry for."""
    rules = core_aten_decompositions()
    return {op: rule for op, rule in rules.items() if name_of(op) not in TABLE}


def glasshouse(module: torch.fx.GraphModule, inputs, *, options: dict | None = None, **_):
    """The backend: `torch.compile(model, backend="glasshouse")` calls it with each captured graph.

    Raises: OptionError for an unknown option, or a wrong value of one
    Example:
        >>> import torch
        >>> f = torch.compile(lambda x: x.sin() + 1, backend=glasshouse)
        >>> f(torch.zeros(3)).tolist()
        [1.0, 1.0, 1.0]
    """
    given = checked_options(options)
    budget = given.memory_budget
    rules, more = decompositions(), {}
    if budget is not None:
        rules, more = rules | DECOMPOSITIONS, {"partition_fn": partition_within(budget)}

    def compiler(phase: str, keeps: bool = False):
        return lambda graph, _inputs: TorchGraphProgram(graph, phase, given, keeps)

    compile_graph = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("forward", keeps=True),
        decompositions=rules,
        **more,
    )
    return compile_graph(module, inputs)
