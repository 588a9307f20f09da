"""The modes of PyTorch's (gradients, autocast) around a captured graph, and where it raises."""

import torch

from glasshouse.torch.patches.modes import set_grad


def autocast_nesting() -> int:
    """How many regions of autocast are open."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return nesting


def set_autocast_nesting(nesting: int) -> None:
    """Close regions of autocast, or open them, until so many are open. With the last one PyTorch
    lets go of the casts that it keeps."""
    change = nesting - autocast_nesting()
    step = torch.autocast_increment_nesting if change > 0 else torch.autocast_decrement_nesting
    for _ in range(abs(change)):
        step()
    if change and not nesting:
        torch.clear_autocast_cache()


class StateModes:
    """The modes of PyTorch's that a captured function may change, as they are when this is made."""

    def __init__(self):
        self.grad = torch.is_grad_enabled()
        self.autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.cache = torch.is_autocast_cache_enabled()
        self.nesting = autocast_nesting()

    def set(self, nesting: int | None = None) -> None:
        """Restore them. `nesting` is how many regions of autocast are open then, if not as many as
        when this was made."""
        set_grad(self.grad)
        torch.set_autocast_enabled("cpu", self.autocast[0])
        torch.set_autocast_dtype("cpu", self.autocast[1])
        torch.set_autocast_cache_enabled(self.cache)
        set_autocast_nesting(self.nesting if nesting is None else nesting)


class ModesKept:
    """A graph that changes modes: where it raises, they are as before it."""

    def __init__(self, run, before: StateModes):
        self.inside, self.before = run, before

    def __call__(self, *args):
        nesting = autocast_nesting()  # which calls of one entry may have different
        try:
            return self.inside(*args)
        except BaseException:
            self.before.set(nesting)
            raise
