"""What torch.compile finds under the name "glasshouse"."""

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd

from glasshouse.base import OptionError, suggest
from glasshouse.torch.runtime import TorchGraphProgram
from glasshouse.torch.table import TABLE, name_of

OPTIONS = ("strict",)


def decompositions() -> dict:
    """PyTorch's own decompositions of what the table has no entry for."""
    rules = core_aten_decompositions()
    return {op: rule for op, rule in rules.items() if name_of(op) not in TABLE}


def checked_options(options: dict | None) -> dict:
    """The options of a call of torch.compile.

    Raises: OptionError for one that there is not
    """
    options = dict(options or {})
    for name in options:
        if name not in OPTIONS:
            raise OptionError(
                "torch.compile(options=…)",
                f"one of {', '.join(OPTIONS)}",
                repr(name),
                suggest(name, OPTIONS),
            )
    return options


def glasshouse(module: torch.fx.GraphModule, inputs, *, options: dict | None = None, **_):
    """The backend: `torch.compile(model, backend="glasshouse")` calls it with each captured graph.

    Raises: OptionError for an unknown option
    Example:
        >>> import torch
        >>> f = torch.compile(lambda x: x.sin() + 1, backend=glasshouse)
        >>> f(torch.zeros(3)).tolist()
        [1.0, 1.0, 1.0]
    """
    options = checked_options(options)

    def compiler(phase: str):
        return lambda graph, _inputs: TorchGraphProgram(graph, phase, options)

    compile_graph = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("forward"),
        decompositions=decompositions(),
    )
    return compile_graph(module, inputs)
