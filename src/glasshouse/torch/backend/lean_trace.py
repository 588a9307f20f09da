"""Skips unneeded work of TorchDynamo in traces for our backend.

Nothing here changes the result of a trace: only when a thing is imported, measured or looked up."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

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


def should_wrap_if_imported(_cls: type[Any], value: Any) -> bool:
    """Whether a value is a function that DTensor's `local_map` made. TorchDynamo asks this of each
    object, with an import of 0.05 s. If that module is not imported, the answer is no."""
    return LOCAL_MAP in sys.modules and SHOULD_WRAP.original(value)


def latency_if_logged(*args: Any) -> float:
    """The latency of guards in µs, which only logs show. Measuring it empties all caches and takes
    0.03 s. 0 where nobody reads a log."""
    is_read = guards_log.isEnabledFor(logging.DEBUG) or trace_log.handlers
    return GUARD_LATENCY.original(*args) if is_read else 0.0


def funcname_if_logged(*args: Any) -> str | None:
    """The function that a line of a file is in, which only the log of calls shows. Finding it
    parses the whole file. None where nobody reads that log."""
    return FUNCTION_NAME.original(*args) if calls_log.isEnabledFor(logging.DEBUG) else None


@contextlib.contextmanager
def found_at_once(setting: Slot) -> Iterator[None]:
    """Inside, a setting of TorchDynamo is an ordinary variable of its module, which is faster to
    read and does not change: TorchDynamo reads `verbose` for each instruction."""
    variables = vars(setting.owner)
    variables[setting.name] = setting.value
    try:
        yield
    finally:
        del variables[setting.name]


# (place, replacement, the logs that decide whether the original runs).
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
