"""Capture: a just-in-time compiler for unmodified Python functions."""

from glasshouse.capture.api import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    explain,
    export,
    graph_break,
    mark_dynamic,
    optimize,
    reset,
    run,
    skip,
    verify,
    write_reproduction,
)
from glasshouse.capture.compilers import list_compilers, register_compiler
from glasshouse.capture.config import config, counters
from glasshouse.capture.fronts import register_front_end
