"""`gh.detect_anomaly()`: where the first NaN or infinity in compiled code comes from.

After each run a little of its results is looked at. Only where something is not finite the run is
repeated, call by call on the cards' references and the same inputs, which nothing has overwritten
yet. The call that is named made a number that is not finite, and the bad result follows from it."""

import math
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse.base.errors import AnomalyError
from glasshouse.base.flags import flags, having
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import quiet
from glasshouse.graph.graph import Graph, graph_of, run_node
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, compute

SMALL = 1 << 14  # elements of a result that is looked at whole, each time
PART = 0.005  # of the runs' time that looks at large results may take
FINITE, INFINITE, NAN = 0, 1, 2
graphs: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()  # of Programs that are looked at
looks_at: WeakKeyDictionary[Any, "Looks"] = WeakKeyDictionary()


class detect_anomaly(having):
    """From now on, or inside, an AnomalyError says in which module, line and primitive the first
    NaN or infinity of compiled code arose, if a result of the code is not finite; False ends that.
    What the call would have replaced, such as parameters, has its old values then.

    Looked at are small results whole, and of large ones a row and a column each time and everything
    in turn, as a little time allows: a NaN of a gradient fills a row or a column. Inputs are not
    overwritten meanwhile, which costs memory, but for those that an optimizer alone reads.
    Functions that were captured before name no call.

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


class Looks:
    """Looks at a Program's results, and their time; `turn` is that of the large ones. `spare` are
    inputs that the optimizer alone reads: they may be overwritten, and are not looked at."""

    def __init__(self, program: Any) -> None:
        self.turn: int = 0
        self.run_ns: int = 0
        self.look_ns: int = 0
        self.spare: frozenset[int] = spare_inputs(graphs.get(program))
        sources = [program.output_specs[at][0] for at, *_ in program.outputs]
        self.skips: set[int] = {i for i, source in enumerate(sources) if source in self.spare}
        self.small: list[int] = []
        self.large: list[int] = []

    def sort(self, outputs: list[np.ndarray]) -> None:
        """Note which results are looked at, as small or large ones."""
        for i, x in enumerate(outputs):
            if has_fractions(x) and x.size and i not in self.skips:
                (self.small if x.size <= SMALL else self.large).append(i)

    def first_bad(self, outputs: list[np.ndarray], run_ns: int) -> int | None:
        """The number of a result that is not finite."""
        begin = perf_counter_ns()
        self.run_ns += run_ns
        if not self.small and not self.large:
            self.sort(outputs)
        with np.errstate(all="ignore"):
            for i in self.small:
                if not is_finite(outputs[i]):
                    return i
            for i in self.large:
                x = outputs[i].reshape(-1, outputs[i].shape[-1])
                if not (is_finite(x[0]) and is_finite(x[:, 0])):
                    return i
            self.look_ns += perf_counter_ns() - begin
            for _ in self.large:
                if self.look_ns > PART * self.run_ns:
                    break
                begin, self.turn = perf_counter_ns(), self.turn + 1
                at = self.large[self.turn % len(self.large)]
                if not is_finite(outputs[at]):
                    return at
                self.look_ns += perf_counter_ns() - begin
        return None


def spare_inputs(graph: Graph | None) -> frozenset[int]:
    """The inputs that nothing reads but what an optimizer does."""
    if graph is None:
        return frozenset()
    numbers = {x.number: x.attrs["number"] for x in graph.nodes if x.op == "input"}
    uses = {
        x.number for node in graph.nodes if node.origin.phase != "optimizer" for x in node.inputs
    }
    return frozenset(at for number, at in numbers.items() if number not in uses)


class References:
    """A recording without a Program, as `WatchedRun` sees it."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.outputs: list[Any] = []


class WatchedRun:
    """A run that is looked at. Of the inputs that are donated it overwrites the `spare` ones."""

    def __init__(self, program: Any, arrays: Any, scalars: Any, donated: Any = ()) -> None:
        self.looks: Looks = looks_at.get(program) or looks_at.setdefault(program, Looks(program))
        self.program = program
        self.arrays = arrays
        self.scalars = scalars
        self.spare: frozenset[int] = self.looks.spare.intersection(donated)
        self.begin_ns: int = perf_counter_ns()

    def look(self, outputs: list[np.ndarray]) -> None:
        """Look at the results.

        Raises: AnomalyError
        """
        at = self.looks.first_bad(outputs, perf_counter_ns() - self.begin_ns)
        if at is not None:
            inputs = enumerate(self.arrays)
            arrays = [np.zeros_like(x) if i in self.spare else x for i, x in inputs]
            explain(graphs.get(self.program), self.program.lines, arrays, self.scalars, at)


def of_references(program: Any, recording: Recording) -> list[np.ndarray] | None:
    """The outputs of a recording that runs on references, if what is looked at is finite. A Program
    that will run gets the graph in which to look for anomalies.

    Raises: AnomalyError
    """
    target = References() if program is None else program
    if target not in graphs:
        graphs[target] = graph_of(recording)
    if program is not None:
        return None
    arrays = [leaf.value for leaf in recording.leaves]
    watch = WatchedRun(target, arrays, recording.scalars)
    outputs = quiet.run(compute, recording)
    watch.look(outputs)
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
        got = f"others in result {at}, made by an optimizer's update, or by a kernel alone"
        raise AnomalyError(where, expected, got, "gh.verify names a kernel that is wrong.")


FIX = "Keep its operands within its range, e.g. by a smaller learning rate."
FIXES = dict.fromkeys(("log", "div", "rsqrt", "sqrt", "pow"), "Add an epsilon to its operand.")
FIXES["exp"] = "Subtract the largest score, as log_softmax and logsumexp do."


class Search:
    """Runs a graph on references. By a node's number, `states` says what its value has, `sources`
    which node that came from: None for constants and infinities that were given."""

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
        """Note what a value has, and where that comes from."""
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


def has_fractions(x: np.ndarray) -> bool:
    return x.dtype.kind in "fcV"


def is_finite(x: np.ndarray) -> bool:
    """Whether all elements of an array of fractions are finite; a sum is, if they are."""
    if x.dtype.kind == "f" and x.itemsize > 2 and math.isfinite(np.add.reduce(x, axis=None)):
        return True
    return bool(np.isfinite(x).all())


def state_of(x: np.ndarray) -> int:
    """FINITE, or of NAN and INFINITE what an array has."""
    if not has_fractions(x) or not x.size or is_finite(x):
        return FINITE
    return NAN * bool(np.isnan(x).any()) | INFINITE * bool(np.isinf(x).any())
