"""Other users of the frame-evaluation hook, tracers, profilers, monitors: all see their frames."""

import asyncio
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from checking import Counting, X

import glasshouse as gh
from glasshouse.capture.bytecode.native import native
from glasshouse.compile.building.toolchain import CompileError, extension


def close(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6, strict=True)


def doubled_plus_one(x):
    return doubled_inside(x) + 1


def doubled_inside(x):
    return x * 2


def three_less(x):
    return x - 3


@pytest.fixture
def other():
    """The extension of other_hook.c; before and afterwards nobody has the hook."""
    try:
        result = extension(Path(__file__).with_name("other_hook.c"))
    except (CompileError, OSError, ImportError) as error:
        pytest.skip(f"no C compiler: {error}")
    result.set_aside()
    yield result
    left = result.current()
    result.put_back()
    assert left == "default"


def seen(names) -> dict:
    """How often doubled_plus_one, doubled_inside and three_less were seen."""
    return {
        name: names.count(name) for name in ("doubled_plus_one", "doubled_inside", "three_less")
    }


def plainly(x):
    """Functions called from code that is not captured."""
    return [doubled_plus_one(x), three_less(x)]


def check(got, x):
    close(got[0], x * 2 + 1)
    close(got[1], x - 3)


def test_theirs_was_there_first(other):
    names, counting, x = [], Counting(), X(3)
    other.install(names)
    try:
        with gh.optimize(counting):
            assert other.current() == "other"
            got = [plainly(x), plainly(x)]
        assert other.current() == "watch"
        assert counting.runs == 2  # doubled_plus_one and three_less are one graph
        assert "plainly" in names  # the replacement, in the second call
        hits = names.count("three_less")
        for y in (*got, plainly(x)):
            check(y, x)
        assert counting.runs == 2
        assert names.count("three_less") == hits + 1
    finally:
        other.remove(True)
    check(plainly(x), x)


def test_theirs_comes_and_goes_inside(other):
    names, counting, x = [], Counting(), X(3)
    with gh.optimize(counting):
        doubled_plus_one(x)
        other.install(names)
        try:
            close(doubled_plus_one(x), x * 2 + 1)
            close(three_less(x), x - 3)
            assert counting.runs == 3
        finally:
            other.remove(True)
        assert other.current() == "other"
        close(doubled_plus_one(x), x * 2 + 1)
        assert counting.runs == 4
    assert seen(names)["doubled_plus_one"]
    assert seen(names)["three_less"]


def test_ours_goes_while_theirs_is_above(other):
    names, counting, x = [], Counting(), X(3)
    context = gh.optimize(counting)
    context.__enter__()
    other.install(names)
    close(doubled_plus_one(x), x * 2 + 1)
    context.__exit__(None, None, None)
    assert other.current() == "watch"
    assert counting.runs == 1
    close(three_less(x), x - 3)
    assert counting.runs == 1
    assert seen(names)["three_less"] == 1
    for _ in range(3):  # ours comes back above theirs, which calls ours
        before = seen(names)["three_less"]
        with context:
            close(three_less(x), x - 3)
            close(recursive(x, 5), x + 5)
        assert seen(names)["three_less"] > before
    assert counting.runs > 3
    close(three_less(x), x - 3)
    other.remove(True)
    with context:  # what was left behind goes as well
        close(three_less(x), x - 3)


def recursive(x, n):
    return x if n == 0 else recursive(x, n - 1) + 1


def test_theirs_throws_everybody_out(other):
    names, counting, x = [], Counting(), X(3)
    with gh.optimize(counting):
        close(doubled_plus_one(x), x * 2 + 1)
        other.install(names)
        other.remove(False)
        close(doubled_plus_one(x), x * 2 + 1)
        assert counting.runs == 1  # nobody sees frames
    with gh.optimize(counting):
        close(doubled_plus_one(x), x * 2 + 1)
    assert counting.runs == 2


def test_decorated_functions_need_no_hook(other):
    names, x = [], X(3)
    fast = gh.optimize("eager")(doubled_plus_one)
    fast(x)
    other.install(names)
    try:
        for _ in range(3):
            close(fast(x), x * 2 + 1)
    finally:
        other.remove(True)
    assert fast.hits == 3
    assert seen(names) == {
        "doubled_plus_one": 3,
        "doubled_inside": 0,
        "three_less": 0,
    }  # the replacement has its name


def test_errors_and_generators_pass_both(other):
    def failing(x):
        raise ValueError("mine")

    def rows(x):
        got = yield x
        yield x * got

    names = []
    other.install(names)
    try:
        for _ in range(2):
            with gh.optimize("eager"):
                with pytest.raises(ValueError, match="mine"):
                    failing(X(3))
                result = rows(X(3))
                close(next(result), X(3))
                close(result.send(2), X(3) * 2)
                with pytest.raises(StopIteration):
                    next(result)
        assert other.current() == "watch"
    finally:
        other.remove(True)
    assert "rows" in names


