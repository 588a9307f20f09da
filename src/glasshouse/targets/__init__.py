"""The targets that Programs are compiled for, each in its own folder, and lowerers."""

from glasshouse.compile.steps.emitted import CKernel, Dialect, EmittedStep, NativeCall
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.lowering.target import (
    Target,
    current_target,
    deterministic,
    use_lowerer,
    use_pass,
    use_target,
)
from glasshouse.compile.programs.anomalies import detect_anomaly
from glasshouse.targets.cpu.target import CPU
from glasshouse.targets.plain.target import ONEDNN, PLAIN
