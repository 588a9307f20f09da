"""PyTorch's tensors without contents, and the errors of operators that need them."""

from typing import Any

from glasshouse.torch.patches.names import private

FAKES = "torch._subclasses.fake_tensor"
FakeTensor: Any = private(f"{FAKES}:FakeTensor", "2.6", "know tensors without contents")
FakeTensorMode: Any = private(f"{FAKES}:FakeTensorMode", "2.6", "run steps without contents")
DataDependentOutput: Any = private(
    f"{FAKES}:DataDependentOutputException", "2.6", "explain what needs contents"
)
DynamicOutputShape: Any = private(
    f"{FAKES}:DynamicOutputShapeException", "2.6", "explain what needs contents"
)
UnsupportedOperator: Any = private(
    f"{FAKES}:UnsupportedOperatorException", "2.6", "explain what has no sizes without contents"
)
in_kernel: Any = private(
    f"{FAKES}:in_kernel_invocation_manager", "2.6", "make results of calls that are known"
)
