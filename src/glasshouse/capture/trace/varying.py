"""Numbers and sizes that vary from call to call."""

from typing import Any

from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, varying_name


class Varying:
    """The texts of `sources` of numbers, sizes and objects that were seen to vary; `is_all`: all
    numbers and sizes may."""

    def __init__(self, front: Any) -> None:
        self.front = front
        self.sources: set[str] = set()
        self.is_all = False

    def has(self, source: ValueSource) -> bool:
        """Whether a number may be another one in a later call."""
        return self.is_all or source.text in self.sources or self.front.varies(source)

    def has_seen(self, text: str) -> bool:
        """Whether a number or a size of a tensor was seen to vary, or may by a setting."""
        return self.is_all or text in self.sources

    def has_identity(self, source: ValueSource) -> bool:
        """Whether the object at a source, or one that holds it, is another one in each call."""
        while self.sources and isinstance(source, ValueSource):
            if varying_name(source) in self.sources:
                return True
            source = source.base
        return False

    def has_sizes(self) -> bool:
        """Whether sizes of the graph's inputs may vary."""
        return self.is_all or any(".shape[" in text for text in self.sources)
