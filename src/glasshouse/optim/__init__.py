"""Optimizers, gradient clipping, learning-rate schedules and averages of weights."""

from glasshouse.optim.adam import Adam, AdamW, Adamax, NAdam, RAdam, SparseAdam
from glasshouse.optim.grad_scaler import GradScaler
from glasshouse.optim.layerwise import LAMB, LARS, NovoGrad
from glasshouse.optim.lbfgs import LBFGS
from glasshouse.optim.matrices import Adafactor, Muon, Shampoo
from glasshouse.optim.optimizer import Optimizer
from glasshouse.optim.rules import ASGD, SGD, Adadelta, Adagrad, RMSprop, Rprop
from glasshouse.optim.signs import Lion, Sophia
from glasshouse.optim.schedule import (
    CosineAnnealingLR,
    ExponentialLR,
    LRScheduler,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from glasshouse.tensor.gradients import clip_grad_norm_, clip_grad_value_
