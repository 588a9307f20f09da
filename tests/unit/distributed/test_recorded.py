"""Collectives in recordings: each runs once, in order, on every rank, whoever reads its result."""

import threading
from types import MethodType

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.target import use_target
from glasshouse.compile.planning.plan import rewritten
from glasshouse.compile.programs import replay
from glasshouse.dispatch import backend as backends
from glasshouse.distributed.transports.collectives import after_started
from glasshouse.graph.graph import graph_of
from glasshouse.graph.record import describe
from glasshouse.ops.process import process
from glasshouse.targets.cpu.target import CPU


def calls_done(group=None):
    """List the calls of the transport from now on, in order: (name, first element of its
    operand)."""
    transport = process.transport(group or dist.world())
    done, inside = [], threading.local()
    names = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")

    def noting(name, method):
        def call(self, source, *args, **named):
            if not getattr(inside, "depth", 0):
                done.append((name, float(source.reshape(-1)[0])))
            inside.depth = getattr(inside, "depth", 0) + 1
            try:
                return method(self, source, *args, **named)
            finally:
                inside.depth -= 1

        return MethodType(after_started(call), transport)

    for name in names:
        setattr(transport, name, noting(name, getattr(type(transport), name)))
    return done, lambda: [delattr(transport, name) for name in names]


def noted(function, *args):
    """Return the result of the function, and its collectives."""
    backends.current().evaluate()
    done, end = calls_done()
    try:
        result = function(*args)
        backends.current().evaluate()
        return result, list(done)
    finally:
        end()


def ones(value, size=4):
    return gh.asarray(np.full(size, value, np.float32))


def dropping(compile_):
    def work():
        dist.all_reduce(ones(1.0))
        kept = dist.all_gather(ones(2.0)) * 2
        dist.broadcast(ones(3.0), 0)
        return kept.numpy()

    with flags.override(compile=compile_):
        return noted(work)


@pytest.mark.parametrize("compile_", ["always", "never"])
def test_a_collective_runs_in_order_though_nobody_reads_its_result(ranks, compile_):
    for kept, done in ranks(dropping, compile_):
        assert kept.tolist() == [4.0] * 8
        assert [value for _, value in done] == [1.0, 2.0, 3.0]


def dropped_on_one_rank():
    y = dist.all_reduce(ones(1.0 + dist.rank()))
    if dist.rank():
        del y
        dist.barrier()
        return None
    result = y.numpy().tolist()
    dist.barrier()
    return result


def test_one_rank_may_drop_what_another_reads(ranks):
    assert ranks(dropped_on_one_rank) == [[3.0] * 4, None]


def nothing_but_a_collective():
    with flags.override(compile="always"):
        return noted(lambda: type(dist.all_reduce(ones(1.0))))[1]


def test_a_recording_of_nothing_but_a_dropped_collective_runs(ranks):
    assert ranks(nothing_but_a_collective) == [[("all_reduce", 1.0)]] * 2


def equal_ones(compile_, reads):
    x = ones(1.0)

    def work():
        y = dist.all_reduce(x)
        if reads and dist.rank() == 0:
            y.numpy()
        z = dist.all_reduce(x)
        return (y + z).numpy().tolist()

    with flags.override(compile=compile_):
        return noted(work)


@pytest.mark.parametrize("compile_", ["always", "never"])
def test_equal_collectives_stay_apart_however_recordings_are_cut(ranks, compile_):
    for sums, done in ranks(equal_ones, compile_, True):
        assert sums == [4.0] * 4 and len(done) == 2


def losses_of(printing):
    """Of data-parallel training, in which some ranks read the loss of some steps."""
    gh.random.seed(0)
    model = gh.nn.Sequential(gh.nn.Linear(5, 7), gh.nn.Tanh(), gh.nn.Linear(7, 3))
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    rng = np.random.default_rng(dist.rank())
    inputs, targets = (rng.standard_normal((4, n)).astype(np.float32) for n in (5, 3))
    losses = []
    for step in range(6):
        loss = gh.nn.functional.mse_loss(model(gh.asarray(inputs)), gh.asarray(targets))
        if printing and step % (2 + dist.rank()) == 0:
            loss.item()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad = dist.all_reduce(p.grad, "mean")
            if printing and dist.rank() == 1 and step == 3:
                p.grad.numpy()
        optimizer.step()
        losses.append(dist.all_reduce(loss, "mean"))
    return [loss.item() for loss in losses]


