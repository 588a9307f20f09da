"""The layers of a model that are quantised, and how one takes the place of another."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.nn.conv import Conv1d, Conv2d, Conv3d
from glasshouse.nn.linear import Linear, TransposedLinear
from glasshouse.nn.module import Module
from glasshouse.nn.utils.parametrize import type_before_parametrizations

PRODUCTS = (Linear, TransposedLinear, Conv1d, Conv2d, Conv3d)


def find_layers(
    where: str, model: Module, skip: Sequence[str], kinds: tuple[type, ...] = PRODUCTS
) -> list[tuple[str, Any]]:
    """(dotted name, layer) of layers of these classes, but those whose names match `skip`.

    Raises: OptionError if the model is such a layer itself.
    """
    if isinstance(skip, str):
        raise OptionError(where, "skip: a list of patterns", repr(skip), f"Pass [{skip!r}].")
    layers = [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if type_before_parametrizations(module) in kinds
        and not any(fnmatchcase(name, pattern) for pattern in skip)
    ]
    if any(module is model for _, module in layers):
        raise OptionError(where, "a model of layers", repr(model), "Put it into a Sequential.")
    return layers


def replace_module(model: Module, name: str, layer: Module) -> None:
    """Put a layer in the place of the module of a dotted name."""
    parent, _, last = name.rpartition(".")
    layer.train(model.training)
    model.get_submodule(parent)._modules[last] = layer
