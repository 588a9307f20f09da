"""Stored code: found by what it was compiled from, checked, and never trusted blindly."""

import errno
import os
import pickle
import subprocess
import sys
import tomllib
import weakref
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import disk_cache, toolchain
from glasshouse.compile.programs import program, store
from glasshouse.graph import record
from glasshouse.ops.packed import find_format
from glasshouse.targets.cpu.onednn import library as onednn

SCRIPT = """
import numpy as np
import glasshouse as gh

def model(scale=0.7):
    x = gh.asarray(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))
    y = x
    for i in range(40):
        y = gh.tanh(y @ x) * scale + i % 3
    return y.sum()
"""
names: dict = {}
exec(SCRIPT, names)
model = names["model"]


def forget_programs() -> None:
    """Have no Program in memory, nor any count of sizes, as another process."""
    program.programs.clear()
    program.large.clear()


@pytest.fixture
def empty(tmp_path):
    """An empty cache and no Program in memory."""
    gh.backends.load("lazy").evaluate()
    forget_programs()
    with flags.override(cache=str(tmp_path / "cache")), gh.backends.use("lazy"):
        yield Path(flags.cache)
    forget_programs()


def key(fn=model, *args) -> str:
    """The key of what a function records."""
    kept = fn(*args)
    recording = record.recorder.take()
    assert kept is not None and recording is not None
    return store.key_of(recording)


def entries(folder: Path) -> list[Path]:
    return list(folder.glob("*.code"))


def no_compiling(monkeypatch):
    def forbidden(_plan):
        raise AssertionError("compiled")

    monkeypatch.setattr(program, "assemble", forbidden)


def test_a_program_is_found_again_without_compiling(empty, monkeypatch):
    value = model().item()
    assert len(entries(empty)) == 1
    before = [e.program.step_infos() for e in program.programs.values()]
    forget_programs()
    no_compiling(monkeypatch)
    with flags.override(verify=False):
        assert model().item() == value
    after = [e.program.step_infos() for e in program.programs.values()]
    messages = [
        [[(i.name, i.kind, i.flops, i.bytes, i.origins) for i in infos] for infos in result]
        for result in (before, after)
    ]
    assert messages[0] == messages[1]


def test_code_is_made_when_the_graph_is_gone(empty, monkeypatch):
    graphs, alive = [], []

    def planned(graph):
        graphs.append(weakref.ref(graph))
        return ProgramPlan(graph)

    def made(code, common):
        alive.extend(ref() is not None for ref in graphs)
        return Program(code, common)

    ProgramPlan, Program = program.ProgramPlan, program.Program
    monkeypatch.setattr(program, "ProgramPlan", planned)
    monkeypatch.setattr(program, "Program", made)
    with flags.override(verify=False):
        model().item()
    assert alive == [False]


