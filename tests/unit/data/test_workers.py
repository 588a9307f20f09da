"""Worker processes: batches equal those of one process, faults come out once, nothing is left."""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, OptionError, WorkerError
from glasshouse.data import (
    DataLoader,
    Dataset,
    ListDataset,
    PadCollate,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)

HAS_PROC = os.path.isdir("/proc/self/fd")


def open_files(pid="self") -> list[str]:
    """Return the files that a process holds open."""
    links = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            links.append(os.readlink(file))
    return links


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(not HAS_PROC, reason="reads /proc")
def test_loops_leave_no_open_files_and_name_no_shared_memory():
    def loop():
        running = iter(DataLoader(Numbers(), 4, num_workers=2))
        next(running)
        workers = multiprocessing.active_children()
        links = [link for process in workers for link in open_files(process.pid)]
        assert any("memfd:glasshouse-data" in link for link in links)
        assert not any(link.startswith("/dev/shm") for link in links)

    loop()
    before = len(open_files())
    for _ in range(3):
        loop()
    assert len(open_files()) == before


class Numbers(Dataset):
    """Samples of every kind that a batch can hold; some are slow, some fail."""

    def __init__(self, count=12, fails_at=None, dies_at=None, sleeps_s=0.0):
        self.count, self.fails_at, self.dies_at = count, fails_at, dies_at
        self.sleeps_s = sleeps_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.sleeps_s * (index % 3))
        if index == self.fails_at:
            raise KeyError("sample is broken")
        if index == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": np.full((2, 3), index, np.float32), "y": (index, str(index)), "z": 0.5}


def plain(batch):
    """A batch as lists, with the dtypes of its tensors."""
    if isinstance(batch, gh.Tensor):
        return batch.dtype.name, batch.tolist()
    if isinstance(batch, dict):
        return {name: plain(x) for name, x in batch.items()}
    return [plain(x) for x in batch] if isinstance(batch, (tuple, list)) else batch


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 4}])
def test_batches_are_those_of_one_process(workers, options):
    loader = DataLoader(
        Numbers(sleeps_s=0.001), 5, shuffle=True, num_workers=workers, seed=3, **options
    )
    here = DataLoader(Numbers(), 5, shuffle=True, seed=3)
    for _ in range(2):
        assert [plain(b) for b in loader] == [plain(b) for b in here]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_of_starting_processes(method):
    data = TensorDataset(np.arange(12.0).reshape(6, 2))
    loader = DataLoader(data, 4, num_workers=1, multiprocessing_context=method)
    assert [b.shape for b in loader] == [(4, 2), (2, 2)]
    if method == "forkserver":
        stop_helpers()


def stop_helpers():
    """multiprocessing's own server and tracker live on otherwise."""
    from multiprocessing import forkserver, resource_tracker

    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()


def test_batches_that_are_kept_stay_as_they_are():
    data = TensorDataset(np.arange(400, dtype=np.int64))
    kept = list(DataLoader(data, 4, num_workers=2))
    assert [b.tolist() for b in kept] == np.arange(400).reshape(-1, 4).tolist()


def test_memory_of_a_batch_is_used_again():
    loader = DataLoader(
        TensorDataset(np.zeros((60, 50))), 1, num_workers=1, persistent_workers=True
    )
    places = {b.numpy().__array_interface__["data"][0] for b in loader}
    assert len(places) <= len(loader.pool.blocks)
    loader.close()


def test_arrays_of_a_collate_fn_stay_arrays_and_tensors_tensors():
    def both(samples):
        return np.stack(samples), gh.asarray(np.stack(samples)) * 2, "name", None

    array, tensor, name, nothing = next(
        iter(DataLoader(list(np.ones((2, 3))), 2, num_workers=1, collate_fn=both))
    )
    assert (type(array), type(tensor), name, nothing) == (np.ndarray, gh.Tensor, "name", None)
    assert tensor.tolist() == [[2.0] * 3] * 2


SAMPLES = {
    "empty": np.zeros((0, 3)),
    "scalar": np.float32(1),
    "strided": np.ones((4, 6))[::2, ::-1],
    "bfloat16": np.ones(3, gh.bfloat16.np),
    "texts": np.array(["a", "b"]),
    "complex": np.array([1 + 2j]),
    "other-order": np.ones(2, ">f4"),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
}


