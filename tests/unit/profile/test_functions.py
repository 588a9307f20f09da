"""Python functions of the user's, those that call no operator too, by a clock that tests move."""

import sys
import threading
from collections import namedtuple
from contextlib import suppress

import pytest
from tests.unit.profile.fabricated import MS, Clock
from tests.unit.profile.test_utilisation import PROGRAM

import glasshouse as gh
from glasshouse.base import OptionError
from glasshouse.profile import function_watch
from glasshouse.profile.function_watch import FunctionWatch, SlowFunctions, kind_of_functions
from glasshouse.profile.profiler import profile
from glasshouse.profile.record import Threads
from glasshouse.profile.report import data_of


@pytest.fixture
def clock(monkeypatch):
    """The twin in Python notes functions, by a clock that the test moves."""
    monkeypatch.setattr(function_watch, "kind_of_functions", lambda: SlowFunctions)
    clock = Clock(monkeypatch)
    monkeypatch.setattr(function_watch, "perf_counter_ns", clock.now)
    return clock


class Loop:
    """A step that prepares data (3 ms, 2 of them in a helper that calls itself), computes (2 ms of
    Python and a Program of 10) and logs (1 ms, in a region)."""

    def __init__(self, clock):
        self.clock = clock

    def step(self):
        self.prepare()
        self.compute()
        with gh.record_function("a region"):
            self.log()

    def prepare(self):
        self.clock.ns += 1 * MS
        self.helper(2)

    def helper(self, depth):
        self.clock.ns += 1 * MS
        if depth > 1:
            self.helper(depth - 1)

    def compute(self):
        self.clock.ns += 2 * MS
        self.clock.tell_run(PROGRAM, (5, 3, 2))

    def log(self):
        self.clock.ns += 1 * MS


@pytest.fixture
def recorded(clock):
    loop = Loop(clock)
    with gh.profile(with_functions=True) as prof:
        for i in range(6):
            if not i:
                loop.prepare()
                clock.pass_time(90)  # a warm-up
            loop.step()
            prof.step()
    return prof


def rows_ms(prof):
    return {
        row.name.rpartition(".")[2]: (row.self_ns / MS, row.total_ns / MS, row.calls, row.operators)
        for row in prof.functions()
        if row.name.startswith("Loop.")
    }


def test_own_time_all_of_it_and_calls_are_those_of_the_median_step(recorded):
    assert recorded.breakdown().steps.median_ns == 16 * MS
    assert {name: pytest.approx(row) for name, row in rows_ms(recorded).items()} == {
        "step": (0, 16, 1, 1),
        "prepare": (1, 3, 1, 0),
        "helper": (2, 2, 2, 0),
        "compute": (2, 12, 1, 1),
        "log": (1, 1, 1, 0),
    }
    lines = {row.name: row.line for row in recorded.functions()}
    first = Loop.prepare.__code__.co_firstlineno
    assert lines["Loop.prepare"] == f"{__file__}:{first}"


def test_what_calls_no_operator_is_told_in_one_sentence(recorded):
    result = recorded.functions()
    assert result.without_operators_ns == pytest.approx(4 * MS)
    assert result.sentence.endswith("call no operator take 4.000 ms of a median step (25.0%).")
    assert data_of(recorded.trace)["functions"]["sentence"] == result.sentence
    with gh.profile.text.within(80):
        assert max(map(len, str(result).splitlines()[2:])) <= 80


def test_functions_are_read_back(recorded, tmp_path):
    again = gh.profile.read(recorded.export_chrome_trace(tmp_path / "t.json"))
    assert str(again.functions()) == str(recorded.functions())


def test_functions_of_threads_that_begin_meanwhile_are_told(clock):
    loop = Loop(clock)
    with gh.profile(with_functions=True) as prof:
        thread = threading.Thread(target=loop.prepare)
        thread.start()
        thread.join()
    assert rows_ms(prof)["prepare"] == (1, 3, 1, 0)
    assert sys.getprofile() is None and threading.getprofile() is None


def test_without_the_option_there_are_none(clock):
    with gh.profile(with_stack=True) as prof:
        Loop(clock).prepare()
    with pytest.raises(OptionError, match="with_functions"):
        prof.functions()
    assert data_of(prof.trace)["functions"] is None


def test_another_profiler_stays_as_it_is(clock):
    called = []
    sys.setprofile(lambda *event: called.append(event))
    try:
        own = sys.getprofile()
        with gh.profile(with_functions=True) as prof:
            Loop(clock).prepare()
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    assert called and not prof.functions()


# -- by C ----------------------------------------------------------------------------------------


def fail(depth):
    if depth:
        fail(depth - 1)
    raise ValueError("on purpose")


def count(n):
    yield from range(n)
    yield n


Pair = namedtuple("Pair", "first second")


def program():
    for depth in range(3):
        with suppress(ValueError):
            fail(depth)
    total = sum(count(4)) + sum(x for x in [1, 2, 3])
    return sorted([3, 1, total], key=lambda x: -x), Pair(1, 2), f"{total:.2f}"


def calls_noted(kind, room=1_000, monkeypatch=None):
    monkeypatch.setattr(function_watch, "kind_of_functions", lambda: kind)
    watch = FunctionWatch(room, Threads()).begin()
    program()
    watch.end()
    assert sys.getprofile() is None
    return watch


def test_c_notes_what_its_twin_does(monkeypatch):
    fast, slow = (
        calls_noted(kind, monkeypatch=monkeypatch) for kind in (kind_of_functions(), SlowFunctions)
    )
    names = [[w.names[what][2] for what in w.events["what"]] for w in (fast, slow)]
    assert names[0] == names[1] and {"program", "fail", "count"} <= set(names[0])
    assert "program.<locals>.<lambda>" in names[0] and "__new__" not in names[0]
    for watch in (fast, slow):
        begins, ends = watch.events["begin"], watch.events["end"]
        assert (begins <= ends).all() and (ends[1:] >= ends[:-1]).all()


def test_so_many_calls_are_kept(monkeypatch):
    for kind in (kind_of_functions(), SlowFunctions):
        assert len(calls_noted(kind, 5, monkeypatch).events) == 5


def test_who_puts_the_profiler_back_has_it_go_on():
    watch = FunctionWatch(1_000, Threads()).begin()
    before = sys.getprofile()
    sys.setprofile(None)
    program()
    sys.setprofile(before)
    fail_quietly()
    program()
    watch.end()
    assert [watch.names[what][2] for what in watch.events["what"]].count("program") == 1


def fail_quietly():
    with pytest.raises(ValueError):
        fail(0)


def test_many_functions_are_told_apart(monkeypatch):
    functions = [eval(compile("lambda: None", f"file{i}.py", "eval")) for i in range(1_000)]
    watch = FunctionWatch(5_000, Threads()).begin()
    for function in functions * 2:
        function()
    watch.end()
    files = [watch.names[what][0] for what in watch.events["what"]]
    own = [file for file in files if file.startswith("file")]
    assert own == [f"file{i}.py" for i in range(1_000)] * 2


def test_a_captured_function_is_captured_while_functions_are_noted():
    @gh.optimize
    def captured(x):
        return (x @ x).sum()

    with profile(with_functions=True) as prof:
        for _ in range(3):
            captured(gh.ones((4, 4))).item()
            prof.step()
    assert not prof.trace.captures[0]["breaks"] and prof.trace.captures[0]["graphs"] == 1
    assert any(row.name.endswith("captured") for row in prof.functions())
