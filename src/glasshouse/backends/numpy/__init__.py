"""The reference backend: every primitive computed by its card's NumPy meaning."""

from glasshouse.backends.numpy.backend import Backend

__all__ = ["Backend"]
