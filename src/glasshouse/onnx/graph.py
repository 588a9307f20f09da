"""From ONNX's protobuf to graphs of steps, in which each node has found its function."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import CheckpointError, OptionError, suggest
from glasshouse.onnx import operators
from glasshouse.onnx.integers import join_products
from glasshouse.onnx.table import MOST_KNOWN, OPERATORS, OPSETS, OnnxOperator, find_operator
from glasshouse.onnx.tensors import AGAIN, array_of, dense

__all__ = ["Around", "Builder", "NodeStep", "OnnxGraph", "operators", "versions"]

MOST_NODES = 200_000
MOST_NESTED = 24
MOST_WRITTEN = 1 << 31  # bytes that protobuf holds
DOMAINS = {"ai.onnx": ""}
# Kinds of attributes, by their code.
(FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, _, _, SPARSE, _, TYPE) = range(1, 14)


class NodeStep(NamedTuple):
    """A node: its function, or its definition in `body` (of the file) or by ONNX (neither)."""

    operator: OnnxOperator | None
    body: "OnnxGraph | None"
    node: Any
    opsets: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    graphs: tuple[str, ...]  # attributes that are graphs
    last_uses: tuple[str, ...]  # names that no later step reads

    @property
    def where(self) -> str:
        return f"node {self.node.name or self.outputs[0]!r} ({self.node.op_type})"


@dataclass
class OnnxGraph:
    """Steps in their order. `weights`: the names of the network's weights, by their name here."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    taken: dict[str, tuple[int, tuple[int | str, ...]]] = field(default_factory=dict)  # of inputs
    declared: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # of outputs
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    steps: list[NodeStep] = field(default_factory=list)
    free: set[str] = field(default_factory=set)  # names of outer graphs that are read
    fixed: set[str] = field(default_factory=set)  # names that operators have to know: no weights


class Around(NamedTuple):
    """The surroundings of a graph: names of outer graphs, opsets, a node's label, a function's
    attributes; and whether its tensors are weights of the network."""

    names: tuple[set[str], ...]
    opsets: dict[str, int]
    label: str = ""
    depth: int = 0
    trains: bool = True
    values: dict[str, Any] = {}

    def inside(self, label: str, own: set[str]) -> "Around":
        """The surroundings of graphs inside a node, of a graph with its own names."""
        return self._replace(names=(*self.names, own), label=label, depth=self.depth + 1)

    def has(self, name: str) -> bool:
        return any(name in names for names in self.names)


