"""Recording: a primitive call becomes a node, and is computed when a value is needed.

A node is also the payload that a tensor of the lazy backend holds. Nodes wait in a list per thread,
in the order of the calls, which is a topological order. `Recorder.take` turns the list into a
recording: what is still referenced becomes an output, the rest is computed only where an output
needs it. Nodes that nobody refers to any more cost nothing."""

import struct
import sys
import threading
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import Spec, float32
from glasshouse.dispatch import primitives, state

MAX_PENDING = 1 << 16  # nodes; a longer recording is cut, so that a loop without reads stays small
INDEXED = ("gather", "scatter_add", "scatter_set")  # cards whose indices are checked at the call
MAX_HELD_BYTES = 1 << 30  # of arrays from outside that waiting nodes hold
# Scalars that rewriting rules know; all others are inputs of the Program, so that a learning rate
# may change without a new Program.
STATIC_SCALARS = frozenset(repr(v) for n in range(-4, 17) for v in (n, float(n))) | {
    "True",
    "False",
    "0.5",
    "-0.0",
    "inf",
    "-inf",
    "nan",
}
PACK = {"bool": "<q", "int": "<q", "uint": "<Q", "float": "<d"}


class Signature:
    """What a call does apart from its operands: the card's name and attrs; `number` names it."""

    __slots__ = ("number", "name", "attrs", "host")
    known: dict = {}
    by_number: list = []

    def __init__(self, name: str, attrs: dict, host=None):
        self.name, self.attrs, self.host = name, attrs, host
        self.number = len(self.by_number)
        self.by_number.append(self)


class Numbers(dict):
    """A number for each key, in the order in which they come."""

    def __missing__(self, key):
        return self.setdefault(key, len(self))


spec_numbers = Numbers()  # of inputs


@dataclass(init=False, eq=False, repr=False, slots=True, weakref_slot=True)
class Lazy:
    """A value that is recorded (`value` None) or computed (`value` its NumPy array).

    `scalar` is the packed value of a `full` that is an input; `owned` says that the memory is ours
    and may be written when nobody else refers to it. `event` is what a watcher noted of it."""

    signature: Any  # Signature; None for a computed value
    inputs: Any
    spec: Any  # Spec, or a tuple of them
    value: Any  # np.ndarray | None
    scalar: bytes | None
    owned: bool
    index: int
    uses: int
    scope: Any  # the module that called it, as a Scope; None outside
    phase: str
    event: int  # only set by a watcher

    def __repr__(self):
        name = self.signature.name if self.value is None else "computed"
        return f"<{name} {self.spec}>"


def computed(array: np.ndarray, spec: Spec, owned: bool) -> Lazy:
    node = Lazy()
    node.signature = node.scalar = node.scope = None
    node.inputs, node.phase = (), ""
    node.spec, node.value, node.owned = spec, array, owned
    node.index = node.uses = -1
    return node


class Recording(NamedTuple):
    """The structure of a graph (`key`): the needed `nodes`, the computed `leaves` they start from,
    packed values of the `scalars` among the inputs, positions in `nodes` of the `outputs`, which
    are still referred to, numbers of the `donated` leaves, which nobody else will read."""

    key: tuple[int, ...]
    nodes: list["Lazy"]
    leaves: list["Lazy"]
    scalars: list[bytes]
    outputs: list[int]
    donated: list[int]


class Recorder(threading.local):
    """The nodes of this thread that wait, oldest first."""

    def __init__(self):
        self.pending: list[Lazy] = []
        self.held_bytes = 0
        self.varying = False  # every scalar is an input of the Program, also one that rules know
        self.imported: list[Lazy] | None = None  # gets the nodes of arrays from outside, if a list

    def record(self, signature: Signature, inputs, spec) -> Lazy:
        node = Lazy()
        node.signature = signature
        node.inputs = inputs
        node.spec = spec
        node.value = node.scalar = None
        node.owned = False
        node.index = -1
        node.scope = state.scope
        node.phase = state.phase
        self.pending.append(node)
        return node

    def is_full(self) -> bool:
        return len(self.pending) >= MAX_PENDING or self.held_bytes > MAX_HELD_BYTES

    def forget(self) -> None:
        """Nothing waits any more: what somebody needs later is computed then, on its own."""
        self.pending, self.held_bytes = [], 0

    def take(self) -> Recording | None:
        pending = self.pending
        self.forget()
        return describe(pending)