def test_ranks_may_read_values_at_different_places(ranks):
    apart, together = ranks(losses_of, True), ranks(losses_of, False)
    assert apart[0] == apart[1] == together[0] == together[1]
    assert apart[0][-1] < apart[0][0]


def cut_early():
    before = replay.record.MAX_PENDING, replay.record.MAX_HELD_BYTES
    replay.set_limits(5 + 4 * dist.rank(), before[1])
    try:
        return losses_of(False)
    finally:
        replay.set_limits(*before)


def test_recordings_may_be_cut_at_different_lengths(ranks):
    assert ranks(cut_early) == ranks(losses_of, False)


def in_python():
    with replay.in_python():
        return losses_of(True)


def test_replay_in_c_changes_nothing(ranks):
    assert ranks(in_python) == ranks(losses_of, True)


def captured():
    weights = ones(1.0)

    @gh.optimize
    def step(x):
        dist.all_reduce(x + 5)
        return dist.all_reduce(x * weights).sum()

    done = []
    for i in range(3):
        dist.all_reduce(ones(10.0 * i))  # recorded before the call, and dropped
        result, calls = noted_since(step, ones(float(i)))
        done.append((result, calls))
    return done


def noted_since(step, x):
    done, end = calls_done()
    try:
        result = step(x).item()
        backends.current().evaluate()
        return result, [value for _, value in done]
    finally:
        end()


def test_captured_programs_take_their_collectives_behind_those_recorded_before(ranks):
    for done in ranks(captured):
        assert done == [(8.0 * i, [10.0 * i, i + 5.0, float(i)]) for i in range(3)]


def in_a_loop(compile_):
    def step(carry, x):
        total = dist.all_reduce(carry + x)
        dist.all_reduce(x)
        return total, total.sum()

    def work():
        start, xs = ones(0.0, 2), gh.asarray(np.ones((3, 2), np.float32) * (1 + dist.rank()))
        carry, sums = gh.scan(step, start, xs)
        return carry.numpy().tolist(), sums.numpy().tolist()

    with flags.override(compile=compile_):
        return noted(work)


@pytest.mark.parametrize("compile_", ["always", "never"])
def test_collectives_of_a_loop_that_its_results_need_run_at_each_step(ranks, compile_):
    result = ranks(in_a_loop, compile_)
    carry = [0.0, 0.0]
    sums = []
    for _ in range(3):
        total = (carry[0] + 1) + (carry[0] + 2)
        carry = [total, total]
        sums.append(2 * total)
    for (got, got_sums), done in result:
        assert got == carry and got_sums == sums and len(done) == 3


def a_dropped_loop():
    def step(carry, x):
        return dist.all_reduce(carry + x), x

    def work():
        gh.scan(step, ones(0.0, 2), gh.asarray(np.ones((3, 2), np.float32)))

    return len(noted(work)[1])


def test_a_loop_with_collectives_runs_though_nobody_reads_it(ranks):
    assert ranks(a_dropped_loop) == [3, 3]


def with_recomputation():
    """Gradient and collectives of a block that is computed again for its backward pass."""
    x = ones(0.5)
    x.requires_grad = True

    def block(x):
        return gh.tanh(dist.all_reduce(gh.tanh(x)))

    def work(checkpoints):
        x.grad = None
        y = gh.checkpoint(block)(x) if checkpoints else block(x)
        y.sum().backward()
        return x.grad.numpy().tolist()

    return noted(work, True), noted(work, False)


def test_a_checkpoint_repeats_its_collectives_on_all_ranks(ranks):
    for (again, calls_again), (once, calls) in ranks(with_recomputation):
        assert again == once and (len(calls_again), len(calls)) == (3, 2)


