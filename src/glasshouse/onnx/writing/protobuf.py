"""From a graph that was written to ONNX's protobuf, and to a file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from glasshouse.base.errors import CheckpointError
from glasshouse.onnx.writing.control import InnerGraph, inner_graphs
from glasshouse.onnx.writing.joint import VaryingNumber
from glasshouse.onnx.writing.table import WHERE
from glasshouse.onnx.writing.writer import CODE_OF, GraphWriter, WrittenNode, WrittenValue
from glasshouse.version import __version__

MOST_INSIDE = 1_900_000_000  # bytes of constants in the file itself, of the 2 GiB of protobuf
LEAST_OUTSIDE = 1024  # bytes of a constant beside the file
EXTERNAL = 1  # TensorProto.EXTERNAL


class ProtobufGraph:
    """A graph as protobuf. `renamed` gives outputs their names."""

    def __init__(self, onnx: Any, symbols: dict[str, tuple[int, ...]]) -> None:
        self.onnx = onnx
        self.renamed: dict[str, str] = dict[str, str]()
        self.symbols: dict[tuple[int, ...], str]
        self.symbols = {values: name for name, values in symbols.items()}

    def name(self, name: str) -> str:
        return self.renamed.get(name, name)

    def type(self, name: str, x: WrittenValue) -> Any:
        """The declaration of a value, whose varying sizes have names where they are symbols."""
        sizes = [
            self.symbols.get(n.values) if isinstance(n, VaryingNumber) else int(n)
            for n in (*x.shape, *x.tail)
        ]
        code = CODE_OF[dtype_in_file(x.dtype)]
        return self.onnx.helper.make_tensor_value_info(self.name(name), code, sizes)

    def node(self, node: WrittenNode) -> Any:
        """A node, with the graphs inside it."""
        attributes = {
            key: self.inner(x, key) if isinstance(x, InnerGraph) else x
            for key, x in node.attributes.items()
        }
        inputs, outputs = ([self.name(x) for x in names] for names in (node.inputs, node.outputs))
        return self.onnx.helper.make_node(node.op, inputs, outputs, name=outputs[0], **attributes)

    def inner(self, graph: InnerGraph, name: str) -> Any:
        return self.onnx.helper.make_graph(
            [self.node(node) for node in needed(graph.writer, [x.name for x in graph.outputs])],
            name,
            [self.type(x.name, x) for x in graph.inputs],
            [self.type(x.name, x) for x in graph.outputs],
        )


def dtype_in_file(dtype: Any) -> str:
    """The name of the dtype of a tensor in the file: of complex numbers, that of their parts."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def reads(node: WrittenNode) -> set[str]:
    """Names that a node, or a graph inside it, reads."""
    names = set(node.inputs)
    for graph in inner_graphs(node):
        names.update(x.name for x in graph.outputs)
        for inside in graph.writer.nodes:
            names |= reads(inside)
    return names


def needed(writer: GraphWriter, outputs: Sequence[str]) -> list[WrittenNode]:
    """The nodes of a graph that its outputs need."""
    names = set(outputs)
    nodes = []
    for node in reversed(writer.nodes):
        if not names.isdisjoint(node.outputs):
            names |= reads(node)
            nodes.append(node)
    return nodes[::-1]


def tensor_of(onnx: Any, name: str, array: np.ndarray) -> Any:
    """A tensor with its data, whatever its dtype."""
    tensor = onnx.TensorProto(name=name, data_type=CODE_OF[array.dtype.name], dims=array.shape)
    tensor.raw_data = np.ascontiguousarray(array).tobytes()
    return tensor


