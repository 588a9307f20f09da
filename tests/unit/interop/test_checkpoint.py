"""Checkpoints: exact resuming, nothing half-loaded, kills while saving."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop, nn
from glasshouse.base.errors import CheckpointError, DTypeError
from glasshouse.interop import load_checkpoint, save_checkpoint, save_safetensors
from glasshouse.optim import SGD, Adam, StepLR


class Run:
    """A model, its optimizer, its schedule and its random numbers."""

    def __init__(self, seed=0, width=3, optimizer=Adam):
        gh.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))
        self.optimizer = optimizer(self.model.parameters(), lr=0.1)
        self.scheduler = StepLR(self.optimizer, 2)
        self.random = gh.random.Generator(seed)

    def train(self, steps):
        for _ in range(steps):
            x = gh.random.normal((5, 4), generator=self.random)
            self.optimizer.zero_grad()
            (self.model(x) ** 2).sum().backward()
            self.optimizer.step()
            self.scheduler.step()
        return self

    def objects(self):
        names = ("model", "optimizer", "scheduler")
        return {**{n: getattr(self, n) for n in names}, "random_state": self.random}

    def values(self):
        arrays = [t.numpy().tolist() for t in self.model.state_dict().values()]
        state = self.optimizer.state_dict()
        moments = {
            k: [v if isinstance(v, int) else v.tolist() for v in e.values()]
            for k, e in state["state"].items()
        }
        plain = (state["param_groups"], self.scheduler.state_dict(), repr(self.random.state()))
        return arrays, moments, plain


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    run = Run().train(5)
    save_checkpoint(tmp_path / "run.ckpt", epoch=5, metrics={"loss": [1.5, 0.5]}, **run.objects())
    resumed = Run(seed=1).train(1)
    result = load_checkpoint(tmp_path / "run.ckpt", **resumed.objects())
    assert (result["epoch"], result["metrics"]) == (5, {"loss": [1.5, 0.5]})
    assert resumed.values() == run.values()
    assert resumed.train(4).values() == run.train(4).values()


def test_the_json_copy_is_readable_and_not_needed(tmp_path):
    run = Run().train(1)
    save_checkpoint(tmp_path / "run.ckpt", epoch=7, optimizer=run.optimizer)
    copy = json.loads((tmp_path / "run.ckpt.json").read_text())
    assert copy["epoch"] == 7
    assert copy["optimizer"]["param_groups"][0]["lr"] == 0.1
    (tmp_path / "run.ckpt.json").unlink()
    assert load_checkpoint(tmp_path / "run.ckpt")["epoch"] == 7


def test_trees_of_all_kinds_survive(tmp_path):
    tree = {
        "numbers": [1, 2.5, True, None, 2**70, float("inf"), -0.0],
        "text": "ü$",
        "tuple": (1, (2,), []),
        3: {(1, "a"): np.float32(0.5), "$x": {}},
        "array": np.arange(3, dtype=np.uint32),
        "tensor": gh.asarray([1 + 2j]),
        "a.b": gh.asarray(1),
        "a": {"b": gh.asarray(2)},
    }
    save_checkpoint(tmp_path / "t", metrics=tree)
    result = load_checkpoint(tmp_path / "t")["metrics"]
    for name in ("numbers", "text", "tuple", 3):
        assert result[name] == tree[name]
    assert isinstance(result["array"], np.ndarray)
    assert result["array"].tolist() == [0, 1, 2]
    assert isinstance(result["tensor"], gh.Tensor)
    assert result["tensor"].tolist() == [1 + 2j]
    assert (result["a.b"].item(), result["a"]["b"].item()) == (1, 2)
    save_checkpoint(tmp_path / "t", metrics=float("nan"))
    assert np.isnan(load_checkpoint(tmp_path / "t")["metrics"])


def test_model_tensors_keep_their_names(tmp_path):
    run = Run()
    save_checkpoint(tmp_path / "t", model=run.model)
    names = set(interop.load_safetensors(tmp_path / "t"))
    assert {f"model.{name}" for name in run.model.state_dict()} == names


def test_a_state_that_does_not_fit_changes_nothing(tmp_path):
    path = tmp_path / "run.ckpt"
    save_checkpoint(path, **Run().train(2).objects())
    for other in (Run(width=2), Run(seed=1, optimizer=SGD)):
        other.train(1)
        before = other.values()
        with pytest.raises(CheckpointError, match="that fits"):
            load_checkpoint(path, **other.objects())
        assert other.values() == before


def test_a_late_misfit_takes_back_the_earlier_parts(tmp_path):
    path = tmp_path / "run.ckpt"
    save_checkpoint(path, **Run().train(2).objects())
    other = Run(seed=1).train(1)
    two_groups = SGD([{"params": [p]} for p in other.model.parameters()], lr=0.1)
    before = other.values()
    with pytest.raises(CheckpointError, match="a scheduler that fits"):
        load_checkpoint(
            path, model=other.model, optimizer=other.optimizer, scheduler=StepLR(two_groups, 2)
        )
    assert other.values() == before


def test_what_the_file_lacks(tmp_path):
    run = Run()
    save_checkpoint(tmp_path / "t", model=run.model)
    with pytest.raises(CheckpointError, match="the optimizer in"):
        load_checkpoint(tmp_path / "t", model=run.model, optimizer=run.optimizer)
    with pytest.raises(CheckpointError, match="random_state"):
        load_checkpoint(tmp_path / "t", random_state=run.random)
    save_safetensors(tmp_path / "plain", {"a": np.ones(1)})
    with pytest.raises(CheckpointError, match="to be a checkpoint"):
        load_checkpoint(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="No such file"):
        load_checkpoint(tmp_path / "missing", model=run.model)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_changes_nothing(tmp_path, share):
    path = tmp_path / "t"
    save_checkpoint(path, **Run().train(2).objects())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    other = Run(seed=1).train(1)
    before = other.values()
    with pytest.raises(CheckpointError, match="whole safetensors"):
        load_checkpoint(path, **other.objects())
    assert other.values() == before


def test_a_flipped_bit_is_found(tmp_path):
    path = tmp_path / "t"
    save_checkpoint(path, **Run().train(2).objects())
    data = bytearray(path.read_bytes())
    for position in (len(data) - 1, len(data) // 2, 200):
        broken = bytearray(data)
        broken[position] ^= 0x10
        path.write_bytes(broken)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_what_cannot_be_stored_leaves_the_old_checkpoint(tmp_path):
    save_checkpoint(tmp_path / "t", epoch=1)
    with pytest.raises(DTypeError, match=r"got object at metrics\.best\.0"):
        save_checkpoint(tmp_path / "t", epoch=2, metrics={"best": [object()]})
    assert load_checkpoint(tmp_path / "t")["epoch"] == 1


SAVER = """
import itertools, sys
import numpy as np
from glasshouse.interop import save_checkpoint

for epoch in itertools.count():
    weights = {f"w{i}": np.full(20_000, epoch, dtype=np.float64) for i in range(10)}
    save_checkpoint(sys.argv[1], epoch=epoch, metrics=weights)
    print(epoch, flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "run.ckpt"
    source = str(Path(gh.__file__).parents[1])
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)],
            env={**os.environ, "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        printed = process.communicate()[0].split()
        result = load_checkpoint(path)
        assert result["epoch"] >= int(printed[-1] if printed else 0)
        for array in result["metrics"].values():
            assert (array == result["epoch"]).all()
    save_checkpoint(path, epoch=0)
    assert sorted(os.listdir(tmp_path)) == ["run.ckpt", "run.ckpt.json"]
