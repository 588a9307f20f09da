"""C functions of PyTorch that read its modes, for guards.

They are found by name in PyTorch's libraries, and tested: the result of each must change with the
mode, and back. Where one is not found, guards call PyTorch's Python function."""

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from glasshouse.torch.patches.modes import DispatchMode, dispatch_modes, function_modes
from glasshouse.torch.scopes.passes import count_other_modes

LIBRARIES = Path(torch.__file__).parent / "lib"
BYTE, WORD, CPU = 0xFF, -1, 0


class ModeReader(NamedTuple):
    """A C function by its library and name, its argument, the mask of its result, and a context
    that changes the result."""

    library: str
    symbol: str
    argument: int
    mask: int
    changed: Callable[[], AbstractContextManager]


def other_grad_mode() -> Any:
    return torch.set_grad_enabled(not torch.is_grad_enabled())


def other_inference_mode() -> Any:
    return torch.inference_mode(not torch.is_inference_mode_enabled())


def other_autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16, not torch.is_autocast_enabled("cpu"))


def other_autocast_dtype() -> Any:
    now = torch.get_autocast_dtype("cpu")
    return torch.autocast("cpu", torch.float16 if now is torch.bfloat16 else torch.bfloat16)


def other_cache() -> Any:
    return torch.autocast("cpu", cache_enabled=not torch.is_autocast_cache_enabled())


AUTOCAST, ENABLED = "_ZN2at8autocast", "19is_autocast_enabledEN3c1010DeviceTypeE"
READERS: dict[Any, Any] = {
    (torch.is_grad_enabled, None): ModeReader(
        "c10", "_ZN3c108GradMode10is_enabledEv", 0, BYTE, other_grad_mode
    ),
    (torch.is_inference_mode_enabled, None): ModeReader(
        "c10", "_ZN3c1013InferenceMode10is_enabledEv", 0, BYTE, other_inference_mode
    ),
    (torch.is_autocast_enabled, "cpu"): ModeReader(
        "torch_cpu",
        AUTOCAST + ENABLED,
        CPU,
        BYTE,
        other_autocast,
    ),
    (torch.get_autocast_dtype, "cpu"): ModeReader(
        "torch_cpu",
        f"{AUTOCAST}18get_autocast_dtypeEN3c1010DeviceTypeE",
        CPU,
        BYTE,
        other_autocast_dtype,
    ),
    (torch.is_autocast_cache_enabled, None): ModeReader(
        "torch_cpu", f"{AUTOCAST}25is_autocast_cache_enabledEv", 0, BYTE, other_cache
    ),
    (function_modes, None): ModeReader(
        "torch_cpu", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", 0, WORD, TorchFunctionMode
    ),
    (count_other_modes, None): ModeReader(  # the same where there is no mode at all
        "c10", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", 0, WORD, DispatchMode
    ),
}


def reader_of(fn: Callable[..., Any], argument: str | bool | None) -> tuple[int, int, int] | None:
    """The C function for a Python one: (address, argument, mask); None where there is none."""
    if fn is count_other_modes and dispatch_modes():
        return None
    return found_readers().get((fn, argument))


@functools.cache
def found_readers() -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """By function and argument: the address of the C function, its argument, and the mask."""
    addresses = {}
    for key, reader in READERS.items():
        address = address_of(reader)
        if address and follows(address, reader):
            addresses[key] = address, reader.argument, reader.mask
    return addresses


def address_of(reader: ModeReader) -> int | None:
    """The address of the C function; None where it is missing."""
    try:
        library = ctypes.CDLL(str(LIBRARIES / f"lib{reader.library}.so"))
        return ctypes.cast(getattr(library, reader.symbol), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


def follows(address: int, reader: ModeReader) -> bool:
    """Whether its result changes with the mode, and back."""
    ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    results = [ask(reader.argument) & reader.mask]
    with reader.changed():
        results.append(ask(reader.argument) & reader.mask)
    results.append(ask(reader.argument) & reader.mask)
    return results[0] == results[2] != results[1]
