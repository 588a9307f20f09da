"""Programs in memory stay within their bytes; what only they used goes with them."""

import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.kernels import kernel_cache
from glasshouse.compile.programs import program
from glasshouse.targets.cpu.onednn import library as onednn


@pytest.fixture
def empty(tmp_path):
    """An empty cache and no Program in memory."""
    gh.backends.load("lazy").evaluate()
    program.programs.clear()
    settings = {"cache": str(tmp_path / "cache"), "compile": "always"}
    with flags.override(**settings), gh.backends.use("lazy"):
        yield
    program.programs.clear()


def value(rows: int, power: int = 1) -> np.ndarray:
    x = gh.asarray(np.linspace(0, 1, rows * 4, dtype=np.float32).reshape(rows, 4))
    y = x
    for _ in range(power):
        y = gh.sin(y) * 2
    return (y @ gh.ones((4, 3))).numpy()


def made() -> list[program.Program]:
    return [entry.program for entry in program.programs.values() if entry.program is not None]


def test_programs_used_longest_ago_are_evicted(empty):
    first = value(2)
    (one,) = made()
    with flags.override(program_bytes=3 * one.nbytes + 1):
        for rows in range(3, 20):
            value(rows)
            value(2)  # used all the while
            assert 1 < len(made()) <= 3 and one in made()
    assert np.array_equal(value(2), first)


def test_an_evicted_program_is_made_again(empty):
    with flags.override(program_bytes=1):
        values = [value(rows) for rows in (2, 3, 2, 3)]
        assert len(made()) == 1  # the last one stays whatever it takes
    assert np.array_equal(values[0], values[2]) and np.array_equal(values[1], values[3])


def test_no_limit_keeps_all(empty):
    with flags.override(program_bytes=0):
        for rows in range(2, 6):
            value(rows)
    assert len(made()) == 4


@pytest.mark.slow
def test_what_only_evicted_programs_used_is_freed(empty):
    """Primitives of oneDNN, kernels and their libraries."""

    def used() -> tuple[int, int, int]:
        gc.collect()
        dnnl = onednn.library()
        counts = len(kernel_cache.loaded_kernels), len(toolchain.loaded)
        return (*counts, 0 if dnnl is None else len(dnnl.objects))

    value(2)
    program.programs.clear()
    before = used()
    with flags.override(program_bytes=1):
        for power in range(1, 8):
            value(2, power)
            value(power, 2)
    program.programs.clear()
    assert used() == before


def test_equal_kernels_are_compiled_once(empty, monkeypatch):
    value(2)
    built = []
    monkeypatch.setattr(kernel_cache, "build_kernels", built.append)
    x = gh.asarray(np.ones((2, 4), np.float32))
    assert ((gh.sin(x) * 2) @ gh.ones((4, 3)) @ gh.ones((3, 3))).shape == (2, 3)
    assert built == []


def test_structures_that_were_never_compiled_are_forgotten_too(empty, monkeypatch):
    monkeypatch.setattr(program, "SMALL_ENTRIES", 8)
    with flags.override(compile="never", program_bytes=4000):
        for rows in range(1, 60):
            value(rows)
    assert len(program.programs) < 20


@pytest.mark.parametrize("mode", ["always", "auto"])
def test_what_is_never_compiled_does_not_run_a_program_of_an_earlier_run(empty, mode):
    """A Program may give a zero the other sign: what ran before must not decide on it."""

    def signs() -> list[float]:
        x = gh.asarray(np.full(4, -0.0, np.float32))
        return gh.copysign(gh.ones(4), x + 0.0).tolist()

    with flags.override(compile="never"):
        expected = signs()
    with flags.override(compile=mode):
        compiled = [signs() for _ in range(3)]
    assert expected == [1.0] * 4 and (mode == "auto" or compiled[0] == [-1.0] * 4)
    with flags.override(compile="never"):
        assert signs() == expected
