"""Tensors with shape and dtype and no storage: programs are recorded and planned, never run."""

from glasshouse.backends.meta.backend import Backend

__all__ = ["Backend"]
