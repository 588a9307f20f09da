"""Undocumented attributes of tensors and storages."""

from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.patches.names import attribute, private

# The addresses of C objects: they distinguish storages, and C reads there.
tensor_address: Callable[..., Any] = attribute(
    "torch:Tensor._cdata", "2.6", "find a tensor's parts in memory"
)
storage_address: Callable[..., Any] = attribute(
    "torch:UntypedStorage._cdata", "2.6", "tell storages apart"
)
version_of: Callable[..., Any] = attribute(
    "torch:Tensor._version", "2.6", "see whether a tensor was written to"
)
viewed_tensor: Callable[..., Any] = attribute(
    "torch:Tensor._base", "2.6", "name views of parameters so", without=lambda x: None
)
is_view: Any = private("torch:Tensor._is_view", "2.6", "keep graphs whose inputs are views apart")
is_zero_tensor: Any = private(
    "torch:Tensor._is_zerotensor", "2.6", "see zeros without memory", without=lambda x: False
)
negative_view: Any = private(
    "torch:_neg_view", "2.6", "make a tensor that is negated when it is read"
)
zeros_without_memory: Any = private(
    "torch:_efficientzerotensor", "2.6", "try what reads tensors in C"
)
use_count: Any = private(
    "torch:Tensor._use_count",
    "2.6",
    "see that native code refers to a tensor, which a trace then keeps a little longer",
    without=lambda x: 1,
)
dispatch_keys: Any = private(
    "torch._C:_dispatch_keys", "2.6", "guard tensors by their dispatch keys"
)
of_memory: Any = private(
    "torch._C._dynamo.guards:_reinterpret_tensor", "2.6", "make results over a tensor's memory"
)
stored_values: Any = private("torch:Tensor._values", "2.6", "count what a sparse tensor stores")
is_wrapper: Any = private(
    "torch.utils._python_dispatch:is_traceable_wrapper_subclass",
    "2.6",
    "leave recurrent layers of tensors that hold others to eager",
)
grouped_tensors: Any = private(
    "torch.utils._foreach_utils:_group_tensors_by_device_and_dtype",
    "2.6",
    "capture how optimizers put parameters in lists",
)

LEAF = torch.empty(0, requires_grad=True)
hooks_of_gradient: Callable[..., Any] = attribute(
    "torch:Tensor._backward_hooks", "2.6", "see hooks of gradients", sample=LEAF
)
hooks_of_accumulation: Callable[..., Any] = attribute(
    "torch:Tensor._post_accumulate_grad_hooks", "2.6", "see hooks of leaves", sample=LEAF
)


def copy_hooks(source: torch.Tensor, to: torch.Tensor) -> None:
    """Give a leaf the hooks of another one."""
    if hooks := hooks_of_gradient(source):
        to._backward_hooks = hooks
    if hooks := hooks_of_accumulation(source):
        to._post_accumulate_grad_hooks = hooks
