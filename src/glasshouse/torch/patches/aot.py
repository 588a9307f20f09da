"""AOTAutograd: functions that compile a graph and cut it in two.

Importing it takes half a second; `guards`, which is light, reads facts of a compilation."""

from typing import Any

from glasshouse.torch.patches.names import private, settings

FUNCTORCH = "torch._functorch"
WRAPPERS = f"{FUNCTORCH}._aot_autograd.runtime_wrappers"  # where nodes of its graphs are defined

aot_autograd: Any = private(
    "torch._dynamo.backends.common:aot_autograd", "2.6", "compile graphs with their gradients"
)
cut_without_budget: Any = private(
    f"{FUNCTORCH}.partitioners:default_partition", "2.6", "cut graphs of both passes in two"
)
cut_within_budget: Any = private(
    f"{FUNCTORCH}.partitioners:min_cut_rematerialization_partition", "2.6", "keep memory budgets"
)
within_budget: Any = settings(
    f"{FUNCTORCH}.config",
    "2.6",
    "keep memory budgets",
    {"activation_memory_budget": 1.0},
    is_needed=True,
)


def is_compiled(node: Any) -> bool:
    """Whether an autograd node belongs to a graph that AOTAutograd compiled."""
    function = getattr(type(node), "_forward_cls", None)
    return function is not None and function.__module__ == WRAPPERS


def take_list(program: Any) -> None:
    """Have AOTAutograd hand a program its arguments as one list, which it may empty."""
    program._boxed_call = True
