"""Steps in files: they go on as the step would have, and are refused where they do not fit."""

import json

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CaptureError, CheckpointError, IndexOutOfRangeError, ShapeError
from glasshouse.interop.safetensors import read_safetensors, save_safetensors
from glasshouse.standalone.saved import ABOUT

DRAWS = np.random.default_rng(0)


def batch():
    return gh.asarray(DRAWS.random((8, 16), np.float32)), gh.asarray(DRAWS.integers(0, 4, 8))


def training_step():
    gh.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4))
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.01)

    @gh.optimize
    def step(*pair):  # arguments in a tuple too
        x, y = pair
        optimizer.zero_grad()
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "pair": (scores.detach(), 3)}

    return step


def test_a_loaded_step_goes_on_bit_by_bit_and_is_saved_again(tmp_path):
    step, path = training_step(), tmp_path / "train.step"
    for _ in range(3):
        step(*batch())
    gh.save_step(step, path, *batch())
    loaded = gh.load_step(path)
    for i in range(12):
        if i == 6:
            loaded.save(path)
            loaded = gh.load_step(path)
        inputs = batch()
        wanted, result = step(*inputs), loaded(*inputs)
        assert result["loss"].item() == wanted["loss"].item()
        np.testing.assert_array_equal(result["pair"][0].numpy(), wanted["pair"][0].numpy())
        assert result["pair"][1] == 3


def test_a_rate_of_the_state_is_used(tmp_path):
    step = training_step()
    for _ in range(3):
        step(*batch())
    gh.save_step(step, tmp_path / "step", *batch())
    loaded = gh.load_step(tmp_path / "step")
    loaded.state["lr"] = np.array(0.0)
    before = loaded.state["model.0.bias"].copy()
    loaded(*batch())
    np.testing.assert_array_equal(loaded.state["model.0.bias"], before)


def test_wrong_inputs_and_indices_are_refused(tmp_path):
    table = gh.asarray(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    gh.save_step(lambda i: table[i], tmp_path / "step", gh.asarray(np.array([0, 3])))
    loaded = gh.load_step(tmp_path / "step")
    np.testing.assert_array_equal(loaded(np.array([1, 2])).numpy(), table.numpy()[[1, 2]])
    with pytest.raises(ShapeError, match="int64"):
        loaded(np.array([1, 2, 3]))
    with pytest.raises(IndexOutOfRangeError):
        loaded(np.array([1, 9]))


def test_files_of_other_machines_and_damaged_ones_are_refused(tmp_path):
    path = tmp_path / "step"
    gh.save_step(lambda x: x * 2.0, path, gh.ones(3))
    arrays, metadata = read_safetensors(path)
    about = json.loads(metadata[ABOUT])
    for name in about:
        changed = {ABOUT: json.dumps({**about, name: "other"})}
        save_safetensors(tmp_path / "changed", arrays, changed)
        with pytest.raises(CheckpointError, match=f"the same {name}"):
            gh.load_step(tmp_path / "changed")
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        gh.load_step(tmp_path / "damaged")
    gh.save({"w": gh.ones(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="to hold a step"):
        gh.load_step(tmp_path / "weights.safetensors")


def test_a_function_of_the_user_is_not_saved(tmp_path):
    with pytest.raises(CaptureError):
        gh.save_step(lambda x: print(x.sum().item()), tmp_path / "step", gh.ones(3))
    assert not any(tmp_path.iterdir())
