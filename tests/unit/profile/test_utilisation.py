"""Utilisation over time: of threads and of streams of devices, by a clock that the tests move."""

import threading

import numpy as np
import pytest
from tests.unit.profile.fabricated import MS, Clock
from tests.unit.profile.test_hta import info

import glasshouse as gh
from glasshouse.base import OptionError
from glasshouse.compile.steps.work import COLLECTIVE, COPY, REFERENCE, StepKind
from glasshouse.dispatch.watch import COMPILING, WAITING, DeviceTimes, MessageTimes, tell
from glasshouse.profile.report import data_of
from glasshouse.profile.steps.utilisation import KINDS, shade


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class AllKinds:
    """A Program of a kernel, a step of the host, and a collective."""

    sources, arena_bytes = {}, 0

    def step_infos(self):
        return [
            info("kernel", StepKind()),
            info("reference", REFERENCE),
            info("AllReduce", COLLECTIVE, group=(0, 1)),
        ]


class OnDevice:
    """A Program of a copy and a kernel."""

    sources, arena_bytes = {}, 0

    def step_infos(self):
        return [info("batch", COPY, transfer="HtoD"), info("kernel", StepKind())]


PROGRAM, DEVICE_PROGRAM = AllKinds(), OnDevice()


def shares(result, name):
    lane = next(lane for lane in result.lanes if lane.name == name)
    assert np.allclose(sum(lane.shares.values()), 1) and set(lane.shares) == set(KINDS)
    return {kind: x.tolist() for kind, x in lane.shares.items() if x.any()}


@pytest.fixture
def recorded(clock):
    """A slice of 10 ms of each: compiling, waiting, a Program, Python; with a thread beside that
    works in the last half of the second slice, and a device in the third and fourth one."""

    def beside():
        clock.ns -= 5 * MS
        clock.tell_region("beside", 3)
        clock.tell_run(PROGRAM, (2, 0, 0))

    with gh.profile() as prof:
        clock.tell_region(COMPILING, 10)
        clock.tell_region(WAITING, 10)
        thread = threading.Thread(target=beside, name="worker")
        thread.start()
        thread.join()
        times = np.array([0, 10]) * MS + clock.ns
        device = DeviceTimes(0, np.array([7, 13]), times, times, times)
        ends = np.array([4, 16])
        clock.tell_run(PROGRAM, (5, 3, 2))
        clock.ns -= 10 * MS
        clock.tell_run(DEVICE_PROGRAM, np.diff(ends, prepend=0), device)
        tell(
            "message",
            MessageTimes("send", "stages 0, 1", (0, 1), 4, clock.ns, clock.ns + 5 * MS),
        )
        clock.pass_time(20)
    return prof


def test_each_thread_and_stream_has_its_shares(recorded):
    result = recorded.utilisation(4)
    assert result.edges_ns.tolist() == [0, 10 * MS, 20 * MS, 30 * MS, 40 * MS]
    main = recorded.trace.threads[0]
    assert shares(result, main) == {
        "compiling": [1, 0, 0, 0],
        "waiting for data": [0, 1, 0, 0],
        "kernels": [0, 0, 0.5, 0],
        "host steps": [0, 0, pytest.approx(0.3), 0],
        "communication": [0, 0, pytest.approx(0.2), 0],
        "Python": [0, 0, 0, 1],
    }
    assert shares(result, "worker") == {
        "Python": [0, pytest.approx(0.3), 0, 0],
        "kernels": [0, pytest.approx(0.2), 0, 0],
        "idle": [1, 0.5, 1, 1],
    }
    assert shares(result, "device 0 stream 7") == {
        "kernels": [0, 0, pytest.approx(0.4), 0],
        "idle": [1, 1, pytest.approx(0.6), 1],
    }
    assert shares(result, "device 0 stream 13") == {
        "kernels": [0, 0, 0, pytest.approx(0.6)],
        "idle": [1, 1, 1, pytest.approx(0.4)],
    }
    assert shares(result, "stages 0, 1") == {
        "communication": [0, 0, 0.5, 0],
        "idle": [1, 1, 0.5, 1],
    }


def test_the_table_has_all_lanes_and_fits_80_columns(recorded):
    text = recorded.utilisation().table()
    strips = text.split(":\n")[1].splitlines()
    assert len(strips) == len(recorded.utilisation().lanes) == 5
    assert max(map(len, strips)) <= 80
    with gh.profile.text.within(80):
        assert max(map(len, recorded.utilisation().table().splitlines())) <= 80
    assert [shade(x) for x in (0, 0.001, 0.5, 1)] == [" ", "▁", "▄", "█"]


def test_main_is_as_busy_as_the_recording_says(recorded):
    main = recorded.utilisation(7).lanes[0]
    lengths = np.diff(recorded.utilisation(7).edges_ns)
    assert (main.busy @ lengths) / MS == pytest.approx(10)


def test_steady_steps_alone(clock):
    with gh.profile() as prof:
        clock.pass_time(100)
        for i in range(5):
            clock.tell_region(COMPILING if not i else WAITING, 6)
            clock.pass_time(4)
            prof.step()
    result = prof.utilisation(4, steady=True)
    assert (result.edges_ns / MS).tolist() == [110, 120, 130, 140, 150]
    assert shares(result, result.lanes[0].name) == {
        "waiting for data": [pytest.approx(0.6)] * 4,
        "Python": [pytest.approx(0.4)] * 4,
    }


def test_it_is_read_back(recorded, tmp_path):
    again = gh.profile.read(recorded.export_chrome_trace(tmp_path / "t.json"))
    assert str(again.utilisation()) == str(recorded.utilisation())
    assert data_of(again.trace)["utilisation"] == data_of(recorded.trace)["utilisation"]


def test_no_slices_are_an_error(recorded):
    with pytest.raises(OptionError, match="slices"):
        recorded.utilisation(0)
