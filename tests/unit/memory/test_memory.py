"""Memory managers: reuse, splitting, joining, limits, telemetry, and several threads."""

import os
import runpy
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glasshouse as gh
from glasshouse import memory
from glasshouse.base.errors import BackendError, OptionError, OutOfMemoryError, ShapeError
from glasshouse.base.flags import flags
from glasshouse.memory import CachingManager, DirectManager, Tag, caching
from glasshouse.memory.direct import Mapping
from glasshouse.memory.manager import ARENA_TAG
from glasshouse.memory.telemetry import live_by

MANAGERS = (DirectManager, CachingManager)
MB = 1 << 20


@pytest.mark.parametrize("cls", MANAGERS)
@pytest.mark.parametrize("nbytes", [0, 1, 100, 5000, 3 * MB])
@pytest.mark.quick
def test_buffers_are_aligned_and_usable(cls, nbytes):
    manager = cls()
    buffer = manager.alloc(nbytes, Tag("add"))
    assert buffer.address % 64 == 0 and buffer.nbytes == nbytes and buffer.tag.primitive == "add"
    array = buffer.numpy()
    array[...] = 7
    assert array.sum() == 7 * nbytes
    del buffer, array
    assert manager.stats().allocated_bytes == 0


def test_an_array_keeps_its_buffer():
    manager = CachingManager()
    array = manager.alloc(400).numpy(np.float32, (10, 10))[2:].T
    assert manager.stats().wanted_bytes == 400
    del array
    assert manager.stats().wanted_bytes == 0


def test_freeing_twice_is_an_error():
    manager = CachingManager()
    buffer = manager.alloc(10)
    manager.free(buffer)
    with pytest.raises(BackendError, match="freed already"):
        manager.free(buffer)
    with pytest.raises(BackendError, match="freed"):
        buffer.numpy()
    with pytest.raises(BackendError, match="another manager"):
        manager.free(DirectManager().alloc(10))


