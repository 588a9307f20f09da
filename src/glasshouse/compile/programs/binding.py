"""A Program bound to its caller: where its inputs come from, and where its results go.

A caller finds the Source of each input once, when it records the Program; a run looks there."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from glasshouse.graph.node import Node, computed


class SourceKind(Enum):
    """Kinds of sources of a Program's inputs; each kind counts its own."""

    INPUT = "a tensor that the graph owns or is given"
    GRADIENT = "the gradient of such a tensor"
    KEY = "a random key that the run draws"
    OUTPUT = "an output of the forward Program"
    COTANGENT = "a gradient of a result that the backward pass is given"
    BACKWARD_OUTPUT = "an output of the backward Program"
    CONSTANT = "a value that is the same in each run"


class Source(NamedTuple):
    """The source of a value: its kind, and the number of it, or the constant itself."""

    kind: SourceKind
    what: Any


class Sources(dict[int, Source]):
    """The sources of payloads, by the ids of these, which stay alive meanwhile."""

    def number(self, kind: SourceKind, payloads: Iterable[Any]) -> None:
        """Note that these payloads are the first, second, … of a kind."""
        self.update((id(x), Source(kind, number)) for number, x in enumerate(payloads))

    def of(self, payload: Any) -> Source:
        """The source of a payload: a constant where none is known."""
        return self.get(id(payload)) or Source(SourceKind.CONSTANT, payload)


class ResultKind(Enum):
    """The kind of a graph's result: a label, and how the result lies in a Program's outputs.

    is_computed  it is a value of the recording, or lies in one
    is_fixed     and has eager's layout; else the Program chooses the layout
    is_whole     it is a whole output of the Program
    is_shared    it may share memory with others of its kind"""

    VALUE = "an output of the recording", True, True, True, False
    FREE = "an output of which only the backward graph reads the axes", True, False, True, True
    SPREAD = "an output, to lie with gaps, as a view does in eager", True, True, False, False
    PART = "a view of an output of which other results are views too", True, True, False, True
    AGAIN = "the same as an earlier result", False, False, False, False
    INPUT = "an input of the graph", False, False, False, False
    GRADIENT = "the gradient of an input", False, False, False, False
    VIEW = "a view of an input", False, False, False, False
    EMPTY = "a tensor without elements", False, False, False, False
    CONSTANT = "what it is itself", False, False, False, False

    def __init__(
        self, words: str, is_computed: bool, is_fixed: bool, is_whole: bool, is_shared: bool
    ) -> None:
        self.words = words
        self.is_computed = is_computed
        self.is_fixed = is_fixed
        self.is_whole = is_whole
        self.is_shared = is_shared


def arrays_of(payloads: list[Node]) -> list[np.ndarray]:
    """The values of payloads, which lie row by row from now on."""
    return [x.value if x.value.flags.c_contiguous else row_by_row(x) for x in payloads]


def row_by_row(payload: Node) -> np.ndarray:
    """The value of a payload, copied so that it lies row by row."""
    payload.value = np.ascontiguousarray(payload.value)
    return payload.value


def payloads_of(arrays: list[np.ndarray], specs: list[Any], owns: list[bool]) -> list[Node]:
    """The results of a run as payloads."""
    return [computed(x, spec, owned) for x, spec, owned in zip(arrays, specs, owns, strict=True)]
