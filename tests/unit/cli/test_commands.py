"""The commands print what they promise, and refuse bad input with exit code 2."""

import pytest
from click.testing import CliRunner

from glasshouse.base.processes import ThreadBound
from glasshouse.cli import info, main
from glasshouse.cli.info import read_fields
from glasshouse.cli.show_ops import FIELDS
from glasshouse.dispatch import primitives


def run(*arguments, expect=0):
    """The output of a command line that must end with exit code `expect`."""
    result = CliRunner().invoke(main, arguments, prog_name="glasshouse", env={"COLUMNS": "100"})
    if result.exit_code != expect and result.exception:
        raise result.exception
    assert result.exit_code == expect, result.output
    return result.output


def test_help_lists_the_commands():
    text = run("--help")
    assert all(name in text for name in ("train", "ops", "info", "flags"))


def test_ops_has_a_line_for_every_card():
    lines = [line.split()[0] for line in run("ops").splitlines() if line.strip()]
    assert [name for name in primitives if name not in lines] == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_shown_for_every_card(field):
    text = run("ops", "--field", field)
    lines = [line.strip().split(" ")[0] for line in text.splitlines() if line.strip()]
    assert [name for name in primitives if name not in lines] == []


@pytest.mark.parametrize("name", ["add", "exp", "conv", "svd", "constant"])
def test_a_card_is_shown_whole(name):
    text = run("ops", name)
    assert text.startswith(name)
    assert [field for field in FIELDS if field != "kind" and field not in text] == []
    assert primitives[name].doc.split()[0] in text


def test_rules_are_shown_as_written():
    assert "lambda" in run("ops", "--field", "vjp")
    assert "numpy.add" in run("ops", "add")


def test_ops_shows_kernel_text_and_cost():
    text = run("ops", "div")
    assert "{x} / {y}  (float)" in text and "gh_div_{suffix}" in text and "cost 4" in text
    assert "onednn" in run("ops", "matmul") and "the host" in run("ops", "svd")


def test_info_names_machine_versions_and_backends():
    text = run("info")
    assert all(word in text for word in ("processor", "cores", "memory", "BLAS", "python"))
    assert "numpy" in text
    assert "stub" in text
    assert "(current)" in text


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (ThreadBound(2, "quota"), "2, bound by the container's quota of processor time"),
        (ThreadBound(8, "affinity"), "8, bound by the affinity of the process"),
        (ThreadBound(8, "cores"), "8, bound by the machine's cores"),
        (ThreadBound(3, "OMP_NUM_THREADS"), "3, bound by OMP_NUM_THREADS"),
        (ThreadBound(1, "GH_THREADS"), "1, bound by GH_THREADS"),
    ],
)
def test_info_says_what_bounds_the_threads(monkeypatch, bound, text):
    monkeypatch.setattr(info, "thread_bound", lambda: bound)
    assert info.machine()["threads"] == text


def test_info_reads_nothing_from_a_missing_file(tmp_path):
    assert read_fields(str(tmp_path / "none")) == {}


def test_flags_shows_variables_with_their_meaning():
    text = run("flags")
    assert "GH_BACKEND" in text
    assert "GH_DEBUG" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["opps"], ["opps", "Did you mean 'ops'?"]),
        (["train", "digit"], ["digit", "Did you mean 'digits'?"]),
        (["ops", "sqrtt"], ["sqrtt", "'sqrt'"]),
        (["ops", "--field", "vpj"], ["vpj", "'vjp'"]),
        (["ops", "add", "--field", "vjp"], ["not both"]),
        (["train", "digits", "--epoch", "3"], ["--epoch"]),
        (["train", "digits", "--epochs", "0"], ["--epochs", "0"]),
        (["train", "digits", "--epochs", "many"], ["--epochs", "many"]),
        (["train", "digits", "--lr", "-1"], ["--lr", "above 0", "-1"]),
        (["train", "digits", "--lr", "nan"], ["--lr", "finite", "nan"]),
        (["train", "digits", "--seed", "-1"], ["--seed", "-1"]),
        (["train", "digits", "--batch-size", "0"], ["--batch-size", "0"]),
        (["train", "digits", "--backend", "nunpy"], ["nunpy", "'numpy'"]),
    ],
)
def test_bad_input_is_refused_with_code_2(arguments, words, tmp_path):
    if arguments[:2] == ["train", "digits"]:
        arguments = [*arguments, "--out", str(tmp_path / "run")]
    text = run(*arguments, expect=2)
    assert [word for word in words if word not in " ".join(text.split())] == []
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_resuming_where_nothing_is_names_the_file(tmp_path):
    text = run("train", "digits", "--resume", "--out", str(tmp_path), expect=1)
    assert "checkpoint.safetensors" in "".join(text.split())
    assert "Traceback" not in text


def test_out_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    text = run("train", "digits", "--out", str(tmp_path / "file"), expect=2)
    assert "--out" in text
