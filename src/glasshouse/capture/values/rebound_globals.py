"""Globals that functions of a trusted library set: state of the library, not constants."""

import dis
import types
from collections.abc import Iterator
from typing import Any

from glasshouse.capture.values.plain import is_instance as isinstance

STORE_GLOBAL, EXTENDED_ARG = dis.opmap["STORE_GLOBAL"], dis.opmap["EXTENDED_ARG"]
BINDING = (staticmethod, classmethod)

rebound: dict[int, tuple[dict[Any, Any], frozenset[str]]] = {}  # by the id of a module's namespace


def is_rebound(names: dict[Any, Any], name: str) -> bool:
    """Whether a function of a module sets one of its globals."""
    entry = rebound.get(id(names))
    if entry is None:
        codes = codes_of([*names.values()], names)
        entry = rebound[id(names)] = names, frozenset(x for code in codes for x in stored(code))
    return name in entry[1]


def codes_of(values: list[Any], names: dict[Any, Any]) -> Iterator[types.CodeType]:
    """The code of a module's functions, of those that others wrap, and of its classes' methods."""
    for value in values:
        if isinstance(value, property):
            yield from codes_of([value.fget, value.fset], names)
        elif isinstance(value, type) and value.__module__ == names.get("__name__"):
            yield from codes_of([*vars(value).values()], names)
        while isinstance(value, BINDING):
            value = value.__func__
        while isinstance(value, types.FunctionType):
            if value.__globals__ is names:
                yield value.__code__
            value = value.__dict__.get("__wrapped__")


def stored(code: types.CodeType) -> Iterator[str]:
    """The globals that a function or its nested functions set."""
    units = code.co_code
    if STORE_GLOBAL in units[::2]:
        high = 0
        for op, arg in zip(units[::2], units[1::2], strict=True):
            high = (high | arg) << 8 if op == EXTENDED_ARG else high
            if op == STORE_GLOBAL:
                yield code.co_names[high | arg]
            if op != EXTENDED_ARG:
                high = 0
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from stored(inner)