def test_threads_that_free_one_buffer_succeed_once():
    manager = CachingManager()
    for _ in range(50):
        buffer, results = manager.alloc(10), []
        start = threading.Barrier(4)

        def free(buffer=buffer, results=results, start=start):
            start.wait()
            try:
                manager.free(buffer)
            except BackendError:
                results.append("refused")
            else:
                results.append("freed")

        threads = [threading.Thread(target=free) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results.count("freed") == 1
    assert manager.stats().allocated_bytes == 0


def test_what_does_not_fit_is_refused():
    buffer = CachingManager().alloc(100)
    assert buffer.numpy(np.float64).shape == (12,) and buffer.numpy(np.int16, 50).shape == (50,)
    with pytest.raises(ShapeError, match="104 bytes"):
        buffer.numpy(np.float64, (13,))
    with pytest.raises(OptionError, match="-1"):
        CachingManager().alloc(-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_memory_of_its_own():
    array = CachingManager().alloc(1000).numpy()
    array[...] = 1
    code = "import os, sys; sys.exit(0)"
    child = os.fork()
    if child == 0:
        array[...] = 2
        os.execv(sys.executable, [sys.executable, "-c", code])
    assert os.waitpid(child, 0)[1] == 0 and array.sum() == 1000


def test_no_python_runs_when_a_buffer_dies():
    manager, log = CachingManager(), []
    buffer = manager.alloc(1000)
    sys.setprofile(lambda frame, event, arg: log.append((event, frame.f_code.co_name)))
    try:
        del buffer
    finally:
        sys.setprofile(None)
    assert [name for event, name in log if event == "call"] == []
    assert manager.counts.allocated_bytes == 1024
    assert manager.stats().allocated_bytes == 0


def test_size_classes_and_small_requests_beyond_the_split_limit():
    manager = CachingManager(split_limit=0)
    held = [manager.alloc(n) for n in (1, 512, 5000, 70_000)]
    assert manager.stats().allocated_bytes == 512 + 512 + 5120 + 73_728
    assert manager.stats().native_allocations == 1 and len(held) == 4
    coarse = CachingManager(classes=1)
    held.append(coarse.alloc(70_000))
    assert coarse.stats().allocated_bytes == 131_072


@pytest.mark.quick
def test_freed_memory_is_used_again():
    manager = CachingManager()
    first = manager.alloc(8 * MB)
    address = first.address
    del first
    assert manager.alloc(8 * MB - 100).address == address
    assert manager.stats().native_allocations == 1 and manager.stats().cache_hits == 1


def test_blocks_are_split_up_to_the_limit_and_joined_again():
    manager = CachingManager(split_limit=16 * MB)
    whole = manager.alloc(16 * MB)
    start = whole.address
    del whole
    parts = [manager.alloc(4 * MB) for _ in range(4)]
    assert [p.address - start for p in parts] == [0, 4 * MB, 8 * MB, 12 * MB]
    for i in (1, 3, 0, 2):
        parts[i] = None
    assert manager.alloc(16 * MB).address == start
    unsplit = CachingManager(split_limit=8 * MB, reuse_limit=1.5)
    unsplit.alloc(16 * MB)
    assert unsplit.alloc(4 * MB).nbytes == 4 * MB
    assert unsplit.stats().native_allocations == 2 and unsplit.stats().splits == 0


def test_arenas_of_programs_that_run_in_turn_lie_in_the_block_of_the_largest():
    manager = CachingManager(split_limit=64 * MB)
    kept = manager.alloc(80 * MB)
    sizes = 70 * MB, 110 * MB, 80 * MB
    for nbytes in sizes:
        manager.alloc(nbytes, ARENA_TAG)
    mapped = manager.stats().native_allocations
    for nbytes in sizes * 3:
        arena = manager.alloc(nbytes, ARENA_TAG)
        assert manager.stats().allocated_bytes == kept.nbytes + nbytes
        del arena
    assert manager.stats().native_allocations == mapped
    assert manager.stats().reserved_bytes == kept.nbytes + max(sizes)
    other = manager.alloc(70 * MB)  # what stays does not keep so much from others
    assert manager.stats().native_allocations == mapped + 1 and other.nbytes == 70 * MB


def test_what_is_free_goes_before_more_is_mapped_than_was_ever_in_use():
    manager = CachingManager()
    kept = [manager.alloc(4 * MB) for _ in range(8)]
    del kept[4:]
    kept.append(manager.alloc(12 * MB))
    assert manager.stats().reserved_bytes <= manager.stats().peak_allocated_bytes == 32 * MB


def test_steps_that_free_large_and_small_results_in_turn_map_nothing_more():
    """The system clears memory that it gives again: a page at a time, where it is first touched."""
    manager = CachingManager().simulate()

    def step():
        activations = [manager.alloc(6 * MB) for _ in range(40)]
        logits = [manager.alloc(100 * MB) for _ in range(2)]
        del activations[20:]
        logits.pop()
        gradients = [manager.alloc(9 * MB) for _ in range(20)]
        return activations, logits, gradients

    step()
    step()
    mapped = manager.stats().native_allocations
    step()
    assert manager.stats().native_allocations == mapped
    assert manager.stats().reserved_bytes <= 1.1 * manager.stats().peak_allocated_bytes


def test_large_blocks_that_lay_side_by_side_are_one_when_free():
    manager = CachingManager()
    parts = [manager.alloc(8 * MB) for _ in range(4)]
    begin = parts[0].address
    del parts
    assert manager.alloc(32 * MB).address == begin
    assert manager.stats().reserved_bytes == manager.stats().peak_reserved_bytes == 32 * MB


@pytest.mark.parametrize("simulated", [False, True])
def test_the_free_end_of_a_segment_goes_back_to_the_system(simulated):
    manager = CachingManager().simulate() if simulated else CachingManager()
    kept, more = manager.alloc(4 * MB), manager.alloc(8 * MB)
    address = more.address
    del more
    assert manager.stats().largest_free_bytes == 8 * MB
    manager.empty_cache()
    assert manager.stats().reserved_bytes == kept.nbytes
    again = manager.alloc(6 * MB)
    assert again.address == address
    assert manager.stats().reserved_bytes == kept.nbytes + again.nbytes


def test_what_was_returned_is_there_again_and_clear():
    manager = CachingManager()
    kept, more = manager.alloc(4 * MB), manager.alloc(8 * MB)
    kept.numpy()[:] = 1
    more.numpy()[:] = 2
    del more
    manager.empty_cache()
    assert (kept.numpy() == 1).all() and not manager.alloc(8 * MB).numpy().any()


def test_where_addresses_are_scarce_a_block_is_a_mapping(monkeypatch):
    def scarce(nbytes):
        if nbytes > 100 * MB:
            raise OSError("Cannot allocate memory")
        return Mapping(nbytes)

    monkeypatch.setattr(caching, "Mapping", scarce)
    manager = CachingManager()
    held = [manager.alloc(8 * MB) for _ in range(2)]
    assert manager.stats().reserved_bytes == 16 * MB and len(held) == 2


@pytest.mark.quick
def test_fragmentation_is_counted():
    manager = CachingManager(split_limit=1, reuse_limit=4.0)
    manager.alloc(8 * MB)
    kept = manager.alloc(2 * MB)
    stats = manager.stats()
    assert stats.internal_fragmentation == pytest.approx(0.75)
    assert kept.nbytes == 2 * MB and "internal fragmentation" in str(stats)


@pytest.mark.parametrize("name", ["direct", "caching"])
def test_peaks_begin_anew(name):
    with gh.memory.use(name) as manager:
        kept, large = manager.alloc(3 * MB), manager.alloc(40 * MB)
        del large
        assert gh.memory.stats().peak_allocated_bytes >= 43 * MB
        gh.memory.reset_peak()
        after = gh.memory.stats()
        assert after.peak_allocated_bytes == after.allocated_bytes < 4 * MB
        assert after.peak_reserved_bytes == after.reserved_bytes
        more = manager.alloc(8 * MB)
        del more
        assert 11 * MB <= gh.memory.stats().peak_allocated_bytes < 12 * MB
        assert kept.nbytes == 3 * MB


def test_the_limit_and_what_the_error_says():
    manager = CachingManager()
    with memory.limit("20MiB"):
        kept = manager.alloc(12 * MB, Tag("conv", "layer1.0", "forward"))
        manager.alloc(6 * MB)  # cached: given back to the system when there is need
        other = manager.alloc(7 * MB)
        with pytest.raises(OutOfMemoryError, match=r"conv layer1.0 forward: 12,582,912") as caught:
            manager.alloc(9 * MB)
        assert "smaller batch" in str(caught.value)
        del other
        assert manager.alloc(6 * MB).nbytes == 6 * MB
    assert manager.alloc(9 * MB).nbytes == 9 * MB and kept.nbytes == 12 * MB
    with pytest.raises(OptionError, match="-1"):
        memory.limit(-1)


@pytest.mark.slow
def test_training_goes_on_after_running_out_of_memory():
    model = gh.nn.Linear(512, 512)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        optimizer.zero_grad()
        loss = (model(gh.ones((batch, 512))) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    with gh.backends.use("lazy"), flags.override(compile="always"), memory.use("caching"):
        first = step(4)
        with memory.limit(memory.stats().reserved_bytes + 8 * MB), pytest.raises(OutOfMemoryError):
            step(65536)
        gh.random.seed(0)
        assert step(4) < first


def test_threads():
    manager = CachingManager()
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(300):
            if held and rng.random() < 0.5:
                array, value = held.pop(int(rng.integers(len(held))))
                if not (array == value).all():
                    failures.append(seed)
            else:
                array = manager.alloc(int(rng.integers(1, 300_000))).numpy()
                value = int(rng.integers(256))
                array[...] = value
                held.append((array, value))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and manager.stats().allocated_bytes == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3 * MB)), max_size=40), st.data())
