"""PyTorch's models: what analyses them is a storey above, and is loaded when one is given."""

import importlib
import sys
from types import ModuleType


def is_torch_module(model) -> bool:
    """Whether it is a module of PyTorch's, which is not loaded for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def of_torch(name: str) -> ModuleType:
    """The module of that name in the storey `torch`."""
    return importlib.import_module(f"glasshouse.torch.{name}")