class Builder:
    """Builds the graphs of one file, with their shared functions and weights."""

    def __init__(self, onnx: ModuleType, folder: Path | None = None) -> None:
        self.onnx = onnx
        self.folder = folder
        self.functions: dict[tuple[str, str, str], Any] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.nodes: int = 0

    # -- values ------------------------------------------------------------------------------

    def enter(self, graph: OnnxGraph, name: str, array: np.ndarray, around: Around) -> None:
        """A weight of the network, or a constant that is known.

        Raises: CheckpointError for a name that occurs twice
        """
        if not name or name in graph.weights or name in graph.constants:
            what = "tensors with names that differ"
            raise CheckpointError("onnx", what, f"{name!r} twice or empty", AGAIN)
        is_real = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        is_weight = is_real and array.ndim > 0 and name not in graph.fixed
        is_weight = is_weight or array.size > MOST_KNOWN
        if around.trains and is_weight and array.dtype != object:
            whole = name if name not in self.weights else f"{around.label}/{name}"
            while whole in self.weights:
                whole += "'"
            self.weights[whole] = array
            graph.weights[name] = whole
        else:
            graph.constants[name] = array

    def attribute(self, a: Any, inside: Around) -> Any:
        """The value of an attribute.

        Raises: CheckpointError for a kind that is not known
        """
        if a.type == STRING:
            return a.s.decode("utf-8", "replace")
        if a.type == STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in a.strings)
        if a.type == TENSOR:
            return array_of(self.onnx, a.t, self.folder)
        if a.type == SPARSE:
            return dense(self.onnx, a.sparse_tensor, self.folder)
        if a.type == GRAPH:
            return self.graph(a.g, inside)
        plain = {FLOAT: a.f, INT: a.i, FLOATS: tuple(a.floats), INTS: tuple(a.ints), TYPE: a.tp}
        if a.type not in plain:
            what = f"a kind of attribute {a.name!r} that is known"
            raise CheckpointError("onnx", what, f"code {a.type}", AGAIN)
        return plain[a.type]

    # -- graphs ------------------------------------------------------------------------------

    def graph(self, proto: Any, around: Around) -> OnnxGraph:
        """The graph of a GraphProto.

        Raises: CheckpointError for a damaged file, OptionError for an unknown operator
        """
        check_depth(around)
        graph = OnnxGraph(fixed=fixed_names(proto.node, around.opsets))
        for tensor in proto.initializer:
            array = array_of(self.onnx, tensor, self.folder)
            self.enter(graph, tensor.name, array, around)
        for sparse in proto.sparse_initializer:
            array = dense(self.onnx, sparse, self.folder)
            self.enter(graph, sparse.values.name, array, around)
        has_value = {*graph.constants, *graph.weights}
        graph.inputs = tuple(i.name for i in proto.input if i.name not in has_value)
        if len(set(graph.inputs)) != len(graph.inputs) or "" in graph.inputs:
            raise CheckpointError("onnx", "inputs with names that differ", graph.inputs, AGAIN)
        graph.taken = {i.name: taken(i) for i in proto.input if i.name in graph.inputs}
        graph.outputs = tuple(o.name for o in proto.output)
        graph.declared = [declared(o) for o in proto.output]
        self.fill(graph, proto.node, around)
        return graph

    def function(self, proto: Any, values: dict[str, Any], around: Around) -> OnnxGraph:
        """The graph of a FunctionProto for a node with attributes."""
        check_depth(around)
        names = {name for node in proto.node for name in node.output}.union(proto.input)
        outputs = tuple(name if name in names else "" for name in proto.output)
        graph = OnnxGraph(tuple(proto.input), outputs, declared=[(1, ())] * len(outputs))
        opsets = {**around.opsets, **versions(proto.opset_import)}
        values = {**{a.name: a for a in proto.attribute_proto}, **values}
        own = around._replace(names=(), opsets=opsets, trains=False, values=values)
        self.fill(graph, proto.node, own)
        return graph

    def fill(self, graph: OnnxGraph, nodes: Any, around: Around) -> None:
        """The steps of a graph's nodes."""
        self.nodes += len(nodes)
        if self.nodes > MOST_NODES:
            raise CheckpointError("onnx", f"at most {MOST_NODES} nodes", self.nodes, AGAIN)
        own = {*graph.inputs, *graph.constants, *graph.weights}
        later: set[str] | None = None
        for number, node in enumerate(nodes):
            label = f"{around.label}/{node.name or number}".lstrip("/")
            where = f"node {label!r} ({node.op_type})"
            inside = around.inside(label, own)
            attributes = self.attributes(node, inside, where)
            outputs = tuple(node.output)
            repeated = [name for name in outputs if name and name in own]
            if repeated or len({*filter(None, outputs)}) < len([*filter(None, outputs)]):
                raise CheckpointError(where, "outputs with new names", outputs, AGAIN)
            if node.op_type == "Constant" and DOMAINS.get(node.domain, node.domain) == "":
                if len(outputs) != 1:
                    raise CheckpointError(where, "one output", outputs, AGAIN)
                self.enter(graph, outputs[0], constant(attributes, where), around)
                own.add(outputs[0])
                continue
            inputs = tuple(trimmed(node.input))
            for name in inputs:
                if name and name not in own and not around.has(name):
                    if later is None:
                        later = {name for each in nodes for name in each.output}
                    got = f"{name!r}, which is made by a later node or by itself"
                    got = got if name in later else f"{name!r}, which nothing makes"
                    raise CheckpointError(where, "inputs that are there before it", got, AGAIN)
            own.update(outputs)
            step = self.step(node, (inputs, outputs), attributes, inside, where)
            graph.steps.append(step)
        graph.steps = join_products(graph.steps, graph.constants, graph.outputs)
        missing = [n for n in graph.outputs if n and n not in own and not around.has(n)]
        if missing:
            raise CheckpointError("onnx", "outputs that some node makes", missing, AGAIN)
        note_last_uses(graph, own)

    def attributes(self, node: Any, inside: Around, where: str) -> dict[str, Any]:
        """Attributes by name; those that a function leaves open have the node's values."""
        result: dict[str, Any] = {}
        for a in node.attribute:
            if a.name in result:
                raise CheckpointError(where, "attributes that differ", repr(a.name), AGAIN)
            if not a.ref_attr_name:
                result[a.name] = self.attribute(a, inside)
            elif a.ref_attr_name in inside.values:
                value = inside.values[a.ref_attr_name]
                is_proto = hasattr(value, "ref_attr_name")
                result[a.name] = self.attribute(value, inside) if is_proto else value
        return result

    def step(
        self,
        node: Any,
        names: tuple[tuple[str, ...], tuple[str, ...]],
        attributes: dict[str, Any],
        inside: Around,
        where: str,
    ) -> NodeStep:
        """A node with its function, or its definition; `names` of its inputs and outputs.

        Raises: OptionError for an operator or an attribute that is not known
        """
        domain = DOMAINS.get(node.domain, node.domain)
        graphs = tuple(name for name, x in attributes.items() if isinstance(x, OnnxGraph))
        body, entry, opset = None, None, inside.opsets.get(domain, 1)
        proto = self.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if proto is not None:
            body = self.function(proto, attributes, inside)
        else:
            entry = find_operator(domain, node.op_type, opset)
        if entry is not None:
            check_call(entry, names[0], attributes, where)
        elif body is None and not is_defined(self.onnx, domain, node.op_type, opset):
            others = {name for space, name in OPERATORS if space == domain}
            got = f"{domain + ':' if domain else ''}{node.op_type}, opset {opset}"
            fix = suggest(node.op_type, others)
            raise OptionError(where, "an operator that is known", got, fix)
        return NodeStep(entry, body, node, inside.opsets, *names, attributes, graphs, ())


