"""Capture: a just-in-time compiler for unmodified Python functions."""

from glasshouse.capture.api import *
from glasshouse.capture import compiling
from glasshouse.capture.api import write_reproduction
from glasshouse.capture.compilers import list_compilers, register_compiler
from glasshouse.capture.fronts.registry import register_front_end
from glasshouse.capture.sessions.config import config, counters
from glasshouse.capture.whole_step import WholeTrainingStep
