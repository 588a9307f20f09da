"""Modules without initial values."""

from typing import Any

from glasshouse.base.errors import DTypeError, type_name
from glasshouse.dispatch.backend import use_backend
from glasshouse.nn import init
from glasshouse.nn.module import Module
from glasshouse.tensor import random


def skip_init(module_cls: Any, *args: int, **kwargs: Any) -> Module:
    """module_cls(*args, **kwargs), whose parameters and buffers have no particular contents: none
    are drawn, and the default generator stays where it was.

    Raises: DTypeError unless module_cls is a class of Modules.
    Example:
        >>> skip_init(gh.nn.Linear, 5, 2).weight.shape
        (2, 5)
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        got = module_cls.__name__ if isinstance(module_cls, type) else type_name(module_cls)
        raise DTypeError("skip_init", "a class of Modules", got, "Pass e.g. nn.Linear.")
    device = kwargs.pop("device", None)
    return without_values(module_cls, *args, **kwargs).to_empty(device=device)


def without_values(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """module_cls(*args, **kwargs), whose parameters and buffers have no memory. The default
    generator stays where it was."""
    generator = random.default_generator()
    before, token = generator.state(), init.writes.set(False)
    try:
        with use_backend("meta"):
            return module_cls(*args, **kwargs)
    finally:
        init.writes.reset(token)
        generator.set_state(before)
