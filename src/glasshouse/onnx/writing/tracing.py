"""Traces of a function at several sizes, for a graph whose sizes may vary."""

import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.autograd.tape import no_grad
from glasshouse.base import Spec, flatten
from glasshouse.base.errors import PACKAGE, OptionError, TransformError, user_line
from glasshouse.dispatch.mode import KeyedMode
from glasshouse.dispatch.scope import current_module_path
from glasshouse.dispatch.value import SCALARS, Value, as_value
from glasshouse.onnx.writing import (
    arrays,
    control,
    elementwise,
    layers,
    products,
    quantised,
    wholes,
)
from glasshouse.onnx.writing.joint import JointGraph, JointValue, Unlike
from glasshouse.onnx.writing.table import ABSENT, WHERE, WRITERS
from glasshouse.onnx.writing.tables import explained
from glasshouse.ops.body import Body, traced
from glasshouse.tensor import random

__all__ = ["JointTrace", "joint_trace"]

FAMILIES = (
    arrays,
    control,
    elementwise,
    layers,
    products,
    quantised,
)  # their functions are in the table
MOST_TRACES = 3  # for each varying size, beside the first
LEAST = 3  # of a varying size: one axis of 1, or a range of 2, may be computed in another way


class SizedTrace(NamedTuple):
    """A function written down: its body, the values that it closes over, its results' structure,
    and which of its leaves are tensors."""

    body: Body
    captured: list[Any]
    structure: Any
    kinds: tuple[bool, ...]


class Watch(KeyedMode):
    """Refuses primitives that ONNX does not have, where they are called."""

    key: str = wholes.WHERE_WHOLE

    def __init__(self) -> None:
        self.module: str = ""

    def process(self, primitive: Any, args: Any, attrs: Any, below: Any) -> Any:
        """The result of a call that ONNX can say.

        Raises: OptionError for another one, by its module and line
        """
        self.module = current_module_path()
        name = primitive.name
        if name in WRITERS:
            return below(primitive, args, attrs)
        fix = ABSENT.get(name, "Leave this operation out of what is exported.")
        where = " at ".join(x for x in (self.module, user_line()) if x)
        raise OptionError(
            WHERE, "primitives that ONNX has operators for", f"{name} in {where or 'a call'}", fix
        )


def trace_of(fn: Callable[..., Any], specs: Sequence[Spec]) -> SizedTrace:
    """The trace of a function of tensors with these specs.

    Raises: TransformError where it needs the contents of a value, or draws random numbers
    """
    watch, results = Watch(), []
    draws: list[Any] = []

    def run(*xs: Any) -> Any:
        leaves, structure = flatten(fn(list(xs)))
        kinds = tuple(isinstance(x, (Value, np.ndarray, *SCALARS)) for x in leaves)
        results.append((structure, kinds))
        return [as_value(x) for x, is_one in zip(leaves, kinds, strict=True) if is_one]

    random.observers.append(draws)
    try:
        with no_grad(), watch, wholes.recognised():
            tracer, inputs, outputs = traced(run, specs, hoists=False, writes_scalars=True)
    except TransformError as error:
        got = f"a look at one in {place_of(error, watch.module)}"
        fix = "Use gh.where, gh.cond or gh.while_loop instead of Python's if and while."
        raise TransformError(WHERE, "no need for contents of tensors", got, fix) from error
    finally:
        random.observers.remove(draws)
        for generator, _ in draws:
            generator.draws -= 1
    if draws or tracer.step is not None:
        got = f"draws from a generator in {watch.module or 'the function'}"
        raise TransformError(WHERE, "a function without chance", got, "Pass what it draws.")
    numbers = [tracer.number_of(x) for x in outputs]
    inner = [x.payload for x in inputs]
    consts = tracer.roots(numbers, inner)
    body = tracer.body([*inner, *consts], numbers)
    return SizedTrace(body, [tracer.captured[i] for i in consts], *results[0])


def place_of(error: BaseException, module: str) -> str:
    """The module and the line where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [x for x in frames if not x.filename.startswith(PACKAGE)]
    inner = own[-1] if own else frames[-1]
    line = f"{Path(inner.filename).name}:{inner.lineno}"
    return f"{module} at {line}" if module else line


class Unchanged:
    """The parameters and buffers of a module, which tracing must not write to."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self.before: dict[str, tuple[Any, ...]]
        self.before = {name: (x.payload, x.spec, x.backend, x.mode) for name, x in named.items()}

    def check(self) -> None:
        """Restore tensors that were written to, and refuse the writes.

        Raises: OptionError for a parameter or a buffer that was written to
        """
        written = []
        for name, x in self.named.items():
            payload, spec, backend, mode = self.before[name]
            if x.mode is not mode:
                written.append(name)
                x.payload, x.spec, x.backend, x.mode = payload, spec, backend, mode
        if written:
            fix = "Return the new value as an output."
            raise OptionError(WHERE, "a module that keeps its state", f"writes to {written}", fix)


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """A context in which a module, and all in it, is in eval mode."""
    modules = list(module.modules()) if module is not None else []
    before = [x.training for x in modules]
    try:
        if module is not None:
            module.eval()
        yield
    finally:
        for x, training in zip(modules, before, strict=True):
            x.training = training


