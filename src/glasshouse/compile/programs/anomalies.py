"""`gh.detect_anomaly()`: where the first NaN or infinity in compiled code comes from.

Before a run's updates of parameters, and after them, a little of its results is looked at. Only
where something is not finite the run is repeated, call by call on the cards' references and the
same inputs, which nothing has overwritten yet. The call that is named made a number that is not
finite, and the bad result follows from it."""

import ctypes
import math
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse.base.errors import AnomalyError
from glasshouse.base.flags import flags, having
from glasshouse.compile.programs.code import ARENA
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import quiet
from glasshouse.graph.graph import Graph, graph_of, run_node
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, compute

SMALL = 1 << 14  # elements of a result that is looked at whole, each time
PART = 0.003  # of the runs' time that looks at large results may take
FINITE, INFINITE, NAN = 0, 1, 2
graphs: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()  # of Programs that are looked at
looks_at: WeakKeyDictionary[Any, "Looks"] = WeakKeyDictionary()


class detect_anomaly(having):
    """From now on, or inside, an AnomalyError names the module, line and primitive where the first
    NaN or infinity of compiled code arose, if a result of the code is not finite; False ends that.
    Values that the call would have replaced, such as parameters, then keep their old contents.

    Small results are checked whole. Of large ones, a row and a column are checked each time, and
    all elements in turn, as a little time allows: a NaN of a gradient fills a row or a column.
    Inputs are not overwritten meanwhile, which costs memory, except those that only an optimizer
    reads. Functions that were captured before name no call.

    Raises: AnomalyError
    Example:
        >>> x = gh.asarray([1.0, 0.0])
        >>> with gh.detect_anomaly():
        ...     try:
        ...         print(gh.log(x).sum().item())
        ...     except gh.AnomalyError as error:
        ...         print(str(error).partition("; got ")[2])
        -inf first from log of float32[2] (forward). Add an epsilon to its operand.
    """

    def __init__(self, mode: bool = True) -> None:
        backends.current().evaluate()
        super().__init__(flags, detect_anomaly=bool(mode))

    def __exit__(self, kind: Any = None, *exc_info: object) -> None:
        try:
            if kind is None:
                backends.current().evaluate()
        finally:
            super().__exit__(kind, *exc_info)


