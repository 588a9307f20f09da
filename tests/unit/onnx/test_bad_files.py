"""Damaged and hostile ONNX files: an error of ours with the node's name, and no crash."""

import signal
from contextlib import contextmanager

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, Explained, OptionError

onnx = pytest.importorskip("onnx")
helper = onnx.helper
node = helper.make_node


def model_of(nodes, outputs=("y",), tensors=(), opset=21):
    values = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    x = helper.make_tensor_value_info("x", 1, [2, 4])
    graph = helper.make_graph(nodes, "bad", [x], values, list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["z"], ["y"], name="n")], r"node 'n' \(Relu\).*'z', which nothing makes"),
        ([node("Relu", ["y"], ["y"], name="n")], r"node 'n'.*by a later node or by itself"),
        (
            [node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"], name="two")],
            r"node 'one' \(Add\).*'b', which is made by a later node",
        ),
        ([node("Relu", ["x"], ["y"])] * 2, r"node '1' \(Relu\).*outputs with new names"),
        ([node("Rellu", ["x"], ["y"], name="n")], r"node 'n'.*Rellu, opset 21.*mean 'Relu'"),
        ([node("Relu", ["x"], ["y"], domain="else.where")], r"else.where:Relu"),
        ([node("Softmax", ["x"], ["y"], axes=1)], r"attributes that are known; got 'axes'.*'axis'"),
        ([node("Add", ["x"], ["y"], name="n")], r"node 'n' \(Add\): expected 2 inputs; got 1"),
        ([node("Relu", ["x"], ["z"])], r"outputs that some node makes; got \['y'\]"),
    ],
)  # fmt: skip
def test_graphs_that_are_wrong_are_refused_by_node_and_name(nodes, message):
    with pytest.raises((CheckpointError, OptionError), match=message):
        gh.onnx.load(model_of(nodes))


@pytest.mark.parametrize(("opset", "got"), [(29, 29), (0, 0), (2**40, 2**40)])
def test_opsets_that_are_not_known_are_refused(opset, got):
    with pytest.raises(OptionError, match=f"an opset from 1 to 28; got {got}"):
        gh.onnx.load(model_of([node("Relu", ["x"], ["y"])], opset=opset))


@pytest.mark.parametrize(
    ("sizes", "raw", "message"),
    [
        ((2**40, 2**40), b"1234", "tensor 'w' of sizes"),
        ((-1, 4), b"", "sizes of 0 or more of tensor 'w'"),
        ((3,), b"1234", "12 bytes for tensor 'w'"),
    ],
)
def test_absurd_sizes_of_tensors_are_refused(sizes, raw, message):
    tensor = onnx.TensorProto(name="w", data_type=1, dims=sizes, raw_data=raw)
    with pytest.raises(CheckpointError, match=message):
        gh.onnx.load(model_of([node("Add", ["x", "w"], ["y"])], tensors=[tensor]))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("ConstantOfShape", ["s"], ["y"], name="n")],
        [node("Expand", ["x", "s"], ["y"], name="n")],
        [node("Pad", ["x", "s"], ["y"], name="n")],
        [node("Tile", ["x", "s"], ["y"], name="n")],
    ],
)
def test_absurd_sizes_of_results_are_refused_by_node(nodes):
    sizes = onnx.numpy_helper.from_array(np.array([2**40, 2**20]), "s")
    network = gh.onnx.load(model_of(nodes, tensors=[sizes]))
    with pytest.raises(Explained, match="node 'n'"):
        network(np.ones((1, 1), np.float32))


@pytest.mark.slow
def test_too_many_nodes_are_refused():
    names = ["x", *(f"a{i}" for i in range(200_001)), "y"]
    nodes = [
        onnx.NodeProto(op_type="Relu", input=[a], output=[b]) for a, b in zip(names, names[1:])
    ]
    with pytest.raises(CheckpointError, match="at most 200000 nodes; got 200002"):
        gh.onnx.load(model_of(nodes))


def test_deep_nesting_is_refused():
    value = [helper.make_tensor_value_info("z", 1, None)]
    graph = helper.make_graph([node("Relu", ["x"], ["z"])], "g", [], value)
    for _ in range(30):
        inner = node("If", ["x"], ["z"], name="deep", then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inner], "g", [], value)
        if len(graph.SerializeToString()) > 1 << 20:
            break
        del inner.attribute[1]
        graph = helper.make_graph([inner], "g", [], value)
    nodes = [node("If", ["x"], ["y"], then_branch=graph, else_branch=graph)]
    with pytest.raises(Explained, match="node 'deep'"):
        gh.onnx.load(model_of(nodes))


