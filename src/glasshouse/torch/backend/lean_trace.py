"""Skips unneeded work of TorchDynamo in traces for our backend.

Nothing here changes the result of a trace: only when a thing is imported, measured or looked up."""

import contextlib
import logging
import sys
from collections.abc import Iterator

from glasshouse.torch.patches.names import Slot, are_found
from glasshouse.torch.patches.traces import (
    FUNCTION_NAME,
    GUARD_LATENCY,
    LOCAL_MAP,
    SHOULD_WRAP,
    VERBOSE,
    calls_log,
    guards_log,
    trace_log,
)


def should_wrap_if_imported(_cls, value) -> bool:
    """Whether a value is the function that `local_map` of DTensor makes. TorchDynamo asks it of
    each object, and imports for it what takes 0.05 s; where that was not imported, none is."""
    return LOCAL_MAP in sys.modules and SHOULD_WRAP.original(value)


def latency_if_logged(*given) -> float:
    """How long guards take in µs, which only logs tell: measuring it empties all caches first,
    which takes 0.03 s. 0 where nobody reads a log."""
    is_read = guards_log.isEnabledFor(logging.DEBUG) or trace_log.handlers
    return GUARD_LATENCY.original(*given) if is_read else 0.0


def funcname_if_logged(*given) -> str | None:
    """The function that a line of a file is in, which only a log of calls tells: finding it takes
    the whole file apart. None where nobody reads that log."""
    return FUNCTION_NAME.original(*given) if calls_log.isEnabledFor(logging.DEBUG) else None


@contextlib.contextmanager
def found_at_once(setting: Slot) -> Iterator[None]:
    """Inside, a setting of TorchDynamo is an ordinary variable of its module, and stays as it is:
    `verbose` is read for each instruction, to decide what the report of an error has."""
    variables = vars(setting.owner)
    variables[setting.name] = setting.value
    try:
        yield
    finally:
        del variables[setting.name]


# What stands in for what, and the logs that say whether somebody wants to know.
STAND_INS = (
    (SHOULD_WRAP, classmethod(should_wrap_if_imported), ()),
    (GUARD_LATENCY, latency_if_logged, (guards_log, trace_log)),
    (FUNCTION_NAME, funcname_if_logged, (calls_log,)),
)


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Inside, programs are traced in less time."""
    with contextlib.ExitStack() as stack:
        for place, stand_in, logs in STAND_INS:
            if are_found(*logs):
                stack.enter_context(place.holding(stand_in))
        if are_found(VERBOSE):
            stack.enter_context(found_at_once(VERBOSE))
        yield
