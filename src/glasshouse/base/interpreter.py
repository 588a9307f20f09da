"""Which Python runs: its bytecode, its frames and its objects in C are known for some versions."""

import platform
import sys
import sysconfig
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

KNOWN_VERSIONS = ("3.11", "3.12", "3.13", "3.14")  # of CPython


def unknown_interpreter() -> str:
    """The name of the Python that runs, where it is not a known one; else empty."""
    kind, version = platform.python_implementation(), ".".join(map(str, sys.version_info[:2]))
    if kind != "CPython":
        return f"{kind} {version}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"free-threaded CPython {version}"
    return "" if version in KNOWN_VERSIONS else f"CPython {version}"


def count_named() -> int:
    """sys.getrefcount of an object with one reference, from a local variable."""
    named = object()
    return sys.getrefcount(named)


NAMED = count_named()  # CPython 3.14 does not count the reference that the argument is


def items_of(mapping: dict[K, V]) -> list[tuple[K, V]]:
    """The items of a dictionary that other threads may change meanwhile.

    `list(mapping.items())` raises then: it makes tuples, which may start a collection of garbage;
    that runs Python code, and threads take turns there."""
    gone = object()
    items: list[Any] = [(key, mapping.get(key, gone)) for key in list(mapping)]
    return [item for item in items if item[1] is not gone]
