"""gh.fit against a loop written out, and runs that were stopped against those that were not."""

import csv
import inspect
import io
import math
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from wrong_calls import check_refused

import glasshouse as gh
import glasshouse.fit as fit_module
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.fit import Callback, Checkpoint, CSVLog, EarlyStopping, Progress, TensorBoard
from glasshouse.interop import load_checkpoint, save_checkpoint
from glasshouse.nn.functional import cross_entropy, mse_loss

rng = np.random.default_rng(0)
X = rng.normal(size=(44, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
SAVED_EACH = 5  # steps


def batches(size=8, shuffle=True, **options):
    return gh.data.DataLoader(gh.data.TensorDataset(X, Y), size, shuffle, seed=3, **options)


def made():
    """A network with everything that a run has to remember: dropout, running statistics."""
    gh.random.seed(0)
    parts = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)
    model = nn.Sequential(*parts)
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.02)
    return model, optimizer, gh.optim.StepLR(optimizer, 2)


def run(epochs=4, callbacks=(), size=8, workers=0, **options):
    """(history without times, parameters) of a run."""
    model, optimizer, schedule = made()
    history = gh.fit(
        model,
        batches(size, num_workers=workers),
        cross_entropy,
        optimizer,
        {"accuracy": gh.metrics.Accuracy()},
        callbacks,
        epochs=epochs,
        validation=batches(44, False),
        schedule=schedule,
        **options,
    )
    state = {name: x.numpy().copy() for name, x in model.state_dict().items()}
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history], state


def assert_same(one, other):
    assert one[0] == other[0]
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name])


def written_out(epochs, clip=None, accumulate=1):
    """The same by hand."""
    model, optimizer, schedule = made()
    data, rows = batches(), []
    for _ in range(epochs):
        model.train()
        losses, pending = [], list(data)
        for start in range(0, len(pending), accumulate):
            group = pending[start : start + accumulate]
            optimizer.zero_grad()
            for x, y in group:
                loss = cross_entropy(model(x), y)
                (loss / len(group) if len(group) > 1 else loss).backward()
                losses.append((loss, len(y)))
            if clip:
                gh.optim.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        schedule.step()
        rows.append(np.average([x.item() for x, _ in losses], weights=[n for _, n in losses]))
    return rows, model


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.3}, {"accumulate": 4}])
def test_a_run_is_the_loop_written_out(options):
    history, state = run(3, **options)
    names = {"clip_norm": "clip"}
    losses, model = written_out(3, **{names.get(k, k): v for k, v in options.items()})
    np.testing.assert_allclose([row["loss"] for row in history], losses, rtol=1e-6)
    for name, x in model.state_dict().items():
        np.testing.assert_allclose(state[name], x.numpy(), rtol=1e-5, atol=1e-6)
    assert [row["lr"] for row in history] == pytest.approx([0.02, 0.02, 0.002])


@pytest.mark.quick
def test_rows_have_loss_metrics_and_those_of_the_validation_data():
    history, _ = run(2)
    assert list(history[0]) == ["epoch", "lr", "loss", "accuracy", "val_loss", "val_accuracy"]
    assert history[-1]["val_loss"] < history[0]["val_loss"]


