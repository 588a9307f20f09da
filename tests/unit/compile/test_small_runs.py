"""Runs of small Programs: the arena stays with the Program, and is counted as if it were taken."""

from dataclasses import asdict

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import memory, nn
from glasshouse.backends.lazy import LazyBackend
from glasshouse.base.flags import flags
from glasshouse.compile.programs.run_memory import view_of
from glasshouse.memory.caching import CachingManager
from glasshouse.memory.manager import ARENA_TAG, MemoryManager


def small_model():
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    x = gh.asarray(np.ones((3, 4), np.float32))
    return gh.optimize(lambda x: nn.functional.softmax(model(x), dim=1)), x


def test_an_arena_that_stays_is_counted_as_one_that_is_taken():
    counted, taken = CachingManager(), CachingManager()
    for nbytes in (0, 1, 511, 600, 5376, 1 << 14, 600):
        if not counted.counts_arena(nbytes):
            counted.alloc(nbytes, ARENA_TAG)
        taken.alloc(nbytes, ARENA_TAG)
    assert counted.counts_arena(600)
    taken.alloc(600, ARENA_TAG)
    assert asdict(counted.stats()) == asdict(taken.stats())


def test_an_arena_is_taken_where_somebody_listens_or_a_manager_does_not_count_it():
    manager = CachingManager()
    manager.alloc(600, ARENA_TAG)
    assert manager.counts_arena(600)
    with_events = manager.subscribe(lambda event: None)
    assert not manager.counts_arena(600)
    with_events.remove()
    assert manager.counts_arena(600)
    assert not memory.DirectManager().counts_arena(600)


def small_factor():
    """A step of the host, the card's reference, among kernels."""
    fn = gh.optimize(lambda x: gh.linalg.qr(x * 3 + 1)[0] - 1)
    return fn, gh.asarray(np.eye(5, 3))


@pytest.mark.parametrize("make", [small_model, small_factor])
def test_a_small_program_takes_nothing_from_the_manager_and_counts_the_same(make, monkeypatch):
    def peaks(patched: bool) -> dict:
        if patched:
            monkeypatch.setattr(CachingManager, "counts_arena", MemoryManager.counts_arena)
        with memory.use(CachingManager()) as manager, gh.no_grad():
            fn, x = make()
            results = [fn(x).numpy() for _ in range(4)]
            alloc, calls = manager.alloc, []
            manager.alloc = lambda *args: calls.append(args) or alloc(*args)
            manager.reset_peak()
            results.append(fn(x).numpy())
            assert len(calls) == patched
            assert all(np.array_equal(x, results[0]) for x in results)
            return asdict(manager.stats())

    assert peaks(False) == peaks(True)


def test_a_result_that_no_gradient_reaches_costs_no_program(monkeypatch):
    weight = nn.Parameter(gh.ones(4))

    @gh.optimize
    def both(x):
        return x * weight, (x * weight).sum()

    x = gh.asarray(np.arange(4, dtype=np.float32))
    for _ in range(3):
        both(x)[1].backward()
    result, one = both(x)[1], gh.asarray(np.float32(1))
    executed = []
    monkeypatch.setattr(LazyBackend, "execute", lambda self, recording: executed.append(recording))
    weight.grad = None
    result.backward(one)
    assert not executed
    np.testing.assert_array_equal(weight.grad.payload.value, np.arange(4))


def test_views_of_results_have_the_layout_that_the_plan_gives_them():
    with flags.override(compile="always"):
        x = gh.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
        y = gh.sin(x)
        results = [y.T.numpy(), y.reshape(3, 2).numpy(), y.numpy()]
    wanted = np.sin(np.arange(6, dtype=np.float32).reshape(2, 3))
    for result, value in zip(results, (wanted.T, wanted.reshape(3, 2), wanted), strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-6)


def test_the_view_of_an_output_is_its_array_where_that_has_the_layout():
    spec = None, (2, 3), np.dtype("f4"), 24, None
    assert view_of(spec, (2, 3), (3, 1)) is None
    assert view_of(spec, (3, 2), (2, 1)) == ((3, 2), np.dtype("f4"), (8, 4))
    assert view_of(spec, (3, 2), (1, 3)) == ((3, 2), np.dtype("f4"), (4, 12))


def test_a_jitted_function_takes_nothing_from_the_manager_up_to_a_result_of_64_kb(monkeypatch):
    fn, calls = gh.jit(lambda x: (gh.sin(x), gh.cumsum(x, 0), x.sum())), []
    with memory.use(CachingManager()) as manager:
        x = gh.asarray(np.ones(8192, np.float32))
        wanted = [y.numpy() for y in fn(x)]
        monkeypatch.setattr(manager, "alloc_all", calls.append)
        results = [y.numpy() for y in fn(x)]
    assert not calls
    assert all(np.array_equal(x, y) for x, y in zip(results, wanted, strict=True))
