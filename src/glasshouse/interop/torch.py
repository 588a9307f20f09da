"""Tensors and state dicts from and to PyTorch, as copies unless memory is to be shared."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, bfloat16, optional, tree_map, type_name
from glasshouse.dispatch.value import Value
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.creation import asarray, from_dlpack

__all__ = ["from_torch", "state_dict_from_torch", "state_dict_to_torch", "to_torch"]


def import_torch() -> ModuleType:
    return optional("interop.torch", "PyTorch to be installed", "torch", "torch")


def to_torch(x: Any, *, copy: bool | None = None) -> Any:
    """A PyTorch tensor of the values of `x`, without its gradient history: a copy, or with
    copy=False one that shares the memory of `x` and must not be written to.

    Raises: DTypeError if x is no Glasshouse tensor, BackendError if PyTorch is not installed,
        BufferError if copy=False and a copy is needed.
    """
    torch = import_torch()
    if not isinstance(x, Value):
        raise DTypeError("to_torch", "a Glasshouse tensor", type_name(x), "Use gh.asarray first.")
    payload = x.detach().exported(copy is not False)
    if x.dtype is bfloat16 and isinstance(payload, np.ndarray):  # NumPy cannot hand it out
        return torch.from_dlpack(payload.view(np.uint16)).view(torch.bfloat16)
    return torch.from_dlpack(payload)


def from_torch(x: Any, *, copy: bool | None = None) -> Tensor:
    """A tensor of the values of a PyTorch tensor, without its gradient history: a copy, or with
    copy=False one that shares the memory of `x`, which has to be left unchanged as gh.asarray says.

    Raises: DTypeError if x is no PyTorch tensor, BackendError if PyTorch is not installed.
    """
    torch = import_torch()
    if not isinstance(x, torch.Tensor):
        raise DTypeError("from_torch", "a PyTorch tensor", type_name(x), "Use asarray.")
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16 and x.device.type == "cpu":
        return asarray(x.view(torch.uint16).numpy().view(bfloat16.np), copy=copy)
    return from_dlpack(x, copy=copy)


def state_dict_to_torch(state: Any) -> dict[Any, Any]:
    """A model's or optimizer's state dict with PyTorch tensors, each in its own memory."""
    return tree_map(lambda leaf: to_torch(leaf) if isinstance(leaf, Value) else leaf, state)


def state_dict_from_torch(state: dict[str, Any]) -> dict[Any, Any]:
    """A state dict with tensors copied from PyTorch's, each in its own memory."""
    torch = import_torch()
    fix = "Pass model.state_dict()."
    check_type("state_dict_from_torch", state, Mapping, "a state dict", fix)
    plain = {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}

    def as_ours(leaf):
        return from_torch(leaf) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(as_ours, plain)
