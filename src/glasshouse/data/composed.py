"""Base of data sets that are composed of others, with an index and without."""

from typing import Any

from glasshouse.data.sampler import set_epoch_of
from glasshouse.ops.checks import check_integer


class Composed:
    """A piece that reads from other pieces."""

    sources: tuple[Any, ...] = ()
    shown: tuple[str, ...] = ()  # attributes that the repr lists

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch: shuffled orders and seeded maps below depend on it."""
        for source in self.sources:
            set_epoch_of(source, epoch)
        if hasattr(self, "epoch"):
            self.epoch: int = check_integer("set_epoch", "epoch", epoch, 0)

    def __repr__(self) -> str:
        pairs = [(name, getattr(self, name)) for name in self.shown]
        options = [f"{k}={getattr(v, '__name__', v)!s}" for k, v in pairs]
        return f"{type(self).__name__}({', '.join([*map(repr, self.sources), *options])})"
