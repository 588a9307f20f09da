"""Each application on a little data: trained, resumed, used, and beside its twin in PyTorch."""

import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from app_samples import OPTIONAL, SAMPLES, load_twin
from click.testing import CliRunner
from rich.console import Console

import glasshouse as gh
from glasshouse.apps import APPS, find_app, load_app, train_app
from glasshouse.apps.run import BEST, NOTES
from glasshouse.base.errors import CheckpointError, Explained, OptionError
from glasshouse.cli.main import main
from glasshouse.fit import FitRun
from glasshouse.fit.loop import train_step

QUICK = ("textclass",)  # the others compile for seconds


@pytest.fixture(
    params=[pytest.param(x, marks=() if x in QUICK else pytest.mark.slow) for x in SAMPLES]
)
def app_data(request, tmp_path):
    """(name of an application, folder of generated data, settings for a short run)."""
    folder = tmp_path / "data"
    folder.mkdir()
    return request.param, folder, {"epochs": 2, **SAMPLES[request.param](folder)}


def train(name, data, out, resume=False, **settings):
    return train_app(find_app(name), settings, data, out, resume, Console(file=io.StringIO()))


def rows(out):
    lines = (out / "history.csv").read_text().splitlines()
    names = lines[0].split(",")
    return [[v for n, v in zip(names, line.split(",")) if n != "seconds"] for line in lines[1:]]


def test_every_application_is_tried_here():
    assert set(SAMPLES) == set(APPS)


def test_a_run_writes_what_a_resumed_run_continues(app_data, tmp_path):
    name, data, settings = app_data
    numbers = train(name, data, tmp_path / "whole", **settings)
    written = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {"app.json", "history.csv", "curves.png", "numbers.json", BEST} <= written
    assert json.loads((tmp_path / "whole/numbers.json").read_text()).items() >= numbers.items()
    train(name, data, tmp_path / "parts", **{**settings, "epochs": 1})
    train(name, data, tmp_path / "parts", resume=True, epochs=2)
    assert len(rows(tmp_path / "parts")) == 2
    _, _, model = load_app(find_app(name), tmp_path / "whole")
    assert not model.training


def test_a_training_step_is_captured_without_a_break(app_data):
    name, data, settings = app_data
    app = find_app(name)
    training = app.prepare(replace(app.recipe, **settings), data)
    run = FitRun(training.model, training.data, training.loss, training.optimizer,
                 clip_norm=training.clip_norm, autocast=training.autocast)  # fmt: skip
    *inputs, target = next(iter(training.data))
    assert gh.explain(train_step, run, [(inputs, target, None)]).breaks == []


def test_the_loss_falls(app_data, tmp_path):
    name, data, settings = app_data
    train(name, data, tmp_path / "run", **{**settings, "epochs": 4})
    losses = [float(row[2]) for row in rows(tmp_path / "run")]
    assert losses[-1] < losses[0]


def test_a_second_run_does_not_overwrite_the_first(app_data, tmp_path):
    name, data, settings = app_data
    train(name, data, tmp_path / "run", **{**settings, "epochs": 1})
    before = (tmp_path / "run" / BEST).read_bytes()
    with pytest.raises(OptionError, match="Pass --resume to continue it, or another --out"):
        train(name, data, tmp_path / "run", **settings)
    with pytest.raises(OptionError, match="--seed 0, as in the run"):
        train(name, data, tmp_path / "run", resume=True, seed=3)
    assert (tmp_path / "run" / BEST).read_bytes() == before


def test_a_checkpoint_of_another_application_is_refused(app_data, tmp_path):
    name, data, _ = app_data
    (tmp_path / NOTES).write_text('{"app": "another"}')
    with pytest.raises(CheckpointError, match=f"a run of {name} in .*; got one of 'another'"):
        load_app(find_app(name), tmp_path)
    (tmp_path / NOTES).write_text(f'{{"app": "{name}", "recipe": {{"epochs": 1, "old": 2}}}}')
    with pytest.raises(CheckpointError, match="a run of this version, with the options epochs, lr"):
        load_app(find_app(name), tmp_path)
    with pytest.raises(CheckpointError, match=f"Train it first: glasshouse train {name}"):
        load_app(find_app(name), tmp_path / "nowhere")


def test_a_missing_or_damaged_file_is_named(app_data, tmp_path):
    name, data, settings = app_data
    for path in sorted(data.rglob("*")):
        if path.is_dir():
            continue
        whole = path.read_bytes()
        for damaged in (b"", whole[: len(whole) // 3], None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            try:
                train(name, data, tmp_path / f"{path.name}-{damaged is None}", **settings)
            except Explained as error:
                assert path.name in str(error) or str(data) in str(error)
            else:  # a text that ends early is a shorter text
                assert damaged or damaged is None and path.name in OPTIONAL.get(name, ())
            path.write_bytes(whole)


def test_a_full_disk_leaves_the_checkpoint_of_the_epoch_before(app_data, tmp_path, monkeypatch):
    name, data, settings = app_data
    out = tmp_path / "run"
    train(name, data, out, **{**settings, "epochs": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"safetensors.*No space left"):
            train(name, data, out, resume=True, epochs=2)
    train(name, data, out, resume=True, epochs=2)
    assert [float(row[0]) for row in rows(out)] == [1, 2]


def test_the_command_trains_and_says_what_is_wrong(app_data, tmp_path):
    name, data, settings = app_data
    options = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
    words = ["train", name, f"--data={data}", f"--out={tmp_path / 'run'}", *options]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "curves.png" in done.output
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2 and "Pass --resume" in again.output
    lost = CliRunner().invoke(main, ["train", name, f"--data={tmp_path / 'none'}"])
    assert lost.exit_code == 1 and f"glasshouse data {find_app(name).data_name}" in lost.output


def test_ten_losses_are_those_of_the_twin_in_pytorch(app_data):
    torch = pytest.importorskip("torch")
    name, data, settings = app_data
    app, twins = find_app(name), load_twin(name)
    recipe = replace(app.recipe, **settings)
    gh.random.seed(0)
    training = app.prepare(recipe, data)
    twin = twins.make_model(recipe, training.assets)
    weights = {key: torch.tensor(x.numpy()) for key, x in training.model.state_dict().items()}
    twin.load_state_dict(weights)
    optimizer = twins.make_optimizer(twin, recipe)
    for group in training.optimizer.param_groups:  # both at the recipe's rate, without a schedule
        group["lr"] = recipe.lr
        names = [x for x in ("lr", "betas", "momentum", "weight_decay") if x in group]
        optimizer.param_groups[0].update({x: group[x] for x in names})
    losses, theirs = [], []
    batches = [batch for _ in range(10) for batch in training.data][:10]
    for *inputs, target in batches:
        loss = training.loss(training.model(*inputs), target)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        losses.append(loss.item())
        loss = twins.loss(
            twin(*(torch.tensor(x.numpy()) for x in inputs)), torch.tensor(target.numpy())
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    assert len(losses) == 10 and len(set(losses)) > 5
    np.testing.assert_allclose(losses, theirs, rtol=2e-3)
