"""Collectives of Programs in C, beside the same Programs that call the transport's methods."""

import ctypes
import time
from types import SimpleNamespace

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base import Spec
from glasshouse.base.dtype import float32
from glasshouse.base.errors import CollectiveError
from glasshouse.base.flags import flags
from glasshouse.distributed import spawn
from glasshouse.ops.collective_requests import CollectiveRequest
from glasshouse.ops.process import process

LARGE = 700_000  # elements, several slots of the transport


def world():
    return process.transport(process.world)


def counted(function, in_c=True):
    """Return the result of the function, and how many of its collectives Python made."""
    transport, calls = world(), []
    start = transport.start
    transport.start = lambda name, *args, **named: calls.append(name) or start(name, *args, **named)
    transport.may_work_in_c = in_c
    try:
        with flags.override(compile="always"):
            return function(), len(calls)
    finally:
        del transport.start, transport.may_work_in_c


def random_results(seed):
    """Of collectives of random kinds, sizes and dtypes with steps between their starts and ends."""
    shared, own = np.random.default_rng(seed), np.random.default_rng([seed, dist.rank()])
    x = gh.asarray(own.standard_normal((64, 64)).astype(np.float32))
    results = []
    for _ in range(10):
        count = 2 * int(shared.choice([0, 1, 350, 20_000, LARGE // 2]))
        dtype = ("float32", "float16", "bfloat16", "int32")[shared.integers(4)]
        y = (gh.asarray(own.standard_normal(count).astype(np.float32)) * 9).astype(dtype)
        kinds = [
            lambda y: dist.all_reduce(y),
            lambda y: dist.all_reduce(y, "max"),
            lambda y: dist.all_gather(y),
            lambda y: dist.reduce_scatter(y),
            lambda y: dist.all_to_all(y),
            lambda y: dist.broadcast(y, 1),
        ]
        result = kinds[shared.integers(len(kinds))](y * 2)
        x = gh.tanh(x @ x)
        results += [result, result + 1] if shared.integers(2) else [result + 1]
    gh.eval(x, *results)
    return [result.numpy().tobytes() for result in (x, *results)]


def by_both(seed):
    return counted(lambda: random_results(seed)), counted(lambda: random_results(seed), False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_in_c_and_by_methods_collectives_of_programs_give_the_same_bits(ranks, seed):
    for (fast, started), (clear, started_by_python) in ranks(by_both, seed):
        assert fast == clear
        assert started == 0 < started_by_python


def behind_one_of_python(in_c):
    """A Program while a call that Python started waits for the other rank."""
    transport, first = world(), np.full(4, 1.0 + dist.rank(), np.float32)
    if dist.rank():
        time.sleep(0.2)
    request = transport.start("all_reduce", first, first)
    x = gh.asarray(np.full(4, 10.0, np.float32))
    second, _ = counted(lambda: (dist.all_reduce(x * 2) + 1).tolist(), in_c)
    request.wait()
    return first.tolist(), second


@pytest.mark.parametrize("in_c", [True, False])
def test_a_call_that_was_started_before_a_program_comes_first(ranks, in_c):
    assert ranks(behind_one_of_python, in_c) == [([3.0] * 4, [41.0] * 4)] * 2


def call_in_c(count):
    call = SimpleNamespace(name="all_reduce", specs=[Spec((count,), float32)], attrs={})
    return world().call_in_c(call, CollectiveRequest("all_reduce", "float32", (count,), "sum"))


def started(count):
    """A call as a Program starts it, and its array, which has to stay."""
    call, array = call_in_c(count), np.ones(count, np.float32)
    places = (ctypes.c_void_p * 2)(array.ctypes.data, array.ctypes.data)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    kind(call.functions["start"])(call.address, places, 2)
    return call, array


def unattended():
    call, array = started(LARGE)
    end = time.monotonic() + 30
    while not call.started.is_done and time.monotonic() < end:
        time.sleep(1e-3)
    assert call.begin_ns < call.end_ns
    return array[[0, -1]].tolist()


def test_a_large_call_comes_to_its_end_though_nobody_waits(ranks):
    assert ranks(unattended) == [[2.0, 2.0]] * 2


def waited_for_from_the_last():
    calls = [started(count) for count in (LARGE, 3, 5000, LARGE, 1)]
    calls[3][0].finish()
    done = [call.started.is_done for call, _ in calls]
    for call, _ in calls[::-1]:
        call.finish()
    return done[:4], [float(array.sum()) / array.size for _, array in calls]


def test_who_waits_for_a_call_has_those_before_it_done(ranks):
    assert ranks(waited_for_from_the_last) == [([1] * 4, [2.0] * 5)] * 2


def left_alone():
    """Rank 0 waits in a Program for rank 1, which has left; nothing of the call stays."""
    transport = world()
    if transport.rank:
        return None
    x = gh.asarray(np.ones(LARGE, np.float32))
    y = gh.tanh(gh.ones((64, 64)))
    with pytest.raises(CollectiveError, match=r"all_reduce\(float32, shape \(700000,\)") as error:
        counted(lambda: gh.eval(dist.all_reduce(x * 2) + 1, y @ y))
    assert transport.library.gh_first(transport.queue) is None
    with pytest.raises(CollectiveError):
        transport.barrier()
    return str(error.value)


@pytest.mark.slow
def test_a_program_names_the_rank_that_does_not_come_and_the_users_line():
    text = spawn(left_alone, 2)[0]
    assert "rank 1 has left" in text and "test_native_calls.py:" in text
    assert "rank 0 waits in all_reduce" in text


def different():
    """Ranks whose Programs call different things."""
    x = gh.asarray(np.ones(5, np.float32))
    reduce = "sum" if dist.rank() else "max"
    with pytest.raises(CollectiveError, match="the same call on all ranks") as error:
        counted(lambda: (dist.all_reduce(x * 2, reduce) + 1).numpy())
    return str(error.value)


@pytest.mark.slow
def test_programs_that_call_different_things_are_told_apart():
    for text in spawn(different, 2):
        assert "(5,), max" in text and "(5,), sum" in text


def replaced():
    """Who replaces a method sees the calls of Programs."""
    transport, log = world(), []
    x = gh.asarray(np.ones(3, np.float32))

    def work():
        with flags.override(compile="always"):
            return (dist.all_reduce(x * 2) + 1).tolist()

    work()
    transport.all_reduce = lambda source, out, reduce="sum": (
        log.append(reduce) or type(transport).all_reduce(transport, source, out, reduce)
    )
    try:
        return work(), log
    finally:
        del transport.all_reduce


def test_a_method_that_is_replaced_sees_the_calls_of_programs(ranks):
    assert ranks(replaced) == [([5.0] * 3, ["sum"])] * 2
