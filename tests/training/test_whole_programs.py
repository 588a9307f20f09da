"""Programs of PyTorch's and NumPy's users: the same losses here, with other imports alone."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
STEPS = 4


@pytest.fixture(scope="module")
def programs():
    """The module benchmarks/whole_programs.py."""
    sys.path.insert(0, str(FOLDER))
    path = FOLDER / "whole_programs.py"
    spec = importlib.util.spec_from_file_location("whole_programs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(FOLDER))
    return module


NAMES = sorted(path.stem for path in (FOLDER / "programs").glob("*.py"))


def test_each_program_is_in_the_table_and_on_the_page(programs):
    page = (FOLDER / "programs" / "README.md").read_text()
    assert sorted(programs.PROGRAMS) == NAMES
    assert [name for name in NAMES if f"`{name}.py`" not in page] == []


def test_lines_of_import_alone_are_rewritten(programs):
    for name in NAMES:
        text = (FOLDER / "programs" / f"{name}.py").read_text()
        lines = zip(text.splitlines(), programs.rewritten(text).splitlines(), strict=True)
        changed = [old for old, new in lines if old != new]
        assert changed and all(line.startswith(("import ", "from ")) for line in changed)


def test_losses_in_float64_are_those_of_the_same_program(programs):
    """Equal but for rounding, of which they have none of float32's."""
    pytest.importorskip("torch")
    (step,) = programs.steps_of("policy_gradient", 2, ["original"]).values()
    losses, exact = programs.losses_of(step, 2), programs.exact_losses("policy_gradient", 2)
    assert 0 < programs.difference(losses, exact) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["ours", "gh.optimize"])
@pytest.mark.filterwarnings("ignore")
def test_the_first_losses_are_those_of_the_original(programs, name, mode):
    if name in programs.TORCH:
        pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    steps = programs.steps_of(name, STEPS, ["original", mode])
    expected, losses = (programs.losses_of(step, STEPS) for step in steps.values())
    assert programs.difference(losses, expected) < 0.01
