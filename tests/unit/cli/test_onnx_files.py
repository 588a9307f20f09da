"""Commands on ONNX files."""

import numpy as np
import pytest
from click.testing import CliRunner

from glasshouse.cli.main import main

onnx = pytest.importorskip("onnx")


@pytest.fixture
def path(tmp_path):
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", 1, ["n", 4])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]),
              str(tmp_path / "small.onnx"))  # fmt: skip
    return str(tmp_path / "small.onnx")


def run(*arguments):
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "100"})


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("run", "float32[5, 3]"),
        ("flops", "Network"),
        ("analyze", "OneInput"),
        ("profile", "Network"),
        ("show", "primitives"),
    ],
)
def test_commands_take_an_onnx_file(path, command, text):
    done = run(command, path, "--sizes", "x=5x4")
    assert done.exit_code == 0, done.output
    assert text in done.output


def test_arrays_are_read_and_written(path, tmp_path):
    np.save(tmp_path / "x.npy", np.full((2, 4), 0.5, np.float32))
    saved = tmp_path / "out.npz"
    done = run("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--save", str(saved))
    assert done.exit_code == 0, done.output
    assert np.load(saved)["y"].tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "z=1x4"), "expected inputs by name; got 'z'"),
        (("--sizes", "x"), "expected INPUT=SIZES"),
        (("--input", "z=a.npy"), "expected one of ['x']; got 'z'"),
    ],
)
def test_wrong_options_are_named(path, arguments, message):
    done = run("run", path, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
