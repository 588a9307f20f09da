"""Optimizers, gradient clipping, learning-rate schedules and averages of weights."""

from glasshouse.optim.adam import Adam, AdamW, Adamax, NAdam, RAdam, SparseAdam
from glasshouse.optim.eight_bit import Adam8bit, AdamW8bit, EightBitState, Lion8bit, SGD8bit
from glasshouse.optim.grad_scaler import GradScaler
from glasshouse.optim.groups import layerwise_groups
from glasshouse.optim.layerwise import LAMB, LARS, NovoGrad
from glasshouse.optim.lbfgs import LBFGS
from glasshouse.optim.lr_scheduler.composed import *
from glasshouse.optim.lr_scheduler.cycles import *
from glasshouse.optim.lr_scheduler.formulas import *
from glasshouse.optim.lr_scheduler.schedule import LRScheduler
from glasshouse.optim.matrices import Adafactor, Muon, Shampoo
from glasshouse.optim.optimizer import Optimizer
from glasshouse.optim.rules import ASGD, SGD, Adadelta, Adagrad, RMSprop, Rprop
from glasshouse.optim.signs import Lion, Sophia
from glasshouse.optim.wrappers import GradientAccumulation, Lookahead
from glasshouse.optim import lr_scheduler, swa_utils
from glasshouse.tensor.gradients import clip_grad_norm_, clip_grad_value_
