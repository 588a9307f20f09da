"""Hooks and watchers: what upper storeys put into lower ones, and who is told in which thread."""

import re
import threading
from pathlib import Path

import glasshouse as gh
from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront
from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.hooks import REPLAY, Hooks, hooks
from glasshouse.dispatch.watch import Watcher, also_told, unwatched

PACKAGE = Path(gh.__file__).parent


class Names(Watcher):
    """The names of the calls that it is told of, by the number of the thread."""

    def __init__(self):
        self.told: list[tuple[int, str]] = []

    def op(self, call, result, begin_ns):
        self.told.append((state.thread, call.name))

    def __enter__(self):
        self.watch()
        return self

    def __exit__(self, *exc_info):
        self.unwatch()


def in_thread(work) -> None:
    """Run work in another thread, to its end."""
    failed: list = []

    def run():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not failed, failed


def test_all_hooks_are_declared_and_set():
    used = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"(?<![\w.])hooks\.([a-z_]+)", path.read_text())
    } - {"py"}
    assert used - {"replay_by"} == set(Hooks.__annotations__) - set(REPLAY) | used & set(REPLAY)
    assert set(REPLAY) < set(Hooks.__annotations__)
    assert all(hasattr(hooks, name) for name in Hooks.__annotations__)


def test_a_thread_that_hides_does_not_blind_others():
    x = gh.ones(3)
    with Names() as names:
        with unwatched():
            x + x
            in_thread(lambda: x * x)
        assert [name for _, name in names.told] == ["mul"]
        x - x
        assert [name for _, name in names.told] == ["mul", "sub"]
    assert state.watchers.all is watchers and not watchers


def test_who_is_told_by_one_thread_is_not_told_by_others():
    x, names = gh.ones(3), Names()
    with also_told(names):
        in_thread(lambda: x * x)
        x + x
    x - x
    assert names.told == [(state.thread, "add")]


def test_a_watcher_that_begins_while_a_thread_hides_is_told_by_others_at_once():
    x = gh.ones(3)
    with unwatched(), Names() as names:
        x + x
        in_thread(lambda: x * x)
        assert [name for _, name in names.told] == ["mul"]


def test_a_capture_does_not_blind_a_profiler_in_another_thread(monkeypatch):
    x, y = gh.ones(3), gh.ones((2, 2))
    begin, met = GlasshouseFront.begin, []

    def begun(front, tracer):
        trace_state = begin(front, tracer)
        in_thread(lambda: met.append((state.thread, (y @ y).shape)))
        return trace_state

    monkeypatch.setattr(GlasshouseFront, "begin", begun)

    @gh.optimize
    def double(x):
        return x * 2.5 - x

    with gh.FlopCounter() as own, Names() as names:
        assert double(x).tolist() == [1.5] * 3
    ((other, shape),) = met
    assert shape == (2, 2)
    assert [name for thread, name in names.told if thread == other] == ["matmul"]
    assert own.total() == 0  # a counter counts its own thread
