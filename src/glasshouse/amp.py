"""Mixed precision under PyTorch's name: `from torch.amp import autocast, GradScaler`."""

from glasshouse.dispatch import autocast, is_autocast_enabled
from glasshouse.optim import GradScaler

__all__ = ["GradScaler", "autocast", "is_autocast_enabled"]