def test_functions_that_call_themselves_are_refused():
    own = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    inner = node("F", ["a"], ["b"], domain="own", name="again")
    function = helper.make_function("own", "F", ["a"], ["b"], [inner], own)
    model = model_of([node("F", ["x"], ["y"], domain="own")])
    model.functions.append(function)
    model.opset_import.append(own[1])
    with pytest.raises(CheckpointError, match="node 'again': expected at most 24 nested graphs"):
        gh.onnx.load(model)


@pytest.mark.parametrize("data", [b"", b"ONNX", b"\x08", bytes(100), b"\xff" * 50])
def test_other_bytes_are_refused(data, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(data)
    for f in (data, tmp_path / "bad.onnx"):
        with pytest.raises(CheckpointError, match=r"onnx.load"):
            gh.onnx.load(f)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="a file; got"):
        gh.load(tmp_path / "no.onnx")


# -- mutations -----------------------------------------------------------------------------------


def original() -> bytes:
    """A network with weights, sizes, windows, a branch, a loop and a recurrence."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(size=(4, 3)).astype(np.float32),
        "shape": np.array([1, 2, -1]),
        "n": np.array(3),
        "limit": np.array(0.5, np.float32),
        "k": rng.normal(size=(2, 2, 3)).astype(np.float32),
        "u": rng.normal(size=(1, 8, 2)).astype(np.float32),
        "v": rng.normal(size=(1, 8, 2)).astype(np.float32),
    }
    value = helper.make_tensor_value_info
    then = helper.make_graph([node("Neg", ["h"], ["t"])], "then", [], [value("t", 1, None)])
    other = helper.make_graph([node("Abs", ["h"], ["t"])], "else", [], [value("t", 1, None)])
    body = helper.make_graph(
        [node("Add", ["s", "s"], ["s2"]), node("Identity", ["c"], ["c2"])],
        "body",
        [value("i", 7, []), value("c", 9, []), value("s", 1, None)],
        [value("c2", 9, []), value("s2", 1, None)],
    )
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("ReduceMean", ["h"], ["mean"], keepdims=0),
        node("Less", ["mean", "limit"], ["less"]),
        node("If", ["less"], ["b"], then_branch=then, else_branch=other),
        node("Loop", ["n", "", "b"], ["l"], body=body),
        node("Reshape", ["l", "shape"], ["r"]),
        node("Conv", ["r", "k"], ["conv"], pads=[1, 1], strides=[1]),
        node("Transpose", ["conv"], ["turned"], perm=[2, 0, 1]),
        node("LSTM", ["turned", "u", "v"], ["q"], hidden_size=2),
        node("Resize", ["q", "", "scales"], ["y"], mode="linear"),
    ]
    arrays["scales"] = np.array([1, 1, 1, 2], np.float32)
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return model_of(nodes, tensors=tensors).SerializeToString()


class TooLong(Exception):
    """A mutated file took longer than a second."""


@contextmanager
def at_most(seconds: int):
    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with some of them changed, taken out, repeated, or cut off at the end."""
    array = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(len(array))), int(rng.integers(5))
        if kind == 0:
            array[at] = int(rng.integers(256))
        elif kind == 1:
            array[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del array[at : at + int(rng.integers(1, 8))]
        elif kind == 3:
            array[at:at] = array[at : at + int(rng.integers(1, 32))]
        else:
            array[at : at + 1] = [[0], [0xFF], [0x7F], [0x80, 0x80]][int(rng.integers(4))]
    return bytes(array[: int(rng.integers(1, len(array)))] if rng.integers(10) == 0 else array)


def check_mutations(count: int, seed: int) -> tuple[int, int]:
    """How many files ran and how many were refused; anything but an error of ours is raised."""
    rng, data = np.random.default_rng(seed), original()
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    ran = refused = 0
    for _ in range(count):
        file = mutated(data, rng)
        try:
            with at_most(20), gh.no_grad(), np.errstate(all="ignore"):
                result = gh.onnx.load(file)(x)
                for y in result if isinstance(result, tuple) else (result,):
                    if y is not None:
                        y.numpy()
            ran += 1
        except Explained:
            refused += 1
    return ran, refused


def test_the_original_runs():
    network = gh.onnx.load(original())
    assert network(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)).shape == (3, 1, 1, 4)


def test_mutated_files_are_refused_or_run():
    with gh.backends.use("numpy"):
        ran, refused = check_mutations(200, 0)
    assert ran > 5 and refused > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_two_thousand_mutated_files_are_refused_or_run(seed):
    with gh.backends.use("numpy"):
        ran, refused = check_mutations(200, seed)
    assert ran + refused == 200