def transformed():
    rank, size = dist.rank(), dist.size()
    x = gh.asarray(np.arange(6, dtype=np.float32).reshape(2, 3) + rank)
    mapped = gh.vmap(lambda row: dist.all_gather(dist.all_reduce(row) * 2))(x).numpy()
    by_row = np.stack([dist.all_gather(dist.all_reduce(row) * 2).numpy() for row in x])
    t = gh.asarray(np.full((2, 3), 1.0 + rank, np.float32))
    value, tangent = gh.jvp(lambda v: dist.all_reduce(v * v), (x,), (t,))
    with gh.autocast("bfloat16"):
        product = dist.all_reduce(x @ gh.ones((3, 2)))
    return mapped, by_row, value.numpy(), tangent.numpy(), str(product.dtype), size


def test_collectives_are_batched_differentiated_forward_and_autocast(ranks):
    xs = [np.arange(6, dtype=np.float32).reshape(2, 3) + rank for rank in range(2)]
    for mapped, by_row, value, tangent, dtype, _ in ranks(transformed):
        assert mapped.tolist() == by_row.tolist()
        np.testing.assert_array_equal(value, xs[0] ** 2 + xs[1] ** 2)
        np.testing.assert_array_equal(tangent, 2 * xs[0] + 4 * xs[1])
        assert dtype.endswith("bfloat16")


def graph_with_dead_collective():
    from glasshouse.graph import record

    backends.current().evaluate()
    x = ones(1.0)
    dist.all_reduce(x)
    dist.all_reduce(x)
    pending = record.recorder.pending
    record.recorder.forget()
    return [node.op for node in rewritten(graph_of(describe(pending))).nodes]


def test_passes_keep_collectives_that_nothing_needs(ranks):
    assert ranks(graph_with_dead_collective) == [["input", "all_reduce", "all_reduce"]] * 2


def every_kind():
    x = gh.asarray(np.random.default_rng(dist.rank()).standard_normal((4, 6)).astype(np.float32))
    y = gh.tanh(x)
    ring = [(i, (i + 1) % dist.size()) for i in range(dist.size())]
    results = [
        dist.all_reduce(y * 2),
        dist.all_reduce(y, "max"),
        dist.all_gather(y, 1),
        dist.reduce_scatter(y * 3, 1),
        dist.all_to_all(y, 1, 0),
        dist.all_to_all(y, 0, 1),
        dist.broadcast(y + 1, 1),
        dist.permute(y, ring),
        dist.permute(y, [(1, 0)]),
        dist.all_reduce(gh.ones((0, 3))),
        dist.all_reduce(y.sum()),
        dist.all_reduce((y @ y.mT).reshape(-1)).reshape(2, 8).mT,
    ]
    return [(r * 1.25).numpy() for r in results] + [(y @ y.mT).numpy()]


def with_and_without_overlap(function):
    work = globals()[function]
    with flags.override(compile="always", strict=True):
        apart = work()
    blocking = CPU.extension("host steps", lowerers=CPU.lowerers[:-3] + CPU.lowerers[-2:])
    with use_target(blocking), flags.override(compile="always"):
        whole = work()
    with flags.override(compile="never"):
        return apart, whole, work()


@pytest.mark.parametrize("function", ["every_kind", "losses"])
def test_apart_or_at_once_or_by_references_collectives_give_the_same_bits(ranks, function):
    for apart, whole, plain in ranks(with_and_without_overlap, function):
        for a, b, c in zip(apart, whole, plain, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=1e-5)


def losses():
    return losses_of(False)


def failing():
    """A transfer under way when a step fails is waited for, and its memory left alone after
    that."""
    table = gh.asarray(np.zeros((4, 2), np.float32))
    index = gh.asarray(np.array([7]))

    def work():
        y = dist.all_reduce(ones(1.0, 1000) * 2)
        picked = gh.take(table, dist.all_reduce(index), axis=0)
        return y + 1, picked.sum()

    with flags.override(compile="always"):
        y, picked = work()
        with pytest.raises(IndexError):
            picked.numpy()
    backends.current().evaluate()
    return dist.all_reduce(ones(1.0)).numpy().tolist()


def test_collectives_go_on_behind_a_step_that_failed(ranks):
    assert ranks(failing) == [[2.0] * 4] * 2
