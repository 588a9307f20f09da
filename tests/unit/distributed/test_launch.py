import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pytest

from glasshouse import distributed as dist
from glasshouse.base.errors import CollectiveError, OptionError
from glasshouse.distributed.launching.failure import failure_by_end, failure_by_error, first_cause
from glasshouse.distributed.launching.launch import loaded_task, pickled_result
from glasshouse.ops.process import process


def result_of(base):
    import glasshouse as gh

    total = gh.distributed.all_reduce(gh.ones(2) * (dist.rank() + base))
    folder = process.transport(dist.world()).folder
    return total.tolist(), os.environ["OMP_NUM_THREADS"], folder, os.getpid()


@pytest.mark.slow
def test_spawn_gives_the_results_of_all_ranks_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # set by the user: it stays
    result = dist.spawn(result_of, 2, 10, transport="shared_files")
    for total, threads, folder, pid in result:
        assert total == [21.0, 21.0]
        assert threads == "3"
        assert not Path(folder).exists()
        assert not Path("/proc", str(pid)).exists()


def fails_on_one(way):
    if dist.rank() == 0:
        dist.barrier()  # the other does not come
    if way == "raises":
        raise ZeroDivisionError("of rank 1")
    threading.Thread(target=time.sleep, args=(60,)).start()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("raises", "rank 1 of 2: expected a result of fails_on_one; got ZeroDivisionError"),
        ("dies", "got its end by SIGKILL. Somebody killed it, or it ran out of memory"),
    ],
)
def test_spawn_tells_the_first_failure_and_ends_the_others(way, message):
    with pytest.raises(CollectiveError, match=message) as caught:
        dist.spawn(fails_on_one, 2, way, transport="shared_files", timeout_s=300)
    if way == "raises":
        cause = caught.value.__cause__
        assert type(cause) is ZeroDivisionError
        assert "in fails_on_one" in cause.__notes__[0]


@pytest.mark.parametrize(("fn", "args"), [(lambda: 0, ()), (result_of, (threading.Lock(),))])
def test_what_cannot_be_pickled_is_refused_before_a_process_starts(fn, args):
    with pytest.raises(OptionError, match="function and arguments that can be pickled"):
        dist.spawn(fn, 2, *args)


def test_a_result_that_cannot_be_pickled_is_named_with_its_rank():
    with pytest.raises(OptionError, match=r"rank 3: expected a result that can be pickled"):
        pickled_result(3, lambda: 0)


def test_a_function_that_ranks_cannot_import_is_explained():
    task = pickle.dumps((result_of, ())).replace(b"result_of", b"nowhere_i")
    with pytest.raises(OptionError, match=r"rank 1: expected a function .* got .*nowhere_i"):
        loaded_task(1, task)


def test_a_size_that_is_none_is_refused():
    with pytest.raises(OptionError, match="size to be 1 or more"):
        dist.spawn(result_of, 0)


def test_the_cause_comes_before_its_consequences():
    first = failure_by_error(0, CollectiveError("barrier", "all", "no sign of rank 1", "See it."))
    second = failure_by_error(1, ValueError("x"))
    assert first_cause([first, second]) is second
    assert first_cause([first, failure_by_end(2, -9)]).rank == 2
    assert first_cause([first, first]) is first
