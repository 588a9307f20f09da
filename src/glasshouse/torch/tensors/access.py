"""Fast access to PyTorch's tensors in C: reads their addresses, makes tensors over our memory."""

import ctypes
import functools
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.torch.patches.names import are_found
from glasshouse.torch.patches.tensors import (
    negative_view,
    storage_address,
    tensor_address,
    version_of,
    zeros_without_memory,
)
from glasshouse.torch.tensors.dtypes import FROM_TORCH
from glasshouse.torch.tensors.layout import turned
from glasshouse.torch.tensors.storage_parts import (
    StorageParts,
    find_contents,
    make_resizable,
    storage_parts,
    words_at,
)

SOURCE = Path(__file__).parent / "tensor_call.c"
OBJECT_BYTES, TENSOR_BYTES = 40, 208  # of memory that is searched
KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}  # of DLPack
SAMPLES = ((), (3,), (3, 0), (2, 3, 4), (2, 1, 3, 4, 5), (2, 3, 1, 2, 2, 3))


class TensorParts(NamedTuple):
    """Offsets of a tensor's parts in bytes, in the order of tensor_call.c."""

    impl: int
    storage: int
    sizes: int
    dtype: int
    key_set: int
    data: int
    nbytes: int
    keys: int
    keys_of_cpu: int


@functools.cache
def extension() -> Any:
    """The extension; None where it does not compile, or PyTorch has no functions for it."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    try:
        module = toolchain.extension(SOURCE)
        module.setup(capsule, torch.Tensor, torch.nn.Parameter)
    except (toolchain.CompileError, NotImplementedError) as error:
        if flags.debug:
            print(f"[gh] torch.compile: tensors are handed over by Python: {error}")
        return None
    return module


@functools.cache
def native() -> ModuleType:
    """The extension, set up with the offsets of a tensor's parts."""
    module = extension()
    parts = None if module is None else find_parts(module)
    if parts is not None:
        module.set_parts(*parts, *storage_parts())
        if not are_right(module):
            module.set_parts(*(0,) * len(parts), *StorageParts())
    return module


