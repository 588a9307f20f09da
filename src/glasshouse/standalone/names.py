"""Names of the tensors and containers that a function reaches, as the user's program has them."""

import types
from typing import Any

from glasshouse.capture.check.world import OURS, may_change, outside
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor

UNNAMED = ("_parameters", "_buffers", "_modules", "__dict__")  # parts that no name mentions
MOST_NESTED = 40


class ReachedNames:
    """Names of the objects reachable from some roots: `tensors` and `containers` (dicts of items or
    attributes, lists) by id, and all of them by name. A tensor has the first name that is found:
    through modules before others, through functions last."""

    def __init__(self, roots: dict[str, Any]) -> None:
        self.tensors: dict[int, str] = {}
        self.containers: dict[int, str] = {}
        self.objects: dict[str, Any] = {}
        for name, value in sorted(roots.items(), key=place_of_root):
            self.walk(name, value, 0)

    def walk(self, name: str, value: Any, depth: int) -> None:
        if depth > MOST_NESTED:
            return
        if isinstance(value, Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = name
                self.objects[name] = value
            return
        parts = parts_of(value)
        if parts is None or id(value) in self.containers:
            return
        self.add_container(name, value)
        if hasattr(value, "__dict__"):
            self.add_container(name, value.__dict__)
        for key, part in parts.items():
            self.walk(self.part_name(name, key), part, depth + 1)

    def add_container(self, name: str, value: Any) -> None:
        self.containers[id(value)] = name
        self.objects.setdefault(name, value)

    def part_name(self, name: str, key: Any) -> str:
        """Name of the part of a container at a key; a tensor as a key has its own name."""
        if key in UNNAMED:
            return name
        word = self.tensors.get(id(key), "?") if isinstance(key, Tensor) else str(key)
        return f"{name}.{word}" if name else word


def place_of_root(item: tuple[str, Any]) -> tuple[bool, bool, str]:
    """The place of a root in the order of the search, for roots in any order."""
    name, value = item
    return not isinstance(value, Module), isinstance(value, types.FunctionType), name


def parts_of(value: Any) -> dict[Any, Any] | None:
    """Parts of a container by key; None for other objects."""
    if isinstance(value, dict):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if isinstance(value, types.FunctionType):
        return outside(value) if may_change(value) else None
    if isinstance(value, OURS) or (may_change(value) and hasattr(value, "__dict__")):
        return vars(value)
    return None
