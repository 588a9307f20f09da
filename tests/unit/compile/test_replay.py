"""C replays exactly what Python records: nodes, tape, values and events."""

import gc
import threading
from typing import ClassVar

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import GradError, IndexOutOfRangeError, ShapeError
from glasshouse.base.flags import flags
from glasshouse.compile.programs import replay
from glasshouse.compile.programs.executable import NativeRunner
from glasshouse.dispatch.bind import run
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.watch import Watcher
from glasshouse.graph.record import recorder
from glasshouse.nn import functional

NativeRunner.get()
F = functional
needs_replay = pytest.mark.skipif(replay.Native.module is None, reason="replay in C is not there")
RNG = np.random.default_rng(0)


def data(*shape, dtype="float32"):
    return gh.asarray(RNG.standard_normal(shape).astype(dtype))


class Net(nn.Module):
    """Layers of many kinds in one loss."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer, self.out = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        y = y.flatten(2).permute(0, 2, 1)
        y = self.layer(y + self.attention(y, y, y)[0])
        return self.out(F.gelu(y).mean(axis=1))


LOOPS = []  # of runs of the function below


@composed
def looped(x, w):
    """Calls with several results: a loop, and the parts of a product."""
    LOOPS.append(x)
    last, sums = gh.scan(lambda s, row: (s + row, s * row), x[0] * 2, x @ w)
    q, r = gh.linalg.qr(sums)
    return last, q @ r


PROGRAMS = {
    "several results": lambda x, w: (looped(x.detach(), w.detach())[1] * x).sum() + w.sum(),
    "several results, tracked": lambda x, w: (looped(x, w)[0] * x).sum(),
    "arithmetic": lambda x, w: ((x + 1.5) * x - 2 / (x * x + 1)).sum(),
    "aliases": lambda x, w: (x * x + x.detach() * x).sum() + (w @ w.T).sum(),
    "scalars": lambda x, w: (x * 0.123 + 7.5 - x * 2).sum() ** 2,
    "broadcast": lambda x, w: (x[:, None] * w).sum(),
    "reductions": lambda x, w: (x.mean(axis=0) + x.max(axis=1).sum() - w.var(correction=0)).sum(),
    "softmax": lambda x, w: F.cross_entropy(x @ w, gh.asarray([0, 1, 2, 3])),
    "pieces": lambda x, w: gh.concat([x[:, :3], F.sigmoid(x[:, 3:])], axis=1).sum(),
    "two dtypes": lambda x, w: (x.astype("float64") * w.sum()).sum().float(),
    "constants": lambda x, w: (x * gh.asarray(np.arange(6, dtype="f"))).sum(),
    "choices": lambda x, w: gh.where(x > 0, x, -x).sum() + (x**3).sum(),
    "not tracked": lambda x, w: (x.detach() * 3).sum() + w.sum() + (x.detach() ** 2).sum(),
}


def recorded(program, tracked):
    """The structure of the recording of a program and its gradient, and the values."""
    x = gh.asarray(np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6))
    w = gh.asarray(np.linspace(0.5, 3, 36, dtype=np.float32).reshape(6, 6))
    leaves = [x.requires_grad_("x" in tracked), w.requires_grad_("w" in tracked)]
    gh.backends.current().evaluate()
    loss = program(*leaves)
    if loss.requires_grad:
        loss.backward()
    places = {id(n): i for i, n in enumerate(recorder.pending)}
    nodes = [
        (
            n.op,
            repr(n.attrs),
            n.spec,
            n.scalar,
            n.origin.phase,
            [places.get(id(y), y.spec) for y in n.inputs],
        )
        for n in recorder.pending
    ]
    return nodes, [loss.numpy(), *(p.grad.numpy() for p in leaves if p.grad is not None)]


@needs_replay
@pytest.mark.parametrize("tracked", ["", "x", "w", "xw"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_replay_records_the_same(name, tracked):
    with replay.in_python():
        nodes, values = recorded(PROGRAMS[name], tracked)
    for _ in range(4):  # all new, partly replayed, replayed
        again, result = recorded(PROGRAMS[name], tracked)
        assert again == nodes
        assert len(result) == len(values)
        for a, b in zip(result, values, strict=True):
            np.testing.assert_array_equal(a, b)


def training(optimizer, autocast: bool, steps: int = 5):
    """Losses and parameters of some steps."""
    gh.random.seed(3)
    model = Net()
    opt = optimizer(model.parameters())
    x, y = gh.asarray(np.random.default_rng(1).random((4, 3, 8, 8), np.float32)), [0, 1, 2, 3]
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        with gh.autocast("bfloat16", enabled=autocast):
            loss = F.cross_entropy(model(x), gh.asarray(y))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.numpy() for p in (*model.parameters(), *model.buffers())]


@pytest.mark.slow
@needs_replay
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_training_is_the_same(name, autocast):
    options = {"SGD": {"lr": 0.1, "momentum": 0.9}, "AdamW": {"lr": 0.01}}[name]

    def optimizer(parameters):
        return getattr(gh.optim, name)(parameters, **options)

    with replay.in_python():
        losses, parameters = training(optimizer, autocast)
    result, output = training(optimizer, autocast)
    assert result == losses
    for a, b in zip(output, parameters, strict=True):
        np.testing.assert_array_equal(a, b)


def counted(run):
    """Return the view of counter and profiler of a run: FLOPs, and each event's call, module and
    pass."""
    with gh.FlopCounter() as counter:
        run()
    with gh.profile(record_shapes=True, with_modules=True, with_stack=True) as prof:
        run()
    events = [
        (e.name, e.phase, e.module, e.shapes, e.sequence >= 0, e.stack)
        for e in prof.events()
        if e.kind == "recorded"
    ]
    return counter.total(), counter.by_operator("all", "executed"), events


def stack_within(event) -> list[str]:
    """The lines of a stack inside `run` below."""
    stack = event[-1]
    return stack[: next(i for i, line in enumerate(stack) if " run" in line or "run " in line)]


@needs_replay
def test_watchers_are_told_the_same():
    model, x = Net(), data(2, 3, 8, 8)

    def run():
        F.mse_loss(model(x), data(2, 5)).backward()
        model.zero_grad()

    with replay.in_python():
        run()
        expected = counted(run)
    for _ in range(3):
        run()
    result = counted(run)
    assert result[:2] == expected[:2]
    assert [event[:5] for event in result[2]] == [event[:5] for event in expected[2]]
    stacks = [[stack_within(event) for event in events] for *_, events in (result, expected)]
    assert stacks[0] == stacks[1]


@needs_replay
def test_a_composed_function_runs_once_for_each_kind_of_arguments():
    ran = []

    @composed
    def square_plus(x, n, bias=None):
        ran.append(n)
        return x * x + n if bias is None else x * x + n + bias

    x, y = data(3, 4), data(3, 4)
    for _ in range(5):
        np.testing.assert_array_equal(square_plus(x, 3).numpy(), (x * x + 3).numpy())
    assert ran == [3] * len(ran)
    assert len(ran) <= 3
    ran.clear()
    assert square_plus(x, 4).numpy()[0, 0] == (x * x + 4).numpy()[0, 0]
    assert square_plus(x, 3.0).dtype is gh.float32
    assert square_plus(x, True).shape == (3, 4)
    np.testing.assert_array_equal(square_plus(x, 3, bias=y).numpy(), (x * x + 3 + y).numpy())
    np.testing.assert_array_equal(square_plus(x, 3, bias=x).numpy(), (x * x + 3 + x).numpy())
    assert ran == [4, 3.0, True, 3, 3]
    assert square_plus(data(2), 3).shape == (2,)
    assert square_plus(x.astype("float64"), 3).dtype is gh.float64


@needs_replay
def test_calls_with_several_results_are_replayed_but_where_they_are_watched():
    x, w = data(5, 6), data(6, 6)

    def runs(run) -> int:
        """How often the function's Python ran."""
        LOOPS.clear()
        run()
        return len(LOOPS)

    def call():
        gh.eval(*looped(x, w))

    with replay.in_python():
        assert runs(call) == 1
        expected = counted(call)
    for _ in range(3):
        call()
    assert runs(call) == 0
    results = []
    assert runs(lambda: results.extend(counted(call))) == 2
    assert results[:2] == list(expected[:2])
    assert [event[:5] for event in results[2]] == [event[:5] for event in expected[2]]


