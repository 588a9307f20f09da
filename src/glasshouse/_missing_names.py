"""The front page's modules suggest the nearest name to one that they do not have."""

from glasshouse.base.missing_names import suggest_names

__all__: list[str] = []

MODULES = """amp backends data distributions interop metrics nn nn.functional nn.init nn.utils optim
optim.lr_scheduler speech tensor.fft tensor.linalg tensor.random tensor.special text transforms
vision"""

suggest_names("glasshouse", *(f"glasshouse.{name}" for name in MODULES.split()))
