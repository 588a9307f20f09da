"""Bytes that transports count as they move them are those that ops/exchange.py predicts."""

import numpy as np
import pytest

from glasshouse.ops.exchange import sent_bytes
from glasshouse.ops.process import process


def sent_on(transport, x):
    """From rank 0 to rank 1."""
    if transport.rank == 0:
        transport.send(x, 1)
    if transport.rank == 1:
        transport.receive(x.copy(), 0)


def counted(count):
    """For each collective: what was counted, and the operand's bytes."""
    transport, results = process.transports[process.world.ranks], {}
    rank, size = transport.rank, transport.size
    x = np.ones(count, np.float32)
    many = np.ones((size, count), np.float32)
    calls = {
        "all_reduce": lambda: transport.all_reduce(x, x.copy()),
        "all_gather": lambda: transport.all_gather(x, many.copy()),
        "reduce_scatter": lambda: transport.reduce_scatter(many, x.copy()),
        "all_to_all": lambda: transport.all_to_all(many, many.copy()),
        "broadcast": lambda: transport.broadcast(x.copy(), 1),
        "send": lambda: sent_on(transport, x),
        "barrier": transport.barrier,
    }
    for name, call in calls.items():
        before = transport.sent_bytes
        call()
        if name == "send" and rank > 0:
            name = "receive"
        operand = many if name in ("reduce_scatter", "all_to_all") else x
        results[name] = transport.sent_bytes - before, operand.nbytes
    return results, rank, size


@pytest.mark.parametrize("count", [0, 1, 513, 300_001])
@pytest.mark.parametrize("transport", ["local", "shared_files"])
def test_what_is_counted_is_what_was_predicted(ranks, clear_ranks, transport, count):
    call = ranks if transport == "local" else clear_ranks
    for result, rank, size in call(counted, count):
        about = {"itemsize": 4, "root": 1, "transport": transport}
        for name, (sent, nbytes) in result.items():
            assert (name, sent) == (name, sent_bytes(name, nbytes, size, rank, **about))


def test_three_ranks_send_what_was_predicted(ranks):
    for result, rank, size in ranks(counted, 5000, size=3):
        for name, (sent, nbytes) in result.items():
            predicted = sent_bytes(name, nbytes, size, rank, itemsize=4, root=1)
            assert (name, sent) == (name, predicted)
