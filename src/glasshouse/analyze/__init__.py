"""Ahead of time: what a model's training step costs, before any of it runs or is allocated."""

from glasshouse.analyze.compare import Compared, compare
from glasshouse.analyze.machine import MachineProfile, calibrate
from glasshouse.analyze.meta import meta
from glasshouse.analyze.step import StepAnalysis, max_batch, step

__all__ = [
    "Compared",
    "MachineProfile",
    "StepAnalysis",
    "calibrate",
    "compare",
    "max_batch",
    "meta",
    "step",
]
