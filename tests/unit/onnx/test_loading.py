"""Networks of ONNX files as modules: calls, weights, training, capture, control flow."""

import copy
import json

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, CheckpointError, OptionError

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT64 = onnx.helper, 1, 7


def network_of(nodes, inputs, outputs, tensors=(), opset=21, **options):
    """A network of nodes; inputs and outputs are (name, type, sizes)."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(*x) for x in inputs],
        [helper.make_tensor_value_info(*x) for x in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in dict(tensors).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **options)


def dense():
    """relu(x @ w + b), with sizes that a reshape takes from x."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "first"], ["rows"]),
        node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["flat"]),
        node("MatMul", ["flat", "layer.w"], ["product"]),
        node("Add", ["product", "layer.b"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    tensors = {
        "first": np.array([0]),
        "rest": np.array([-1]),
        "layer.w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
        "layer.b": np.array([0.5, 0, 0.25], np.float32),
    }
    return network_of(nodes, [("x", FLOAT, ["n", 2, 2])], [("y", FLOAT, ["n", 3])], tensors)


X = np.arange(8, dtype=np.float32).reshape(2, 2, 2) - 3


@pytest.mark.quick
def test_a_network_is_a_module_whose_parameters_have_the_names_of_the_file():
    network = gh.onnx.load(dense())
    assert [name for name, _ in network.named_parameters()] == ["layer.w", "layer.b"]
    assert list(network.state_dict()) == ["layer.w", "layer.b"]
    weight, bias = (p.numpy() for p in network.parameters())
    expected = np.maximum(X.reshape(2, 4) @ weight + bias, 0)
    for y in (network(X), network(x=gh.asarray(X)), copy.deepcopy(network)(X)):
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)


def test_a_path_and_bytes_are_loaded(tmp_path):
    data = dense().SerializeToString()
    (tmp_path / "dense.onnx").write_bytes(data)
    a, b, c = (
        gh.onnx.load(f) for f in (tmp_path / "dense.onnx", str(tmp_path / "dense.onnx"), data)
    )
    assert a(X).tolist() == b(X).tolist() == c(X).tolist()


def test_a_network_trains_in_one_program():
    network = gh.onnx.load(dense())
    optimizer = gh.optim.SGD(network.parameters(), lr=0.05)

    @gh.optimize(nopython=True)
    def step(x):
        optimizer.zero_grad()
        loss = ((network(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(gh.asarray(X)).item() for _ in range(8)]
    assert losses[-1] < losses[0] and step.hits >= 5


def test_scales_of_a_resize_are_no_parameters_and_are_not_read():
    node = helper.make_node
    nodes = [node("Identity", ["s"], ["t"]), node("Resize", ["x", "", "t"], ["y"])]
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    inputs, outputs = [("x", FLOAT, [1, 1, 2, 2])], [("y", FLOAT, [1, 1, 4, 4])]
    network = gh.onnx.load(network_of(nodes, inputs, outputs, scales))
    assert list(network.parameters()) == []
    captured = gh.optimize(nopython=True)(network)
    assert captured(gh.ones((1, 1, 2, 2))).shape == (1, 1, 4, 4)


def test_inputs_that_are_missing_or_unknown_are_named():
    network = gh.onnx.load(dense())
    with pytest.raises(OptionError, match=r"no \['x'\]"):
        network()
    with pytest.raises(OptionError, match="Did you mean 'x'"):
        network(xx=X)
    with pytest.raises(OptionError, match="Pass each once"):
        network(X, x=X)


def test_errors_of_a_node_have_its_name():
    network = gh.onnx.load(dense())
    with pytest.raises(ValueError, match=r"node 'product' \(MatMul\)"):
        network(np.ones((2, 3, 3), np.float32))


def branches(cond_type=9):
    node = helper.make_node
    value = [helper.make_tensor_value_info("z", FLOAT, [2])]
    then = helper.make_graph([node("Mul", ["x", "x"], ["z"])], "then", [], value)
    other = helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], value)
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [("x", FLOAT, [2]), ("c", cond_type, [])]
    return gh.onnx.load(network_of(nodes, inputs, [("y", FLOAT, [2])]))


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_is_chosen_by_a_value_or_captured(condition):
    network = branches()
    x = np.array([2.0, 3.0], np.float32)
    expected = [4, 9] if condition else [-2, -3]
    assert network(x, condition).tolist() == expected
    assert network(x, np.asarray(condition)).tolist() == expected
    captured = gh.optimize(nopython=True)(lambda x, c: network(x, c))
    for _ in range(2):
        assert captured(gh.asarray(x), gh.asarray(condition)).tolist() == expected


def test_a_branch_on_a_number_is_captured_alone():
    network = branches()
    x = gh.asarray(np.array([2.0, 3.0], np.float32))
    captured = gh.optimize(nopython=True)(lambda x: network(x, c=True))
    assert captured(x).tolist() == [4, 9]


def loop_network(condition):
    """Doubles x until a number of steps, or while it is below 100."""
    node = helper.make_node
    values = helper.make_tensor_value_info
    nodes = [node("Add", ["v", "v"], ["w"])]
    tensors = []
    if condition:
        tensors = [onnx.numpy_helper.from_array(np.float32(100), "limit")]
        nodes.append(node("Less", ["w", "limit"], ["go"]))
    else:
        nodes.append(node("Identity", ["c"], ["go"]))
    body = helper.make_graph(
        nodes,
        "body",
        [values("i", INT64, []), values("c", 9, []), values("v", FLOAT, [])],
        [values("go", 9, []), values("w", FLOAT, [])],
        tensors,
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [("x", FLOAT, []), ("n", INT64, [])]
    return gh.onnx.load(network_of([loop], inputs, [("y", FLOAT, [])]))


def test_loops_run_by_number_and_by_condition():
    x = np.float32(1)
    assert loop_network(False)(x, 5).item() == 32
    assert loop_network(False)(x, 40).item() == 2.0**40  # a scan
    assert loop_network(False)(x, np.int64(6)).item() == 64  # a while_loop
    assert loop_network(True)(x, 50).item() == 128
    assert loop_network(True)(x, np.int64(3)).item() == 8
    captured = gh.optimize(nopython=True)(loop_network(True))
    assert captured(gh.asarray(x), gh.asarray(np.int64(50))).item() == 128


def test_external_data_are_read_from_the_folder_alone(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    model = dense()
    onnx.save_model(
        model, str(folder / "m.onnx"), save_as_external_data=True, location="data.bin",
        size_threshold=0,
    )  # fmt: skip
    network = gh.onnx.load(folder / "m.onnx")
    np.testing.assert_allclose(network(X).numpy(), gh.onnx.load(dense())(X).numpy())
    model = onnx.load(str(folder / "m.onnx"), load_external_data=False)
    (tmp_path / "data.bin").write_bytes((folder / "data.bin").read_bytes())
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../data.bin"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match="inside the file's folder"):
        gh.onnx.load(folder / "m.onnx")


def test_functions_of_a_file_are_composed():
    node = helper.make_node
    scale = node("Mul", ["a", "f"], ["b"])
    factor = node("Constant", [], ["f"])
    factor.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    )
    function = helper.make_function(
        "own", "Scale", ["a"], ["b"], [factor, scale], [helper.make_opsetid("", 21)], ["by"]
    )
    nodes = [node("Scale", ["x"], ["y"], domain="own", by=3.0)]
    model = network_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], functions=[function])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert gh.onnx.load(model)(np.array([1, 2], np.float32)).tolist() == [3, 6]


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(BackendError, match=r"pip install 'glasshouse\[onnx\]'"):
        gh.onnx.load(b"")


def test_constants_of_a_network_are_constants_of_its_program(tmp_path):
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "w"], ["p"]),
        node("Div", ["p", "three"], ["q"]),
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=FLOAT),
        node("ReduceProd", ["f"], ["n"], keepdims=0),
        node("Div", ["q", "n"], ["y"]),
    ]
    tensors = {"w": np.linspace(-1, 1, 4, dtype=np.float32), "three": np.float32(3)}
    model = network_of(nodes, [("x:0", FLOAT, [2, 4])], [("y", FLOAT, [2, 4])], tensors)
    for step in (model.graph.node[0], model.graph.node[2]):
        step.input[0] = "x:0"
    network, x = gh.onnx.load(model), np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = x * tensors["w"] / 3 / 8
    captured = gh.optimize(network)
    with gh.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(captured(gh.asarray(x)).numpy(), expected, rtol=1e-6)
    folder = gh.export_program(network, tmp_path, x)
    manifest = json.loads((folder / "program.json").read_text())
    assert [part["name"] for part in manifest["inputs"]] == ["x_0"]
    state = gh.load(folder / "program.safetensors")
    assert sorted(float(v) for k, v in state.items() if v.ndim == 0) == [3.0, 8.0]