def test_threads_share_the_hook(other):
    names, counts, errors = [], {}, []
    ready, gone = threading.Barrier(3), threading.Barrier(3)

    def work(number):
        counting, x = Counting(), X(3, seed=number)
        try:
            with gh.optimize(counting):
                ready.wait()
                close(doubled_plus_one(x), x * 2 + 1)
                counts[number] = counting.runs
                gone.wait()
        except BaseException as error:
            errors.append(error)

    other.install(names)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
        for t in threads:
            t.start()
        ready.wait()
        close(three_less(X(3)), X(3) - 3)  # this thread captures nothing
        gone.wait()
        for t in threads:
            t.join()
        assert other.current() == "watch"
    finally:
        other.remove(True)
    assert not errors
    assert counts == {0: 1, 1: 1}
    assert seen(names)["three_less"] == 1


# -- inside a context, where frames come through our hook ------------------------------------------


def in_context(fn, *args):
    """Return the results of a function inside a context, the first time and later."""
    results = []
    with gh.optimize("eager"):
        for _ in range(3):
            results.append(fn(*args))
    return results


def test_recursion_in_a_context():
    x = X(3)
    for got in in_context(recursive, x, 9):
        close(got, x + 9)


def test_generators_in_a_context():
    def squares(x):
        for n in range(3):
            yield doubled_inside(x) * n

    for got in in_context(lambda x: sum(squares(x)), X(3)):
        close(got, X(3) * 6)


def test_coroutines_in_a_context():
    async def one(x):
        await asyncio.sleep(0)
        return doubled_inside(x)

    async def many():
        return await asyncio.gather(*[one(X(3, seed=n)) for n in range(3)])

    with gh.optimize("eager"):
        for _ in range(2):
            for n, got in enumerate(asyncio.run(many())):
                close(got, X(3, seed=n) * 2)


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_tracer_in_a_context(kind):
    events, x = [], X(3)
    install, result = getattr(sys, f"set{kind}"), getattr(sys, f"get{kind}")()

    def tracer(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return tracer

    install(tracer)
    try:
        got = in_context(doubled_plus_one, x)
        assert getattr(sys, f"get{kind}")() is tracer
    finally:
        install(result)
    for y in got:
        close(y, x * 2 + 1)
    calls = [name for name, event in events if event == "call"]
    assert calls.count("doubled_plus_one") >= 2  # the replacement, in later calls


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of 3.12")
def test_monitoring_in_a_context():
    tool, names, x = sys.monitoring.DEBUGGER_ID, [], X(3)
    kinds = sys.monitoring.events
    wanted = kinds.PY_START | kinds.PY_RETURN | kinds.LINE
    sys.monitoring.use_tool_id(tool, "test")
    for kind in (kinds.PY_START, kinds.PY_RETURN, kinds.LINE):
        sys.monitoring.register_callback(tool, kind, lambda code, *rest: names.append(code.co_name))
    sys.monitoring.set_events(tool, wanted)
    try:
        got = in_context(doubled_plus_one, x)
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    for y in got:
        close(y, x * 2 + 1)
    assert names.count("doubled_plus_one") >= 2


def test_a_context_that_ends_in_an_error_leaves_no_hook(other):
    def fn(x):
        raise KeyError("inside")

    for _ in range(2):
        with pytest.raises(KeyError), gh.optimize("eager"):
            fn(X(3))
        assert native().set_hook(None) is None
        assert other.current() == "default"


def test_nested_contexts_restore_each_other(other):
    inner, outer, x = Counting(), Counting(), X(3)
    with gh.optimize(outer):
        doubled_plus_one(x)
        with gh.optimize(inner):
            doubled_plus_one(x)
        doubled_plus_one(x)
        with gh.disable():
            doubled_plus_one(x)
    assert (outer.runs, inner.runs) == (2, 1)
    assert other.current() == "default"


class Thing:
    pass


def is_released(x):
    """Whether an argument is gone once its name is: where someone has the hook, callers hold it."""
    thing = weakref.ref(x)
    x = None
    return thing() is None


def has_hook():
    return not is_released(Thing())


def test_a_thread_that_ends_within_a_context_leaves_no_hook(other):
    assert not has_hook()
    begun, go_on = threading.Event(), threading.Event()

    def run():
        gh.optimize("eager").__enter__()
        begun.set()
        go_on.wait()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
        begun.wait()
    assert has_hook()
    go_on.set()
    for thread in threads:
        thread.join()
    assert not has_hook()
    assert gh.capture.explain(doubled_plus_one, X(2)).graphs
    assert not has_hook()