@pytest.mark.parametrize("collate_fn", [None, np.stack])
@pytest.mark.parametrize("name", SAMPLES)
def test_arrays_of_all_kinds_travel(name, collate_fn):
    def batch(workers):
        data = [SAMPLES[name]] * 2
        (out,) = DataLoader(data, 2, num_workers=workers, collate_fn=collate_fn)
        return out

    here, there = batch(0), batch(1)
    assert type(here) is type(there)
    np.testing.assert_array_equal(np.asarray(here), np.asarray(there))
    if not isinstance(here, list):
        assert (here.dtype, here.shape) == (there.dtype, there.shape)


def test_batches_of_growing_size_fit():
    data = ListDataset([np.full(4**i, i, np.float64) for i in range(10)])
    loader = DataLoader(data, 1, num_workers=2, collate_fn=PadCollate())
    assert [b.shape[1] for b in loader] == [4**i for i in range(10)]


def test_without_batches():
    loader = DataLoader(Numbers(3), batch_size=None, num_workers=2)
    samples = list(loader)
    assert [s["x"].shape for s in samples] == [(2, 3)] * 3
    assert [s["y"] for s in samples] == [(i, str(i)) for i in range(3)]


def test_a_workers_error_comes_once_at_its_place_with_its_traceback():
    loader = DataLoader(Numbers(fails_at=7), 2, num_workers=2, persistent_workers=True)
    items = []
    with pytest.raises(KeyError, match="sample is broken") as caught:
        items.extend(loader)
    assert len(items) == 3
    (note,) = caught.value.__notes__
    assert note.count("KeyError: ") == 1 and "in __getitem__" in note and "In worker" in note
    assert loader.pool is None


class TwoParts(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first}{second}")


def raises_two_parts(x):
    raise TwoParts("left", "right")


def leaves(x):
    sys.exit(3)


@pytest.mark.parametrize(
    ("fn", "text"), [(raises_two_parts, "TwoParts: leftright"), (leaves, "SystemExit: 3")]
)
def test_errors_that_cannot_travel_are_told_by_name(fn, text):
    with pytest.raises(WorkerError, match=text):
        list(DataLoader(ListDataset([1]).map(fn), num_workers=1))


def test_an_error_of_worker_init_fn_comes_out():
    with pytest.raises(ZeroDivisionError):
        list(DataLoader([1, 2], num_workers=2, worker_init_fn=lambda number: 1 / 0))


@pytest.mark.parametrize("persistent", [True, False])
def test_a_killed_worker_is_told(persistent):
    loader = DataLoader(Numbers(dies_at=5), 2, num_workers=2, persistent_workers=persistent)
    with pytest.raises(WorkerError, match="killed by SIGKILL .process") as caught:
        list(loader)
    assert getattr(caught.value, "__notes__", []) == []
    assert "memory" in str(caught.value)


def test_other_signals_are_no_lack_of_memory():
    data = ListDataset([1]).map(lambda x: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(WorkerError, match="killed by SIGTERM.*num_workers=0 shows the fault"):
        list(DataLoader(data, num_workers=1))


def test_a_worker_killed_between_epochs_is_told():
    loader = DataLoader(Numbers(), 2, num_workers=2, persistent_workers=True)
    list(loader)
    os.kill(loader.pool.processes[1].pid, signal.SIGKILL)
    loader.pool.processes[1].join()
    with pytest.raises(WorkerError, match="worker 1 of 2 to stay alive; got one that was killed"):
        list(loader)
    assert len(list(loader)) == 6  # with new workers


def test_a_worker_that_ends_by_itself_is_told():
    with pytest.raises(WorkerError, match="exit status 7"):
        list(DataLoader(ListDataset([1]).map(lambda x: os._exit(7)), num_workers=1))


@pytest.mark.slow
def test_timeout():
    data = ListDataset([1]).map(lambda x: time.sleep(30))
    start = time.monotonic()
    with pytest.raises(WorkerError, match="timeout=0.05 s"):
        list(DataLoader(data, num_workers=1, timeout=0.05))
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("persistent", [True, False])
def test_leaving_the_loop_leaves_nothing(persistent):
    loader = DataLoader(
        Numbers(40, sleeps_s=0.002), 2, num_workers=2, persistent_workers=persistent
    )
    for batch in loader:
        first = plain(batch)
        break
    assert bool(multiprocessing.active_children()) == persistent
    again = [plain(b) for b in loader]
    assert len(again) == 20 and again[0] == first
    loader.close()


def test_two_loops_at_once_over_kept_workers():
    loader = DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True)
    pairs = list(zip(loader, loader, strict=True))
    assert all(plain(a) == plain(b) for a, b in pairs) and len(pairs) == 3
    loader.close()