def with_ancestors(wanted, limit: float = float("inf")) -> list[Lazy]:
    """Nodes that wait and that `wanted` need, in topological order; none for more than `limit`."""
    order, seen, stack = [], set(), [(node, False) for node in wanted]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node.value is None and id(node) not in seen:
            seen.add(id(node))
            if len(seen) > limit:
                return []
            stack.append((node, True))
            stack.extend((parent, False) for parent in node.inputs)
    return order


class InC:
    """What native/replay.c does in place of functions here, once it is loaded."""

    needed: Any = None
    forget: Any = None


def describe(pending: list[Lazy], wanted=()) -> Recording | None:
    """The recording of the nodes in `pending` that are referred to from outside, or `wanted`."""
    needed = None if InC.needed is None else InC.needed(pending, wanted)
    if needed is None:
        stray = count_uses(pending)
        if stray:  # recorded by another thread, or in a list that another thread took
            pending = with_ancestors([*pending, *stray])
            count_uses(pending)
        needed = mark_needed(pending, wanted)
    return encode(pending, needed) if any(needed) else None


def count_uses(pending: list[Lazy]) -> list[Lazy]:
    """Number the nodes, count how often each is an operand; returns operands not among them."""
    for i, node in enumerate(pending):
        node.index, node.uses = i, 0
    stray = []
    size = len(pending)
    for node in pending:
        for operand in node.inputs:
            if operand.value is None:
                if operand.index < size and pending[operand.index] is operand:
                    operand.uses += 1
                else:
                    stray.append(operand)
    return stray


def mark_needed(pending: list[Lazy], wanted) -> list[int]:
    """Per node 2 if it is referred to from outside, 1 if another needs it, else 0."""
    needed = [0] * len(pending)
    for node in wanted:
        if node.value is None:
            needed[node.index] = 2
    for i in range(len(pending) - 1, -1, -1):
        node = pending[i]
        if node.value is not None:
            continue
        # The list, the name `node` and the argument of getrefcount are three references.
        if sys.getrefcount(node) - node.uses > 3:
            needed[i] = 2
        if needed[i]:
            for operand in node.inputs:
                if operand.value is None and not needed[operand.index]:
                    needed[operand.index] = 1
            operand = None  # a name is a reference too
    return needed


def encode(pending: list[Lazy], needed: list[int] | bytes) -> Recording:
    code: list[int] = []
    nodes: list[Lazy] = []
    leaves: list[Lazy] = []
    scalars: list[bytes] = []
    outputs: list[int] = []
    leaf_number: dict[int, int] = {}
    for i, node in enumerate(pending):
        if not needed[i] or node.value is not None:
            continue
        code.append(node.signature.number)
        for operand in node.inputs:
            if operand.value is None:
                code.append(operand.index)
            else:
                number = leaf_number.setdefault(id(operand), len(leaves))
                if number == len(leaves):
                    leaves.append(operand)
                code.append(-1 - number)
        if node.scalar is not None:
            scalars.append(node.scalar)
        if needed[i] == 2:
            outputs.append(len(nodes))
        node.index = len(nodes)
        nodes.append(node)
    operand = None  # a name is a reference too
    code.extend(spec_numbers[leaf.spec] for leaf in leaves)
    code.append(-1)
    code.extend(outputs)
    donated = donated_leaves(nodes, leaves)
    return Recording(tuple(code), nodes, leaves, scalars, outputs, donated)


def donated_leaves(nodes: list[Lazy], leaves: list[Lazy]) -> list[int]:
    """The numbers of the leaves whose memory only this recording still refers to."""
    uses = dict.fromkeys(map(id, leaves), 0)
    for node in nodes:
        for operand in node.inputs:
            if operand.value is not None:
                uses[id(operand)] += 1
    operand = None
    donated = []
    for number in range(len(leaves)):
        leaf = leaves[number]
        # Inside: the list `leaves`, the name `leaf`, the argument, the operand's uses.
        if leaf.owned and sys.getrefcount(leaf) - uses[id(leaf)] <= 3 and is_unshared(leaf):
            donated.append(number)
    return donated