class JointTrace(NamedTuple):
    """The graph of a function; `inputs` are all, read or not; `captured` are tensors that it
    closes over, by the numbers of the graph's inputs; `tables` those among them whose sizes vary;
    `symbols` the varying sizes' values in each trace, by their names."""

    graph: JointGraph
    inputs: list[JointValue]
    captured: dict[int, Any]
    tables: dict[int, Any]
    structure: Any
    symbols: dict[str, tuple[int, ...]]


class SizedTraces:
    """Traces of a function at several sizes: of each of the `symbols`, places (input, axis).
    `named` are the parameters and buffers of its module."""

    def __init__(
        self,
        fn: Callable[..., Any],
        specs: Sequence[Spec],
        symbols: Mapping[str, Sequence[tuple[int, int]]],
        named: Mapping[str, Any],
    ) -> None:
        self.fn = fn
        self.specs = specs
        self.symbols = symbols
        self.unchanged: Unchanged = Unchanged(named)
        self.own: set[int] = {id(x) for x in named.values()}
        self.tables: dict[int, Any] = {}  # of the last graph
        hints = {name: specs[at[0][0]].shape[at[0][1]] for name, at in symbols.items()}
        self.base: dict[str, int] = {name: max(size, LEAST) for name, size in hints.items()}
        self.traces: list[SizedTrace] = [self.trace(self.base)]
        self.sizes: list[dict[str, int]] = [self.base]

    def trace(self, sizes: Mapping[str, int]) -> SizedTrace:
        """The trace at these sizes."""
        shapes = [list(spec.shape) for spec in self.specs]
        for name, places in self.symbols.items():
            for number, axis in places:
                shapes[number][axis] = sizes[name]
        specs = [Spec(tuple(s), x.dtype) for s, x in zip(shapes, self.specs, strict=True)]
        try:
            return trace_of(self.fn, specs)
        finally:
            self.unchanged.check()

    def graph_of(self, traces: Sequence[SizedTrace]) -> JointGraph:
        """The graph of traces.

        Raises: Unlike where they differ in more than numbers
        """
        first, count = traces[0], len(self.specs)
        if any(x.structure != first.structure or x.kinds != first.kinds for x in traces):
            raise Unlike("results of another structure")
        names = [[*range(count), *(key_of(x, self.own) for x in one.captured)] for one in traces]
        graph = JointGraph([x.body for x in traces], names)
        self.tables = {
            places[0]: explained(
                [x.captured[i - count].numpy() for x, i in zip(traces, places, strict=True)]
            )
            for places in graph.tables.values()
        }
        return graph

    def add(self, sizes: dict[str, int]) -> str:
        """SizedTrace at other sizes, and keep that if it makes the same calls; else say why not."""
        try:
            other = self.trace(sizes)
            self.graph_of([self.traces[0], other])
        except Unlike as error:
            changed = {name: n for name, n in sizes.items() if n != self.base[name]}
            return f"{error} where {self.base} becomes {changed}"
        except Exception as error:
            return f"where it is {sizes}: {error}"
        self.traces.append(other)
        self.sizes.append(sizes)
        return ""

    def vary(self, name: str) -> int:
        """SizedTrace at a few sizes of one symbol; one of them.

        Raises: OptionError where the calls depend on it
        """
        sizes, reason = [], ""
        for size in other_sizes(self.base[name]):
            fault = self.add({**self.base, name: size})
            reason = reason or fault
            if not fault:
                sizes.append(size)
            if len(sizes) == MOST_TRACES:
                break
        if not sizes:
            fix = "Leave it out of dynamic_axes, or compute with sizes in the same way for all."
            raise OptionError(WHERE, f"calls that do not depend on size {name!r}", reason, fix)
        return sizes[-1]


def joint_trace(
    fn: Callable[..., Any],
    specs: Sequence[Spec],
    symbols: Mapping[str, Sequence[tuple[int, int]]],
    named: Mapping[str, Any],
) -> JointTrace:
    """The traces of a function as one graph.

    Raises: OptionError where the calls depend on a size
    """
    sized = SizedTraces(fn, specs, symbols, named)
    others = {name: sized.vary(name) for name in symbols}
    if len(symbols) > 1:
        sized.add(others)  # all at once, where they fit together
    traces = sized.traces
    graph = sized.graph_of(traces)
    inputs = [
        JointValue(None, number, [x.body.inputs[number] for x in traces])
        for number in range(len(specs))
    ]
    captured = dict(enumerate(traces[0].captured, len(specs)))
    values = {name: tuple(x[name] for x in sized.sizes) for name in symbols}
    return JointTrace(graph, inputs, captured, sized.tables, traces[0].structure, values)


def key_of(x: Any, own: set[int]) -> Any:
    """A key that is equal for equal tensors of two traces."""
    if id(x) in own:
        return id(x)
    array = x.numpy()
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest = hashlib.sha256(data.data).hexdigest()
    return x.dtype.name, array.shape, digest


def other_sizes(size: int) -> Iterator[int]:
    """Sizes to try beside one, each once."""
    sizes = {size}
    for other in (size + 1, size + 3, 2 * size, 3 * size, size + 2, 4 * size, size // 2, size - 1):
        if other not in sizes and other >= LEAST:
            sizes.add(other)
            yield other