def test_live_buffers_never_overlap(requests, data):
    manager = CachingManager(split_limit=data.draw(st.sampled_from([1, MB, 64 * MB])))
    held = {}
    for slot, nbytes in requests:
        held.pop(slot, None)
        held[slot] = manager.alloc(nbytes)
        places = sorted((b.address, b.nbytes) for b in held.values())
        for (a, size), (b, _) in zip(places, places[1:], strict=False):
            assert a + size <= b
    assert manager.stats().wanted_bytes == sum(b.nbytes for b in held.values())
    assert manager.stats().allocated_bytes <= manager.stats().reserved_bytes
    held.clear()
    manager.empty_cache()
    assert manager.stats().reserved_bytes == 0


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_the_log_is_read_back_and_drawn(tmp_path, suffix):
    with memory.use(CachingManager()) as manager:
        calls = []
        subscription = manager.subscribe(calls.append)
        with memory.log(tmp_path / f"events{suffix}") as path:
            kept = [manager.alloc(n * 1000, Tag("mul", "a.b", "backward")) for n in range(1, 5)]
            del kept[1]
        subscription.remove()
        manager.alloc(10)
    assert memory.read_log(path) == calls and {e.kind for e in calls} == {"map", "alloc", "free"}
    pytest.importorskip("matplotlib")
    assert memory.plot(path, tmp_path / "events.png").stat().st_size > 5000
    with pytest.raises(OptionError, match=r"events\.txt"), memory.log(tmp_path / "events.txt"):
        pass


def test_a_picture_by_module_sums_to_what_is_allocated():
    manager, log = CachingManager(), []
    early = manager.alloc(5000)
    manager.subscribe(log.append)
    kept = [manager.alloc(1000 * n, Tag("mul", f"layer{n}")) for n in range(12)]
    del kept[3:6], early
    manager.stats()  # tells of the buffers that died
    layers = live_by(log, "module")
    assert len(layers) == 9 and "layer11" in layers and layers["layer5"][-1] == 0
    assert np.array_equal(sum(layers.values()), [event.allocated_bytes for event in log])
    assert live_by([], "phase")["other"].size == 0
    with pytest.raises(OptionError, match="'module'"):
        memory.plot(log, "unused.png", by="modul")


