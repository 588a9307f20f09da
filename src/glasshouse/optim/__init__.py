"""Optimizers, gradient clipping and learning-rate schedules."""

from glasshouse.optim.rules import SGD, Adagrad, Adam, AdamW, RMSprop
from glasshouse.optim.grad_scaler import GradScaler
from glasshouse.optim.optimizer import Optimizer
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
