"""Robustness: recursion, threads, generators, exceptions, debuggers, memory, copies."""

import asyncio
import contextlib
import copy
import gc
import pickle
import sys
import threading
import traceback
import tracemalloc
import weakref

import numpy as np
import pytest
from checking import Counting, X

import glasshouse as gh
from glasshouse import nn
from glasshouse.capture.bytecode.native import native


def close(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6, strict=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return gh.tanh(self.lin(x))


# -- recursion, threads, generators ----------------------------------------------------------------


@gh.optimize("eager")
def halves(x, n):
    return x if n == 0 else halves(x * 0.5, n - 1) + 1


@gh.optimize("eager")
def halves_and_breaks(x, n):
    if n == 0:
        return x
    gh.graph_break()
    y = halves_and_breaks(x * 0.5, n - 1)
    return y + y.sum().item()


@pytest.mark.parametrize("fast", [halves, halves_and_breaks])
def test_recursion(fast):
    plain = fast.fn

    def run(x, n):
        return x if n == 0 else None

    def by_hand(x, n):
        if n == 0:
            return x
        y = by_hand(x * 0.5, n - 1)
        return y + (1 if plain is halves.fn else y.sum().item())

    for n in (0, 3, 3, 6, 3, 1):
        close(fast(X(3), n), by_hand(X(3), n))
    assert run(1, 0) == 1


def test_mutual_recursion():
    @gh.optimize("eager")
    def even(x, n):
        return x if n == 0 else odd(x + 1, n - 1)

    @gh.optimize("eager")
    def odd(x, n):
        return x * 2 if n == 0 else even(x + 10, n - 1)

    for n in (4, 5, 4, 5):
        close(even(X(3), n), X(3) + 22 if n == 4 else (X(3) + 23) * 2)


def test_endless_recursion_raises_recursion_error():
    @gh.optimize("eager")
    def forever(x, n):
        return forever(x, [n])

    for _ in range(2):
        with pytest.raises(RecursionError):
            forever(X(3), 0)
    close(gh.optimize("eager")(lambda x: x + 1)(X(3)), X(3) + 1)


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_threads(compiler):
    net = Net()
    fast, errors = gh.optimize(compiler)(net), []
    wanted = {n: net(X(n, 4)).numpy() for n in (1, 2, 3)}

    def work():
        try:
            for k in range(30):
                n = k % 3 + 1
                np.testing.assert_allclose(fast(X(n, 4)).numpy(), wanted[n], rtol=1e-5, atol=1e-6)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, "".join(traceback.format_exception(errors[0]))


def test_threads_have_their_own_mode():
    fast, log = gh.optimize("eager")(lambda x: x + 1), []
    with gh.disable():
        t = threading.Thread(target=lambda: log.append((native().get_mode(), fast(X(3)))))
        t.start()
        t.join()
    assert log[0][0] == 0
    assert len(fast.entries) == 1


def test_context_holds_in_its_thread_only():
    counting, x = Counting(), X(3)

    def fn(x):
        return x * 2

    with gh.optimize(counting):
        t = threading.Thread(target=fn, args=(x,))
        t.start()
        t.join()
    assert counting.runs == 0


@pytest.mark.parametrize("how", ["decorated", "context"])
def test_generator_passes_through(how):
    def rows(x):
        for k in range(3):
            got = yield x * k
            if got is not None:
                yield got
        return "end"

    if how == "decorated":
        rows = gh.optimize("eager")(rows)
    for _ in range(3):
        if how == "context":
            with gh.optimize("eager"):
                result = rows(X(3))
        else:
            result = rows(X(3))
        close(next(result), X(3) * 0)
        close(result.send(X(3)), X(3))
        close(next(result), X(3) * 1)
        close(next(result), X(3) * 2)
        with pytest.raises(StopIteration) as end:
            next(result)
        assert end.value.value == "end"


def test_generator_argument():
    fast = gh.optimize("eager")(lambda parts: sum(parts))
    for _ in range(3):
        close(fast(X(3) * k for k in range(1, 4)), X(3) * 6)


def test_generator_half_consumed():
    @gh.optimize("eager")
    def two(parts):
        return next(parts) + next(parts)

    for _ in range(3):
        parts = (X(3) * k for k in range(5))
        close(two(parts), X(3) * 1)
        close(two(parts), X(3) * 5)
        close(next(parts), X(3) * 4)


def test_coroutine_passes_through():
    @gh.optimize("eager")
    async def fn(x):
        await asyncio.sleep(0)
        return x * 2

    for _ in range(3):
        close(asyncio.run(fn(X(3))), X(3) * 2)


def test_captured_function_in_a_coroutine():
    fast = gh.optimize("eager")(lambda x: x * 2)

    async def main():
        return await asyncio.gather(*[go(k) for k in range(4)])

    async def go(k):
        await asyncio.sleep(0)
        return fast(X(3, seed=k))

    for k, got in enumerate(asyncio.run(main())):
        close(got, X(3, seed=k) * 2)


def test_async_generator_passes_through():
    @gh.optimize("eager")
    async def rows(x):
        for k in range(3):
            yield x * k

    async def main():
        return [row async for row in rows(X(3))]

    for k, row in enumerate(asyncio.run(main())):
        close(row, X(3) * k)


def test_class_body_and_exec_in_a_context():
    with gh.optimize("eager"):

        class Local:
            values = [k * 2 for k in range(3)]

            def go(self, x):
                return x * self.values[1]

        names = {}
        exec("a = 3\ndef f(x): return x * a", names)
        y = Local().go(gh.ones(3)) + names["f"](gh.ones(3))
    close(y, gh.ones(3) * 5)


# -- exceptions ------------------------------------------------------------------------------------


def raises_value_error(x):
    y = x + 1
    raise ValueError("user's own")
    return y


def raises_in_callee(x):
    y = x + 1
    return raises_value_error(y)


def raises_shape_error(x):
    y = x + 1
    return y @ gh.ones((7, 7))


def raises_after_break(x):
    gh.graph_break()
    y = x + 1
    return y.nothing


def raises_key_error(x):
    return x * {"a": 1}["b"]


def raises_zero_division(x):
    return x * (1 / 0)


def raises_in_condition(x):
    if x.sum() > -1e9:
        raise KeyError("branch")
    return x


def raises_unbound(x):
    if x.shape[0] > 100:
        k = 1
    return x * k


def raises_unpacking(x):
    a, b = [x]
    return a + b


def raises_assertion(x):
    assert x.shape[0] == 99, f"rows: {x.shape[0]}"
    return x


def raises_from(x):
    try:
        return x * {}["k"]
    except KeyError as error:
        raise RuntimeError("wrapped") from error


def raises_in_except(x):
    try:
        return x * [][1]
    except IndexError:
        return x * {}["second"]


RAISING = [
    raises_value_error,
    raises_in_callee,
    raises_shape_error,
    raises_after_break,
    raises_key_error,
    raises_zero_division,
    raises_in_condition,
    raises_unbound,
    raises_unpacking,
    raises_assertion,
    raises_from,
    raises_in_except,
]


def caught(fn, *args):
    with pytest.raises(Exception) as error:
        fn(*args)
    return error.value


def own_lines(error):
    """The lines of this file in a traceback, with the functions' names."""
    return [
        (f.name, f.lineno)
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename == __file__ and f.name not in ("caught", "<lambda>")
    ]


@pytest.mark.parametrize("fn", RAISING, ids=lambda f: f.__name__)
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_exception(fn, compiler):
    fast = gh.optimize(compiler)(fn)
    want = caught(fn, X(3))
    for _ in range(4):
        got = caught(fast, X(3))
        assert type(got) is type(want)
        assert str(got) == str(want)
        assert type(got.__cause__) is type(want.__cause__)
        assert type(got.__context__) is type(want.__context__)
        assert own_lines(got)[-1][1] == own_lines(want)[-1][1]


@pytest.mark.parametrize("fn", RAISING, ids=lambda f: f.__name__)
def test_traceback_has_all_of_the_users_lines(fn):
    fast = gh.optimize("eager")(fn)
    want = [line for _, line in own_lines(caught(fn, X(3)))]
    for _ in range(3):
        got = iter([line for _, line in own_lines(caught(fast, X(3)))])
        assert all(line in got for line in want)  # in this order; resume functions may add theirs


def test_effects_before_an_exception_are_kept():
    def fn(x, out):
        out.append(1)
        y = x + 1
        out.append(y)
        x += 1
        raise ValueError("late")

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        x, out = X(3), []
        caught(fast, x, out)
        assert len(out) == 2
        close(out[1], X(3) + 1)
        close(x, X(3) + 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_other_exceptions_pass(error):
    def fn(x):
        y = x + 1
        raise error
        return y

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        with pytest.raises(error):
            fast(X(3))
    assert native().get_mode() == 0
    assert native().set_hook(None) is None


def test_exception_does_not_keep_tensors():
    fast = gh.optimize("eager")(raises_value_error)
    x = X(3)
    watch = weakref.ref(x)
    for _ in range(3):
        caught(fast, x)
    del x
    gc.collect()
    assert watch() is None


def test_function_works_again_after_an_error():
    def fn(x, k):
        if k is None:
            raise ValueError
        return x * k

    fast = gh.optimize("eager")(fn)
    for k in (2, None, 3, None, 2):
        if k is None:
            caught(fast, X(3), k)
        else:
            close(fast(X(3), k), X(3) * k)


# -- debuggers and profilers -----------------------------------------------------------------------


def traced(x):
    y = x + 1
    z = y * 2
    return z - 1


def test_settrace_is_active():
    fast, events = gh.optimize("eager")(traced), []
    fast(X(3))

    def tracer(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        got = [fast(X(3)) for _ in range(3)]
        new = gh.optimize("eager")(traced)
        got += [new(X(3)) for _ in range(2)]
    finally:
        sys.settrace(old)
    for y in got:
        close(y, (X(3) + 1) * 2 - 1)
    assert events


def test_setprofile_is_active():
    fast, events = gh.optimize("eager")(traced), []
    old = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        got = [fast(X(3)) for _ in range(3)]
    finally:
        sys.setprofile(old)
    for y in got:
        close(y, (X(3) + 1) * 2 - 1)
    assert events


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of 3.12")
def test_monitoring_is_active():
    tool, events = sys.monitoring.PROFILER_ID, []
    kinds = sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "test")
    sys.monitoring.register_callback(tool, kinds.PY_START, lambda code, at: events.append(code))
    sys.monitoring.set_events(tool, kinds.PY_START)
    try:
        fast = gh.optimize("eager")(traced)
        got = [fast(X(3)) for _ in range(3)]
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    for y in got:
        close(y, (X(3) + 1) * 2 - 1)
    assert events


def test_trace_set_inside():
    def fn(x):
        y = x + 1
        sys.settrace(sys.gettrace())
        return y * 2

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        close(fast(X(3)), (X(3) + 1) * 2)


def test_frames_are_seen_in_python():
    def fn(x):
        name = sys._getframe().f_code.co_name
        return x + len(locals()), name

    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        got, name = fast(X(3))
        close(got, X(3) + 2)
        assert name == "fn"


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_function_dies(compiler):
    def fn(x):
        return x * 2

    fast = gh.optimize(compiler)(fn)
    fast(X(3)), fast(X(3))
    watches = [weakref.ref(fn), weakref.ref(fast)]
    del fn, fast
    gc.collect()
    assert [w() for w in watches] == [None, None]


def test_function_with_breaks_dies():
    def fn(x):
        y = x + 1
        gh.graph_break()
        if y.sum() > 0:
            y = y * 2
        return y

    fast = gh.optimize("eager")(fn)
    for k in range(4):
        fast(X(3, seed=k))
    watches = [weakref.ref(fn), weakref.ref(fast)]
    del fn, fast
    gc.collect()
    assert [w() for w in watches] == [None, None]


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_module_dies(compiler):
    net = Net()
    fast = gh.optimize(compiler)(net)
    fast(X(2, 4)), fast(X(2, 4))
    watches = [weakref.ref(net), weakref.ref(net.lin.weight)]
    del net, fast
    gc.collect()
    assert [w() for w in watches] == [None, None]


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_inputs_and_results_die(compiler):
    fast = gh.optimize(compiler)(lambda x: (x * 2).sum() + x)
    for k in range(4):
        x = X(1000, seed=k)
        y = fast(x)
        watches = [weakref.ref(x), weakref.ref(y)]
        del x, y
        gc.collect()
        assert [w() for w in watches] == [None, None]


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_tracked_inputs_and_gradients_die(compiler):
    fast = gh.optimize(compiler)(lambda x: (x * x).sum())
    for k in range(4):
        x = X(1000, seed=k).requires_grad_()
        loss = fast(x)
        loss.backward()
        watches = [weakref.ref(x), weakref.ref(loss), weakref.ref(x.grad)]
        del x, loss
        gc.collect()
        assert [w() for w in watches] == [None] * 3


def test_module_argument_of_a_living_function_dies():
    @gh.optimize("eager")
    def fn(net, x):
        return net(x)

    net = Net()
    fn(net, X(2, 4)), fn(net, X(2, 4))
    watch = weakref.ref(net)
    del net
    gc.collect()
    assert watch() is None


def test_object_of_a_method_dies():
    class Local:
        def __init__(self):
            self.k = 2.0

        @gh.optimize("eager")
        def go(self, x):
            return x * self.k

    o = Local()
    o.go(X(3)), o.go(X(3))
    watch = weakref.ref(o)
    del o
    gc.collect()
    assert watch() is None


def test_optimizer_and_model_die():
    @gh.optimize("program")
    def step(model, opt, x):
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss

    net = Net()
    opt = gh.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for k in range(4):
        step(net, opt, X(2, 4, seed=k))
    watches = [weakref.ref(net), weakref.ref(opt), weakref.ref(net.lin.weight)]
    del net, opt, step
    gc.collect()
    assert [w() for w in watches] == [None] * 3


def calls_flat(call, count=60_000, warm=200):
    """Memory does not grow while something is called often."""
    for _ in range(warm):
        call()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(warm):
            call()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            call()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_hits_keep_memory_flat():
    fast, x = gh.optimize("eager")(lambda x, k: x if k else [x]), X(3)
    assert calls_flat(lambda: fast(x, 1)) < 100_000
    assert fast.hits > 60_000


def test_container_results_keep_memory_flat():
    fast, x = gh.optimize("eager")(lambda x, *a, **k: {"x": [x, (a, k)], "n": len(a)}), X(3)
    assert calls_flat(lambda: fast(x, 1, 2, k=3)) < 100_000


def test_breaks_keep_memory_flat():
    def fn(x):
        gh.graph_break()
        return [x]

    fast, x = gh.optimize("eager")(fn), X(3)
    assert calls_flat(lambda: fast(x)) < 100_000


def test_misses_keep_memory_flat():
    fast, x = gh.optimize("eager")(lambda x, k: [x, k + "!"]), X(3)
    texts = [f"t{k}" for k in range(20)]
    with gh.capture.config.override(cache_limit=2), pytest.warns(UserWarning):
        for k in texts[:5]:
            fast(x, k)
    assert calls_flat(lambda: [fast(x, k) for k in texts], 50, 5) < 100_000


def test_exceptions_keep_memory_flat():
    def fn(x):
        raise ValueError("v")

    fast, x = gh.optimize("eager")(fn), X(3)

    def call():
        with contextlib.suppress(ValueError):
            fast(x)

    assert calls_flat(call, 1000) < 100_000


def test_wrong_calls_keep_memory_flat():
    fast, x = gh.optimize("eager")(lambda x, *, k: x), X(3)

    def call():
        with contextlib.suppress(TypeError):
            fast(x, 1, *[2] * 5, j=3)

    assert calls_flat(call, 5000) < 100_000


@pytest.mark.slow
def test_captures_keep_memory_flat():
    x = X(3)

    def call():
        def fn(x):
            gh.graph_break()
            return [x]

        fast = gh.optimize("eager")(fn)
        fast(x), fast(x)

    assert calls_flat(call, 300, 50) < 300_000


def test_reference_counts_of_arguments():
    fast = gh.optimize("eager")(lambda a, b=3, *c, d=4, **e: [a, c, e] if b else a)
    thing = object()
    for _ in range(5):
        fast(thing, 1, thing, d=thing, z=thing)
    gc.collect()
    before = sys.getrefcount(thing)
    for _ in range(100):
        fast(thing, 1, thing, d=thing, z=thing)
    gc.collect()
    assert sys.getrefcount(thing) == before


# -- copies ----------------------------------------------------------------------------------------


def test_deepcopy_of_a_captured_module():
    fast = gh.optimize("eager")(Net())
    fast(X(2, 4))
    other = copy.deepcopy(fast)
    close(other(X(2, 4)), fast(X(2, 4)))
    with gh.no_grad():
        other.lin.weight.zero_()
    assert np.abs(fast.lin.weight.numpy()).max() > 0
    close(fast(X(2, 4)), gh.tanh(fast.lin(X(2, 4))))
    close(other(X(2, 4)), gh.tanh(other.lin(X(2, 4))))


def test_copy_of_a_captured_module():
    fast = gh.optimize("eager")(Net())
    fast(X(2, 4))
    close(copy.copy(fast)(X(2, 4)), fast(X(2, 4)))


@pytest.mark.parametrize("when", ["before", "after"])
def test_pickle_of_a_captured_module(when, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, FakeModule(globals())))
    fast = gh.optimize("eager")(Net())
    if when == "after":
        fast(X(2, 4)), fast(X(2, 4))
    other = pickle.loads(pickle.dumps(fast))
    close(other(X(2, 4)), fast(X(2, 4)))
    assert isinstance(other, Net)


class FakeModule:
    """This file as pickle finds it."""

    def __init__(self, names):
        self.__dict__.update(names)


def test_captured_method_does_not_hinder_copies():
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(X(3))

        @gh.optimize("eager")
        def forward(self, x):
            return x * self.w

    one = Local()
    one(X(3))
    two = copy.deepcopy(one)
    with gh.no_grad():
        two.w.zero_()
    close(one(X(3)), X(3) * one.w)
    close(two(X(3)), X(3) * 0)


def test_deepcopy_of_a_captured_function():
    fast = gh.optimize("eager")(lambda x: x * 2)
    fast(X(3))
    other = copy.deepcopy({"f": fast})["f"]
    close(other(X(3)), X(3) * 2)


# -- the hook and code objects ---------------------------------------------------------------------


def test_equal_code_objects_are_not_confused():
    def make(k):
        names = {"k": k}
        exec("def fn(x):\n    return x * k\n", names)
        return names["fn"]

    one, two = make(2.0), make(3.0)
    assert one.__code__ == two.__code__
    fast_one, fast_two = gh.optimize("eager")(one), gh.optimize("eager")(two)
    for _ in range(3):
        close(fast_one(X(3)), X(3) * 2)
        close(fast_two(X(3)), X(3) * 3)


def test_equal_code_objects_with_breaks_are_not_confused():
    def make(k):
        names = {"k": k, "gh": gh}
        exec("def fn(x):\n    x = x + 1\n    gh.graph_break()\n    return x * k\n", names)
        return names["fn"]

    fast = [gh.optimize("eager")(make(k)) for k in (2.0, 3.0)]
    for _ in range(3):
        close(fast[0](X(3)), (X(3) + 1) * 2)
        close(fast[1](X(3)), (X(3) + 1) * 3)


def test_closures_of_one_function():
    def make(k):
        def fn(x):
            return x * k

        return fn

    counting = Counting()
    with gh.optimize(counting):
        fns = [make(k) for k in (2, 3, 4)]
    x = X(3)
    with gh.optimize(counting):
        got = [fn(x) for _ in range(2) for fn in fns]
    for k, y in zip((2, 3, 4, 2, 3, 4), got):
        close(y, x * k)


def test_constructor_in_a_hot_loop():
    class Point:
        def __init__(self, x):
            self.x = x * 2

    fast = gh.optimize("eager")(lambda x: Point(x).x + Point(x + 1).x)
    for k in range(50):
        close(fast(X(3, seed=k)), X(3, seed=k) * 4 + 2)


def test_many_arguments():
    names = [f"a{i}" for i in range(60)]
    space = {}
    exec(f"def fn({', '.join(names)}):\n    return {' + '.join(names)}\n", space)
    fast = gh.optimize("eager")(space["fn"])
    args = [X(3, seed=i) for i in range(60)]
    for _ in range(3):
        close(fast(*args), space["fn"](*args))
    close(fast(*args[:30], **dict(zip(names[30:], args[30:]))), space["fn"](*args))


def test_long_function():
    lines = "\n".join(f"    n = n * 3 % 1000 + {i}" for i in range(400))
    space = {"gh": gh}
    exec(f"def fn(x, n=1):\n{lines}\n    gh.graph_break()\n{lines}\n    return x * n\n", space)
    fast = gh.optimize("eager")(space["fn"])
    for _ in range(2):
        close(fast(X(3)), space["fn"](X(3)))


def test_max_instructions_ends_the_graph():
    def fn(x):
        for _ in range(2000):
            x = x + 0
        return x

    with gh.capture.config.override(max_instructions=500):
        fast = gh.optimize("eager")(fn)
        for _ in range(2):
            close(fast(X(3)), X(3))


def test_hook_is_off_when_nothing_needs_it():
    fast = gh.optimize("eager")(lambda x: x + 1)
    fast(X(3)), fast(X(3))
    assert native().set_hook(None) is None
    assert native().get_mode() == 0


def test_entries_survive_collection():
    fast = gh.optimize("eager")(lambda x: x + 1)
    fast(X(3))
    for _ in range(3):
        gc.collect()
        close(fast(X(3)), X(3) + 1)
    assert fast.hits == 3


def test_entries_are_dropped_while_they_run():
    @gh.optimize("eager")
    def fn(x):
        y = x + 1
        drop()
        return y * 2

    @gh.disable
    def drop():
        fn.entries.clear()
        gc.collect()

    for _ in range(4):
        close(fn(X(3)), (X(3) + 1) * 2)


def test_reset_while_running():
    @gh.disable
    def again():
        gh.reset()

    @gh.optimize("eager")
    def fn(x):
        y = x + 1
        again()
        return y * 2

    for _ in range(4):
        close(fn(X(3)), (X(3) + 1) * 2)
