"""PyTorch's modes (gradients, autocast) around a captured graph, restored where it raises."""

from typing import Any

import torch

from glasshouse.torch.patches.modes import set_grad


def autocast_nesting() -> int:
    """The number of open regions of autocast."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return nesting


def set_autocast_nesting(nesting: int) -> None:
    """Close or open regions of autocast until so many are open. With the last one PyTorch drops
    its cached casts."""
    change = nesting - autocast_nesting()
    step = torch.autocast_increment_nesting if change > 0 else torch.autocast_decrement_nesting
    for _ in range(abs(change)):
        step()
    if change and not nesting:
        torch.clear_autocast_cache()


class StateModes:
    """A snapshot of the PyTorch modes that a captured function may change."""

    def __init__(self) -> None:
        self.grad: bool = torch.is_grad_enabled()
        self.autocast: Any = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.cache: bool = torch.is_autocast_cache_enabled()
        self.nesting: int = autocast_nesting()

    def set(self, nesting: int | None = None) -> None:
        """Restore the modes. `nesting` is the number of open regions of autocast, by default that
        of the snapshot."""
        set_grad(self.grad)
        torch.set_autocast_enabled("cpu", self.autocast[0])
        torch.set_autocast_dtype("cpu", self.autocast[1])
        torch.set_autocast_cache_enabled(self.cache)
        set_autocast_nesting(self.nesting if nesting is None else nesting)


class ModesKept:
    """A graph that changes modes: where it raises, the earlier modes are restored."""

    def __init__(self, run: Any, before: StateModes) -> None:
        self.inside = run
        self.before = before

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        nesting = autocast_nesting()  # it may differ between calls of one entry
        try:
            return self.inside(*args)
        except BaseException:
            self.before.set(nesting)
            raise
