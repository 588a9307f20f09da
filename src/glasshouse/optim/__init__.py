"""Optimizers, gradient clipping and learning-rate schedules."""

# fmt: off
# isort: off
from glasshouse.optim.adagrad import Adagrad
from glasshouse.optim.adam import Adam, AdamW
from glasshouse.optim.clip import clip_grad_norm_, clip_grad_value_
from glasshouse.optim.grad_scaler import GradScaler
from glasshouse.optim.optimizer import Optimizer
from glasshouse.optim.rmsprop import RMSprop
from glasshouse.optim.schedule import (CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR,
    LRScheduler, MultiStepLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR)
from glasshouse.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "CosineAnnealingLR", "ExponentialLR", "GradScaler",
           "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR", "Optimizer",
           "RMSprop", "ReduceLROnPlateau", "SequentialLR", "StepLR", "clip_grad_norm_",
           "clip_grad_value_"]
