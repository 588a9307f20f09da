"""PyTorch's dtypes and ours."""

from typing import Any

import torch

from glasshouse.base import DType, DTypeError, Spec
from glasshouse.base import dtype as dtypes


class KnownDtypes(dict[Any, Any]):
    """Our dtype for each of PyTorch's that has one."""

    def __missing__(self, dtype: Any) -> Any:
        fix = "PyTorch computes graphs with other dtypes itself, unless strict=True refuses that."
        raise DTypeError("torch.compile", "a dtype that Glasshouse has", dtype, fix)


NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()
FROM_TORCH = KnownDtypes((getattr(torch, n), dtypes.as_dtype(n)) for n in NAMES)
TO_TORCH: dict[DType, torch.dtype] = {ours: theirs for theirs, ours in FROM_TORCH.items()}
NARROW = (torch.bfloat16, torch.float16)
CARRIERS = {torch.bfloat16: torch.int16}  # for a dtype that NumPy and torch do not share


def widen_tensor(x: torch.Tensor) -> torch.Tensor:
    """A tensor in the dtype in which sums over it are carried: narrow floats as float32."""
    return x.float() if x.dtype in NARROW else x


def spec_of(tensor: torch.Tensor) -> Spec:
    """Shape and dtype of a tensor of PyTorch's, fake ones included.

    Raises: DTypeError for a dtype that we do not have
    """
    return Spec(tuple(map(int, tensor.shape)), FROM_TORCH[tensor.dtype])


def to_array(tensor: torch.Tensor) -> Any:
    """A tensor's memory as a NumPy array of our dtype, without a copy. Tensors that are lazily
    conjugated or negated, or zeros without memory, are copied."""
    tensor = tensor.detach()
    carrier = CARRIERS.get(tensor.dtype)
    try:
        array = (tensor if carrier is None else tensor.view(carrier)).numpy()
    except RuntimeError:
        return to_array(tensor.resolve_conj().resolve_neg().clone())
    return array if carrier is None else array.view(FROM_TORCH[tensor.dtype].np)


def from_array(array: Any) -> torch.Tensor:
    """A tensor over a NumPy array's memory; nothing is copied."""
    dtype = TO_TORCH[dtypes.from_numpy_dtype(array.dtype)]
    carrier = CARRIERS.get(dtype)
    if carrier is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("int16")).view(dtype)
