"""Running a graph: its steps in order, on tensors; known arrays stay with NumPy."""

from typing import Any

import numpy as np

from glasshouse.base.errors import (
    CaptureError,
    Explained,
    OptionError,
    OutOfMemoryError,
    ShapeError,
    TransformError,
)
from glasshouse.dispatch.value import Value
from glasshouse.onnx.dtypes import code_of
from glasshouse.onnx.graph import Around, Builder, NodeStep, OnnxGraph
from glasshouse.onnx.operators.attention import usual_attention
from glasshouse.onnx.table import MOST_KNOWN, as_array, lifted

MOST_BYTES = 1 << 36  # of a value, before anything is computed
PASSED_ON = (CaptureError, TransformError, OutOfMemoryError)


class NamedValues:
    """Values by name, inside those of outer graphs."""

    def __init__(
        self, outer: "NamedValues | None", builder: Builder, weights: dict[str, Any]
    ) -> None:
        self.outer = outer
        self.builder = builder
        self.weights = weights
        self.values: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        scope: NamedValues | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


class NodeBody:
    """A graph inside a node, as a function."""

    def __init__(self, graph: OnnxGraph, scope: NamedValues) -> None:
        self.graph = graph
        self.scope = scope

    def __call__(self, *inputs: Any) -> list[Any]:
        return run(self.graph, inputs, self.scope)

    def declared(self, output: int) -> tuple[int, tuple[int, ...]]:
        """The type and sizes that the file declares for an output."""
        return self.graph.declared[output]


def run(graph: OnnxGraph, inputs: Any, outer: NamedValues) -> list[Any]:
    """The outputs of a graph.

    Raises: ShapeError for another number of inputs than the graph's; the errors of steps, with the
        node's name
    """
    if len(inputs) != len(graph.inputs):
        names = f"{len(graph.inputs)} inputs {list(graph.inputs)}"
        raise ShapeError("onnx", names, len(inputs), "Mend the node around them.")
    scope = NamedValues(outer, outer.builder, outer.weights)
    scope.values.update(graph.constants)
    scope.values.update((own, outer.weights[whole]) for own, whole in graph.weights.items())
    scope.values.update(zip(graph.inputs, inputs))
    for step in graph.steps:
        try:
            results = take(step, scope)
            for name, value in zip(step.outputs, results, strict=True):
                scope.values[name] = checked(value)
        except PASSED_ON:
            raise
        except Explained as error:
            if str(error).startswith("node "):
                raise
            raise type(error)(f"{step.where}: {error}") from error
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            fix = "Check the shapes and dtypes of the inputs."
            raise OptionError(step.where, "inputs that it takes", got, fix) from error
        for name in step.last_uses:
            del scope.values[name]
    return [scope.find(name) if name else None for name in graph.outputs]


def checked(x: Any) -> Any:
    """A result of a step: no scalar of NumPy's, no large array that is known, no absurd size."""
    if isinstance(x, np.generic):
        return np.asarray(x)
    if isinstance(x, np.ndarray) and x.size > MOST_KNOWN and x.dtype != object:
        return lifted(x)
    if isinstance(x, Value) and x.size * x.dtype.itemsize > MOST_BYTES:
        raise ShapeError("onnx", f"values of at most {MOST_BYTES} bytes", x.spec, "Mend the node.")
    return x


def take(step: NodeStep, scope: NamedValues) -> tuple[Any, ...]:
    """The results of a step, as many as the node names."""
    values = [scope.find(name) if name else None for name in step.inputs]
    attributes = step.attributes
    if step.graphs:
        attributes = {**attributes, **{n: NodeBody(attributes[n], scope) for n in step.graphs}}
    entry = step.operator
    if entry is None:
        results = defined(step, values, scope)
    else:
        if not entry.raw:
            values = prepared(entry, values, scope)
        if entry.counts:
            attributes = {**attributes, "outputs": len(step.outputs)}
        with np.errstate(all="ignore"):
            results = entry.function(*values, **attributes)
    if not isinstance(results, tuple):
        results = (results,)
    return results[: len(step.outputs)]


def prepared(entry: Any, values: list[Any], scope: NamedValues) -> list[Any]:
    """Values as an operator takes them: known where it says so, or all are; else tensors."""
    places = range(len(values))
    is_known = entry.plain and all(
        i in entry.static or values[i] is None or isinstance(values[i], np.ndarray) for i in places
    )
    return [
        array_if_any(values[i]) if i in entry.static
        else values[i] if is_known
        else lifted(values[i])
        for i in places
    ]  # fmt: skip


def array_if_any(x: Any) -> Any:
    return x if x is None or isinstance(x, list) else as_array(x)


# -- operators that ONNX composes of others --------------------------------------------------------


def defined(step: NodeStep, values: list[Any], scope: NamedValues) -> tuple[Any, ...]:
    """The results of a node by its definition: of the file's function, or of ONNX's."""
    values = [lifted(x) for x in values]
    if step.node.op_type == "Attention":
        result = usual_attention(values, step.attributes, len(step.outputs))
        if result is not None:
            return (result,)
    graph = step.body or definition(step, values, scope)
    values += [None] * (len(graph.inputs) - len(values))
    outer = scope if step.graphs else None  # a graph among the attributes reads outer names
    root = NamedValues(outer, scope.builder, scope.weights)
    return tuple(run(graph, values, root))


def definition(step: NodeStep, values: list[Any], scope: NamedValues) -> OnnxGraph:
    """The graph of ONNX's definition, for inputs of these types."""
    onnx, builder = scope.builder.onnx, scope.builder
    node = onnx.NodeProto()
    node.CopyFrom(step.node)  # with attributes of the function around it
    kept = [a for a in node.attribute if a.name in step.graphs]
    del node.attribute[:]
    node.attribute.extend(kept)
    plain = {name: x for name, x in step.attributes.items() if name not in step.graphs}
    node.attribute.extend(onnx.helper.make_attribute(*pair) for pair in plain.items())
    domain = "" if node.domain == "ai.onnx" else node.domain
    opset = step.opsets.get(domain, 1)
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=opset, domain=domain)
    if schema.has_function:
        version = max(v for v in schema.function_opset_versions if v <= opset)
        text = schema.get_function_with_opset_version(version)
    else:
        types = [type_of(onnx, x).SerializeToString() for x in values]
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        text = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), types
        )
    proto = onnx.FunctionProto.FromString(text)
    defaults = {
        name: a.default_value for name, a in schema.attributes.items() if a.default_value.name
    }
    before = builder.nodes
    try:
        around = Around((), step.opsets, node.name, 1)
        return builder.function(proto, {**defaults, **step.attributes}, around)
    finally:
        builder.nodes = before


def type_of(onnx: Any, x: Any) -> Any:
    """The TypeProto of a value."""
    if x is None:
        return onnx.TypeProto()
    if isinstance(x, list):
        return onnx.helper.make_sequence_type_proto(type_of(onnx, x[0]))
    return onnx.helper.make_tensor_type_proto(code_of(x), x.shape)