@needs_replay
def test_what_is_not_pure_is_run_each_time():
    ran = []

    def body(x, *rest):
        ran.append(x)
        return x

    reads = composed(lambda x: body(x + 1) * x.sum().item())
    draws = composed(lambda x: body(x) * gh.random.normal(x.shape))
    writes = composed(lambda x: body(x).copy_(x * 2))
    lists = composed(lambda x, y: body(x) + gh.asarray(y))
    for fn, args in ((reads, ()), (draws, ()), (writes, ()), (lists, ([1.0, 2.0],))):
        ran.clear()
        results = [fn(gh.asarray([1.0, 2.0]), *args).tolist() for _ in range(5)]
        assert len(ran) == 5
        assert results == [results[0]] * 5 or fn is draws
    assert len({draws(gh.asarray([1.0])).item() for _ in range(5)}) == 5


@needs_replay
def test_scalars_that_vary_need_no_new_calls_and_stay_themselves():
    x, before = data(5, 7), None
    for i in range(300):
        np.testing.assert_array_equal((x * (0.3 + i)).numpy(), x.numpy() * np.float32(0.3 + i))
        count = len(gh.backends.current().replays)
        assert before is None or count == before or i < 4 or 0.3 + i in (0.5,)
        before = count
    for special in (0.0, -0.0, float("inf"), float("nan"), 0.5, 2, True, 10**6):
        for _ in range(3):
            result = (gh.asarray([1.0, -1.0]) * special).numpy()
            np.testing.assert_array_equal(result, np.array([1, -1], "f") * np.float32(special))
            assert np.signbit(result[0]) == np.signbit(np.float32(special))


