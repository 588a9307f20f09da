"""The fast transport beside the clear one, and what it does where something goes wrong."""

import os
import signal
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from glasshouse.base.errors import CollectiveError, DTypeError, OptionError, ShapeError
from glasshouse.compile.building import toolchain
from glasshouse.distributed import spawn
from glasshouse.distributed.transports import local
from glasshouse.ops.process import ProcessGroup, process

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64, np.int16, np.float64]


def world():
    return process.transport(process.world)


def random_calls(seed):
    """Return the results of a random sequence of collectives, the same sequence on all ranks."""
    transport, results = world(), []
    shared = np.random.default_rng(seed)
    own = np.random.default_rng([seed, transport.rank])
    size = transport.size
    for _ in range(12):
        dtype = DTYPES[shared.integers(len(DTYPES))]
        count = int(shared.choice([0, 1, 5, 700, 40_001]))
        name = shared.choice(
            ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "ring"]
        )
        x = own.standard_normal(count).astype(dtype)
        parts = own.standard_normal((size, count)).astype(dtype)
        out = x
        if name == "all_reduce":
            transport.all_reduce(x, out, "max" if dtype is np.float16 else "sum")
        elif name == "all_gather":
            transport.all_gather(x, out := np.empty_like(parts))
        elif name == "reduce_scatter":
            transport.reduce_scatter(parts, out)
        elif name == "all_to_all":
            transport.all_to_all(parts, out := np.empty_like(parts))
        elif name == "broadcast":
            transport.broadcast(out, int(shared.integers(size)))
        else:
            to, origin = (transport.rank + 1) % size, (transport.rank - 1) % size
            transport.send_receive(x, to, out := np.empty_like(x), origin)
        results.append(out)
    return results


@pytest.mark.parametrize("seed", range(4))
def test_random_sequences_give_the_bits_of_the_clear_transport(ranks, clear_ranks, seed):
    for fast, clear in zip(ranks(random_calls, seed), clear_ranks(random_calls, seed), strict=True):
        for result, expected in zip(fast, clear, strict=True):
            assert result.tobytes() == expected.tobytes()


@pytest.mark.slow
def test_three_ranks_give_the_bits_of_the_clear_transport(ranks, clear_ranks):
    result, expected = ranks(random_calls, 7, size=3), clear_ranks(random_calls, 7, size=3)
    assert [[x.tobytes() for x in own] for own in result] == [
        [x.tobytes() for x in own] for own in expected
    ]


def strided():
    x = np.arange(12.0).reshape(3, 4)
    out = np.zeros((4, 3))
    world().all_reduce(x.T, out)
    apart = np.zeros((3, 8))
    world().all_reduce(x, apart[:, ::2])
    world().broadcast(apart[:, 1::2], 0)
    world().all_reduce(x[:, 1:], x[:, 1:])
    return out, apart[:, ::2], x


def test_arrays_need_not_lie_row_by_row(ranks):
    x = np.arange(12.0).reshape(3, 4)
    for out, apart, own in ranks(strided):
        np.testing.assert_array_equal(out, 2 * x.T)
        np.testing.assert_array_equal(apart, 2 * x)
        np.testing.assert_array_equal(own[:, 1:], 2 * x[:, 1:])


def by_tags():
    """Received in another order than they were sent in, one of them larger than any buffer."""
    transport = world()
    if transport.rank == 0:
        transport.send(np.full(200_000, 1.0), 1, tag=1)
        transport.send(np.full(3, 2.0), 1, tag=2)
        transport.send(np.full(3, 3.0), 1, tag=2)
        return None
    results = [np.empty(3), np.empty(3), np.empty(200_000)]
    for out, tag in zip(results, (2, 2, 1), strict=True):
        transport.receive(out, 0, tag)
    return [out[-1] for out in results]


def test_messages_find_each_other_by_tags(ranks):
    assert ranks(by_tags)[1] == [2.0, 3.0, 1.0]


def refused():
    transport, x = world(), np.ones(3, np.float32)
    calls = [
        (ShapeError, lambda: transport.all_reduce(x, np.empty(4, np.float32))),
        (ShapeError, lambda: transport.all_gather(x, np.empty((3, 3), np.float32))),
        (ShapeError, lambda: transport.reduce_scatter(x, np.empty(1, np.float32))),
        (ShapeError, lambda: transport.all_to_all(x, x)),
        (OptionError, lambda: transport.all_reduce(x, x, "product")),
        (OptionError, lambda: transport.broadcast(x, 2)),
        (OptionError, lambda: transport.send(x, transport.rank)),
        (DTypeError, lambda: transport.broadcast(x.astype("M8[s]"))),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()
    transport.all_reduce(x, x)
    return x[0]


def test_what_does_not_fit_is_refused_before_anything_moves(ranks):
    assert ranks(refused) == [2.0, 2.0]


def interrupted():
    """Ctrl-C while rank 0 waits for rank 1, which comes after that."""
    transport = world()
    if transport.rank == 1:
        time.sleep(0.5)
        with pytest.raises(CollectiveError, match="rank 0 was interrupted in barrier"):
            transport.barrier()
        return None
    main = threading.main_thread().ident
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        transport.barrier()
    return transport.board.report()


@pytest.mark.slow
def test_an_interrupt_ends_a_wait_and_the_others_are_told():
    assert "rank 1" in spawn(interrupted, 2)[0]


def names_left():
    transport = world()
    transport.subgroup(transport.group._replace(name="same"))
    transport.barrier()
    return [name for name in os.listdir(transport.folder) if not name.startswith("key-")]


def test_shared_memory_has_no_name_once_all_have_it(ranks):
    assert ranks(names_left) == [[], []]


def test_a_rank_without_a_compiler_takes_all_to_the_clear_transport(monkeypatch, tmp_path):
    """Ranks in threads: only where they join, they need not be processes."""
    compiled, group = local.library, ProcessGroup((0, 1))

    def library():
        if threading.current_thread().name == "second":
            raise toolchain.CompileError("no C compiler found")
        return compiled()

    monkeypatch.setattr(local, "library", library)
    results = [None, None]

    def join(rank):
        results[rank] = local.join(group, rank, str(tmp_path))
        results[rank].barrier()

    with pytest.warns(UserWarning, match="shared_files, slower: no C compiler found") as said:
        threads = [
            threading.Thread(target=join, args=(rank,), name=name)
            for rank, name in enumerate(("first", "second"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(said) == 1
    assert [type(transport).__name__ for transport in results] == ["SharedFiles"] * 2