def fixed_names(nodes: Any, opsets: dict[str, int]) -> set[str]:
    """Names at places that operators have to know, also through identities."""
    names: set[str] = set()
    for node in reversed(nodes):
        domain = DOMAINS.get(node.domain, node.domain)
        if node.op_type == "Identity" and names.intersection(node.output):
            names.update(node.input)
        entry = find_operator(domain, node.op_type, opsets.get(domain, 1))
        if entry is not None and entry.static:
            names.update(name for i, name in enumerate(node.input) if i in entry.static)
    return names


def check_depth(around: Around) -> None:
    if around.depth > MOST_NESTED:
        where = f"node {around.label.rpartition('/')[2]!r}"
        got = around.depth
        raise CheckpointError(where, f"at most {MOST_NESTED} nested graphs", got, AGAIN)


def check_call(
    entry: OnnxOperator, inputs: tuple[str, ...], attributes: dict[str, Any], where: str
) -> None:
    """Whether an operator takes so many inputs, and these attributes."""
    least, most = entry.taken
    if not least <= len(inputs) <= most:
        expected = f"{least} to {most} inputs" if least != most else f"{least} inputs"
        raise CheckpointError(where, expected, len(inputs), AGAIN)
    if not entry.raw and least and not inputs[0]:
        raise CheckpointError(where, "its first input", inputs, AGAIN)
    if entry.attributes is None:
        return
    for name in attributes:
        if name not in entry.attributes or name == "outputs":
            fix = suggest(name, entry.attributes - {"outputs"}) if entry.attributes else ""
            raise OptionError(where, "attributes that are known", repr(name), fix)


def is_defined(onnx: ModuleType, domain: str, name: str, opset: int) -> bool:
    """Whether ONNX composes an operator of others."""
    try:
        schema = onnx.defs.get_schema(name, max_inclusive_version=opset, domain=domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def constant(attributes: dict[str, Any], where: str) -> np.ndarray:
    """The value of a Constant."""
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
             "value_ints": np.int64, "value_string": object, "value_strings": object}  # fmt: skip
    if len(attributes) != 1:
        raise CheckpointError(where, "one value", sorted(attributes), AGAIN)
    ((name, value),) = attributes.items()
    if name in ("value", "sparse_value") and isinstance(value, np.ndarray):
        return value
    if name not in kinds:
        raise OptionError(where, "attributes that are known", repr(name), suggest(name, kinds))
    return np.asarray(value, kinds[name])


def trimmed(names: Iterable[str]) -> list[str]:
    """Names of inputs without the empty ones at the end."""
    result = [*names]
    while result and not result[-1]:
        result.pop()
    return result


def declared(info: Any) -> tuple[int, tuple[int, ...]]:
    """The type and sizes that a file declares; sizes that it leaves open are 0."""
    tensor = info.type.tensor_type
    return tensor.elem_type or 1, tuple(max(d.dim_value, 0) for d in tensor.shape.dim)


def taken(info: Any) -> tuple[int, tuple[int | str, ...]]:
    """The type and sizes that a file declares; sizes that it leaves open have a name, or "?"."""
    tensor = info.type.tensor_type
    return tensor.elem_type, tuple(
        d.dim_value if d.dim_value > 0 else d.dim_param or "?" for d in tensor.shape.dim
    )


def versions(imports: Any) -> dict[str, int]:
    """Opset versions by domain.

    Raises: OptionError for a version of ONNX's own operators that is not known
    """
    result = {DOMAINS.get(o.domain, o.domain): o.version for o in imports}
    own = result.get("", OPSETS[-1])
    if own not in OPSETS:
        fix = "Convert the file to another opset, with onnx.version_converter."
        raise OptionError("onnx", f"an opset from {OPSETS[0]} to {OPSETS[-1]}", own, fix)
    return result


def names_read(step: NodeStep) -> set[str]:
    names = {name for name in step.inputs if name}
    return names.union(*(step.attributes[name].free for name in step.graphs))


def note_last_uses(graph: OnnxGraph, own: set[str]) -> None:
    """Note in each step which names it is the last to read, and which names are of outer graphs."""
    kept = {"", *graph.outputs, *graph.constants, *graph.weights}
    graph.free = {name for name in graph.outputs if name and name not in own}
    for i in reversed(range(len(graph.steps))):
        step = graph.steps[i]
        read = names_read(step)
        graph.free |= read - own
        last = (read | set(step.outputs)) & own - kept
        kept |= last
        graph.steps[i] = step._replace(last_uses=tuple(sorted(last)))
