"""The default backend: calls are recorded, and run as compiled Programs when a value is needed."""

from glasshouse.backends.lazy.backend import Backend

__all__ = ["Backend"]
