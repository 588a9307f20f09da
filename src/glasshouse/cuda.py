"""Functions of `torch.cuda` that PyTorch's programs call. The backend determines the device: there
is one if the current backend computes on it, as after `gh.backends.use("torch:cuda")`."""

from glasshouse import backends
from glasshouse.amp import GradScaler, autocast
from glasshouse.tensor.torch_names.drawing import manual_seed

__all__ = ["GradScaler", "autocast", "device_count", "empty_cache", "is_available", "manual_seed",
           "manual_seed_all", "synchronize"]  # fmt: skip


def is_available() -> bool:
    """Whether the current backend computes on a CUDA device.

    Example:
        >>> is_available()
        False
    """
    return backends.current().device.startswith("cuda")


def device_count() -> int:
    """How many CUDA devices there are to make tensors on: one, or none.

    Example:
        >>> device_count()
        0
    """
    return int(is_available())


def synchronize(device: str | None = None) -> None:
    """Wait until the current backend has finished its computations."""
    backends.current().sync()


def empty_cache() -> None:
    """Nothing: the backend hands out memory as it sees fit."""


manual_seed_all = manual_seed
