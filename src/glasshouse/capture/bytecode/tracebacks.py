"""Tracebacks as plain Python would have them: with the user's frames, without the interpreter's."""

import types
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import original_of
from glasshouse.capture.bytecode.native import native

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame


HERE = __file__.rsplit("/", 2)[0]  # the folder of capture


def is_ours(trace: TracebackType) -> bool:
    """Whether a traceback starts in the interpreter."""
    return trace.tb_frame.f_code.co_filename.startswith(HERE)


def is_polyfill(code: types.CodeType) -> bool:
    """Whether a function is a builtin as the interpreter has it."""
    return code.co_filename.startswith(HERE)


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the interpreter's entries at its start. The other frames are detached
    from ours, which hold captured values."""
    while trace is not None and (is_ours(trace) or is_caller(trace.tb_frame.f_code)):
        trace = trace.tb_next
    entry, ours = trace, True
    while entry is not None:
        was_ours, ours = ours, is_ours(entry)
        if was_ours and not ours:
            native().detach_frame(entry.tb_frame)
        entry = entry.tb_next
    return trace


def line_table(units: int, delta: int | None) -> bytes:
    """A table of lines for this many code units: all lie `delta` lines after the first one; None
    for no line."""
    table = b""
    for begin in range(0, units, 8):
        kind = 15 if delta is None else 13  # no place; a line without columns
        table += bytes((0x80 | kind << 3 | min(8, units - begin) - 1,))
        if delta is None:
            continue
        step = (abs(delta) << 1 | (delta < 0)) if begin == 0 else 0
        while step > 63:
            table += bytes((step & 63 | 64,))
            step >>= 6
        table += bytes((step,))
    return table


def CALLER(_called: Callable[..., Any], _arguments: list[Any], _keywords: dict[Any, Any]) -> Any:
    return _called(*_arguments, **_keywords)


def is_caller(code: types.CodeType) -> bool:
    """Whether code belongs to a function of `caller_of`."""
    return code.co_varnames == CALLER.__code__.co_varnames


def caller_of(f: "CaptureFrame") -> Callable[..., Any]:
    """caller(fn, args, kwargs) calls fn from a frame that looks like the user's. Functions that
    look at their caller (warnings, namedtuple, TypeVar) find the user's module and line."""
    if f.root.co_filename.startswith(HERE):
        return CALLER
    code = f.code.callers.get(f.line)
    if code is None:
        delta = f.line - f.root.co_firstlineno if f.line else None
        code = f.code.callers[f.line] = CALLER.__code__.replace(
            co_filename=f.root.co_filename,
            co_name=f.root.co_name,
            co_qualname=original_of(f.root)[0].co_qualname,
            co_firstlineno=f.root.co_firstlineno,
            co_linetable=line_table(len(CALLER.__code__.co_code) // 2, delta),
        )
        native().set_skip(code, True)  # a hook leaves it alone
    return types.FunctionType(code, f.globals)


def frame_like(code: types.CodeType, line: int | None, names: dict[Any, Any]) -> FrameType:
    """A frame that looks like one of this code at this line; it holds neither locals nor a
    caller."""
    delta = line - code.co_firstlineno if line else None
    looks_alike = EMPTY.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=original_of(code)[0].co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_linetable=line_table(len(EMPTY.__code__.co_code) // 2, delta),
    )
    return native().make_frame(looks_alike, names)


def error_part(error: BaseException, name: str) -> Any:
    """A part that each exception has in C, like `__traceback__`; no code of its class runs."""
    return getattr(BaseException, name).__get__(error)


def set_error_part(error: BaseException, name: str, value: Any) -> None:
    """Set a part that each exception has in C; no code of its class runs."""
    getattr(BaseException, name).__set__(error, value)


def cut_traceback(error: BaseException) -> None:
    """Leave the user's entries alone in the traceback of an exception."""
    set_error_part(error, "__traceback__", users_part(error_part(error, "__traceback__")))


def add_frame(f: "CaptureFrame", error: BaseException) -> None:
    """Put a frame's entry in front of an exception's traceback."""
    set_error_part(error, "__traceback__", with_frame(f, error_part(error, "__traceback__")))


def with_frame(f: "CaptureFrame", trace: TracebackType | None) -> TracebackType | None:
    """A traceback with a frame's entry before the others."""
    if is_polyfill(f.root):
        return trace  # a builtin, as the interpreter has it
    return types.TracebackType(trace, frame_like(f.root, f.line, f.globals), 0, f.line or 0)


def add_inlined(error: BaseException, entries: tuple[Any, ...], first: int, last: int) -> None:
    """Put the entries of inlined functions, those from `first` to `last`, after that of the
    replacement, which called them. An entry is (code, line, globals), or None for none."""
    trace = error_part(error, "__traceback__")
    for entry in reversed(entries[first - 1 : last]):
        if entry is not None:
            code, line, names = entry
            frame = frame_like(code, line, names)
            trace.tb_next = types.TracebackType(trace.tb_next, frame, 0, line or 0)


def inside(error: BaseException) -> BaseException:
    """An error as an inlined function catches it: without the entry of the replacement."""
    set_error_part(error, "__traceback__", error_part(error, "__traceback__").tb_next)
    return error


def without_locals(trace: TracebackType | None) -> TracebackType | None:
    """A traceback that looks the same and holds nothing but code and globals."""
    if trace is None:
        return None
    frame = frame_like(trace.tb_frame.f_code, trace.tb_lineno, trace.tb_frame.f_globals)
    return types.TracebackType(without_locals(trace.tb_next), frame, 0, trace.tb_lineno or 0)


def EMPTY() -> None:
    pass


def chain_context(error: BaseException, handled: BaseException | None) -> None:
    """Have Python set the context of an exception, as if raised while `handled` is handled."""
    trace = error_part(error, "__traceback__")
    with suppress(BaseException):
        native().call_handling(handled, raise_it, (error,), {})
    set_error_part(error, "__traceback__", trace)


def raise_it(error: BaseException) -> Any:
    raise error
