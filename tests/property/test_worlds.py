"""Random functions in worlds that change between their calls, plain and captured: results, errors,
printed text and what the world is in the end are equal.

GH_FUZZ_WORLDS=20000 makes that many. `tools/fuzzers/fuzz_capture.py --world` is the long mode: it
survives crashes, and makes what fails small."""

import os
from pathlib import Path

import pytest
import world_audit
from random_worlds import LEFT_OUT, LIBRARIES, NAMES, RandomWorld
from world_differential import check_seed, compare_world, minimise, pick_mode, run_world, script_of

import glasshouse as gh
from glasshouse.capture.guards.class_reads import ReadClasses

COUNT = int(os.environ.get("GH_FUZZ_WORLDS", "50"))
PARTS = 5
COMPILED = 0.05  # of the functions become Programs
CASES = dict(
    part.strip().split("\n", 1)
    for part in (Path(__file__).parent / "world_cases.txt").read_text().split("\n== ")[1:]
)
WORLD = """
class A1:
    size = 3
class B1:
    size = 5
a1 = A1()
def fn(x, n=1, arg=None):
    out = []
    if n > 1:
        out.append(n)
    print(a1.size)
    return x * 2, out
"""
STEPS = ["call(X(0), 2)", "B1.size = 7", "A1.size = 4", "call(X(1))"]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("library", LIBRARIES)
def test_random_worlds(library, part):
    pytest.importorskip(LIBRARIES[library])
    for seed in range(part * COUNT // PARTS, (part + 1) * COUNT // PARTS):
        check_seed(seed, pick_mode(seed, COMPILED, library))


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_entries_do_not_outlive_what_they_read(library):
    """Each thing that a trace says it read is changed by itself: GH_FUZZ_WORLDS counts worlds."""
    pytest.importorskip(LIBRARIES[library])
    changes = sum(
        world_audit.check_seed(seed, pick_mode(seed, COMPILED, library)) for seed in range(COUNT)
    )
    assert changes > COUNT


@pytest.mark.slow
def test_the_audit_notices_a_missing_guard(monkeypatch):
    monkeypatch.setattr(ReadClasses, "guard", lambda *args: None)
    assert any(fails_audit(seed) for seed in range(60))


def fails_audit(seed: int) -> bool:
    try:
        world_audit.check_seed(seed, "gh-eager")
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_worlds_that_differed(library, name):
    module = LIBRARIES[library]
    pytest.importorskip(module)
    text, *steps = CASES[name].replace("LIB", module).split("\n> ")
    compare_world(text, steps, f"{library}-eager")


def test_a_seed_gives_the_same_world():
    one, same, other = RandomWorld(7), RandomWorld(7), RandomWorld(8)
    assert (one.text, one.steps) == (same.text, same.steps) != (other.text, other.steps)


def test_worlds_run():
    """Most of what is generated is valid, and few calls raise."""
    calls = []
    for seed in range(60):
        world = RandomWorld(seed)
        for step, result, _ in run_world(world.text, world.steps, "glasshouse", "eager", False):
            calls += [str(result).startswith("('tuple', ('raised'")] * step.startswith("call(")
    assert len(calls) >= 60 * 6
    assert sum(calls) < len(calls) / 4


def remembering(compiler):
    """A wrong gh.optimize, that gives the first result always."""

    def optimize(fn):
        results = []

        def call(*args):
            results[:] = results or [fn(*args)]
            return results[0]

        return call

    return optimize


def test_a_wrong_capture_is_found_and_made_small(monkeypatch):
    compare_world(WORLD, STEPS, "gh-eager")
    monkeypatch.setattr(gh, "optimize", remembering)
    with pytest.raises(AssertionError, match=r"step 3 call\(X\(1\)\), result"):
        compare_world(WORLD, STEPS, "gh-eager")
    text, steps = minimise(WORLD, STEPS, "gh-eager")
    wanted = "def fn(x, n=1, arg=None):\n    out = []\n    return (x * 2, out)"
    assert (text, steps) == (wanted, ["call(X(0), 2)", "call(X(1))"])


def test_a_script_shows_both_runs(capsys):
    exec(script_of(WORLD, STEPS, "gh-eager"), {})
    printed = capsys.readouterr().out
    plain, captured = printed.split("captured\n")
    assert plain == f"plain\n{captured}"


def test_kinds_that_are_left_out_have_reasons():
    assert LEFT_OUT.keys() <= set(NAMES)
    assert all(LEFT_OUT.values())