def test_listeners_may_ask_the_manager_and_may_fail():
    manager, allocated = CachingManager(), []
    manager.subscribe(lambda event: allocated.append(manager.stats().allocated_bytes))
    kept = manager.alloc(100)
    assert allocated == [512, 512] and kept.nbytes == 100
    failing = manager.subscribe(lambda event: 1 / 0 if event.kind == "alloc" else None)
    with pytest.raises(ZeroDivisionError):
        manager.alloc(100)
    failing.remove()
    assert manager.stats().wanted_bytes == 100


def test_a_log_ends_while_other_threads_allocate(tmp_path):
    failures, done, longest = [], threading.Event(), [0]
    with memory.use(CachingManager()) as manager:

        def work():
            try:
                while not done.is_set():
                    manager.alloc(1000)
                    longest[0] = max(longest[0], len(manager.events))
            except ValueError as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(20):
            with memory.log(tmp_path / f"{i}.jsonl") as path:
                manager.alloc(10)
            assert memory.read_log(path)
        done.set()
        for thread in threads:
            thread.join()
    assert not failures and longest[0] < 2000


def test_a_native_failure_empties_the_cache_and_tries_again():
    class Scarce(CachingManager):
        """The system has 20 MiB."""

        def map(self, nbytes, get):
            def scarce(nbytes):
                if self.counts.reserved_bytes + nbytes > 20 * MB:
                    raise OSError("Cannot allocate memory")
                return get(nbytes)

            return super().map(nbytes, scarce)

    manager = Scarce()
    manager.alloc(12 * MB)
    kept = manager.alloc(16 * MB, Tag("conv", "layer1"))
    assert manager.stats().reserved_bytes == 16 * MB
    with pytest.raises(OutOfMemoryError, match=r"the system.*conv layer1: 16,777,216"):
        manager.alloc(8 * MB)
    assert kept.numpy().size == 16 * MB and manager.alloc(4 * MB).nbytes == 4 * MB


def test_managers_are_swapped_while_buffers_live():
    with memory.use("direct") as direct:
        old = direct.alloc(1000).numpy()
        with memory.use("caching") as caching:
            assert memory.current() is caching
            old[...] = 3
        assert memory.current() is direct and old.sum() == 3000
    with pytest.raises(OptionError, match="caching"):
        memory.use("cachin")
    with pytest.raises(BackendError, match="MemoryManager"):
        memory.use(3)


def test_a_program_tells_what_its_memory_is_for():
    with memory.use(CachingManager()) as manager, flags.override(compile="always"):
        log = []
        manager.subscribe(log.append)
        with gh.backends.use("lazy"):
            x = gh.exp(gh.arange(90000) * 1e-5)
            x.numpy()
        tags = {event.tag.primitive for event in log if event.kind == "alloc"}
        assert "arena" in tags and "exp" in tags


@pytest.mark.slow
def test_the_fragmentation_study_runs_on_any_backend(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    example = Path(__file__).parents[3] / "examples" / "memory_fragmentation.py"
    study = runpy.run_path(str(example))
    with gh.backends.use("numpy"):
        study["main"](["--steps", "3", "--plot", str(tmp_path / "a.png")])
    printed = capsys.readouterr().out
    assert "256 MiB" in printed and "replayed" in printed and (tmp_path / "a.png").exists()


def test_small_blocks_that_ended_serve_larger_requests():
    manager = CachingManager()
    parts = [manager.alloc(4096) for _ in range(1024)]  # a whole slab
    assert manager.stats().reserved_bytes == 4 * MB
    del parts
    whole = [manager.alloc(MB) for _ in range(4)]
    assert manager.stats().reserved_bytes == 4 * MB and len(whole) == 4


def test_a_block_that_ended_is_the_next_of_its_size():
    manager = CachingManager()
    addresses = [manager.alloc(5000).address for _ in range(3)]
    assert len(set(addresses)) == 1


@pytest.mark.parametrize("cls", MANAGERS)
def test_many_at_once_are_those_of_one_after_the_other(cls):
    one, other = cls().simulate(), cls().simulate()
    rng = np.random.default_rng(0)
    for _ in range(20):
        wanted = [(int(n), Tag("add")) for n in rng.integers(0, 3 * MB, rng.integers(0, 9))]
        together = one.alloc_all(wanted)
        apart = [other.alloc(*x) for x in wanted]
        assert [(x.nbytes, x.tag) for x in together] == [(x.nbytes, x.tag) for x in apart]
        assert str(one.stats()) == str(other.stats())
        del together, apart
    assert one.stats().allocated_bytes == 0
