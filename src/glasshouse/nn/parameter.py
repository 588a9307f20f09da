"""Parameters and buffers, where PyTorch's programs import them from."""

from glasshouse.nn.module import ModuleBuffer as Buffer
from glasshouse.nn.module import Parameter

__all__ = ["Buffer", "Parameter"]