def test_a_captured_run_gives_the_same_numbers():
    (plain, state), (captured, other) = run(2), run(2, capture=True)
    assert [r["accuracy"] for r in captured] == [r["accuracy"] for r in plain]
    for name, array in state.items():
        np.testing.assert_allclose(other[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_reaches_the_products(dtype):
    dtypes = set()

    class Model(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            dtypes.add((x @ self.weight.mT).dtype.name)
            return y

    model = Model(6, 2)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.05)
    history = gh.fit(model, batches(), cross_entropy, optimizer, epochs=4, autocast=dtype)
    assert dtypes == {dtype} and history["loss"][-1] < history["loss"][0]
    assert model.weight.dtype == gh.float32


class StopAt(Callback):
    """Raises after some steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_step(self, run):
        if run.steps == self.steps:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("steps", [5, 6, 13])  # 6 steps an epoch
@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"capture": True}])
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(steps, options, tmp_path):
    whole = run(4, [StopAt(None), Checkpoint(tmp_path / "a")], **options)
    callbacks = [StopAt(steps), Checkpoint(tmp_path / "b", every=1)]
    with pytest.raises(KeyboardInterrupt):
        run(4, callbacks, resume=tmp_path / "b", **options)
    stopped = load_checkpoint(tmp_path / "b" / "last.safetensors")["metrics"]["fit"]
    assert stopped["steps"] == steps - 1  # StopAt comes before the checkpoint of its step
    rest = run(4, [StopAt(None), Checkpoint(tmp_path / "b")], resume=tmp_path / "b", **options)
    assert_same(rest, whole)


@pytest.mark.slow
def test_accumulated_steps_go_on_with_the_same_bits(tmp_path):
    options = {"accumulate": 2, "schedule_every": "step", "autocast": "float16"}
    whole = run(3, [StopAt(None), Checkpoint(tmp_path / "a")], **options)
    with pytest.raises(KeyboardInterrupt):
        run(3, [StopAt(5), Checkpoint(tmp_path / "b", every=1)], **options)
    rest = run(3, [StopAt(None), Checkpoint(tmp_path / "b")], resume=tmp_path / "b", **options)
    assert_same(rest, whole)


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import test_fit
from glasshouse.fit import Callback, Checkpoint

class Kill(Callback):
    goes_last = True
    def on_step(self, run):
        if run.steps == 15:
            os.kill(os.getpid(), signal.SIGKILL)

test_fit.flags.compile = "always"
test_fit.run(4, [Checkpoint({out!r}, every=test_fit.SAVED_EACH), Kill()])
"""


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    """In another process. Compiled at once, for a new process would not have compiled what is short
    before it had seen it often."""
    monkeypatch.setattr(flags, "compile", "always")
    code = KILLED.format(folder=str(Path(__file__).parent), out=str(tmp_path))
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == -signal.SIGKILL

    class Kill(Callback):
        goes_last = True

    whole = run(4, [Checkpoint(tmp_path / "whole"), Kill()])
    state = load_checkpoint(tmp_path / "last.safetensors")["metrics"]["fit"]
    assert state["steps"] in (5, 10, 12)  # the thread may have been writing when the kill came
    assert_same(run(4, [Checkpoint(tmp_path), Kill()], resume=tmp_path), whole)


def test_lists_of_batches_are_read_again_up_to_the_place(tmp_path):
    data = [tuple(map(gh.asarray, pair)) for pair in zip(np.split(X, 11), np.split(Y, 11))]

    def losses(stop, **options):
        model, optimizer, _ = made()
        callbacks = [StopAt(stop), Checkpoint(tmp_path, every=1)]
        return gh.fit(model, data, cross_entropy, optimizer, None, callbacks, epochs=2, **options)

    whole = losses(None)["loss"]
    with pytest.raises(KeyboardInterrupt):
        losses(15)
    assert losses(None, resume=tmp_path)["loss"] == whole


def test_an_empty_folder_begins_a_run(tmp_path):
    assert_same(run(1, resume=tmp_path), run(1))


def test_checkpoints_are_the_last_the_best_and_those_between(tmp_path):
    history, state = run(6, Checkpoint(tmp_path, every=10, keep=True, monitor="val_loss"))
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    steps = [f"step-000000{n}0.safetensors" for n in (1, 2, 3)]
    assert names == ["best.safetensors", "last.safetensors", *steps]
    best = load_checkpoint(tmp_path / "best.safetensors")["epoch"]
    assert best == 1 + int(np.argmin([row["val_loss"] for row in history]))
    model, *_ = made()
    load_checkpoint(tmp_path / "last.safetensors", model=model)
    for name, x in model.state_dict().items():
        np.testing.assert_array_equal(x.numpy(), state[name])


def test_what_the_thread_cannot_write_is_an_error_of_the_run(tmp_path):
    (tmp_path / "last.safetensors").mkdir()
    with pytest.raises(gh.CheckpointError, match="to write"):
        run(2, Checkpoint(tmp_path))


class Losses(Callback):
    """Puts numbers in the place of validation losses."""

    def __init__(self, values):
        self.values = values

    def on_epoch(self, run):
        run.history[-1]["val_loss"] = self.values[len(run.history) - 1]


def test_early_stopping_waits_and_puts_the_best_back():
    losses = [3.0, 2.0, 2.5, float("nan"), 1.0, 0.5]
    states = []

    class Remember(Callback):
        def on_epoch(self, run):
            states.append(run.model.state_dict()["0.weight"].numpy().copy())

    stopping = EarlyStopping(patience=2, restore_best=True)
    history, state = run(6, [Losses(losses), Remember(), stopping])
    assert len(history) == 4
    np.testing.assert_array_equal(state["0.weight"], states[1])
    assert not np.array_equal(states[1], states[3])


def test_callbacks_serve_one_run_after_another():
    stopping = EarlyStopping(patience=1)
    lengths = [len(run(4, [Losses([1.0, 2.0, 3.0, 4.0]), stopping])[0]) for _ in range(2)]
    assert lengths == [2, 2] and stopping.best.value == 1.0


@pytest.mark.parametrize(
    ("mode", "delta", "values", "length"),
    [("max", 0.0, [1, 2, 3, 2, 2, 2], 5), ("min", 0.6, [3, 2.5, 2.5, 2, 1, 1], 3)],
)
def test_early_stopping_by_mode_and_margin(mode, delta, values, length):
    stopping = EarlyStopping("val_loss", patience=2, mode=mode, min_delta=delta)
    assert len(run(6, [Losses(values), stopping])[0]) == length


def test_a_plateau_schedule_gets_the_validation_loss():
    model, optimizer, _ = made()
    schedule = gh.optim.ReduceLROnPlateau(optimizer, patience=0)
    gh.fit(model, batches(), cross_entropy, optimizer, None, epochs=2,
           validation=batches(), schedule=schedule)  # fmt: skip
    assert schedule.best is not None and schedule.last_epoch == 2


def test_a_table_and_lines_say_the_same_as_the_history(tmp_path):
    text = io.StringIO()
    history, _ = run(2, [CSVLog(tmp_path / "a" / "rows.csv"), Progress(text)])
    with open(tmp_path / "a" / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val_loss"]) for row in rows] == [row["val_loss"] for row in history]
    lines = text.getvalue().splitlines()
    assert len(lines) == 2 and f"val_loss {history[1]['val_loss']:.4g}" in lines[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_line_changes(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text = Terminal()
    run(1, Progress(text, every_s=0.0))
    parts = re.split(r"[\r\n]+", text.getvalue())
    assert [part.split("  ")[1] for part in parts[1:7]] == [f"{n}/6" for n in range(1, 7)]
    assert "loss" in parts[6] and parts[-2].startswith("epoch 1  lr")


def test_a_bar_of_tqdm_counts_batches():
    pytest.importorskip("tqdm")
    text = Terminal()
    run(1, Progress(text, every_s=0.0))
    assert "6/6" in text.getvalue() and "loss" in text.getvalue()


@pytest.mark.parametrize("has_tqdm", [False, True])
def test_progress_of_data_without_a_length(has_tqdm, monkeypatch):
    if not has_tqdm:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model, text = nn.Linear(1, 1), Terminal()
    samples = gh.data.IterableSource([(np.ones(1, np.float32), np.ones(1, np.float32))] * 4)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    loader = gh.data.DataLoader(samples, 2)
    gh.fit(model, loader, nn.functional.mse_loss, optimizer, callbacks=Progress(text, every_s=0.0))
    assert "epoch 1  lr" in text.getvalue()


def test_event_files_have_what_the_history_has(tmp_path):
    pytest.importorskip("tensorboard")
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    history, _ = run(2, TensorBoard(tmp_path, every=3))
    (path,) = tmp_path.iterdir()
    results = {}
    for event in loader.LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            results[value.tag, event.step] = value.simple_value
    assert results["epoch/val_loss", 12] == np.float32(history[1]["val_loss"])
    assert sorted(step for tag, step in results if tag == "step/loss") == [3, 6, 9, 12]


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    for name in {"tensorboard", *(n for n in sys.modules if n.startswith("tensorboard."))}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(gh.BackendError, match=r"pip install 'glasshouse\[fit\]'"):
        run(1, TensorBoard(tmp_path))


def linear():
    model = nn.Linear(6, 2)
    return model, gh.optim.SGD(model.parameters(), lr=0.1)


def fit(model=None, data=None, loss=cross_entropy, optimizer=None, *arguments, **options):
    own, opt = linear()
    data = batches() if data is None else data
    return gh.fit(model or own, data, loss, optimizer or opt, *arguments, **options)


def one_file(tmp_path):
    run(1, [Checkpoint(tmp_path), StopAt(None)])
    return tmp_path / "last.safetensors"


def other_file(tmp_path):
    """A checkpoint that is no run."""
    path = tmp_path / "other.safetensors"
    model, optimizer = linear()
    save_checkpoint(path, model=model, optimizer=optimizer)
    return path


ACCURACY = gh.metrics.Accuracy
BAD_CALLS = {
    "epochs": (lambda _: fit(epochs=-1), gh.OptionError, "-1"),
    "model": (lambda _: fit(lambda x: x), gh.DTypeError, "function"),
    "data": (lambda _: fit(data=iter([])), gh.DTypeError, "read again"),
    "no-batches": (lambda _: fit(data=[]), gh.ShapeError, "at least one batch"),
    "batch": (lambda _: fit(data=[gh.ones((2, 6))]), gh.ShapeError, "Tensor"),
    "pair": (lambda _: fit(data=[(gh.ones((2, 6)),)]), gh.ShapeError, "tuple of 1"),
    "target": (lambda _: fit(data=[(gh.ones((2, 6)), [0, 1])]), gh.DTypeError, "list"),
    "loss": (lambda _: fit(loss="mse"), gh.DTypeError, "str"),
    "scalar": (lambda _: fit(loss=lambda s, y: s), gh.GradError, "(8, 2)"),
    "optimizer": (lambda _: fit(optimizer=gh.optim.SGD), gh.DTypeError, "optimizer"),
    "metric": (lambda _: fit(None, None, mse_loss, None, {"a": ACCURACY}), gh.DTypeError, "'a'"),
    "metric-name": (
        lambda _: fit(None, None, mse_loss, None, {"loss": ACCURACY()}), gh.OptionError, "'loss'"),
    "metrics-twice": (
        lambda _: fit(None, None, mse_loss, None, [ACCURACY(), ACCURACY()]),
        gh.OptionError, "Accuracy"),
    "callback": (
        lambda _: fit(None, None, mse_loss, None, None, [print]), gh.DTypeError, "callbacks"),
    "schedule": (lambda _: fit(schedule=gh.optim.StepLR), gh.DTypeError, "schedule"),
    "schedule-of-another": (
        lambda _: fit(schedule=gh.optim.StepLR(linear()[1], 1)), gh.OptionError, "another"),
    "schedule-every": (lambda _: fit(schedule_every="epohc"), gh.OptionError, "'epoch'"),
    "accumulate": (lambda _: fit(accumulate=0), gh.OptionError, "0"),
    "clip": (lambda _: fit(clip_norm=-1.0), gh.OptionError, "-1.0"),
    "autocast": (lambda _: fit(autocast="float32"), gh.OptionError, "float32"),
    "monitor": (
        lambda _: run(1, EarlyStopping("val_los")), gh.OptionError, "'val_loss'"),
    "patience": (lambda _: EarlyStopping(patience=0), gh.OptionError, "0"),
    "mode": (lambda _: Checkpoint("a", mode="mni"), gh.OptionError, "'min'"),
    "min-delta": (lambda _: EarlyStopping(min_delta=-1), gh.OptionError, "-1"),
    "every": (lambda _: Checkpoint("a", every=0), gh.OptionError, "0"),
    "resume": (lambda path: run(1, resume=path / "none.safetensors"), gh.CheckpointError, "none"),
    "resume-other": (
        lambda path: run(1, resume=other_file(path)), gh.CheckpointError, "another state"),
    "resume-callbacks": (
        lambda path: run(2, Checkpoint(path), resume=one_file(path)),
        gh.CheckpointError, "StopAt"),
    "resume-model": (
        lambda path: fit(
            None, None, mse_loss, None, {"accuracy": ACCURACY()}, [Checkpoint(path), StopAt(None)],
            resume=one_file(path)),
        gh.CheckpointError, "model"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_wrong_call_says_what_came_and_the_fix(name, tmp_path):
    call, error, part = BAD_CALLS[name]
    check_refused(lambda: call(tmp_path), error, part)


def test_the_package_is_a_module_that_is_called():
    assert fit_module is gh.fit and fit_module.__name__ == "glasshouse.fit"
    assert fit_module.Checkpoint is Checkpoint
    assert inspect.signature(gh.fit) == inspect.signature(fit_module.fit)
    assert len(gh.fit(*short_run(1.0), epochs=2)) == 2


def short_run(target):
    """Arguments of `gh.fit` for a line, and a batch with this target."""
    line = nn.Linear(1, 1)
    batch = gh.ones((2, 1)), gh.full((2, 1), target)
    return line, [batch], nn.functional.mse_loss, gh.optim.SGD(line.parameters(), lr=0.1)


def test_a_loss_of_nan_stops_before_it_is_saved(tmp_path):
    with pytest.raises(gh.GradError, match=r"a loss that is a number; got nan in step 1 \(epoch 1"):
        gh.fit(*short_run(math.nan), callbacks=[Checkpoint(tmp_path)], epochs=2)
    assert not list(tmp_path.iterdir())


def test_a_scaler_goes_on_behind_a_loss_of_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(gh.fit(*short_run(math.nan), epochs=2, autocast="float16")) == 2


def test_a_folder_to_resume_from_exists_or_is_saved_to(tmp_path):
    with pytest.raises(gh.CheckpointError, match="typo', which does not exist"):
        gh.fit(*short_run(1.0), resume=tmp_path / "typo")
    assert len(gh.fit(*short_run(1.0), resume=tmp_path)) == 1
    saved = tmp_path / "new"
    assert len(gh.fit(*short_run(1.0), callbacks=[Checkpoint(saved)], resume=saved)) == 1
