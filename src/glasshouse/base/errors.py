"""The error classes of Glasshouse, and the helpers that make their messages useful.

Every message has one form, ``where: expected …; got …. fix.``, with the received values in it; the
errors make it of these four parts."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

__all__ = ["AnomalyError", "AxisError", "BackendError", "CaptureError", "CheckpointError",
           "CollectiveError", "DTypeError", "DeviceError", "GradError", "IndexOutOfRangeError",
           "LinAlgError",
           "OptionError", "OutOfMemoryError", "ShapeError", "SharedMemoryError", "TransformError",
           "WorkerError"]  # fmt: skip

PACKAGE = str(Path(__file__).parents[1])  # files below it are ours, not the user's


class Explained(Exception):
    """An error from its message's parts, `ShapeError(where, expected, got, fix)`, or of all."""

    def __init__(
        self, where: str, expected: str | None = None, got: Any = None, fix: str = "", **named: Any
    ) -> None:
        whole = f"{where}: expected {expected}; got {got}. {fix}".rstrip()
        super().__init__(where if expected is None else whole, **named)


class ShapeError(Explained, ValueError):
    """Shapes, axes or sizes do not fit together."""


class DTypeError(Explained, TypeError):
    """A value has a type or dtype that the operation does not take."""


class OptionError(Explained, ValueError):
    """A name or an option is unknown, or outside its allowed values."""


class IndexOutOfRangeError(Explained, IndexError):
    """An index lies outside its axis."""


class AxisError(ShapeError, IndexOutOfRangeError):
    """An axis is not one of the value's; both a ValueError and an IndexError, as in NumPy."""


class MemberError(Explained, AttributeError):
    """A module has no such attribute, or none yet."""


class GradError(Explained, RuntimeError):
    """A gradient was asked for where there is none, or the graph was already freed."""


class DeviceError(Explained, RuntimeError):
    """A device is unknown, unavailable, or not the required one."""


class BackendError(Explained, RuntimeError):
    """A backend is unknown, cannot be loaded, or does not compute a primitive."""


class TransformError(Explained, RuntimeError):
    """A value inside vmap, jvp or grad was used in a way the transform cannot follow."""


class CaptureError(Explained, RuntimeError):
    """A function could not be captured."""


class HiddenValueError(CaptureError):
    """The value of a tensor was asked for while a function is captured, before it is computed."""


class CheckpointError(Explained, RuntimeError):
    """A checkpoint is missing, damaged, or does not fit the objects it is loaded into."""


class WorkerError(Explained, RuntimeError):
    """A process that reads data died, failed without an error, or took too long."""


class CollectiveError(Explained, RuntimeError):
    """A collective failed: a rank died, hung, or asked for something else."""


class LinAlgError(Explained, ValueError):
    """A matrix does not have the property that a factorisation needs."""


class SharedMemoryError(Explained, RuntimeError):
    """An array that a tensor shares was written to while calls that read it waited."""


class AnomalyError(Explained, FloatingPointError):
    """A result of compiled code is NaN or infinite, and `detect_anomaly` is on."""


class OutOfMemoryError(Explained, MemoryError):
    """An allocation went over the limit."""


def suggest_nearest(name: str, options: Iterable[str]) -> str:
    """A sentence naming the option nearest to a misspelled `name`; "" if none is near."""
    near = get_close_matches(str(name), sorted(options), n=1, cutoff=0.6)
    return f"Did you mean {near[0]!r}?" if near else ""


def suggest(name: str, options: Any) -> str:
    """A sentence naming the option nearest to a misspelled `name`, or listing a few of them.

    Example:
        >>> suggest("relo", ["relu", "tanh"])
        "Did you mean 'relu'?"
    """
    options = sorted(map(str, options))
    if near := suggest_nearest(name, options):
        return near
    shown = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"Choose one of: {shown}."


def check_known(where: str, what: str, name: Any, options: Any) -> str:
    """`name`; raises OptionError, suggesting the nearest, unless it is one of `options`."""
    if not is_one_of(name, options):
        raise OptionError(where, what, repr(name), suggest(name, options))
    return name


def is_one_of(value: Any, options: Any) -> bool:
    """Whether a value, of whatever type, is among a container's."""
    try:
        return value in options
    except TypeError:  # a list is no key of a dict
        return False


def check_least(where: str, name: str, value: int, least: int, fix: str) -> None:
    if not isinstance(value, int) or value < least:
        raise OptionError(where, f"{name} to be {least} or more", repr(value), fix)


def type_name(x: Any) -> str:
    """How an error message names the type of `x`: with its package when it is not a builtin.

    Example:
        >>> type_name(1.5)
        'float'
    """
    cls = type(x)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def optional(where: str, what: str, module: str, extra: str) -> ModuleType:
    """A third-party module.

    Raises: BackendError, with how to install it, where it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fix = f"Install it: pip install 'glasshouse[{extra}]'."
        raise BackendError(where, what, error, fix) from error


def raised_at(error: BaseException) -> str:
    """The line that raised an error, "file.py:12", without the folder."""
    inner = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(inner.filename).name}:{inner.lineno}"


def user_line() -> str:
    """The innermost running line that is not ours, "file.py:12"; "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
