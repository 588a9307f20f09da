"""Data types: their names, NumPy forms and promotion rules.

Promotion follows the Array API standard 2024.12; where the standard is silent, an integer with a
floating type gives the floating type (as PyTorch and JAX do), and uint64 with a signed integer
gives float64 (as NumPy does)."""

import functools
from collections.abc import Callable
from typing import Any, Self

import ml_dtypes
import numpy as np

from glasshouse.base.errors import DTypeError, suggest, type_name

__all__ = ["DType", "bfloat16", "complex128", "complex64", "float16", "float32", "float64", "int16",
           "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8"]  # fmt: skip

KIND_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


class DType:
    """One data type: its `name`, `kind` (bool, int …), `itemsize` in bytes, NumPy form `np`."""

    __slots__ = (
        "name kind itemsize np is_floating is_complex is_inexact is_integer is_bool specs"
    ).split()

    name: str
    kind: str
    itemsize: int
    np: Any  # a numpy.dtype; the name hides the module here
    is_floating: bool
    is_complex: bool
    is_inexact: bool
    is_integer: bool
    is_bool: bool
    specs: dict[tuple[int, ...], Any]  # by shape: see Spec

    def __init__(self, name: str, kind: str, np_dtype: Any) -> None:
        self.name, self.kind = name, kind
        self.np = np.dtype(np_dtype)
        self.itemsize = self.np.itemsize
        self.is_bool = kind == "bool"
        self.is_integer = kind in ("int", "uint")
        self.is_floating = kind == "float"
        self.is_complex = kind == "complex"
        self.is_inexact = kind in ("float", "complex")
        self.specs = {}

    def __repr__(self) -> str:
        return f"glasshouse.{self.name}"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return as_dtype, (self.name,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


DTypeLike = DType | str | type[Any]  # what as_dtype reads


def family(kind: str, *bits: int) -> list[DType]:
    return [DType(f"{kind}{n}", kind, f"{kind}{n}") for n in bits]


bool_: DType = DType("bool", "bool", np.bool_)
int8: DType
int16: DType
int32: DType
int64: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
float16: DType
float32: DType
float64: DType
complex64: DType
complex128: DType
int8, int16, int32, int64 = family("int", 8, 16, 32, 64)
uint8, uint16, uint32, uint64 = family("uint", 8, 16, 32, 64)
float16, float32, float64 = family("float", 16, 32, 64)
bfloat16: DType = DType("bfloat16", "float", ml_dtypes.bfloat16)
complex64, complex128 = family("complex", 64, 128)

all_dtypes: tuple[Any, ...] = (
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
by_name: dict[str, DType] = {d.name: d for d in all_dtypes}
by_numpy: dict[Any, DType] = {d.np: d for d in all_dtypes}

default_float: DType = float32
default_int: DType = int64
default_complex: DType = complex64
default_of_kind: dict[str, DType] = {
    "bool": bool_,
    "int": int64,
    "uint": int64,
    "float": float32,
    "complex": complex64,
}
# Keyed by the type itself: DType compares equal to np.float64, so one dict of objects would mix.
by_python_type: dict[Any, DType] = {
    bool: bool_,
    int: default_int,
    float: default_float,
    complex: default_complex,
}


def as_dtype(x: Any) -> DType:
    """The DType that `x` names: a DType, a name, a Python type, or a NumPy type or dtype.

    Raises: DTypeError if it names none of the fifteen types.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, type) and x in by_python_type:
        return by_python_type[x]
    if isinstance(x, str) and x in by_name:
        return by_name[x]
    try:
        dtype = by_numpy.get(np.dtype(x))
    except (TypeError, ValueError):  # the latter for a dict
        dtype = None
    if dtype is None or x is None:
        got = repr(x) if isinstance(x, str) else f"{x!r} ({type_name(x)})"
        raise DTypeError("dtype", "a data type", got, suggest(x, by_name))
    return dtype


def from_numpy_dtype(np_dtype: np.dtype[Any]) -> DType:
    """The DType of a NumPy dtype.

    Raises: DTypeError for one that Glasshouse does not have.
    """
    dtype = by_numpy.get(np_dtype) or by_numpy.get(np.dtype(np_dtype).newbyteorder("="))
    if dtype is None:
        fix = "Convert it to numbers first."
        raise DTypeError("dtype", "a boolean or numeric array", f"dtype {np_dtype}", fix)
    return dtype


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The smallest dtype that both `a` and `b` convert to.

    Source: Array API standard 2024.12, "Type promotion rules".
    Example:
        >>> promote(int8, uint8)
        glasshouse.int16
    """
    if a is b:
        return a
    if KIND_ORDER[a.kind] > KIND_ORDER[b.kind]:
        a, b = b, a
    if KIND_ORDER[a.kind] < KIND_ORDER[b.kind]:
        return complex128 if a is float64 and b is complex64 else b
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:  # float16 with bfloat16: neither holds the other
            return float32
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if unsigned.itemsize < signed.itemsize:
        return signed
    return {1: int16, 2: int32, 4: int64, 8: float64}[unsigned.itemsize]


def promote_scalar(dtype: DType, scalar: float) -> DType:
    """The dtype of an operation between an array of `dtype` and a Python scalar.
    The scalar is weak: it keeps the array's dtype unless its kind is higher."""
    kind = by_python_type[type(scalar)].kind
    if KIND_ORDER[kind] <= KIND_ORDER[dtype.kind]:
        return dtype
    if kind == "complex" and dtype.is_floating:
        return complex_dtype(dtype)
    return default_of_kind[kind]


def real_dtype(dtype: DType) -> DType:
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    return dtype if dtype.is_complex else complex128 if dtype is float64 else complex64


def inexact_dtype(dtype: DType) -> DType:
    return dtype if dtype.is_inexact else default_float


def accumulation_dtype(dtype: DType) -> DType:
    """The dtype in which sums over `dtype` are carried: float32 for the 16-bit floats."""
    return float32 if dtype in (float16, bfloat16) else dtype


def scan_dtype(dtype: DType) -> DType:
    """The dtype in which running sums and products are carried: 64 bits for each real number. All
    before are in each of them, in order, so errors add up as they do in no tree of sums."""
    if dtype.is_complex:
        return complex128
    return float64 if dtype.is_floating else dtype
