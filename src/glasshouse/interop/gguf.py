"""GGUF files: metadata and tensors, mapped into memory, checked before anything is used.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from glasshouse.base.dtype import float32
from glasshouse.base.errors import CheckpointError, suggest
from glasshouse.dispatch.value import adopt, cast
from glasshouse.ops.checks import check_path
from glasshouse.ops.packed import FORMATS, unpack

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Codes of the format: of numbers in the metadata, and of tensors.
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
           11: "<i8", 12: "<f8"}  # fmt: skip
STRING, ARRAY = 8, 9
PLAIN: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K", 30: "BF16"}
ALIGNMENT = "general.alignment"
MOST_AXES, MOST_NESTED, MOST_ALIGNMENT = 4, 4, 1 << 20
LEAST_ENTRY = 13  # bytes of an entry of the metadata: a name's length, a code, a byte
LEAST_TENSOR = 32  # … of a tensor: a name's length, axes, one size, a code, a place


class StoredTensor(NamedTuple):
    """The place of a tensor in a file. `kind` is F32, F16, BF16 or a format of blocks."""

    kind: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class Cursor:
    """A place in mapped bytes, from which values are read; no value reaches beyond the end."""

    def __init__(self, path: Path, memory: Any) -> None:
        self.path = path
        self.memory = memory
        self.at: int = 0

    def fault(self, expected: str, got: Any) -> CheckpointError:
        where = f"{self.path.name} at byte {self.at}"
        return CheckpointError("load", f"{expected} in {where}", got, "Get the file again.")

    def check_rest(self, nbytes: int, what: str) -> None:
        left = len(self.memory) - self.at
        if nbytes > left:
            raise self.fault(f"{nbytes} bytes of {what}", f"{left} bytes before its end")

    def number(self, kind: str) -> Any:
        """A number of a struct format."""
        size = struct.calcsize("<" + kind)
        self.check_rest(size, "a number")
        (value,) = struct.unpack_from("<" + kind, self.memory, self.at)
        self.at += size
        return value

    def count(self, what: str, least: int) -> int:
        """How many things of at least so many bytes each follow."""
        count = self.number("Q")
        self.check_rest(count * least, f"{count} {what}")
        return count

    def text(self) -> str:
        size = self.count("characters", 1)
        self.at += size
        return self.memory[self.at - size : self.at].decode("utf-8", "replace")

    def texts(self, count: int) -> list[str]:
        """Strings, of which a vocabulary has many: each is read in a few calls."""
        memory, at, end, result = self.memory, self.at, len(self.memory), []
        for _ in range(count):
            start = at + 8
            size = int.from_bytes(memory[at:start], "little")
            if start + size > end:
                self.at = at
                result.append(self.text())  # which says what is wrong
            at = start + size
            result.append(memory[start:at].decode("utf-8", "replace"))
        self.at = at
        return result

    def value(self, code: int, depth: int = 0) -> Any:
        """A number, a string, or a list of one kind."""
        if code == STRING:
            return self.text()
        if code == ARRAY:
            if depth == MOST_NESTED:
                raise self.fault(f"at most {MOST_NESTED} lists within each other", "more")
            inner = self.number("I")
            return self.values(inner, self.count("values", self.size(inner)), depth + 1)
        return self.values(code, 1, depth)[0]

    def values(self, code: int, count: int, depth: int) -> list[Any]:
        if code == STRING:
            return self.texts(count)
        if code == ARRAY:
            return [self.value(code, depth) for _ in range(count)]
        size = self.size(code) * count
        self.check_rest(size, "numbers")
        self.at += size
        return np.frombuffer(self.memory[self.at - size : self.at], NUMBERS[code]).tolist()

    def size(self, code: int) -> int:
        """The fewest bytes that a value takes."""
        if code in (STRING, ARRAY):
            return 8 if code == STRING else 12
        if code not in NUMBERS:
            raise self.fault("a kind of value from 0 to 12", code)
        return np.dtype(NUMBERS[code]).itemsize


class GgufFile(Mapping[Any, Any]):
    """The tensors of a GGUF file by name, unpacked on access, and its `metadata`: the result of
    `open_gguf`. Nothing is read from the disk before it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.memory: mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise CheckpointError("load", f"{path} to be readable", error, "Check it.") from error
        cursor = Cursor(path, self.memory)
        cursor.check_rest(len(MAGIC), "its first word")
        version = struct.unpack_from("<I", self.memory, 4)[0] if len(self.memory) >= 8 else None
        if self.memory[:4] != MAGIC or version not in VERSIONS:
            got = f"{self.memory[:4]!r}, version {version}"
            raise cursor.fault("GGUF of version 2 or 3", got)
        cursor.at = 8
        tensors = cursor.count("tensors", LEAST_TENSOR)
        entries = cursor.count("entries", LEAST_ENTRY)
        self.metadata: dict[str, Any] = self.read_entries(cursor, entries)
        self.places: dict[str, StoredTensor] = self.read_places(cursor, tensors)

    def read_entries(self, cursor: Cursor, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            name, code = cursor.text(), cursor.number("I")
            cursor.size(code)
            if name in metadata:
                raise cursor.fault("names that differ", f"{name!r:.80} twice")
            metadata[name] = cursor.value(code)
        return metadata

    def read_places(self, cursor: Cursor, count: int) -> dict[str, StoredTensor]:
        pairs = [self.read_place(cursor) for _ in range(count)]
        step = self.metadata.get(ALIGNMENT, 32)
        if type(step) is not int or not 0 < step <= MOST_ALIGNMENT:
            raise cursor.fault(f"{ALIGNMENT} from 1 to {MOST_ALIGNMENT}", f"{step!r:.40}")
        start = -(-cursor.at // step) * step
        places: dict[str, StoredTensor] = {}
        for name, place in pairs:
            whole = place._replace(start=start + place.start)
            if name in places:
                raise cursor.fault("names that differ", f"{name!r:.80} twice")
            if whole.start + whole.nbytes > len(self.memory):
                expected = f"{whole.nbytes} bytes of {name!r:.80} from byte {whole.start} on"
                raise cursor.fault(expected, f"a file of {len(self.memory)} bytes")
            places[name] = whole
        return places

    def read_place(self, cursor: Cursor) -> tuple[str, StoredTensor]:
        name, axes = cursor.text(), cursor.number("I")
        if axes > MOST_AXES:
            raise cursor.fault(f"{name!r:.80} of at most {MOST_AXES} axes", axes)
        shape = tuple(cursor.number("Q") for _ in range(axes))[::-1]  # the innermost stands first
        code, start = cursor.number("I"), cursor.number("Q")
        kind = TYPES.get(code)
        if kind is None:
            kinds = ", ".join(TYPES.values())
            raise cursor.fault(f"tensors of type {kinds}", f"type {code} of {name!r:.80}")
        if kind in PLAIN:
            return name, StoredTensor(
                kind, shape, start, prod(shape) * np.dtype(PLAIN[kind]).itemsize
            )
        form = FORMATS[kind]
        if not shape or shape[-1] % form.numbers:
            expected = f"rows of {name!r:.80} of whole blocks of {form.numbers}"
            raise cursor.fault(expected, shape)
        nbytes = prod(shape) // form.numbers * form.nbytes
        return name, StoredTensor(kind, shape, start, nbytes)

    def blocks(self, name: str) -> np.ndarray:
        """The tensor as it lies in the file: numbers, or of a format of blocks bytes (..., blocks,
        bytes of a block).

        Raises: CheckpointError where there is no such tensor.
        """
        if name not in self.places:
            fix = suggest(name, self.places)
            raise CheckpointError("load", f"a tensor of {self.path.name}", repr(name), fix)
        place = self.places[name]
        if place.kind in PLAIN:
            dtype, shape = np.dtype(PLAIN[place.kind]), place.shape
        else:
            form = FORMATS[place.kind]
            blocks = place.shape[-1] // form.numbers
            dtype, shape = np.dtype(np.uint8), (*place.shape[:-1], blocks, form.nbytes)
        return np.frombuffer(self.memory, dtype, prod(shape), place.start).reshape(shape)

    def __getitem__(self, name: str) -> Any:
        if name not in self.places:
            raise KeyError(f"{name!r}. {suggest(name, self.places)}")
        x, kind = adopt(self.blocks(name)), self.places[name].kind
        return cast(x, float32) if kind in PLAIN else unpack(x, FORMATS[kind])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        kinds = sorted({place.kind for place in self.places.values()})
        return f"GgufFile({len(self)} tensors of {', '.join(kinds)})"


def open_gguf(path: Any) -> GgufFile:
    """The tensors of a GGUF file by name, in float32, and its `metadata`. The file is mapped into
    memory: a tensor that is never used is never read. It must not be written to meanwhile.

    Dtypes: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K.
    Raises: CheckpointError for a missing, cut or damaged file, or other types.
    Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    return GgufFile(check_path("open_gguf", path))
