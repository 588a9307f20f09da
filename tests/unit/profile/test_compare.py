"""Two runs are compared by their steady steps: by a clock that the tests move."""

import pytest
from tests.unit.profile.fabricated import MS, Clock
from tests.unit.profile.test_utilisation import PROGRAM

import glasshouse as gh
from glasshouse.base import OptionError
from glasshouse.dispatch.watch import COMPILING, WAITING
from glasshouse.profile import Comparison
from glasshouse.profile.report import data_of, read_before


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def run(clock, steps, *, wait=0, kernel=5, warm_up=0, compiling=0):
    """Steps of 10 ms of Python and a Program; the first may compile, and be slow by its kernel."""
    with gh.profile() as prof:
        for i in range(steps):
            if not i and compiling:
                clock.tell_region(COMPILING, compiling)
            clock.tell_region(WAITING, wait)
            clock.tell_run(PROGRAM, (kernel + (0 if i else warm_up), 3, 2))
            clock.pass_time(10)
            prof.step()
    return prof


def compared(before, after):
    return Comparison(*(data_of(prof.trace) for prof in (before, after)))


@pytest.mark.parametrize("start", [{"warm_up": 200}, {"compiling": 300}])
@pytest.mark.parametrize("steps", [4, 9])
def test_a_warm_up_in_one_run_is_no_difference(clock, start, steps):
    result = compared(run(clock, 6), run(clock, steps, **start))
    assert (result.ratio, result.low, result.high) == (1, 1, 1)
    for changes in (result.parts, result.modules, result.operators):
        assert changes and all(x.gained_ns == pytest.approx(0, abs=1) for x in changes)


def test_what_became_slower_has_what_it_gained_in_a_step(clock):
    result = compared(run(clock, 5), run(clock, 7, wait=4, kernel=6, warm_up=50))
    assert result.ratio == pytest.approx(25 / 20) and result.is_slower(20)
    gained = {x.name: pytest.approx(x.gained_ns / MS) for x in result.parts}
    names = ("waiting for data", "kernels", "Python", "host steps", "communication")
    assert gained == dict(zip(names, (4, 1, 0, 0, 0), strict=True))
    assert "kernel" in result.operators[0].name and result.operators[0].gained_ns == MS
    assert sum(x.after_ns for x in result.parts) == pytest.approx(25 * MS)
    assert "part, a step" in str(result)


def test_a_run_is_read_from_its_data_and_from_its_trace(clock, tmp_path):
    prof = run(clock, 5)
    prof.export_json(tmp_path / "before.json")
    trace = prof.export_chrome_trace(tmp_path / "t.json")
    for path in (tmp_path / "before.json", trace):
        assert Comparison(read_before(path), data_of(prof.trace)).ratio == 1
    (tmp_path / "old.json").write_text('{"step_ns": [1], "modules": [], "kernels": []}')
    with pytest.raises(OptionError, match="export_json"):
        read_before(tmp_path / "old.json")


def test_runs_without_steps_are_one_step_each(clock):
    with gh.profile() as prof:
        clock.tell_run(PROGRAM, (1, 1, 1))
    result = compared(prof, prof)
    assert result.ratio == 1 and result.before_ns == 3 * MS
