"""How tensors print: aligned, summarised when large, within the terminal's width."""

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.autograd.tape import TapeMode
from glasshouse.base import OptionError, check_known, having

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


@dataclass(frozen=True)
class PrintOptions:
    """Digits after the point, elements up to which all are shown, elements at each edge beyond, and
    the line width (None: the terminal's)."""

    precision: int = 4
    threshold: int = 1000
    edge_items: int = 3
    line_width: int | None = None


class CurrentPrintOptions:
    options: PrintOptions = PrintOptions()


class set_print_options(having):
    """Change how tensors print; as a context, until its end.

    Raises: OptionError for an unknown option or a value that is not a non-negative integer.
    Example:
        >>> with set_print_options(precision=2):
        ...     print(gh.asarray([1.23456]))
        Tensor([1.23], dtype=float32)
    """

    def __init__(self, **options: Any) -> None:
        fields = PrintOptions.__dataclass_fields__
        for name, value in options.items():
            check_known("set_print_options", "a known option", name, fields)
            is_count = isinstance(value, int) and value >= 0
            if not is_count and (name, value) != ("line_width", None):
                expected = f"{name} as an integer of 0 or more"
                raise OptionError("set_print_options", expected, repr(value), "Pass an int.")
        super().__init__(
            CurrentPrintOptions, options=replace(CurrentPrintOptions.options, **options)
        )


def format_tensor(x: "Tensor") -> str:
    """The text of repr(x): contents, dtype, and properties other than the defaults."""
    name = type(x).__name__
    without_values = getattr(x.backend, "name", "") == "meta"
    if without_values or not isinstance(x.mode, TapeMode | None):
        kind = "Meta" if without_values else type(x.mode).__name__.removesuffix("Mode")
        return f"{kind}{name}(shape={x.shape}, dtype={x.dtype.name})"
    notes = [f"dtype={x.dtype.name}"]
    notes += [f"shape={x.shape}"] if 0 in x.shape and x.shape != (0,) else []
    notes += [f"device={x.device!r}"] if x.device != "cpu" else []
    notes += ["requires_grad=True"] if x.requires_grad else []
    options = CurrentPrintOptions.options
    width = options.line_width or max(40, shutil.get_terminal_size((88, 24)).columns)
    body = format_array(x.numpy(), len(name) + 1, width, options)
    tail = ", ".join(notes) + ")"
    last = f"{name}({body}".rsplit("\n", 1)[-1]
    fits = len(last) + 2 + len(tail) <= width
    gap = ", " if fits else ",\n" + " " * (len(name) + 1)
    return f"{name}({body}{gap}{tail}"


def format_array(array: np.ndarray, indent: int, width: int, options: PrintOptions) -> str:
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if not array.size:
        return "[]"
    formatter: Any = {"float_kind": single_float} if array.ndim == 0 else None
    return np.array2string(
        array,
        max_line_width=width,
        precision=options.precision,
        separator=", ",
        prefix=" " * indent,
        threshold=options.threshold,
        edgeitems=options.edge_items,
        floatmode="maxprec",
        suppress_small=False,
        formatter=formatter,
    )


def single_float(value: Any) -> str:
    plain = 1e-4 <= abs(value) < 1e8 or value == 0 or not np.isfinite(value)
    write = np.format_float_positional if plain else np.format_float_scientific
    return write(value, precision=CurrentPrintOptions.options.precision, unique=True, trim="0")
