"""Modules called with other tensors instead of their own."""

from glasshouse.nn.module import functional_call

__all__ = ["functional_call"]