@needs_replay
def test_equal_payloads_of_different_leaves_keep_their_places_on_the_tape():
    for _ in range(3):
        x = gh.tensor([1.0, 2.0], requires_grad=True)
        (x * x).sum().backward()
    twin = x.detach().requires_grad_()
    (x * twin).sum().backward()
    assert (x.grad.tolist(), twin.grad.tolist()) == ([3.0, 6.0], [1.0, 2.0])


@needs_replay
def test_names_and_positional_strings_are_told_apart():
    added = composed(lambda x, what="1", n=0: x + int(what) + n)
    for _ in range(3):
        assert added(gh.zeros(1), n=3).tolist() == [4.0]
        with pytest.raises(ValueError, match="invalid literal"):
            added(gh.zeros(1), "n", 3)


@needs_replay
@pytest.mark.parametrize("count", [8, 9, 12, 70])
def test_rules_of_calls_with_many_operands(count):
    joined = composed(lambda x: gh.concat([x * i for i in range(count)]))
    for _ in range(4):
        x = data(3).requires_grad_()
        joined(x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), sum(range(count)))


class Evaluates:
    """Garbage in a cycle, whose finalizer has everything computed that waits."""

    count = 0

    def __init__(self):
        self.itself, self.x = self, gh.ones(3) * 2.5

    def __del__(self):
        Evaluates.count += (self.x + 1).sum().item() == 10.5


@needs_replay
def test_a_finalizer_may_evaluate_in_the_middle_of_a_call():
    x, layer, before = gh.ones((4, 4)), nn.LayerNorm(4), gc.get_threshold()
    gc.set_threshold(37, 2, 2)
    try:
        for i in range(600):
            Evaluates()
            total = F.softmax(layer(x), dim=-1).sum()
            assert i % 20 or total.item() == 4.0
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert Evaluates.count == 600


@needs_replay
def test_calls_that_are_evaluated_while_they_are_collected_are_not_replayed(monkeypatch):
    find_out = replay.CallCollector.is_whole

    def is_whole(self):  # as where a collection comes right after
        whole = find_out(self)
        gh.backends.current().evaluate()
        return whole

    x, replays = gh.ones((3, 11)), gh.backends.current().replays
    F.softmax(x, dim=-1)  # the calls within are replayed, those of the whole are to be collected
    for key in [k for k, v in replays.items() if v is not None and v.calls[1:]]:
        del replays[key]
    with monkeypatch.context() as patched:
        patched.setattr(replay.CallCollector, "is_whole", is_whole)
        F.softmax(x, dim=-1)
    assert F.softmax(x, dim=-1).sum().item() == pytest.approx(3)


@needs_replay
def test_a_watcher_may_evaluate_in_the_middle_of_a_call():
    class Reads(Watcher):
        sizes: ClassVar[list] = []

        def op(self, call, result, begin_ns):
            self.sizes.append(result.numpy().size)

    x, layer, reads = gh.ones((4, 4)), nn.LayerNorm(4), Reads()
    for _ in range(3):
        F.softmax(layer(x), dim=-1)
    reads.watch()
    try:
        results = [F.softmax(layer(x), dim=-1) for _ in range(20)]
    finally:
        reads.unwatch()
    assert len(reads.sizes) % 20 == 0
    assert [y.sum().item() for y in results] == [4.0] * 20


