"""PyTorch's models; `base.upper_storeys.offered` has their analysis."""

import sys
from typing import Any


def is_torch_module(model: Any) -> bool:
    """Whether it is a module of PyTorch's, which is not loaded for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)
