"""Learning-rate schedules."""

from glasshouse.optim.lr_scheduler.composed import *
from glasshouse.optim.lr_scheduler.cycles import *
from glasshouse.optim.lr_scheduler.formulas import *
from glasshouse.optim.lr_scheduler.schedule import LRScheduler
