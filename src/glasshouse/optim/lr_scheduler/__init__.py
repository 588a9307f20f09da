"""Learning-rate schedules.

A schedule sets the rates of an optimizer's groups at each step. Read `schedule.py`, the base;
`formulas.py`, rates by a formula; `cycles.py`; `composed.py`, schedules of others."""

from glasshouse.optim.lr_scheduler.composed import *
from glasshouse.optim.lr_scheduler.cycles import *
from glasshouse.optim.lr_scheduler.formulas import *
from glasshouse.optim.lr_scheduler.schedule import LRScheduler
