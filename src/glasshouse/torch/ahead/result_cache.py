"""Results of operators on tensors without contents, remembered by sizes.

An analysed step makes the same few calls for each layer and each parameter. One result that PyTorch
computed serves the others: a view is made at once, an update in place returns its operand, and new
tensors have known sizes and strides. PyTorch computes all other results each time."""

from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.patches.fakes import FakeTensor, FakeTensorMode, in_kernel
from glasshouse.torch.patches.operators import DispatchKey, has_kernel, schema_of
from glasshouse.torch.patches.tensors import storage_address

PLAIN: set[Any] = {
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.layout,
    torch.memory_format,
}
MOST_KINDS = 1 << 16  # the most kinds of calls in the cache
COMPOSITE: Any = DispatchKey.CompositeImplicitAutograd
UNKNOWN = object()  # for a kind of call that is not in the cache


class RememberedResults:
    """A cache of results by operator, sizes and numbers. `makers` has for each kind of call a
    function that makes its result; None where PyTorch must compute it."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode: Any = mode
        self.makers: dict[tuple[Any, ...], Any] = {}

    def result(
        self, func: Any, args: tuple[Any, ...], named: dict[Any, Any], compute: Callable[..., Any]
    ) -> Any:
        """The result of a call; `compute` makes it if it is not known."""
        key = key_of(func, args, named)
        if key is None:
            return compute()
        make = self.makers.get(key, UNKNOWN)
        if make is UNKNOWN:
            result = compute()
            if len(self.makers) < MOST_KINDS:
                self.makers[key] = self.maker_of(func, args, result)
            return result
        return compute() if make is None else make(func, args, named)

    def maker_of(self, func: Any, args: tuple[Any, ...], result: Any) -> Callable[..., Any] | None:
        """A function that makes the result of such a call again; None where that is not simple."""
        if type(result) is not FakeTensor or result.constant is not None:
            return None
        name, tensors = schema_of(func).name, [x for x in args if type(x) is FakeTensor]
        if torch.Tag.inplace_view in func.tags or not name.startswith("aten::"):
            return None
        if has_kernel(func.name(), COMPOSITE):
            return None  # it may return an operand, or a view of one
        if schema_of(func).is_mutable:
            return first_operand if name.endswith("_") and result is args[0] else None
        if any(result is x for x in tensors):
            return None
        if func.is_view:
            return self.view
        storage = result.untyped_storage()
        others = {storage_address(x.untyped_storage()) for x in tensors}
        is_whole = result.storage_offset() == 0 and storage.nbytes() == bytes_of(result)
        if not is_whole or storage_address(storage) in others:
            return None
        return self.new_tensor(result)

    def view(self, func: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> torch.Tensor:
        """A view, made by PyTorch's own kernel."""
        with in_kernel(self.mode):
            tensor = func(*args, **named)
        return FakeTensor(self.mode, tensor, args[0].fake_device)

    def new_tensor(self, like: FakeTensor) -> Callable[..., Any]:
        """A function that makes tensors with memory of their own."""
        shape, strides = tuple(like.shape), like.stride()
        dtype, device = like.dtype, like.fake_device

        def make(func, args, named):
            with in_kernel(self.mode):
                tensor = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
            return FakeTensor(self.mode, tensor, device)

        return make


def first_operand(
    func: Any, args: tuple[float | torch.Tensor, ...], named: dict[str, float]
) -> torch.Tensor:
    """The result of an update in place: its first operand."""
    return args[0]


def bytes_of(x: torch.Tensor) -> int:
    """Bytes of a tensor that lies without gaps."""
    return x.numel() * x.itemsize


def key_of(func: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> tuple[Any, ...] | None:
    """The cache key of a result; None where it depends on more than sizes and numbers."""
    key: list[Any] = [func, torch.get_default_dtype()]
    for x in args:
        if not add_to(key, x):
            return None
    for name, x in named.items():
        key.append(name)
        if not add_to(key, x):
            return None
    return tuple(key)


def add_to(key: list[Any], x: Any) -> bool:
    """Add an argument to a key, if that can be."""
    kind = type(x)
    if kind is FakeTensor:
        if x.constant is not None or x.layout is not torch.strided:
            return False
        key += (x.shape, x.stride(), x.storage_offset(), x.dtype, x.fake_device)
    elif kind in PLAIN:
        key += (kind, x)
    elif kind is torch.device:
        key.append(x)
    elif kind is list or kind is tuple:
        key += (kind, len(x))
        return all(add_to(key, part) for part in x)
    else:
        return False
    return True
