"""PyTorch's modules: their calls, children and hooks."""

from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.patches.names import are_found, attribute, private, slot

EMPTY = torch.nn.Module()
CALL = slot("torch.nn:Module._call_impl", "2.6", "see calls of modules")
CHILDREN = "_modules"
children_of: Callable[..., Any] = attribute(
    f"torch.nn:Module.{CHILDREN}",
    "2.6",
    "name modules by their parents",
    sample=EMPTY,
    without=lambda module: dict(module.named_children()),
)
COMPILED_CALL = slot("torch.nn:Module._compiled_call_impl", "2.6", "leave compiled modules alone")
compiled_call: Callable[..., Any] = attribute(
    "torch.nn:Module._compiled_call_impl",
    "2.6",
    "leave compiled modules alone",
    without=lambda module: None,
)
call_traced: Any = private(
    "torch.fx._symbolic_trace:_orig_module_call", "2.6", "run modules within symbolic_trace"
)
write_constants_as: Any = private(
    "torch.fx.graph:_register_custom_builtin",
    "2.6",
    "write NumPy's numbers into graphs",
    without=lambda *args: None,
)
COSTING = "cost attention as ColossalAI did"
FUSED_ATTENTION = slot("torch.nn.functional:scaled_dot_product_attention", "2.6", COSTING)
IN_PROJECTION = slot("torch.nn.functional:_in_projection_packed", "2.6", COSTING)


def tables(owner: str, names: str, sample: torch.nn.Module | None) -> tuple[str, ...]:
    """The names of an object's tables of hooks; a placeholder that raises if one is missing: a
    capture that did not guard it would skip its hooks."""
    places = [
        slot(f"{owner}{name}", "2.6", "guard hooks of modules", sample) for name in names.split()
    ]
    gone = [x.owner for x in places if not are_found(x)]
    return gone[0] if gone else tuple(x.name for x in places)


FORWARD_HOOKS = "_forward_hooks _forward_pre_hooks"
BACKWARD_HOOKS = "_backward_hooks _backward_pre_hooks"
HOOKS = tables("torch.nn:Module.", f"{FORWARD_HOOKS} {BACKWARD_HOOKS}", EMPTY)
GLOBAL_HOOKS = tables(
    "torch.nn.modules.module:",
    " ".join(f"_global{name}" for name in f"{FORWARD_HOOKS} {BACKWARD_HOOKS}".split()),
    None,
)


def has_backward_hooks(module: torch.nn.Module) -> bool:
    """Whether a module has hooks that run in the backward pass."""
    return any(module.__dict__[kind] for kind in HOOKS if "backward" in kind)
