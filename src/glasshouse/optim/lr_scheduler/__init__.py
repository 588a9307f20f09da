"""Learning-rate schedules."""

from glasshouse.optim.lr_scheduler.composed import (
    ChainedScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)
from glasshouse.optim.lr_scheduler.cycles import (
    SWALR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from glasshouse.optim.lr_scheduler.formulas import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    InverseSqrtLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    MultiplicativeLR,
    PolynomialLR,
    StepLR,
    WarmupCosineLR,
)
from glasshouse.optim.lr_scheduler.schedule import (
    LRScheduler,
)
