"""Nodes: one call with its operands. A recording is a list of them, a graph is too.

The lazy backend's payloads are nodes: `value` is None while one waits, and its array once it is
computed. An array from outside is a node without a call. The nodes of a graph that the compiler
rewrites are never computed; their `number` is their position."""

import struct
from typing import Any

from glasshouse.base import Spec
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.scope import NOWHERE, Origin

PACK = {"bool": "<q", "int": "<q", "uint": "<Q", "float": "<d"}


class Node:
    """One call: `inputs` are its operands, `origin` says where it comes from, `number` its position
    in the recording or graph, `function` the composed function that recorded it. `scalar` is the
    packed value of a `full` from outside; `owned` says that the memory of `value` is ours, and may
    be written when nobody else refers to it; `event` is a watcher's note, and unset without one."""

    __slots__ = (
        "call inputs spec origin function number value scalar owned event __weakref__".split()
    )
    call: Any  # Call; None for an array from outside
    inputs: Any  # a sequence of nodes
    spec: Any  # Spec, or a tuple of them
    function: str
    value: Any  # np.ndarray | None
    scalar: bytes | None
    event: int

    def __init__(
        self,
        call: Call,
        inputs: Any = (),
        origin: Origin = NOWHERE,
        number: int = -1,
        function: str = "",
    ) -> None:
        self.call, self.inputs, self.spec = call, inputs, call.out
        self.origin = origin
        self.number = number
        self.function = function
        self.value = self.scalar = None
        self.owned = False

    op: Any = property(lambda self: self.call.name, doc="The name of its primitive.")
    attrs: Any = property(lambda self: self.call.attrs, doc="Static arguments.")
    host: Any = property(
        lambda self: self.call.host, doc="A user's function that computes it, or None."
    )
    shape: Any = property(lambda self: self.spec.shape, doc="Of its result.")
    dtype: Any = property(lambda self: self.spec.dtype, doc="Of its result.")

    def __reduce__(self) -> tuple[type[Any], tuple[Call, tuple[Any, ...], Origin, int]]:
        return Node, (self.call, self.inputs, self.origin, self.number)

    def __repr__(self) -> str:
        if self.call is None or self.value is not None:
            return f"<computed {self.spec}>"
        if self.number < 0:
            return f"<{self.op} {self.spec}>"
        return f"%{self.number} = {self.op}({', '.join(f'%{x.number}' for x in self.inputs)})"


def computed(array: Any, spec: Spec, owned: bool) -> Node:
    """A node for an array, which waits for nothing."""
    node = object.__new__(Node)
    node.call = node.scalar = None
    node.inputs, node.origin, node.number = (), NOWHERE, -1
    node.spec, node.value, node.owned = spec, array, owned
    return node


def pack(value: float, kind: str) -> bytes:
    """A scalar from outside as kernels read it, for a dtype of this kind."""
    if kind == "float":
        return struct.pack("<d", float(value))
    return struct.pack(PACK[kind], int(value))


def unpack(data: bytes, kind: str) -> float:
    """The scalar that `pack` packed."""
    return struct.unpack(PACK[kind], data)[0]
