"""The answer of each command to a path that does not exist, a folder, and a file of another
kind."""

import pytest
from click.testing import CliRunner

from glasshouse.cli.main import main

COMMANDS = {
    "profile": ["profile", "{path}"],
    "profile a trace": ["profile", "{path}.json"],
    "profile --against": ["profile", "{script}", "--against", "{path}"],
    "profile --merge": ["profile", "--merge", "{path}"],
    "flops": ["flops", "{path}"],
    "show": ["show", "{path}"],
    "explain": ["explain", "{path}"],
    "launch": ["launch", "-n", "2", "{path}"],
    "analyze": ["analyze", "{path}"],
}
SCRIPTS = ("profile", "flops", "show", "explain", "launch")


def said(name, path, script):
    """The output of a command that refuses a path."""
    arguments = [x.format(path=path, script=script) for x in COMMANDS[name]]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code not in (0, None), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("pass\n")
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_file_is_said_to_be_missing(name, tmp_path, script):
    text = said(name, tmp_path / "none.py", script)
    assert "does not exist" in text and "none.py" in text.replace(" ", "")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "profile a trace"])
def test_a_folder_is_no_file(name, tmp_path, script):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "folder" in said(name, folder, script)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("file", ["x.log", "x.txt", "LOG"])
@pytest.mark.parametrize("text", ["epoch 1 loss 0.5\n", "loss\n", "\0\1"])
def test_a_file_of_another_kind_is_no_program(name, file, text, tmp_path, script):
    if (file, text) == ("LOG", "loss\n"):
        pytest.skip("a name is a program, and may be one of a user's")
    path = tmp_path / file
    path.write_text(text)
    assert "a Python program; got" in said(name, path, script)


@pytest.mark.parametrize("name", ["profile --against", "profile --merge", "analyze"])
def test_a_file_of_another_kind_is_refused(name, tmp_path, script):
    path = tmp_path / "x.log"
    path.write_text("epoch 1 loss 0.5\n")
    assert "x.log" in said(name, path, script)
