"""PyTorch's modes, with functions that read and set them."""

from typing import Any

import torch

from glasshouse.torch.patches.names import private, slot, without_missing

DISPATCH = "torch.utils._python_dispatch"
DispatchMode: Any = private(
    f"{DISPATCH}:TorchDispatchMode", "2.6", "see each operator of eager code"
)
push_mode: Any = private(f"{DISPATCH}:_push_mode", "2.6", "take a mode from below others")
pop_mode: Any = private(f"{DISPATCH}:_pop_mode", "2.6", "take a mode from below others")
without_modes: Any = private(
    f"{DISPATCH}:_disable_current_modes", "2.6", "work where no mode sees it"
)
dispatch_modes: Any = private(
    "torch._C:_len_torch_dispatch_stack", "2.6", "see whether modes see each operator"
)
dispatch_modes_in_python: Any = private(
    f"{DISPATCH}:_len_torch_dispatch_stack", "2.6", "know a function of programs"
)
function_modes: Any = private(
    "torch._C:_len_torch_function_stack", "2.6", "see whether modes see each function"
)
has_function_mode: Any = private(
    "torch._C:_is_torch_function_mode_enabled", "2.6", "know a function of programs"
)
innermost_transform: Any = private(
    "torch._C._functorch:peek_interpreter_stack", "2.6", "see transforms of torch.func"
)
tracing_state: Any = private("torch._C:_get_tracing_state", "2.6", "see that torch.jit traces")
hooks_of_saved: Any = private(
    "torch._C._autograd:_top_saved_tensors_default_hooks",
    "2.8",
    "see hooks of what autograd saves",
)
FORWARD_LEVEL = slot(
    "torch.autograd.forward_ad:_current_level", "2.6", "see that tensors have tangents"
)
is_profiled: Any = private(
    "torch.autograd:_profiler_enabled", "2.6", "see that PyTorch's profiler runs"
)
set_grad: Any = private("torch._C:_set_grad_enabled", "2.6", "capture switches of gradients")
BelowAutograd: Any = private(
    "torch._C:_AutoDispatchBelowAutograd", "2.6", "call operators on functions without gradients"
)
uses_mkldnn: Any = private(
    "torch._C:_get_mkldnn_enabled",
    "2.6",
    "give recurrent layers eager's dtypes",
    without=torch.backends.mkldnn.is_available,
)
ATTENTION = ("flash", "mem_efficient", "math", "cudnn", "overrideable")  # ways to compute it
attention_readers: tuple[Any, ...] = without_missing(
    private(f"torch._C:_get_{way}_sdp_enabled", "2.6", "guard how attention is computed")
    for way in ATTENTION
)
attention_setters: tuple[Any, ...] = without_missing(
    private(f"torch._C:_set_sdp_use_{way}", "2.6", "capture how attention is computed")
    for way in ATTENTION
)
