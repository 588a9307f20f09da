"""Namespace parts of the Array API standard: constants, dtype functions, inspection."""

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from glasshouse.base import DType, as_dtype, promote, promote_scalar, real_dtype
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import DTypeError, OptionError, check_known
from glasshouse.dispatch import SCALARS, Value, as_value, cast
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.backend import check_device
from glasshouse.dispatch.value import ArrayLike
from glasshouse.tensor.standard.manipulate import copied

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["__array_api_version__", "__array_namespace_info__", "astype", "can_cast", "e", "finfo",
           "iinfo", "inf", "isdtype", "nan", "newaxis", "pi", "result_type"]  # fmt: skip

__array_api_version__ = "2024.12"
e: float = math.e
pi: float = math.pi
inf: float = math.inf
nan: float = math.nan
newaxis: Any = None

STANDARD_KINDS = {"bool": ("bool",), "signed integer": ("int",), "unsigned integer": ("uint",),
                  "integral": ("int", "uint"), "real floating": ("float",),
                  "complex floating": ("complex",),
                  "numeric": ("int", "uint", "float", "complex")}  # fmt: skip
EXTENSION_DTYPES = ("float16", "bfloat16")  # ours, but not the standard's


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating dtype, or of the parts of a complex one."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        return self.smallest_normal


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def dtype_of(x: "Tensor | DType") -> DType:
    """The dtype of a tensor or array, or the dtype that `x` names."""
    return as_dtype(x.dtype) if isinstance(x, (Value, np.ndarray, np.generic)) else as_dtype(x)


def finfo(type: DType, /) -> FloatInfo:
    """bits, eps, max, min and smallest_normal of a floating or complex dtype or tensor.

    Raises: DTypeError for other dtypes.
    Source: standard.
    Example:
        >>> finfo("float32").eps
        1.1920928955078125e-07
    """
    dtype = real_dtype(dtype_of(type))
    if not dtype.is_floating:
        raise DTypeError("finfo", "a floating or complex dtype", dtype.name, "Use gh.iinfo.")
    info = ml_dtypes.finfo(dtype.np)
    limits = float(info.eps), float(info.max), float(info.min), float(info.smallest_normal)
    return FloatInfo(int(info.bits), *limits, dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """bits, max and min of an integer dtype or tensor.

    Raises: DTypeError.
    Source: standard.
    """
    dtype = dtype_of(type)
    if not dtype.is_integer:
        raise DTypeError("iinfo", "an integer dtype", dtype.name, "Use gh.finfo.")
    info = np.iinfo(dtype.np)
    return IntegerInfo(int(info.bits), int(info.max), int(info.min), dtype)


def isdtype(dtype: DTypeLike, kind: tuple[str, ...] | str) -> bool:
    """Whether `dtype` is of a kind: a name such as "real floating", a dtype, or a tuple of them.

    Raises: OptionError for an unknown name of a kind.
    Source: standard.
    """
    dtype = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind not in dtypes.by_name:
        check_known("isdtype", "a kind of dtype", kind, STANDARD_KINDS)
        return dtype.kind in STANDARD_KINDS[kind]
    return dtype is as_dtype(kind)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a dtype (or a tensor's) promotes to `to`.

    Raises: DTypeError for an argument that is not a dtype.
    Source: standard, "Type promotion rules".
    Example:
        >>> can_cast("int8", "int16"), can_cast("int16", "int8")
        (True, False)
    """
    to = dtype_of(to)
    return promote(dtype_of(from_), to) is to


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, dtypes and (weakly) Python scalars promote to together.

    Raises: OptionError without arguments.
    Source: standard, "Type promotion rules".
    Example:
        >>> result_type("int8", "uint8", 1)
        glasshouse.int16
    """
    scalars = [x for x in arrays_and_dtypes if type(x) in SCALARS]
    dtypes = [dtype_of(x) for x in arrays_and_dtypes if type(x) not in SCALARS]
    if not arrays_and_dtypes:
        raise OptionError("result_type", "arrays or dtypes", "none", "Give one or more.")
    dtypes = dtypes or [as_dtype(type(scalars[0]))]
    return reduce(promote_scalar, scalars, reduce(promote, dtypes))


def astype(
    x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> "Tensor":
    """x in another dtype; floats to integers round toward 0.

    Shapes: x (...) -> (...).
    Dtypes: any -> dtype.
    Raises: DTypeError from complex to real numbers.
    Source: standard.
    Example:
        >>> astype([1.7, -1.7], "int32").tolist()
        [1, -1]
    """
    check_device("astype", device)
    x, dtype = as_value(x, where="astype"), as_dtype(dtype)
    return copied(x) if copy and x.dtype is dtype else cast(x, dtype)


class NamespaceInfo:
    """Capabilities of this namespace, with its devices and dtypes."""

    def capabilities(self) -> dict[Any, Any]:
        """Boolean indexing and data-dependent shapes work; tensors have up to 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of the current backend."""
        return backends.current().device

    def devices(self) -> list[str]:
        """The devices that tensors can be made on now."""
        return [backends.current().device]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of Python numbers and of positions.

        Raises: DeviceError for another device.
        """
        check_device("default_dtypes", device)
        return {
            "real floating": dtypes.default_float,
            "complex floating": dtypes.default_complex,
            "integral": dtypes.default_int,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: str | None = None, kind: str | None = None) -> dict[str, DType]:
        """The standard's dtypes by name, of one kind, of several, or all.

        Raises: OptionError for an unknown kind, DeviceError for another device.
        """
        check_device("dtypes", device)
        kinds = ("bool", "numeric") if kind is None else kind
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        standard = [d for d in dtypes.all_dtypes if d.name not in EXTENSION_DTYPES]
        return {d.name: d for d in standard if isdtype(d, kinds)}


def __array_namespace_info__() -> NamespaceInfo:
    """Capabilities of this namespace, with its devices and dtypes.

    Source: standard.
    """
    return NamespaceInfo()
