"""Recording: a primitive call becomes a node, and is computed when a value is needed.

A node is also the payload that a tensor of the lazy backend holds. Nodes wait in a list per thread,
in the order of the calls, which is a topological order. `Recorder.take` turns the list into a
recording: nodes that are still referenced become outputs, the rest is computed only where an output
needs it. Unreferenced nodes cost nothing; but a collective is always computed, since other ranks
wait for it."""

import sys
import threading
from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np

from glasshouse.base import DType, Spec, float32
from glasshouse.base.interpreter import NAMED
from glasshouse.dispatch import hooks, primitives, state
from glasshouse.dispatch.call import Call, call_from_outside
from glasshouse.dispatch.scope import origin_of
from glasshouse.graph.node import Node, computed, pack, unpack

MAX_PENDING = 1 << 16  # nodes; a longer recording is cut, so that a loop without reads stays small
INDEXED = ("gather", "scatter_add", "scatter_set")  # cards whose indices are checked at the call
MAX_HELD_BYTES = 1 << 30  # of arrays from outside that waiting nodes hold


class Recording(NamedTuple):
    """The structure of a graph (`key`: calls and where their operands are, which a Program is found
    by): the needed `nodes`, the computed `leaves` they start from,
    packed values of the `scalars` among the inputs, positions in `nodes` of the `outputs`, which
    are still referred to, numbers of the `donated` leaves, which nobody else will read."""

    key: tuple[Any, ...]
    nodes: list[Node]
    leaves: list[Node]
    scalars: list[bytes]
    outputs: list[int]
    donated: list[int]


class ThreadNodes:
    """Nodes of one thread: those that wait, and lists that are being computed. `lock` is held while
    they are numbered and computed, by that thread or by another one that needs their values."""

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.pending: list[Node] = []
        self.taken: list[list[Node]] = []

    def has_any(self, numbers: set[int]) -> bool:
        """Whether a node with one of these ids is here."""
        lists = [self.pending, *self.taken]
        return any(id(node) in numbers for nodes in lists for node in list(nodes))


all_threads: WeakSet[ThreadNodes] = WeakSet()
joining: "threading.Lock" = threading.Lock()  # held while `all_threads` is read or changed


def owners_of(nodes: Iterable[Node]) -> list[ThreadNodes]:
    """The threads that recorded or compute these nodes, in the order in which to lock them."""
    numbers = {id(node) for node in nodes if node.value is None}
    with joining:
        threads = list(all_threads)
    return sorted((thread for thread in threads if thread.has_any(numbers)), key=id)


class Recorder(threading.local):
    """The nodes of this thread that wait, oldest first."""

    def __init__(self) -> None:
        self.nodes: ThreadNodes = ThreadNodes()
        self.pending: list[Node] = self.nodes.pending
        with joining:
            all_threads.add(self.nodes)
        self.held_bytes: int = 0
        self.varying = False  # every scalar is an input of the Program, also one that rules know
        self.imported: list[Node] | None = None  # gets the nodes of arrays from outside, if a list

    def record(self, call: Call, inputs: Any) -> Node:
        """A node for the call, which waits."""
        now = state.__dict__  # a thread's attributes are looked up slowly, one by one
        origin = origin_of(now["scope"], now["phase"])
        node = Node(call, inputs, origin, -1, now["function"])
        self.pending.append(node)
        return node

    def is_full(self) -> bool:
        now = self.__dict__
        return len(now["pending"]) >= MAX_PENDING or now["held_bytes"] > MAX_HELD_BYTES

    def forget(self) -> None:
        """Empty the list of waiting nodes. A node needed later is computed then, on its own."""
        self.pending, self.held_bytes = [], 0
        self.nodes.pending = self.pending

    def take(self) -> Recording | None:
        """The recording of the waiting nodes. Call `finish` once its results are computed."""
        pending = self.pending
        self.nodes.taken.append(pending)
        self.forget()
        return describe(pending)

    def finish(self) -> None:
        """Mark the computation of the last recording as finished."""
        self.nodes.taken.pop()

    def strays(self) -> list[Node]:
        """Nodes that those of this thread read and that are not among them, if there are other
        threads: these may compute them just now."""
        if len(all_threads) < 2 or not self.pending:
            return []
        with self.nodes.lock:
            if hooks.mark_needed(self.pending, ()) is None:
                return count_uses(self.pending)[1]
        return []


