"""TorchDynamo: its compiled entries, its current backend, and functions that it skips."""

from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import torch

from glasshouse.torch.patches.names import are_found, attribute, private, settings, slot

OptimizedModule: Any = private(
    "torch._dynamo.eval_frame:OptimizedModule", "2.6", "know compiled modules"
)
BackendFailed: Any = private(
    "torch._dynamo.exc:BackendCompilerFailed", "2.6", "plan memory budgets"
)
skip_code: Any = private(
    "torch._dynamo.eval_frame:skip_code",
    "2.6",
    "keep TorchDynamo from compiling our observers",
    without=lambda code: None,
)
callbacks: Any = private(
    "torch._dynamo.callback:callback_handler", "2.6", "notice when TorchDynamo works"
)
backend_within: Any = private(
    "torch._dynamo.eval_frame:innermost_backend", "2.11", "know the backend that a trace is for"
)
InstructionTranslator: Any = private(
    "torch._dynamo.symbolic_convert:InstructionTranslator", "2.6", "name the outermost module"
)
on_bytecode: Any = private(
    "torch._dynamo.convert_frame:register_bytecode_hook", "2.6", "forget analysed steps"
)
NATIVE = "torch._C._dynamo.eval_frame"
entries_of: Any = private(f"{NATIVE}:_debug_get_cache_entry_list", "2.6", "forget analysed steps")
forget_entries: Any = private(f"{NATIVE}:reset_code", "2.6", "forget analysed steps")
set_strategy: Any = private(
    f"{NATIVE}:set_code_exec_strategy", "2.7", "keep capture from TorchDynamo"
)
FrameAction: Any = private(f"{NATIVE}:_FrameAction", "2.7", "keep capture from TorchDynamo")
FrameStrategy: Any = private(f"{NATIVE}:_FrameExecStrategy", "2.7", "keep capture from TorchDynamo")
find_backend: Any = private("torch._dynamo:lookup_backend", "2.6", "take compilers by their names")
ATTRIBUTES = "_opt_mod_attributes"  # of the class: the names of instance attributes
inner_module: Callable[..., Any] = attribute(
    "torch._dynamo.eval_frame:OptimizedModule._orig_mod",
    "2.6",
    "compile compiled modules again",
    sample=SimpleNamespace(**dict.fromkeys(getattr(OptimizedModule, ATTRIBUTES, ()))),
)
RECURRENT = slot("torch._dynamo.config:allow_rnn", "2.6", "capture recurrent layers")
compiling_recurrent: Any = settings(
    "torch._dynamo.config", "2.6", "capture recurrent layers", {"allow_rnn": True}
)
compiling_often: Any = settings(
    "torch._dynamo.config",
    "2.7",
    "compile analysed steps however often",
    {"recompile_limit": 1 << 20, "accumulated_recompile_limit": 1 << 20},
    is_needed=True,
)


def uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside a compiled one; any other module as it is."""
    return inner_module(module) if isinstance(module, OptimizedModule) else module


def skip_all(code: CodeType) -> None:
    """Have TorchDynamo skip a function and all that it calls."""
    if are_found(set_strategy, FrameAction, FrameStrategy):
        skip = FrameAction.SKIP
        set_strategy(code, FrameStrategy(skip, skip))
