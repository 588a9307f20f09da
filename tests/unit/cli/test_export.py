"""`glasshouse export`: ONNX files and folders of C of what a user has."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse import nn
from glasshouse.cli.main import main
from glasshouse.cli.train_digits import TrainingRecipe, TrainingRun

SCRIPT = """
import glasshouse as gh
from glasshouse import nn


def make():
    gh.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5))


def pair():
    return make(), gh.ones((2, 4))


model, inputs = pair()
"""


def export(*arguments):
    done = CliRunner().invoke(main, ["export", *map(str, arguments)], env={"COLUMNS": "100"})
    return done, " ".join(done.output.split())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"net_{abs(hash(str(tmp_path)))}"  # a module of its own for each test
    (tmp_path / f"{name}.py").write_text(SCRIPT)
    return name


def manifest():
    return json.loads(Path("out/predict.json").read_text())


@pytest.mark.parametrize("ending", [".py", ":pair"])
def test_a_script_and_a_function_become_c(folder, ending):
    done, text = export(folder + ending, "--out", "out")
    assert done.exit_code == 0, done.output
    assert "input input float32[2, 4]" in text and "cmake -S out" in text
    assert [x["shape"] for x in manifest()["outputs"]] == [[2, 3]]


def test_sizes_name_inputs_and_weights_come_from_a_file(folder):
    weights = {"0.weight": gh.full((3, 4), 2.0), "0.bias": gh.zeros(3)}
    gh.save(weights, "own.safetensors")
    done, _ = export(folder + ":make", "--sizes", "input=5x4", "--weights", "own.safetensors",
                     "--out", "out", "--name", "predict")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert manifest()["inputs"][0]["shape"] == [5, 4]
    assert gh.load("out/predict.safetensors")["0.weight"].tolist() == [[2.0] * 4] * 3


def test_c_has_several_sizes(folder):
    done, text = export(folder + ".py", "--out", "out", "--sizes", "input=1x4", "--sizes",
                        "input=9x4")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "float32[9, 4]" in text
    assert [x["outputs"][0]["shape"] for x in manifest()["sizes"]] == [[1, 3], [9, 3]]
    done, text = export(folder + ".py", "--out", "a.onnx", *["--sizes", "input=1x4"] * 2)
    assert done.exit_code == 2 and "Name the axis that varies" in text


def test_a_run_on_the_digits_is_a_model(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    run = TrainingRun(TrainingRecipe(seed=3))
    run.save(Path("run"))
    for name in ("run", "run/checkpoint.safetensors"):
        done, _ = export(name, "--sizes", "input=1x1x8x8", "--out", "out")
        assert done.exit_code == 0, done.output
        result = gh.load("out/predict.safetensors")["0.weight"].numpy()
        np.testing.assert_array_equal(result, run.model[0].weight.numpy())


def test_onnx_files_come_and_go(folder, tmp_path):
    pytest.importorskip("onnx")
    done, _ = export(folder + ".py", "--out", "a.onnx", "--dynamic", "input=0:n")
    assert done.exit_code == 0, done.output
    network = gh.onnx.load("a.onnx")
    assert network(gh.ones((7, 4))).shape == (7, 3)
    done, _ = export("a.onnx", "--sizes", "input=6x4", "--out", "b.onnx")
    assert done.exit_code == 0, done.output
    again = gh.onnx.load("b.onnx")
    assert (again.input_names, again.output_names) == (network.input_names, network.output_names)
    done, text = export("b.onnx", "--out", "out")
    assert done.exit_code == 0, done.output
    assert manifest()["inputs"] == [{"name": "input", "dtype": "float32", "shape": [6, 4]}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.onnx",), "expected an ONNX file; got 'none.onnx', a file that does not exist"),
        (("nothing",), "expected a model; got 'nothing'"),
        (("NET:make",), "got no sizes of 'input'. Say its sizes"),
        (("NET:make", "--sizes", "x=2x4"), "--sizes: expected one of ['input']; got 'x'"),
        (("NET:make", "--sizes", "input=2x5"), "expected"),
        (("NET:make", "--sizes", "input=2x4:thing"), "thing"),
        (("NET:none",), "module:function that can be imported"),
        (("NET:pair", "--dynamic", "input=0:n"), "a file that ends in .onnx"),
        (("NET:pair", "--name", "a b"), "a name that C takes"),
        (("own.safetensors",), "which has weights alone. Name what makes it"),
        ((".",), "a file that does not exist"),
    ],
)
def test_wrong_calls_are_refused_by_name(folder, arguments, message):
    gh.save(nn.Linear(4, 3).state_dict(), "own.safetensors")
    done, text = export(*(x.replace("NET", folder) for x in arguments), "--out", "out")
    assert done.exit_code in (1, 2) and done.exc_info[0] is SystemExit, done.output
    assert message in text
    assert not Path("out").exists()
