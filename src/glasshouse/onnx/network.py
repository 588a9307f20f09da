"""The network of an ONNX file, as a module."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glasshouse.base.dtype import bfloat16
from glasshouse.base.errors import DTypeError, OptionError, suggest
from glasshouse.capture.api import allow_in_graph
from glasshouse.dispatch.value import Value, as_value
from glasshouse.nn.module import Module, ModuleBuffer, Parameter
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.graph import Builder, OnnxGraph
from glasshouse.onnx.running import NamedValues, run
from glasshouse.onnx.table import lifted
from glasshouse.tensor.random import normal
from glasshouse.tensor.standard.creation import zeros


class Runner:
    """A function of inputs and weights, in their order; capture calls it as one operation."""

    def __init__(self, graph: OnnxGraph, builder: Builder, names: list[str]) -> None:
        self.graph = graph
        self.builder = builder
        self.names = names
        allow_in_graph(self)

    def __call__(self, *values: Any) -> Any:
        count = len(self.graph.inputs)
        weights = dict(zip(self.names, values[count:]))
        scope = NamedValues(None, self.builder, weights)
        inputs = [known_array(x) for x in values[:count]]
        return [lifted(x) for x in run(self.graph, inputs, scope)]

    def __deepcopy__(self, memo: Any) -> "Runner":
        return self


class Network(Module):
    """The network of an ONNX file. Float tensors of the file are parameters under their names,
    other large ones buffers; numbers, and arrays of sizes, places and indices, are constants.

    Call it with inputs in the file's order, or by name. A tensor or an array is a value; a Python
    number, or a list, is known before the network runs, which lets it choose branches and sizes.
    One output comes as a tensor, several come as a tuple in the file's order.
    """

    def __init__(self, graph: OnnxGraph, builder: Builder, name: str) -> None:
        super().__init__()
        self.name = name
        self.metadata: dict[str, str] = {}  # of the file, by key
        self.input_names: tuple[str, ...] = graph.inputs
        self.output_names: tuple[str, ...] = graph.outputs
        for key, array in builder.weights.items():
            if array.dtype.kind == "f" or array.dtype.name == bfloat16.name:
                self._parameters[key] = Parameter(array)
            else:
                self._buffers[key] = ModuleBuffer(array)
        self.taken: dict[str, tuple[int, tuple[int | str, ...]]] = graph.taken
        self.weight_names: list[str] = [*self._parameters, *self._buffers]
        builder.weights = {}
        self.run: Runner = Runner(graph, builder, self.weight_names)

    def forward(self, /, *args: Any, **named: Any) -> Any:
        """The outputs for these inputs.

        Raises: OptionError for inputs that are missing or not known; errors of a node have its name
        """
        inputs = self.inputs(args, named)
        results = self.run(*inputs, *self._parameters.values(), *self._buffers.values())
        return results[0] if len(results) == 1 else tuple(results)

    def inputs(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Inputs in their order."""
        names = self.input_names
        for name in named:
            if name not in names:
                raise OptionError(self.name, "inputs by name", repr(name), suggest(name, names))
        if len(args) > len(names) or set(names[: len(args)]) & set(named):
            got = f"{len(args)}, and {sorted(named)}"
            raise OptionError(self.name, f"inputs {list(names)}", got, "Pass each once.")
        missing = [name for name in names[len(args) :] if name not in named]
        if missing:
            raise OptionError(self.name, f"inputs {list(names)}", f"no {missing}", "Pass all.")
        return [ready(x, self.name) for x in (*args, *(named[name] for name in names[len(args) :]))]

    def examples(self, shapes: Mapping[str, Sequence[int]] | None = None) -> list[Any]:
        """Random inputs of the declared types. Sizes that the file leaves open are 1 for a first
        axis and 64 for others, unless `shapes` has the input's.

        Raises: OptionError for a name that is not an input; DTypeError for one of strings
        """
        wanted = dict(shapes or {})
        for name in wanted:
            if name not in self.input_names:
                fix = suggest(name, self.input_names)
                raise OptionError(self.name, "inputs by name", repr(name), fix)
        results = []
        for name, (code, sizes) in self.taken.items():
            open_sizes = (1, *(64,) * len(sizes))
            usual = [n if isinstance(n, int) else m for n, m in zip(sizes, open_sizes)]
            shape, dtype = tuple(wanted.get(name, usual)), dtype_of(code)
            is_real = dtype.is_floating
            results.append(normal(shape).astype(dtype) if is_real else zeros(shape, dtype=dtype))
        return results

    def extra_repr(self) -> str:
        nodes = len(self.run.graph.steps)
        return f"{self.name}, {nodes} nodes, {list(self.input_names)} -> {list(self.output_names)}"


def ready(x: Any, where: str) -> Any:
    """An input: a tensor, a known value, a sequence, or None for an empty optional."""
    if x is None or isinstance(x, Value | bool | int | float):
        return x
    if isinstance(x, np.ndarray | np.generic):
        return as_value(x)
    if isinstance(x, list | tuple):
        return [ready(each, where) for each in x]
    expected = "tensors, arrays, numbers or lists of them"
    raise DTypeError(where, expected, type(x).__name__, "Convert it.")


def known_array(x: Any) -> Any:
    """Numbers, and lists of numbers, as the arrays that a network knows before it runs."""
    if x is None or isinstance(x, Value):
        return x
    is_sequence = isinstance(x, list) and all(isinstance(each, Value | list | None) for each in x)
    if is_sequence:
        return x
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype == np.float64 else array
