"""Habits of every command: its own usage beside an error, the screen's width, progress."""

import io
import re
import sys

import pytest
from click.testing import CliRunner

from glasshouse.cli import command
from glasshouse.cli.main import main
from glasshouse.profile.text import table, within


def run(*args, columns=80):
    done = CliRunner().invoke(main, args, env={"COLUMNS": str(columns)}, prog_name="glasshouse")
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("flops resnet5", "flops"),
        ("profile resnet5", "profile"),
        ("profile bert --fail-above 3", "profile"),
        ("analyze vit_b16", "analyze"),
        ("analyze bert --batch", "analyze"),
        ("analyze bert --smoke --train --machine nowhere", "analyze"),
        ("bench resnet5", "bench"),
        ("bench bert --against eagre", "bench"),
        ("ops addd", "ops"),
        ("ops add --field vjp", "ops"),
        ("cache --to much", "cache"),
        ("train digits --lr 0", "train digits"),
        ("train digits --backend nothing", "train digits"),
        ("train digit", "train"),
        ("trian", ""),
    ],
)
def test_an_error_comes_with_the_commands_own_usage(words, usage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = run(*words.split())
    name = f"glasshouse {usage}".strip()
    assert code == 2 and text.startswith(f"Usage: {name} [") and f"'{name} --help'" in text


WIDE = [
    "analyze bert --smoke",
    "analyze resnet50 --smoke --train",
    "analyze bert --smoke --budget 97%",
    "bench bert --smoke --against=",
    "cache",
    "flags",
    "flops bert --smoke --all",
    "info",
    "ops",
    "profile alexnet --smoke --steps 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("words", WIDE)
def test_lines_fit_the_screen(words, columns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = run(*words.split(), columns=columns)
    lines = text.split("\n")
    assert code == 0 and len(lines) > 3
    assert [line for line in lines if len(line) > columns] == []


HEADINGS = ["module", "operator", "calls", "time", "FLOPs"]
ROWS = [
    ["encoder.layers.0.attention.projection", "matmul", "12", "1.500 ms", "3.072 k"],
    ["head", "add", "1", "2.00 µs", "16"],
]


@pytest.mark.parametrize("columns", range(1, 90))
def test_tables_shorten_names_and_then_leave_columns_out(columns):
    whole = table(HEADINGS, ROWS, left=2)
    with within(columns):
        lines = table(HEADINGS, ROWS, left=2).split("\n")
    assert table(HEADINGS, ROWS, left=2) == whole
    note = lines.pop() if lines[-1].startswith("not shown") else ""
    left_out = [name for name in HEADINGS[2:] if name in note.partition(": ")[2].split(", ")]
    assert lines[0].split() == [name for name in HEADINGS if name not in left_out]
    assert lines[2].startswith("encoder") or "…" in lines[2]
    if columns >= len(whole.split("\n")[0]):
        assert "\n".join(lines) == whole and not note
    if columns >= 35:
        assert max(map(len, lines)) <= columns
    assert bool(note) == (columns < 52)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_is_shown_on_a_terminal_only(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setenv("TERM", "xterm")
    with command.progress("building") as tell:
        tell("compiling")
    shown = sys.stderr.getvalue()
    assert ("compiling …" in shown) == (stream is Terminal)
    assert bool(shown) == (stream is Terminal)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("profile bert --smoke --steps 1", marks=pytest.mark.slow),
        "analyze bert --smoke",
    ],
)
def test_long_commands_say_what_they_do(words, monkeypatch):
    said = []

    class Status:
        def __init__(self, text):
            said.append(text)

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

        def update(self, text):
            said.append(text)

    monkeypatch.setattr(command.Console, "status", Status)
    monkeypatch.setattr(command.Console, "is_terminal", True)
    assert run(*words.split())[0] == 0
    assert any("building" in text for text in said)


@pytest.mark.slow
def test_a_smoke_run_of_bench_prints_no_ratio(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = run("bench", "bert", "--smoke", "--against=")
    assert code == 0 and "nothing of speed" in text
    assert "geometric mean" not in text and "/ ours" not in text and "limit" not in text


@pytest.mark.quick
def test_the_list_of_commands_says_each_in_a_line():
    text = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"]).output
    rows = text.partition("Commands:\n")[2].splitlines()
    assert len(rows) == len(main.commands) and not any(row.endswith("...") for row in rows)


@pytest.mark.parametrize("command", ["profile", "flops"])
@pytest.mark.quick
def test_errors_of_a_target_name_the_command(command):
    text = CliRunner().invoke(main, [command, "resnet51"]).output
    expected = (
        rf"{command}: expected a script(, module:function)? or the name of a model; got 'resnet51'"
    )
    assert re.search(expected, text)
    assert "Did you mean 'resnet50'?" in text
    assert "No such option '--stepz'" in CliRunner().invoke(main, [command, "--stepz"]).output


@pytest.mark.parametrize("words", ["profile alexnet --smoke --steps 1", "flags", "ops"])
def test_what_goes_to_a_pipe_fits_80_columns(words, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = CliRunner().invoke(main, words.split()).output
    assert 70 < max(map(len, lines.split("\n"))) <= 80