class WatchTable(ctypes.Structure):
    """`Watch` of native/runner.c."""

    _fields_ = (
        ("part", ctypes.c_double),
        ("update", ctypes.c_int64),
        ("early", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("bad", ctypes.c_int64),
        ("turn", ctypes.c_int64),
        ("run_ns", ctypes.c_int64),
        ("look_ns", ctypes.c_int64),
        ("looks", ctypes.c_void_p),
    )


class Looks:
    """Looks of the runner at results of a Program. Updates of an optimizer are a part of their own
    if they come last and read values that can be checked before: they may overwrite their inputs.
    Other steps may overwrite `spare` inputs, which only the optimizer reads; outputs there are not
    checked. Of the inputs that a run may overwrite it takes those that are `donated`: `donors`."""

    def __init__(self, program: Any) -> None:
        self.spare: frozenset[int] = spare_inputs(graphs.get(program))
        specs, begins = program.output_specs, program.output_begins
        update = update_of(program)
        self.donated: frozenset[int] = self.spare.union(
            source for at, (source, *_) in enumerate(specs)
            if source is not None and begins.get(at, 0) >= update
        )  # fmt: skip
        parts: tuple[list[Any], list[Any]] = ([], [])
        for at in dict.fromkeys(at for at, *_ in program.outputs):
            source, shape, dtype, *_ = specs[at]
            if has_fractions(dtype) and 0 not in shape and source not in self.spare:
                is_late = begins.get(at, 0) >= update
                parts[is_late].append((at, *look_of(shape, dtype, is_late)))
        self.late: frozenset[int] = frozenset(at for at, *_ in parts[1])
        self.table: np.ndarray = np.array([*parts[0], *parts[1]], np.int64)
        sizes = update, len(parts[0]), len(self.table)
        self.watch: WatchTable = WatchTable(PART, *sizes, looks=self.table.ctypes.data)
        self.address: int = ctypes.addressof(self.watch)
        self.scalars: Any = ()
        self.donors: frozenset[int] = frozenset()

    def begin(self, scalars: Any, donated: Any) -> "Looks":
        """Prepare for a run with these scalars, whose inputs may be overwritten if `donated`."""
        self.watch.part = PART
        self.scalars, self.donors = scalars, self.donated.intersection(donated)
        return self

    def explain(self, program: Any, arrays: Any) -> None:
        """Tell where the bad number of the run with these inputs comes from; nothing
        where a constant or a given infinity does.

        Raises: AnomalyError
        """
        at = self.watch.bad
        result = next(i for i, x in enumerate(program.outputs) if x[0] == at)
        if at in self.late and not self.donors <= self.spare:
            raise AnomalyError("detect_anomaly", "finite numbers", UPDATED.format(result), VERIFY)
        is_last = at in self.late or self.watch.update == program.count
        spare = self.donors if is_last else ()
        values = [np.zeros_like(x) if i in spare else x for i, x in enumerate(arrays)]
        explain(graphs.get(program), program.lines, values, self.scalars, result)


def looks_of(program: Any) -> Looks:
    return looks_at.get(program) or looks_at.setdefault(program, Looks(program))


def look_of(shape: tuple[int, ...], dtype: np.dtype, is_row: bool) -> tuple[int, ...]:
    """Rows, columns, all numbers, bytes of a number and the bits of its exponent, for `Look` of
    runner.c. Of a large array that an update made number by number a row is enough."""
    halves = 2 if dtype.kind == "c" else 1
    part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    mask = int(np.array(np.inf, part).view(f"u{part.itemsize}"))
    whole = prod(shape)
    columns = whole if whole <= SMALL else shape[-1]
    rows = 1 if is_row else whole // columns
    return rows, columns * halves, whole * halves, part.itemsize, mask


def update_of(program: Any) -> int:
    """The step from which on all steps are an optimizer's updates that read nothing but inputs and
    outputs of the Program; the number of steps if there is none."""
    at, infos = program.count, program.step_infos()
    while at > 0 and at - 1 not in program.hosts and program.collectives is None:
        in_arena = any(code >> 56 == ARENA for code in program.args[at - 1])
        if in_arena or any(x.phase != "optimizer" for x in infos[at - 1].origins):
            break
        at -= 1
    return at


def spare_inputs(graph: Graph | None) -> frozenset[int]:
    """Inputs that only the optimizer reads."""
    if graph is None:
        return frozenset()
    numbers = {x.number: x.attrs["number"] for x in graph.nodes if x.op == "input"}
    uses = {
        x.number for node in graph.nodes if node.origin.phase != "optimizer" for x in node.inputs
    }
    return frozenset(at for number, at in numbers.items() if number not in uses)


def of_references(program: Any, recording: Recording) -> list[np.ndarray] | None:
    """The outputs of a recording that runs on references, if they are finite. A Program that will
    run gets the graph in which to look for anomalies.

    Raises: AnomalyError
    """
    if program is not None:
        if program not in graphs:
            graphs[program] = graph_of(recording)
        return None
    outputs = quiet.run(compute, recording)
    for i, x in enumerate(outputs):
        if has_fractions(x.dtype) and not is_finite(x):
            arrays = [leaf.value for leaf in recording.leaves]
            explain(graph_of(recording), {}, arrays, recording.scalars, i)
    return outputs


def explain(graph: Graph | None, lines: Any, arrays: Any, scalars: Any, at: int) -> None:
    """Tell where a result's number that is not finite comes from; nothing where a constant or a
    given infinity does.

    Raises: AnomalyError
    """
    where, expected = "detect_anomaly", "finite numbers"
    if graph is None or any(node.call.is_collective for node in graph.nodes):
        got = f"result {at} with others, of code that cannot be repeated"
        fix = "Enter detect_anomaly() before the function is captured; leave collectives outside."
        raise AnomalyError(where, expected, got, fix)
    search = Search(graph, arrays, scalars)
    quiet.run(search.run)
    output = graph.outputs[at]
    source = search.sources[output.number]
    if source is not None and source.op == "input":
        got = f"NaN in an input, {source.spec}, before the call"
        raise AnomalyError(where, expected, got, "An earlier call made it: look at its results.")
    if source is not None:
        value = search.states[source.number]
        kind = "NaN" if value & NAN else search.signs.get(source.number, "inf")
        place = lines.get(source.origin.place, "")
        parts = [source.origin.module, place, source.origin.phase]
        operands = ", ".join(f"{x.spec}" for x in source.inputs)
        named = " ".join(part for part in parts if part) or "…"
        got = f"{kind} first from {source.op} of {operands} ({named})"
        raise AnomalyError(where, expected, got, FIXES.get(source.op, FIX))
    if not search.states[output.number]:
        raise AnomalyError(where, expected, UPDATED.format(at), VERIFY)


UPDATED = "others in result {}, made by an optimizer's update, or by a kernel alone"
VERIFY = "gh.verify names a kernel that is wrong."
FIX = "Keep its operands within its range, e.g. by a smaller learning rate."
FIXES = dict.fromkeys(("log", "div", "rsqrt", "sqrt", "pow"), "Add an epsilon to its operand.")
FIXES["exp"] = "Subtract the largest score, as log_softmax and logsumexp do."


class Search:
    """Runs a graph on references. By a node's number, `states` has its value's state, `sources`
    the node where that state arose: None for constants and infinities from outside."""

    def __init__(self, graph: Graph, arrays: Any, scalars: Any) -> None:
        self.graph = graph
        self.arrays = arrays
        self.scalars = scalars
        self.states: dict[int, int] = {}
        self.signs: dict[int, str] = {}
        self.sources: dict[int, Node | None] = {}

    def run(self) -> None:
        values: dict[int, Any] = {}
        last = {x.number: node.number for node in self.graph.nodes for x in node.inputs}
        for node in self.graph.nodes:
            values[node.number] = self.value(node, [values[x.number] for x in node.inputs])
            self.note(node, values[node.number])
            for x in node.inputs:
                if last[x.number] == node.number:
                    values.pop(x.number, None)

    def value(self, node: Node, operands: list[Any]) -> Any:
        return run_node(node, operands, self.arrays, self.scalars)

    def note(self, node: Node, value: Any) -> None:
        """Note a value's state, and the node where it arose."""
        parts = value if isinstance(value, tuple) else (value,)
        state = 0
        for x in parts:
            state |= state_of(np.asarray(x))
        self.states[node.number], self.sources[node.number] = state, None
        if not state:
            return
        inputs = sorted(node.inputs, key=lambda x: -self.states[x.number])
        sources = (self.sources[x.number] for x in inputs if self.states[x.number])
        source = next((x for x in sources if x is not None), None)
        before = max((self.states[x.number] for x in inputs), default=0)
        has_arisen = bool(inputs) and (not before or (state & NAN and not before & NAN))
        if source is None and (has_arisen or (node.op == "input" and state & NAN)):
            source = node
            if not state & NAN:
                low = any(bool((np.asarray(x) == -np.inf).any()) for x in parts)
                self.signs[node.number] = "-inf" if low else "inf"
        self.sources[node.number] = source


# -- looking -----------------------------------------------------------------------------------


def has_fractions(dtype: np.dtype) -> bool:
    return dtype.kind in "fcV"


def is_finite(x: np.ndarray) -> bool:
    """Whether all elements of an array of fractions are finite; a sum is, if they are."""
    if x.dtype.kind == "f" and x.itemsize > 2 and math.isfinite(np.add.reduce(x, axis=None)):
        return True
    return bool(np.isfinite(x).all())


def state_of(x: np.ndarray) -> int:
    """FINITE, or the flags NAN and INFINITE of an array."""
    if not has_fractions(x.dtype) or not x.size or is_finite(x):
        return FINITE
    return NAN * bool(np.isnan(x).any()) | INFINITE * bool(np.isinf(x).any())