def find_parts(module: ModuleType) -> TensorParts | None:
    """The offsets of a tensor's parts: known values are searched in a tensor's memory. None where
    one of them is not found exactly once."""
    if not are_found(tensor_address, storage_address, negative_view, zeros_without_memory):
        return None
    x = torch.empty(7, 5)[2:, 1:]
    impl = words_at(id(x), OBJECT_BYTES).index(tensor_address(x)) * 8
    inside = words_at(tensor_address(x), TENSOR_BYTES)
    storage = x.untyped_storage()
    try:
        at_storage = inside.index(storage_address(storage)) * 8
        at_data, at_nbytes = find_contents(storage)
    except ValueError:
        return None
    _, shape = module.seen(x)
    sizes = shape - tensor_address(x)
    if not 0 < sizes < TENSOR_BYTES - 12 * 8 or inside[sizes // 8 - 1] != 2:
        return None
    key_set = find_key_set()
    if inside[sizes // 8 + 10] != x.storage_offset() or key_set is None:
        return None
    at, turned = key_set
    cpu = words_at(tensor_address(torch.empty(1)), TENSOR_BYTES)[at // 8]
    other = words_at(tensor_address(torch.empty(1, device="meta")), TENSOR_BYTES)[at // 8]
    keys = (cpu ^ other) | turned
    return TensorParts(
        impl, at_storage, sizes, sizes + 12 * 8, at, at_data, at_nbytes, keys, cpu & keys
    )


def find_key_set() -> tuple[int, int] | None:
    """The offset of a tensor's set of dispatch keys, and the bits in it of tensors whose elements
    are conjugated or negated when read, or are zeros without memory."""
    x = torch.empty(3, dtype=torch.complex64)
    y = torch.empty(3)
    pairs = [(x, x.conj()), (y, negative_view(y)), (y, zeros_without_memory(3))]
    places, bits = set(range(TENSOR_BYTES // 8)), 0
    for plain, other in pairs:
        words = zip(*(words_at(tensor_address(t), TENSOR_BYTES) for t in (plain, other)))
        differ = {i: a ^ b for i, (a, b) in enumerate(words)}
        places &= {i for i, bit in differ.items() if bit.bit_count() == 1 and bit > 0xFFFF}
        bits |= sum(differ[i] for i in places) if len(places) == 1 else 0
    return None if len(places) != 1 else (places.pop() * 8, bits)


def are_right(module: ModuleType) -> bool:
    """Whether the parts agree with PyTorch for many tensors."""
    table = (ctypes.c_int64 * 1)()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        for shape in SAMPLES:
            whole = torch.empty((*shape, 2), dtype=dtype)
            for x in (whole, whole[..., 1], torch.empty(shape, dtype=dtype)):
                expected = for_c(expected_tensor(x, 0))
                call = module.TensorCall(ctypes.addressof(table), [expected], [])
                same = call.fill([x]) and table[0] == module.seen(x)[0]
                if not same and x.numel():
                    return False
    numbers = {number_of(dtype) for dtype in kinds()}
    x = torch.empty(3)
    call = module.TensorCall(ctypes.addressof(table), [for_c(expected_tensor(x, 0))], [])
    zeros = zeros_without_memory(3)
    others = (
        negative_view(x),
        zeros,
        x.double(),
        torch.empty(4),
        torch.empty(6)[::2],
        x.to("meta"),
    )
    return len(numbers) == len(kinds()) and not any(call.fill([other]) for other in others)


@functools.cache
def kinds() -> dict[torch.dtype, tuple[int, int]]:
    """(kind, bits) of each of our dtypes, as DLPack has them."""
    return {
        dtype: (KINDS[name.rstrip("0123456789")], 8 * dtype.itemsize)
        for dtype, name in ((dtype, ours.name) for dtype, ours in FROM_TORCH.items())
    }


@functools.cache
def number_of(dtype: torch.dtype) -> int:
    """PyTorch's number of a dtype."""
    x = torch.empty(1, dtype=dtype)
    _, shape = extension().seen(x)
    return ctypes.c_uint16.from_address(shape + 12 * 8).value


def expected_tensor(tensor: torch.Tensor, place: int) -> tuple[Any, ...]:
    """The layout that an argument must have to match this tensor; its address goes to `place` of
    the run table."""
    return place, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), 0, turned(tensor)


def make_call(table: int, inputs: list[tuple[Any, ...]], outputs: list[tuple[Any, ...]]) -> Any:
    """A call object that fills the run table at an address. An input is (value,) or an
    `expected_tensor`; an output is (place, dtype, sizes, strides, bytes)."""
    module = native()
    if module is None or any(x[-1] is True for x in inputs if len(x) > 1):
        return PythonTensorCall(table, inputs, outputs)
    return module.TensorCall(table, [for_c(x) for x in inputs], [for_c(x) for x in outputs])


def for_c(x: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(x) == 1:
        return x
    place, dtype, sizes, strides, nbytes = x[:5]
    return place, *kinds()[dtype], number_of(dtype), tuple(sizes), tuple(strides), nbytes


class PythonTensorCall:
    """The slow twin of tensor_call.c."""

    def __init__(
        self, table: int, inputs: list[tuple[Any, ...]], outputs: list[tuple[Any, ...]]
    ) -> None:
        places = [x[0] for x in (*inputs, *outputs) if len(x) > 1]
        self.table: Any = (ctypes.c_int64 * (max(places, default=0) + 1)).from_address(table)
        self.inputs = inputs
        self.outputs = outputs

    def fill(self, args: list[Any]) -> bool:
        """Whether the arguments are as expected; the table then has their addresses."""
        if len(args) != len(self.inputs):
            return False
        for argument, expected in zip(args, self.inputs):
            if len(expected) == 1:
                if type(argument) is not type(expected[0]) or argument != expected[0]:
                    return False
                continue
            if not isinstance(argument, torch.Tensor) or argument.device.type != "cpu":
                return False
            if expected_tensor(argument, expected[0]) != expected:
                return False
            if expected[0] >= 0:
                self.table[expected[0]] = argument.data_ptr()
        return True

    def stamp(self, args: list[Any], numbers: tuple[int, ...]) -> int:
        """A number that changes when one of these tensors is written to or replaced."""
        tensors = (args[i] for i in numbers)
        return hash(tuple((x.data_ptr(), version_of(x), x.sum().item()) for x in tensors))

    def results(self, buffers: list[Any]) -> list[torch.Tensor]:
        """A tensor for each result; its address goes into the table."""
        tensors = []
        for (place, dtype, sizes, strides, nbytes), buffer in zip(self.outputs, buffers):
            if buffer is None:
                tensor = torch.empty_strided(sizes, strides, dtype=dtype)
            elif isinstance(buffer, torch.Tensor):  # an input that is written to
                tensor = buffer
            else:
                flat = torch.from_numpy(buffer[1].numpy()[:nbytes]).view(dtype)
                tensor = make_resizable(flat.as_strided(sizes, strides))
            self.table[place] = tensor.data_ptr()
            tensors.append(tensor)
        return tensors