# Of a call with several results, what picks each. All that are still referred to are computed with
# it: after that its operands are gone.
picks_of: WeakKeyDictionary[Node, list[ref[Node]]] = WeakKeyDictionary()


def with_ancestors(
    roots: list[Node], limit: float = float("inf"), with_picks: bool = False
) -> list[Node]:
    """Nodes that wait and that `roots` need, in topological order, perhaps with the other results
    of calls that have several; none for more than `limit`."""
    order, visited, stack = [], set(), [(node, False) for node in roots]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
            if with_picks and isinstance(node.spec, tuple):
                picks = [pick() for pick in picks_of.get(node, ())]
                stack.extend((pick, False) for pick in picks if pick is not None)
                picks = []  # a name is a reference too
        elif node.value is None and id(node) not in visited:
            visited.add(id(node))
            if len(visited) > limit:
                return []
            stack.append((node, True))
            stack.extend((parent, False) for parent in node.inputs)
    return order


def may_refuse(node: Node) -> bool:
    """Whether a call has indices, one of which may be outside of the axis."""
    return node.op in INDEXED and node.inputs[1].spec.size > 0


def describe(pending: list[Node], roots: Any = ()) -> Recording | None:
    """The recording of the nodes in `pending` that are referred to from outside, or `roots`, with
    its collectives."""
    needed = hooks.mark_needed(pending, roots)
    if needed is None:
        uses, stray = count_uses(pending)
        if stray:  # recorded by another thread, or in a list that another thread took
            pending = with_ancestors([*pending, *stray])
            uses, _ = count_uses(pending)
        needed = bytes(mark_needed(pending, uses, roots))
    if not any(needed):
        return None
    parts = hooks.encode(pending, needed)
    return encode(pending, needed) if parts is None else Recording(*parts)


def count_uses(pending: list[Node]) -> tuple[list[int], list[Node]]:
    """Number the nodes; how often each is an operand of others, and operands not among them."""
    for i, node in enumerate(pending):
        node.number = i
    size = len(pending)
    uses, stray = [0] * size, []
    for node in pending:
        for operand in node.inputs:
            if operand.value is None:
                if operand.number < size and pending[operand.number] is operand:
                    uses[operand.number] += 1
                else:
                    stray.append(operand)
    return uses, stray


def mark_needed(pending: list[Node], uses: list[int], roots: tuple[Any, ...]) -> list[int]:
    """Per node 2 if it is referred to from outside, 1 if another needs it or it is a collective,
    else 0."""
    needed = [0] * len(pending)
    for node in roots:
        if node.value is None:
            needed[node.number] = 2
    for i in range(len(pending) - 1, -1, -1):
        node = pending[i]
        if node.value is not None:
            continue
        if sys.getrefcount(node) - uses[i] > NAMED + 1:  # in the list
            needed[i] = 2
        if not needed[i] and node.call.is_collective:
            needed[i] = 1
        if needed[i]:
            for operand in node.inputs:
                if operand.value is None and not needed[operand.number]:
                    needed[operand.number] = 1
            operand = None  # a name is a reference too
    return needed


def encode(pending: list[Node], needed: list[int] | bytes) -> Recording:
    """The recording of the needed nodes. Specs of the leaves are those of the calls' operands."""
    code: list[Any] = []
    nodes: list[Node] = []
    leaves: list[Node] = []
    scalars: list[bytes] = []
    outputs: list[int] = []
    leaf_number: dict[int, int] = {}
    for i, node in enumerate(pending):
        if not needed[i] or node.value is not None:
            continue
        code.append(node.call)
        for operand in node.inputs:
            if operand.value is None:
                code.append(operand.number)
            else:
                number = leaf_number.setdefault(id(operand), len(leaves))
                if number == len(leaves):
                    leaves.append(operand)
                code.append(-1 - number)
        if node.scalar is not None:
            scalars.append(node.scalar)
        # Of a call with several results, what picks one of them is read, not the call itself.
        if needed[i] == 2 and not isinstance(node.spec, tuple):
            outputs.append(len(nodes))
        node.number = len(nodes)
        nodes.append(node)
    operand = None  # a name is a reference too
    code.append(-1)
    code.extend(outputs)
    donated = donated_leaves(nodes, leaves)
    return Recording(tuple(code), nodes, leaves, scalars, outputs, donated)


