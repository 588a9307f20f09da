"""Private names of PyTorch: what happens where one is gone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from glasshouse.torch.patches import names  # noqa: E402

SCRIPT = Path(__file__).with_name("without_names.py")
PATCHES = Path(names.__file__).parent
FILES = sorted(path.stem for path in PATCHES.glob("*.py") if path.stem not in ("__init__", "names"))
VERSIONS = [f"2.{minor}" for minor in range(6, 15)]


@pytest.fixture
def own_names(monkeypatch):
    """The table of names, as it was before the test."""
    monkeypatch.setattr(names, "NAMES", dict(names.NAMES))
    return names.NAMES


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_programs_run_or_are_refused_clearly_where_a_name_is_gone(file):
    """Each name of a file in turn: the probe tells of it, and both programs run as in eager, or
    raise the error that names it."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr
    for row in rows:
        ends = {row.pop(name, "") for name in ("compiled_call", "captured_step")}
        assert row == {"path": row["path"], "told": True, "found": False}
        assert ends <= {"ran", "refused"}, f"{row['path']}: {ends}"


def test_a_missing_name_says_so_when_it_is_used(own_names, monkeypatch, capsys):
    monkeypatch.setattr(names.flags, "debug", 1)
    gone = names.private("torch._C:_no_such_name", "2.6", "do a thing")
    assert not own_names["torch._C:_no_such_name"].is_found
    assert "has no torch._C._no_such_name, to do a thing" in capsys.readouterr().out
    uses = [lambda: gone(1), lambda: gone.part, lambda: list(gone), lambda: 1 in gone]
    for use in uses:
        with pytest.raises(names.MissingNameError) as error:
            use()
        assert "torch._C._no_such_name, to do a thing" in str(error.value)
        assert f"PyTorch {torch.__version__}" in str(error.value)
    assert not isinstance(torch.ones(1), gone)
    assert not names.are_found(torch, gone)
    assert names.without_missing([torch, gone]) == (torch,)


def test_a_class_may_be_derived_of_a_missing_one(own_names):
    class Derived(names.private("torch._C:_no_such_class", "2.6", "do a thing")):
        pass

    with pytest.raises(names.MissingNameError, match="_no_such_class"):
        Derived()


def test_what_stands_in_for_a_missing_name_is_taken(own_names):
    assert names.private("torch._C:_no_such_name", "2.6", "do a thing", without=3) == 3
    read = names.attribute("torch:Tensor._no_such", "2.6", "do a thing", without=len)
    assert read("four") == 4


def test_what_is_put_in_a_slot_is_there_until_it_is_put_back(own_names):
    class Owner:
        @classmethod
        def method(cls):
            return cls

    slot, before = names.Slot(Owner, "method", Owner.method), vars(Owner)["method"]
    with slot.holding(len):
        assert Owner.method is slot.value is len
    assert vars(Owner)["method"] is before

    class Heir(Owner):
        pass

    with names.Slot(Heir, "method", None).holding(len):
        assert Heir.method is len
    assert "method" not in vars(Heir)


def test_a_missing_slot_changes_nothing(own_names):
    gone = names.slot("torch.nn:Module._no_such_name", "2.6", "do a thing")
    assert not names.are_found(gone)
    with gone.holding(len):
        assert not hasattr(torch.nn.Module, "_no_such_name")
    with pytest.raises(names.MissingNameError):
        gone.original(1)


def test_settings_that_are_gone_are_left_alone(own_names):
    config = "torch._dynamo.config"
    with names.settings(config, "2.6", "do a thing", {"no_such_setting": 1})():
        pass
    needed = names.settings(config, "2.6", "do a thing", {"no_such_setting": 1}, is_needed=True)
    with pytest.raises(names.MissingNameError, match="no_such_setting"):
        needed()
    with names.settings(config, "2.6", "do a thing", {"verbose": True})():
        assert torch._dynamo.config.verbose
    assert not torch._dynamo.config.verbose


def test_each_name_says_what_it_is_for_and_since_when():
    for name in names.NAMES.values():
        assert name.use and name.since in VERSIONS, name


CAPTURED = """
import sys, torch
import glasshouse as gh
step = gh.optimize("eager")(lambda x: x * 2 + 1)
assert [step(torch.ones(2)).tolist() for _ in range(2)] == [[3.0, 3.0]] * 2
print("torch._functorch.aot_autograd" in sys.modules)
"""


def test_capture_that_compiles_nothing_loads_no_autograd_compiler():
    """The probes look names up at import; importing AOTAutograd takes half a second."""
    command = [sys.executable, "-W", "ignore", "-c", CAPTURED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr
