"""Ahead of time: the costs of a model's training step, before any of it runs or is allocated."""

from glasshouse.analyze.compare import Compared, compare
from glasshouse.analyze.cost_table import CostTable
from glasshouse.analyze.calibration import calibrate
from glasshouse.analyze.graph_profile import symbolic_profile
from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.meta import meta
from glasshouse.analyze.planner.plan import Plan, plan
from glasshouse.analyze.step import step
from glasshouse.analyze.step_costs import StepAnalysis
from glasshouse.analyze.trace import *
from glasshouse.analyze.sweep import Costs, max_batch, sweep, vary
