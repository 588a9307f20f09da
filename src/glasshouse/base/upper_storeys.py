"""Imports of upper storeys at first use: the only place where a storey names one above it.

Backends and the support for other libraries are imported at first use, so a program without PyTorch
loads none of it. The storey that supports a library lists its objects in a table, `OFFERS`:
purpose -> "module" or "module:name"."""

from importlib import import_module
from typing import Any

BACKENDS = "glasshouse.backends"  # its modules are backends; also the group of plug-ins
ONNX = "glasshouse.onnx.loading:load"  # of files that end in .onnx
LIBRARIES = {"torch": "glasshouse.torch.offers"}  # the module with the table, by library


def offered(library: str, purpose: str) -> Any:
    """The object that our storey for a library offers for a purpose; imports it at first use."""
    return load(import_module(LIBRARIES[library]).OFFERS[purpose])


def load(place: str) -> Any:
    """The object at "module:name", or the module itself; imports it at first use."""
    module, _, name = place.partition(":")
    upper = import_module(module)
    return getattr(upper, name) if name else upper
