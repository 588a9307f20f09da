"""Codes of ONNX's element types, as dtypes of ours."""

from typing import Any

import numpy as np

from glasshouse.base.dtype import as_dtype
from glasshouse.base.errors import DTypeError

STRING = 8
CODES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
         9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64",
         15: "complex128", 16: "bfloat16"}  # fmt: skip


def dtype_of(code: int) -> Any:
    """The dtype of a code.

    Raises: DTypeError for a code without one: strings, float8, numbers of 2 and 4 bits
    """
    if code not in CODES:
        fix = "Numbers of 8 bits or less but int8 and uint8, and strings, are not computed."
        raise DTypeError("onnx", "an element type that is computed", f"code {code}", fix)
    return as_dtype(CODES[code])


def code_of(x: Any) -> int:
    """The code of a value's dtype."""
    name = getattr(x.dtype, "name", str(x.dtype))
    return next((code for code, own in CODES.items() if own == name), STRING)


def converted(x: Any, dtype: Any) -> Any:
    """A value of another dtype."""
    if isinstance(x, np.ndarray):
        with np.errstate(all="ignore"):
            return x.astype(dtype.np)
    return x.astype(dtype)
