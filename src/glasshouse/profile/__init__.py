"""Seeing what runs: the FLOP counter, the profiler, traces and the report."""

from glasshouse.profile import calling
from glasshouse.profile.annotation import record_function
from glasshouse.profile.compare import Comparison
from glasshouse.profile.counter import FlopCounter
from glasshouse.profile.profiler import ProfilerAction, profile, schedule

__all__ = ["Comparison", "FlopCounter", "ProfilerAction", "profile", "record_function", "schedule"]
