"""Guards on PyTorch's modes, and on tensors, that a captured call relies on."""

from collections.abc import Callable
from typing import Any

import torch

from glasshouse.torch.ahead.planned import current
from glasshouse.torch.patches.fakes import FakeTensor
from glasshouse.torch.patches.modes import (
    FORWARD_LEVEL,
    attention_readers,
    dispatch_modes,
    dispatch_modes_in_python,
    function_modes,
    has_function_mode,
    hooks_of_saved,
    innermost_transform,
    is_profiled,
    tracing_state,
)
from glasshouse.torch.patches.tensors import dispatch_keys, hooks_of_accumulation, hooks_of_gradient
from glasshouse.torch.scopes.mode_readers import reader_of
from glasshouse.torch.scopes.passes import count_other_modes
from glasshouse.torch.tensors.guard import native

NO_OTHERS = (  # readers of modes that see each operation: (function, argument, usual result)
    (function_modes, None, 0),
    (count_other_modes, None, 0),
    (innermost_transform, None, None),
    (tracing_state, None, None),
    (hooks_of_saved, True, None),
)
NO_LEVEL = -1  # of forward_ad, where no tensors have tangents
PLAIN_CLASSES: set[Any] = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}


READERS = (  # readers of the other modes
    (torch.is_grad_enabled, None),
    (torch.is_inference_mode_enabled, None),
    (torch.is_autocast_enabled, "cpu"),
    (torch.get_autocast_dtype, "cpu"),
    (torch.is_autocast_cache_enabled, None),
    (torch.get_default_dtype, None),
    (torch.are_deterministic_algorithms_enabled, None),
    (torch.is_anomaly_enabled, None),
    (is_profiled, None),
)


GUARDED_WITH_MODES: set[Any] = {  # other names of the state in NO_OTHERS and READERS
    tracing_state,
    has_function_mode,
    torch.is_autocast_cpu_enabled,
    torch.get_autocast_cpu_dtype,
    dispatch_modes,
    dispatch_modes_in_python,
}
OTHER_READERS = (  # of state that few functions read; guarded only where one reads it
    (torch.get_num_threads, None),
    (torch.is_deterministic_algorithms_warn_only_enabled, None),
    (torch.is_autocast_enabled, "cuda"),
    (torch.get_autocast_dtype, "cuda"),
    *((reader, None) for reader in attention_readers),
)


def is_plain(kind: type[Any]) -> bool:
    """Whether operations on tensors of a class are PyTorch's own: it is a class of PyTorch, or that
    of tensors without contents in an analysis."""
    return kind in PLAIN_CLASSES or kind is FakeTensor and current.simulation is not None


def read_mode(fn: Callable[..., Any], argument: Any) -> Any:
    """The result of a PyTorch function that reads a mode; None as the argument: it takes none."""
    return fn() if argument is None else fn(argument)


def state_now() -> dict[Any, Any]:
    """The current results of OTHER_READERS, by function and argument."""
    return {(fn, argument): read_mode(fn, argument) for fn, argument in OTHER_READERS}


def others_watch() -> bool:
    """Whether a mode sees each operation: nothing is captured then."""
    if dispatch_modes():  # our own too: it comes with replacements of PyTorch's functions
        return True
    if FORWARD_LEVEL.value != NO_LEVEL:
        return True
    return any(read_mode(fn, argument) != usual for fn, argument, usual in NO_OTHERS)


class StateCheck:
    """A guard: functions that read PyTorch's modes return the expected results."""

    native: Any = None

    def __init__(self, calls: list[Any]) -> None:
        self.calls: tuple[Any, ...] = tuple(calls)
        module = native()
        if module is not None:
            readers = tuple(reader_of(fn, argument) for fn, argument, _ in self.calls)
            self.native = module.CallsGuard(self.calls, readers)

    def __call__(self, _: Any) -> bool:
        return all(read_mode(fn, argument) == expected for fn, argument, expected in self.calls)

    def __repr__(self) -> str:
        parts = [f"{fn.__name__}() is {expected}" for fn, _, expected in self.calls]
        return ", ".join([*parts[:4], "…"] if parts[4:] else parts)


def modes_check() -> StateCheck:
    """A guard: PyTorch's modes are as they are now."""
    now = [(fn, argument, read_mode(fn, argument)) for fn, argument in READERS]
    return StateCheck([*now, *NO_OTHERS])


class TensorCheck:
    """A guard: a tensor with these metadata."""

    kind: type[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    dtype: Any

    def __init__(self, tensor: torch.Tensor) -> None:
        self.kind, self.dtype = type(tensor), tensor.dtype
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        self.requires_grad, self.is_leaf = tensor.requires_grad, tensor.is_leaf
        self.keys: Any = dispatch_keys(tensor).raw_repr()
        module = native()
        self.native: Any = None if module is None else module.TensorGuard(tensor)
        self.is_unhooked: bool = False

    def forbid_hooks(self) -> None:
        """From now on hold only for tensors without hooks."""
        self.is_unhooked = True
        if self.native is not None:
            self.native.forbid_hooks()

    def __call__(self, x: Any) -> bool:
        return (
            type(x) is self.kind
            and x.dtype is self.dtype
            and x.requires_grad is self.requires_grad
            and x.is_leaf is self.is_leaf
            and x.shape == self.shape
            and x.stride() == self.strides
            and dispatch_keys(x).raw_repr() == self.keys
            and not (self.is_unhooked and has_hooks(x))
        )

    def differs_in_sizes(self, x: Any) -> bool:
        """Whether a tensor lacks nothing but the sizes, and the strides that follow from them."""
        return (
            type(x) is self.kind
            and x.dtype is self.dtype
            and x.requires_grad is self.requires_grad
            and x.is_leaf is self.is_leaf
            and x.ndim == len(self.shape)
            and x.shape != self.shape
            and dispatch_keys(x).raw_repr() == self.keys
        )

    def __repr__(self) -> str:
        grad = ", requires_grad" if self.requires_grad else ""
        hooks = ", no hooks" if self.is_unhooked else ""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}{grad}{hooks}"


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether Python runs where a gradient of a leaf is computed or accumulated."""
    return bool(hooks_of_gradient(tensor) or hooks_of_accumulation(tensor))
