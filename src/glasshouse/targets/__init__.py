"""Targets: what Programs are compiled for, each in a folder of its own, and lowerers."""

from glasshouse.compile.emitted import CKernel, Dialect, EmittedStep, NativeCall
from glasshouse.compile.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.target import (
    Target,
    current_target,
    use_lowerer,
    use_pass,
    use_target,
)
from glasshouse.targets.cpu.target import CPU
