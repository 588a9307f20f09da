"""What TorchDynamo does in vain in each trace, left out of those for us.

Nothing here changes what a trace makes: only when a thing is imported, measured or looked up."""

import contextlib
import logging
import sys
from unittest.mock import patch

from torch._dynamo import config, guards, symbolic_convert
from torch._dynamo.funcname_cache import get_funcname
from torch._dynamo.guards import profile_guard_manager
from torch._dynamo.output_graph import trace_call_log
from torch._dynamo.variables.higher_order_ops import LocalMapWrappedHigherOrderVariable
from torch._logging._internal import trace_log

LOCAL_MAP = "torch.distributed.tensor.experimental._func_map"
should_wrap = LocalMapWrappedHigherOrderVariable.should_wrap_in_hop


def should_wrap_if_imported(_cls, value) -> bool:
    """Whether a value is the function that `local_map` of DTensor makes. TorchDynamo asks it of
    each object, and imports for it what takes 0.05 s; where that was not imported, none is."""
    return LOCAL_MAP in sys.modules and should_wrap(value)


def latency_if_logged(*given) -> float:
    """How long guards take in µs, which only logs tell: measuring it empties all caches first,
    which takes 0.03 s. 0 where nobody reads a log."""
    is_read = guards.guards_log.isEnabledFor(logging.DEBUG) or trace_log.handlers
    return profile_guard_manager(*given) if is_read else 0.0


def funcname_if_logged(*given) -> str | None:
    """The function that a line of a file is in, which only a log of calls tells: finding it takes
    the whole file apart. None where nobody reads that log."""
    return get_funcname(*given) if trace_call_log.isEnabledFor(logging.DEBUG) else None


@contextlib.contextmanager
def found_at_once(name: str):
    """Inside, a setting of TorchDynamo is an ordinary variable of its module, and stays as it is:
    `verbose` is read for each instruction, to decide what the report of an error has."""
    vars(config)[name] = getattr(config, name)
    try:
        yield
    finally:
        del vars(config)[name]


@contextlib.contextmanager
def lean():
    """Inside, programs are traced in less time."""
    with (
        patch.object(
            LocalMapWrappedHigherOrderVariable,
            "should_wrap_in_hop",
            classmethod(should_wrap_if_imported),
        ),
        patch.object(guards, "profile_guard_manager", latency_if_logged),
        patch.object(symbolic_convert, "get_funcname", funcname_if_logged),
        found_at_once("verbose"),
    ):
        yield