def forget(nodes: list[Lazy]) -> None:
    """Have computed nodes, and those no longer needed, let go of their operands and modules."""
    for node in nodes:
        node.inputs = ()
        node.scope = None


def references(node: Lazy) -> tuple[int, int]:
    """How many refer to a node's array, and to the memory that it is a view of."""
    array = node.value
    return sys.getrefcount(array), sys.getrefcount(array.base)


def alone() -> tuple[int, int]:
    """What `references` says of a view to which only its node refers."""
    return references(computed(np.empty(8, np.uint8).view(np.float32), Spec((2,), float32), True))


ALONE = alone()


def is_unshared(node: Lazy) -> bool:
    """Whether nobody but the node refers to its array, or to a view of its memory."""
    array, memory = references(node)
    return array <= ALONE[0] and (node.value.base is None or memory <= ALONE[1])


recorder = Recorder()


def signature_of(name: str, count: int, attrs: dict, host=None) -> Signature:
    """The one signature of a call; `host` is a user's function that computes it."""
    key = (name, count, host, *attrs, *attrs.values())
    if name == "pad":  # 0, 0.0, -0.0 and False are equal, but not the same padding
        key += (repr(attrs["value"]),)
    found = Signature.known.get(key)
    if found is None:
        found = Signature.known[key] = Signature(name, attrs, host)
    return found


def record_full(recorder: Recorder, spec: Spec, value) -> Lazy:
    """A node that is `value` everywhere: static if rewriting can use it, else an input."""
    text = repr(value)
    kind = spec.dtype.kind
    static = kind == "complex" or isinstance(value, complex)
    static = static or (text in STATIC_SCALARS and not recorder.varying)
    key = ("full", spec, text if static else type(value))
    found = Signature.known.get(key)
    if found is None:
        attrs = {"shape": spec.shape, "value": value if static else None, "dtype": spec.dtype}
        found = Signature.known[key] = Signature("full", attrs)
    node = recorder.record(found, (), spec)
    if not static:
        node.scalar = pack(value, kind)
    return node


def pack(value, kind: str) -> bytes:
    if kind == "float":
        return struct.pack("<d", float(value))
    return struct.pack(PACK[kind], int(value))


def unpack(data: bytes, kind: str):
    return struct.unpack(PACK[kind], data)[0]


def compute(recording: Recording, ends_ns: list[int] | None = None) -> list[np.ndarray]:
    """The outputs by the cards' references; the time at each node's end is added to `ends_ns`."""
    values: list = [None] * len(recording.nodes)
    uses = [
        (x.index, i)
        for i, node in enumerate(recording.nodes)
        for x in node.inputs
        if x.value is None
    ]
    last = dict(uses) | dict.fromkeys(recording.outputs)  # where a value is read last; None: kept
    for i, node in enumerate(recording.nodes):
        operands = [values[x.index] if x.value is None else x.value for x in node.inputs]
        values[i] = compute_node(node, operands)
        for x in node.inputs:
            if x.value is None and last[x.index] == i:
                values[x.index] = None
        if ends_ns is not None:
            ends_ns.append(perf_counter_ns())
    return [np.asarray(values[i]) for i in recording.outputs]


def peek(node: Lazy, limit: int) -> np.ndarray | None:
    """The value of a node to which few waiting ones lead, which keep waiting; else None."""
    order = with_ancestors([node], limit)
    if not order or any(isinstance(x.spec, tuple) or x.signature.host for x in order):
        return None
    values: dict[int, np.ndarray] = {}
    for x in order:
        operands = [values[id(y)] if y.value is None else y.value for y in x.inputs]
        values[id(x)] = compute_node(x, operands)
    return np.asarray(values[id(node)])


def compute_node(node: Lazy, operands):
    signature = node.signature
    if signature.name == "full" and node.scalar is not None:
        value = unpack(node.scalar, node.spec.dtype.kind)
        return primitives["full"].ref(**{**signature.attrs, "value": value})
    if signature.name == "pick":
        return operands[0][signature.attrs["number"]]
    return (signature.host or primitives[signature.name].ref)(*operands, **signature.attrs)
