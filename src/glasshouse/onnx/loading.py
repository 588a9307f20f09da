"""Loading an ONNX file."""

from pathlib import Path
from typing import Any

from glasshouse.base.errors import CheckpointError, Explained, optional
from glasshouse.onnx.graph import Around, Builder, versions
from glasshouse.onnx.network import Network
from glasshouse.onnx.tensors import AGAIN
from glasshouse.ops.checks import check_path

__all__ = ["load"]

MOST_BYTES = 1 << 31  # which protobuf holds


def load(f: Any) -> Network:
    """The network of an ONNX file, from its path, its bytes or a ModelProto: a module that trains,
    counts, analyses and compiles. Opsets 7 to 28. Data outside of the file have to lie in its
    folder, or below.

    Raises: CheckpointError, by node and name, for a missing, damaged or hostile file; OptionError
        for an operator, an attribute or an opset that is not known; BackendError without the
        package onnx.
    Source: https://onnx.ai/onnx/repo-docs/IR.html
    """
    onnx = optional("onnx.load", "the package onnx", "onnx", "onnx")
    optional("onnx.load", "the package onnx", "onnx.numpy_helper", "onnx")
    folder = None
    name = "network"
    if isinstance(f, onnx.ModelProto):
        model = f
    elif isinstance(f, bytes | bytearray | memoryview):
        model = parsed(onnx, bytes(f), name)
    else:
        path = check_path("onnx.load", f)
        folder, name = path.parent, path.name
        model = parsed(onnx, contents(path), name)
    builder = Builder(onnx, folder)
    for function in model.functions:
        key = function.domain, function.name, getattr(function, "overload", "")
        builder.functions[key] = function
    try:
        graph = builder.graph(model.graph, Around((), versions(model.opset_import)))
        network = Network(graph, builder, name)
    except Explained:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError,
            OverflowError, RuntimeError) as error:  # fmt: skip
        got = f"{type(error).__name__}: {error}"
        raise CheckpointError("onnx.load", f"a network in {name}", got, AGAIN) from error
    network.metadata = {entry.key: entry.value for entry in model.metadata_props}
    return network


def contents(path: Path) -> bytes:
    """The bytes of a file.

    Raises: CheckpointError where there is none, or too many
    """
    if not path.is_file():
        raise CheckpointError("onnx.load", "a file", repr(str(path)), "Check the path.")
    size = path.stat().st_size
    if size >= MOST_BYTES:
        fix = "Save its tensors as external data."
        raise CheckpointError("onnx.load", f"fewer than {MOST_BYTES} bytes", size, fix)
    return path.read_bytes()


def parsed(onnx: Any, data: bytes, name: str) -> Any:
    """The ModelProto in bytes."""
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as error:
        what = f"ONNX's protobuf in {name}"
        raise CheckpointError("onnx.load", what, str(error) or "other bytes", AGAIN) from error
    if not model.HasField("graph") or not len(model.opset_import):
        raise CheckpointError("onnx.load", f"a network in {name}", "none", AGAIN)
    return model