@pytest.mark.slow
def test_another_process_gives_the_same_key_and_finds_the_entry(empty):
    value, name = model().item(), key()
    code = SCRIPT + (
        "from glasshouse.graph import record\n"
        "from glasshouse.compile.programs import program, store\n"
        "kept = model()\nprint(store.key_of(record.recorder.take()))\n"
        "program.assemble = None\nprint(model().item())\n"
    )
    environment = {
        **os.environ,
        "GH_CACHE": str(empty),
        "GH_BACKEND": "lazy",
        "PYTHONPATH": str(Path(gh.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == [name, repr(value)] and done.stderr == ""


def test_what_code_depends_on_is_in_the_key(empty, monkeypatch):
    keys = [key(), key(model, 0.6)]
    assert keys[0] == keys[1]  # a number is an input
    keys = [keys[0], key(lambda: model() + 0), key(lambda: model().reshape((1, 1)))]
    monkeypatch.setattr(store, "sources_digest", lambda _: "another compiler")
    keys.append(key())
    monkeypatch.undo()
    monkeypatch.setattr(toolchain, "identity", lambda: "another processor")
    keys.append(key())
    assert len(set(keys)) == len(keys) and "" not in keys


def test_modules_are_in_the_key(empty):
    class First(gh.nn.Module):
        def forward(self):
            return model()

    outer = gh.nn.Sequential(First())
    assert len({key(), key(First()), key(lambda: outer[0]())}) >= 2


def test_short_recordings_and_users_functions_are_not_stored(empty):
    assert key(lambda: gh.exp(gh.ones(3) * 2)) == ""
    with gh.backends.current().replace("tanh", np.tanh):
        assert key() == ""
        model().item()
    assert entries(empty) == []


def packed_model(name="Q4_K"):
    """Products by packed weights, whose unpacking has a rule beside its calls."""
    form = find_format(name)
    layer = gh.nn.QuantizedLinear(gh.ones((256, 1, form.nbytes), dtype="uint8"), 256, name)
    x = gh.ones((1, 256))
    with gh.no_grad():
        for _ in range(40):
            x = gh.tanh(layer(x)) * 2 + 1
        return x.sum()


def ruled_model():
    """A function of the user's whose derivative is given."""

    @gh.custom_vjp
    def twice(x):
        return gh.tanh(x) * 2

    twice.defvjp(lambda x: (twice(x), x), lambda x, g: (g * 2,))
    x = gh.ones((4, 4))
    for _ in range(40):
        x = twice(x) + x
    return x.sum()


@pytest.mark.parametrize("fn", [packed_model, ruled_model])
def test_calls_with_a_rule_beside_them_are_stored(empty, monkeypatch, fn):
    assert key(fn) == key(fn) != ""
    value = fn().item()
    assert len(entries(empty)) == 1
    forget_programs()
    no_compiling(monkeypatch)
    with flags.override(verify=False):
        assert fn().item() == value


def test_the_format_of_weights_is_in_the_key(empty):
    names = ["Q4_K", "Q6_K", "int8:256", "int4:256"]
    keys = [key(packed_model, name) for name in names]
    assert len(set(keys)) == len(names) and "" not in keys


@pytest.mark.parametrize("spoil", [b"", b"spoilt", pickle.dumps(("no", "code"))])
def test_a_spoilt_entry_is_compiled_again(empty, spoil):
    value = model().item()
    (path,) = entries(empty)
    path.write_bytes(spoil)
    forget_programs()
    assert model().item() == value
    assert store.load(path.stem) is not None


def test_an_entry_that_does_not_unpickle_is_compiled_again(empty):
    value = model().item()
    (path,) = entries(empty)
    disk_cache.write_entry(path, b"\x80\x05cno_such_module\nthing\n.")
    forget_programs()
    assert model().item() == value


def test_code_for_another_onednn_is_compiled_again(empty):
    if onednn.library() is None:
        pytest.skip("oneDNN is not here")
    value = model().item()
    (path,) = entries(empty)
    code = store.load(path.stem)
    assert code is not None
    steps = [
        step._replace(what=onednn.PrimitiveCall(step.what.call._replace(scratch_bytes=1 << 40)))
        if isinstance(step.what, onednn.PrimitiveCall)
        else step
        for step in code.steps
    ]
    assert steps != code.steps
    disk_cache.write_entry(path, pickle.dumps(code._replace(steps=steps)))
    forget_programs()
    assert model().item() == value
    assert store.load(path.stem) == code


def test_a_full_disk_costs_only_time(empty, monkeypatch):
    def full(_path, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_cache, "write_entry", full)
    disk_cache.warn_full.cache_clear()
    with pytest.warns(UserWarning, match="no space is left"):
        assert np.isfinite(model().item()) and entries(empty) == []


def test_programs_that_are_shown_keep_their_plans(empty):
    model().item()
    forget_programs()
    with program.plans_kept():
        model().item()
    (entry,) = program.programs.values()
    assert entry.program.plan.schedule and entry.program.recorded.nodes


def test_code_depends_on_all_that_the_compiler_is_made_of():
    """On what `compile` and `targets` may import, but for managers: they only hand out memory."""
    layers = tomllib.loads((store.PACKAGE / "layers.toml").read_text())
    made_of = {"compile", "targets", *layers["compile"]["may_import"]}
    made_of |= set(layers["targets"]["may_import"])
    assert {name.replace("/", ".") for name in store.COMPILER} == made_of - {"memory"}
