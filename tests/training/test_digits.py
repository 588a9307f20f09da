"""`glasshouse train digits` learns, repeats itself, and no stop or kill changes a number."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import glasshouse
from glasshouse.cli import main

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

SOURCE = str(Path(glasshouse.__file__).parents[1])
EPOCHS = 3


def command(out: Path, *options) -> list[str]:
    return ["train", "digits", "--out", str(out), *options]


def start(out: Path, *options) -> subprocess.Popen:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "glasshouse.cli", *command(out, *options)],
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(out: Path, *options) -> tuple[int, str]:
    """The command in this process: (exit code, printed text). No error gets past it."""
    done = CliRunner().invoke(main, command(out, *options))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def train(out: Path, *options) -> str:
    """The printed text of a run to its end, in this process."""
    code, text = run(out, *options)
    assert code == 0, text
    return text


def numbers(out: Path) -> dict:
    """Return the results of a finished run, without the times."""
    data = json.loads((out / "numbers.json").read_text())
    for epoch in data["history"]:
        del epoch["seconds"]
    return data


def stop_in_epoch(out: Path, epoch: int, sent: signal.Signals) -> tuple[int, str]:
    """Start a long run, send a signal while `epoch` is under way: (exit code, printed text)."""
    process = start(out, "--epochs", "1000")
    text = ""
    while not re.search(rf"^ +{epoch - 1} ", text, re.MULTILINE):
        line = process.stdout.readline()
        assert line, text
        text += line
    time.sleep(0.05)
    process.send_signal(sent)
    rest, _ = process.communicate(timeout=60)
    return process.returncode, text + rest


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of an undisturbed run, in a process of its own."""
    out = tmp_path_factory.mktemp("finished")
    process = start(out, "--epochs", str(EPOCHS))
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return out


@pytest.mark.slow
def test_reads_held_out_digits_after_a_few_epochs(finished):
    assert numbers(finished)["history"][-1]["test_accuracy"] > 0.96


def test_leaves_curve_numbers_and_checkpoint(finished):
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (finished / "checkpoint.safetensors").exists()
    assert len(numbers(finished)["history"]) == EPOCHS


@pytest.mark.slow
def test_same_seed_gives_the_same_numbers(finished, tmp_path):
    train(tmp_path, "--epochs", str(EPOCHS))
    assert numbers(tmp_path) == numbers(finished)


@pytest.mark.slow
def test_another_seed_gives_other_numbers(finished, tmp_path):
    train(tmp_path, "--epochs", "1", "--seed", "1")
    assert numbers(tmp_path)["history"][0] != numbers(finished)["history"][0]


@pytest.mark.slow
def test_stopped_and_extended_run_equals_an_undisturbed_one(finished, tmp_path):
    train(tmp_path, "--epochs", "1")
    text = train(tmp_path, "--epochs", str(EPOCHS), "--resume")
    assert "resumed after epoch 1" in text
    assert numbers(tmp_path) == numbers(finished)


@pytest.mark.slow
def test_killed_and_resumed_run_equals_an_undisturbed_one(finished, tmp_path):
    code, _ = stop_in_epoch(tmp_path, 2, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (tmp_path / "numbers.json").exists()
    train(tmp_path, "--resume", "--epochs", str(EPOCHS))
    assert numbers(tmp_path) == numbers(finished)


@pytest.mark.slow
def test_interrupt_says_how_to_go_on(finished, tmp_path):
    code, text = stop_in_epoch(tmp_path, 2, signal.SIGINT)
    assert code == 130
    assert f"--resume --out {tmp_path}" in " ".join(text.split())
    assert "Traceback" not in text
    train(tmp_path, "--resume", "--epochs", str(EPOCHS))
    assert numbers(tmp_path) == numbers(finished)


def test_resume_refuses_another_recipe(finished):
    code, text = run(finished, "--resume", "--lr", "0.5")
    assert code == 2
    assert "--lr 0.005" in " ".join(text.split())


def test_resume_of_a_finished_run_trains_no_more(finished, tmp_path):
    before = (finished / "checkpoint.safetensors").read_bytes()
    text = train(finished, "--resume")
    assert "Held-out accuracy" in text
    assert (finished / "checkpoint.safetensors").read_bytes() == before


def test_diverging_run_ends_with_the_cause(tmp_path):
    code, text = run(tmp_path, "--lr", "1e30", "--epochs", "1")
    assert code == 1
    assert "finite loss" in text
