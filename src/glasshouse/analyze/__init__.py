"""Ahead of time: what a model's training step costs, before any of it runs or is allocated."""

from glasshouse.analyze.compare import Compared, compare
from glasshouse.analyze.cost_table import CostTable, symbolic_profile
from glasshouse.analyze.machine import MachineProfile, calibrate
from glasshouse.analyze.meta import meta
from glasshouse.remat.planner.plan import Plan, plan
from glasshouse.analyze.step import StepAnalysis, step
from glasshouse.analyze.trace import *
from glasshouse.analyze.sweep import Costs, max_batch, sweep, vary