def donated_leaves(nodes: list[Node], leaves: list[Node]) -> list[int]:
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
        # Inside: the list `leaves`, the operand's uses.
        count = sys.getrefcount(leaf) - uses[id(leaf)]
        if leaf.owned and count <= NAMED + 1 and is_unshared(leaf):
            donated.append(number)
    return donated


def references(node: Node) -> tuple[int, int]:
    """Reference counts of a node's array, and of the memory that it is a view of."""
    array = node.value
    return sys.getrefcount(array), sys.getrefcount(array.base)


def alone() -> tuple[int, int]:
    """Result of `references` for a view to which only its node refers."""
    return references(computed(np.empty(8, np.uint8).view(np.float32), Spec((2,), float32), True))


ALONE = alone()


def is_unshared(node: Node) -> bool:
    """Whether nobody but the node refers to its array, or to a view of its memory."""
    array, memory = references(node)
    return array <= ALONE[0] and (node.value.base is None or memory <= ALONE[1])


recorder: Recorder = Recorder()


def record_full(recorder: Recorder, call: Call, value: float) -> Node:
    """A node that is `value` everywhere: static if rewriting can use it, else an input."""
    dtype = call.out.dtype
    if call.attrs["value"] is not None and recorder.varying and not is_complex(value, dtype):
        call = call_from_outside(call.primitive, call.attrs, call.out)
    node = recorder.record(call, ())
    if call.attrs["value"] is None:
        node.scalar = pack(value, dtype.kind)
    return node


def is_complex(value: Any, dtype: DType) -> bool:
    return dtype.is_complex or isinstance(value, complex)


def compute(recording: Recording, ends_ns: list[int] | None = None) -> list[np.ndarray]:
    """The outputs by the cards' references; the time at each node's end is added to `ends_ns`."""
    values: list[Any] = [None] * len(recording.nodes)
    uses = [
        (x.number, i)
        for i, node in enumerate(recording.nodes)
        for x in node.inputs
        if x.value is None
    ]
    last = dict(uses) | dict.fromkeys(recording.outputs)  # where a value is read last; None: kept
    for i, node in enumerate(recording.nodes):
        operands = [values[x.number] if x.value is None else x.value for x in node.inputs]
        values[i] = compute_node(node, operands)
        for x in node.inputs:
            if x.value is None and last[x.number] == i:
                values[x.number] = None
        if ends_ns is not None:
            ends_ns.append(perf_counter_ns())
    return [np.asarray(values[i]) for i in recording.outputs]


def value_of(order: list[Node]) -> np.ndarray | None:
    """The value of the last of some nodes in topological order, which keep waiting; None for
    none."""
    if not order:
        return None
    values: dict[int, np.ndarray] = {}
    for x in order:
        operands = [values[id(y)] if y.value is None else y.value for y in x.inputs]
        values[id(x)] = compute_node(x, operands)
    return np.asarray(values[id(order[-1])])


def cheap_ancestors(node: Node, limit: int) -> list[Node]:
    """A node and the waiting ones that lead to it, in topological order; none if they are more than
    `limit`, or products or collectives are among them."""
    order = with_ancestors([node], limit)
    costly = (isinstance(x.spec, tuple) or x.call.host or x.call.cost.matrix_flops for x in order)
    return [] if any(costly) or any(x.call.is_collective for x in order) else order


def compute_node(node: Node, operands: list[float | np.ndarray]) -> Any:
    """The result(s) of one node, by the card's reference or the user's function."""
    return node.call.compute(*operands) if node.scalar is None else fill_scalar(node, node.scalar)


def fill_scalar(node: Node, scalar: bytes) -> np.ndarray:
    """A `full` with the value that came from outside."""
    spec = node.spec
    value = unpack(scalar, spec.dtype.kind)
    return primitives["full"].ref(shape=spec.shape, value=value, dtype=spec.dtype)