@needs_replay
def test_what_is_in_force_counts():
    x = data(3, 3).requires_grad_()
    w = data(3, 3)
    for _ in range(4):
        assert F.softmax(x @ w, dim=-1).requires_grad
        with gh.no_grad():
            assert not F.softmax(x @ w, dim=-1).requires_grad
        with gh.autocast("bfloat16"):
            assert (x @ w).dtype is gh.bfloat16
            with gh.autocast("float16"):
                assert (x @ w).dtype is gh.float16
            with gh.autocast(enabled=False):
                assert (x @ w).dtype is gh.float32
        assert not F.softmax(x.detach() @ w, dim=-1).requires_grad
        assert gh.vmap(lambda row: F.softmax(row, dim=-1))(w).shape == (3, 3)
        assert gh.grad(lambda v: F.gelu(v).sum())(w).shape == (3, 3)


@needs_replay
def test_errors_are_raised_each_time_where_they_were():
    x = data(3, 4)
    for _ in range(4):
        with pytest.raises(ShapeError, match="linear"):
            F.linear(x, data(5, 6))
        with pytest.raises(ShapeError):
            x + data(3, 5)
        with pytest.raises(IndexOutOfRangeError):
            F.embedding(gh.asarray([9]), data(3, 2))
        with pytest.raises(GradError):
            x.sum().backward()


@needs_replay
def test_a_replaced_primitive_is_used_at_once_and_no_longer_than_asked():
    x = data(4).requires_grad_()
    for _ in range(4):
        (F.sigmoid(x) + x).sum().backward()
    with gh.backends.current().replace("add", lambda a, b: a - b):
        assert (x + 1).tolist() == (x - 1).tolist()
    assert (x + 1).tolist() == (1 + x).tolist()


@needs_replay
def test_gradients_of_gradients_hooks_and_kept_graphs():
    x, log = data(4).requires_grad_(), []
    for _ in range(4):
        log.clear()
        y = (F.gelu(x) ** 2).sum()
        (first,) = gh.autograd.grad(y, x, create_graph=True)
        (second,) = gh.autograd.grad(first.sum(), x)
        with replay.in_python():
            z = (F.gelu(x) ** 2).sum()
            (g,) = gh.autograd.grad(z, x, create_graph=True)
            (expected,) = gh.autograd.grad(g.sum(), x)
        np.testing.assert_array_equal(second.numpy(), expected.numpy())
        u = F.relu(x * 3)
        u.register_hook(lambda g: log.append(g) or g * 2)
        v = u.sum()
        v.backward(retain_graph=True)
        v.backward()
        assert len(log) == 2
        np.testing.assert_array_equal(x.grad.numpy(), np.where(x.numpy() > 0, 12, 0))
        x.grad = None


@needs_replay
def test_threads_record_for_themselves():
    x, failed = data(6, 6), []

    def work(seed: int):
        try:
            w, results = gh.asarray(np.full((6, 6), seed, "f")).requires_grad_(), []
            for _ in range(50):
                w.grad = None
                F.softmax(x @ w, dim=-1)[:, 0].sum().backward()
                results.append(w.grad.numpy())
            for g in results:
                np.testing.assert_array_equal(g, results[0])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@needs_replay
def test_many_sizes_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(replay, "MOST_REPLAYS", 64)
    for n in range(1, 120):
        assert F.softmax(data(n, 3), dim=-1).sum().item() == pytest.approx(n)
        assert len(gh.backends.current().replays) <= 64, n


def test_without_replay_all_goes_through_python():
    with replay.in_python():
        assert flags.replay in ("auto", "python")
        x = data(3).requires_grad_()
        F.gelu(x).sum().backward()
        assert x.grad.shape == (3,)


@needs_replay
def test_python_within_python_stays_python():
    with replay.in_python():
        with replay.in_python():
            pass
        assert hooks.run is run
    assert hooks.run is replay.Native.module.run


def test_gradients_that_are_one_object_stay_so():
    same = []
    for _ in range(20):
        x, w = gh.ones(3).requires_grad_(), gh.ones(3).requires_grad_()
        ((x + w) * 2.0 - w).sum().backward()
        y, z = gh.ones(3).requires_grad_(), gh.ones(3).requires_grad_()
        (y + z).sum().backward()
        same.append((x.grad is w.grad, y.grad is z.grad))
    assert same == [(False, True)] * 20
