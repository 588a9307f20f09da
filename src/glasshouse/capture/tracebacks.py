"""Tracebacks as plain Python would have them: with the user's frames, without the interpreter's."""

import types

from glasshouse.capture.frame import CaptureFrame

HERE = __file__.rpartition("/")[0]


def is_ours(trace) -> bool:
    """Whether a traceback starts in the interpreter."""
    return trace.tb_frame.f_code.co_filename.startswith(HERE)


def users_part(trace):
    """A traceback without the interpreter's entries at its start."""
    while trace is not None and is_ours(trace):
        trace = trace.tb_next
    return trace


def traceback_entry(f: CaptureFrame):
    """A traceback entry that looks like the frame's."""
    code = f.root
    raiser = RAISER.__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=(f.line or code.co_firstlineno) - 1,
    )
    try:
        types.FunctionType(raiser, f.globals)()
    except ZeroDivisionError as error:
        return error.__traceback__.tb_next
    return None


def behind_frame(f: CaptureFrame, trace):
    """A traceback with a frame's entry before the others."""
    entry = traceback_entry(f)
    return types.TracebackType(trace, entry.tb_frame, entry.tb_lasti, f.line) if entry else trace


def RAISER():
    return 1 / 0


def raise_as_it_is(error: BaseException):
    """Raise without making what we are handling its context."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