class ExternalData:
    """A file beside the network's, which gets the data of tensors."""

    def __init__(self, path: Path, location: str) -> None:
        self.location = location
        self.file: IO[bytes] = path.open("wb")

    def tensor(self, onnx: Any, name: str, array: np.ndarray) -> Any:
        """A tensor whose data lie in the file."""
        data = np.ascontiguousarray(array)
        self.file.write(b"\0" * (-self.file.tell() % 4096))
        places = {"location": self.location, "offset": self.file.tell(), "length": data.nbytes}
        self.file.write(data.reshape(-1).view(np.uint8).data)
        tensor = onnx.TensorProto(name=name, data_type=CODE_OF[array.dtype.name], dims=array.shape)
        tensor.data_location = EXTERNAL
        for key, value in places.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor


class Files:
    """The file of a network, and the one beside it; they have other names until all is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beside: Path = path.with_name(f"{path.name}.data")
        self.parts: list[Path] = [
            x.with_name(f".{x.name}.{os.getpid()}.part") for x in (self.path, self.beside)
        ]

    def write(self, model: Any, has_data: bool) -> None:
        """Write the network, and give both files their names."""
        self.parts[0].write_bytes(model.SerializeToString())
        if has_data:
            os.replace(self.parts[1], self.beside)
        os.replace(self.parts[0], self.path)

    def tensors(self, onnx: Any, constants: dict[str, np.ndarray], outside: bool) -> list[Any]:
        """Constants as protobuf; the data of large ones beside the file if `outside`."""
        if not outside:
            return [tensor_of(onnx, name, array) for name, array in constants.items()]
        store = ExternalData(self.parts[1], self.beside.name)
        with store.file:
            return [
                store.tensor(onnx, name, array)
                if array.nbytes >= LEAST_OUTSIDE
                else tensor_of(onnx, name, array)
                for name, array in constants.items()
            ]


def named_outputs(
    writer: GraphWriter, graph: ProtobufGraph, outputs: Sequence[tuple[str, WrittenValue]]
) -> list[str]:
    """The tensors of outputs, which have the outputs' names from now on."""
    results = {name for node in writer.nodes for name in node.outputs}
    names = []
    for name, x in outputs:
        tensor = writer.whole(x)
        if tensor not in results or tensor in graph.renamed:
            tensor = writer.node("Identity", [tensor])
        graph.renamed[tensor] = name
        names.append(tensor)
    return names


class WrittenModel(NamedTuple):
    """A graph with its inputs, the names and values of its outputs, and its varying sizes."""

    writer: GraphWriter
    inputs: Sequence[WrittenValue]
    outputs: Sequence[tuple[str, WrittenValue]]
    symbols: dict[str, tuple[int, ...]]

    def save(self, onnx: Any, path: Path, external: bool | None) -> None:
        """Write the graph to a file; weights beside it if `external`, or if they are many.

        Raises: CheckpointError for a path that cannot be written
        """
        writer, graph = self.writer, ProtobufGraph(onnx, self.symbols)
        names = named_outputs(writer, graph, self.outputs)
        nodes = needed(writer, names)
        used = set(names).union(*map(reads, nodes))
        constants = {name: x for name, x in writer.constants.items() if name in used}
        total = sum(array.nbytes for array in constants.values())
        outside = total > MOST_INSIDE if external is None else external
        files = Files(path)
        try:
            proto = onnx.helper.make_graph(
                [graph.node(node) for node in nodes],
                path.stem,
                [graph.type(x.name, x) for x in self.inputs],
                [graph.type(name, x) for name, (_, x) in zip(names, self.outputs, strict=True)],
                files.tensors(onnx, constants, outside),
            )
            opset = onnx.helper.make_opsetid("", writer.opset)
            model = onnx.helper.make_model(
                proto,
                opset_imports=[opset],
                producer_name="glasshouse",
                producer_version=__version__,
                ir_version=onnx.helper.find_min_ir_version_for([opset], ignore_unknown=True),
            )
            files.write(model, outside)
        except OSError as error:
            got = f"{type(error).__name__}: {error}"
            what = f"a path that can be written: {path}"
            raise CheckpointError(WHERE, what, got, "Check it.") from error
        finally:
            for part in files.parts:
                part.unlink(missing_ok=True)