SCRIPT = """
import os, signal, sys, threading, time
from glasshouse.data import DataLoader, ListDataset

def slow(x):
    time.sleep(0.2)
    return x

batches = iter(DataLoader(ListDataset(range(1000)).map(slow), num_workers=2))
next(batches)
import multiprocessing
print(*[process.pid for process in multiprocessing.active_children()], flush=True)
HOW
"""
HOW = {
    "interrupted": "os.killpg(0, signal.SIGINT)\nlist(batches)",
    "ends": "",
    "raises": "raise RuntimeError('of the loop')",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PROC, reason="reads /proc")
@pytest.mark.parametrize("how", HOW)
def test_no_process_survives_the_script(how):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("HOW", HOW[how])],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids))
    error = {"interrupted": "KeyboardInterrupt", "raises": "RuntimeError: of the loop"}.get(how)
    assert done.stderr.count("Traceback") == (error is not None), done.stderr
    assert error is None or error in done.stderr


def drawn(x):
    return x, random.random(), np.random.rand(), float(gh.random.uniform(()))  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_global_generators_are_seeded_by_batch(workers):
    def run(seed, workers=workers):
        loader = DataLoader(ListDataset(range(6)).map(drawn), 2, num_workers=workers, seed=seed)
        return [plain(batch) for _ in range(2) for batch in loader]

    assert run(1) == run(1) == run(1, 3)
    assert run(1) != run(2)
    numbers = [number for _, *columns in run(1) for _, column in columns for number in column]
    assert len(set(numbers)) == 3 * 12
    assert get_worker_info() is None


class WhoReads(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed, int(info.dataset is self)


def test_workers_know_who_they_are():
    rows = np.array([[c.item() for c in b] for b in DataLoader(WhoReads(), num_workers=2, seed=5)])
    assert set(rows[:, 0]) <= {0, 1}
    assert (rows[:, 1] == 2).all() and (rows[:, 3] == 1).all()
    assert (rows[:, 2] == 5 + rows[:, 0]).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 2, 4])
def test_resuming_with_a_generator(workers, stop):
    def make(seed):
        sampler = RandomSampler(range(10), generator=gh.random.Generator(seed))
        return DataLoader(range(10), 3, sampler=sampler, num_workers=workers)

    first = make(4)
    running = iter(first)
    for _ in range(stop):
        next(running)
    state = first.state_dict()
    rest = [b.tolist() for b in running] + [b.tolist() for b in first]
    resumed = make(99)
    if stop == 0:  # nothing was drawn yet: the caller keeps the generator's state
        resumed.sampler.generator.set_state(gh.random.Generator(4).state())
    resumed.load_state_dict(state)
    assert [b.tolist() for b in resumed] + [b.tolist() for b in resumed] == rest


def test_batches_out_of_order_are_all_there():
    loader = DataLoader(Numbers(12, sleeps_s=0.005), 1, num_workers=3, in_order=False)
    running = iter(loader)
    labels = [next(running)["y"][1][0]]
    with pytest.raises(CheckpointError, match="in_order"):
        loader.state_dict()
    labels += [batch["y"][1][0] for batch in running]
    assert sorted(labels, key=int) == [str(i) for i in range(12)]


BAD_CALLS = {
    "prefetch": ({"prefetch_factor": 2}, "num_workers=0"),
    "persistent": ({"persistent_workers": True}, "num_workers=0"),
    "factor": ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor"),
    "timeout": ({"timeout": -1}, "timeout"),
    "context": ({"multiprocessing_context": "frok"}, "'fork'"),
    "sampler-shuffle": ({"sampler": [0], "shuffle": True}, "shuffle or sampler"),
    "batch-sampler": ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler or batch_size"),
    "drop": ({"batch_size": None, "drop_last": True}, "drop_last or batch_size=None"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_options(name):
    options, text = BAD_CALLS[name]
    with pytest.raises(OptionError, match=text):
        DataLoader([1, 2], **options)
