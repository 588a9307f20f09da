"""C functions of PyTorch's that tell its modes: guards ask them before any function in Python.

They are found by name in PyTorch's libraries, and tried: each has to tell where a mode is changed,
and where it is as it was. Where one is not found, guards call PyTorch's function in Python."""

import ctypes
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from glasshouse.torch.patches.modes import DispatchMode, dispatch_modes, function_modes
from glasshouse.torch.scopes.passes import count_other_modes

LIBRARIES = Path(torch.__file__).parent / "lib"
BYTE, WORD, CPU = 0xFF, -1, 0


class ModeReader(NamedTuple):
    """A C function by its library and name, its argument, which bits of the result count, and a
    context in which it tells something else."""

    library: str
    symbol: str
    argument: int
    mask: int
    changed: Callable[[], AbstractContextManager]


def other_grad_mode():
    return torch.set_grad_enabled(not torch.is_grad_enabled())


def other_inference_mode():
    return torch.inference_mode(not torch.is_inference_mode_enabled())


def other_autocast():
    return torch.autocast("cpu", torch.bfloat16, not torch.is_autocast_enabled("cpu"))


def other_autocast_dtype():
    now = torch.get_autocast_dtype("cpu")
    return torch.autocast("cpu", torch.float16 if now is torch.bfloat16 else torch.bfloat16)


def other_cache():
    return torch.autocast("cpu", cache_enabled=not torch.is_autocast_cache_enabled())


AUTOCAST, ENABLED = "_ZN2at8autocast", "19is_autocast_enabledEN3c1010DeviceTypeE"
READERS = {
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
    (count_other_modes, None): ModeReader(  # it tells the same where there is no mode at all
        "c10", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", 0, WORD, DispatchMode
    ),
}


def reader_of(fn, argument) -> tuple[int, int, int] | None:
    """The C function that tells the same as one in Python: address, argument, mask."""
    if fn is count_other_modes and dispatch_modes():
        return None
    return found_readers().get((fn, argument))


@functools.cache
def found_readers() -> dict[tuple, tuple[int, int, int]]:
    """By function and argument: the address of the C function, its argument, and the mask."""
    addresses = {}
    for key, reader in READERS.items():
        address = address_of(reader)
        if address and follows(address, reader):
            addresses[key] = address, reader.argument, reader.mask
    return addresses


def address_of(reader: ModeReader) -> int | None:
    """Where the C function is; None where it is not."""
    try:
        library = ctypes.CDLL(str(LIBRARIES / f"lib{reader.library}.so"))
        return ctypes.cast(getattr(library, reader.symbol), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


def follows(address: int, reader: ModeReader) -> bool:
    """Whether what it tells changes with the mode, and back."""
    ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    told = [ask(reader.argument) & reader.mask]
    with reader.changed():
        told.append(ask(reader.argument) & reader.mask)
    told.append(ask(reader.argument) & reader.mask)
    return told[0] == told[2] != told[1]
