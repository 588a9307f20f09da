"""Steps one by one, and what of them waited for data: by a clock that the tests move."""

import json
import pickle
import time
from collections import Counter

import numpy as np
import pytest
from tests.unit.profile.fabricated import MS, Clock
from tests.unit.profile.test_hta import info

import glasshouse as gh
from glasshouse.compile.steps.work import COPY, StepKind
from glasshouse.data import pool
from glasshouse.dispatch.watch import COMPILING, WAITING, tell
from glasshouse.profile.advice import advice
from glasshouse.profile.report import data_of
from glasshouse.profile.steps.step_times import BOUND, REST


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class TwoKernels:
    """A Program of a copy to a device and a kernel."""

    sources, arena_bytes = {}, 0

    def step_infos(self):
        return [info("batch", COPY, transfer="HtoD"), info("kernel", StepKind())]


PROGRAM = TwoKernels()
WAITS = (30, 4, 5, 6, 5, 5)  # ms


def loop(clock, waits=WAITS):
    """Steps that wait, run a kernel for 8 ms and are Python for 2; the first compiles for 100."""
    with gh.profile() as prof:
        clock.pass_time(50)  # start-up
        for i, wait in enumerate(waits):
            clock.tell_region(WAITING, wait)
            if not i:
                clock.tell_region(COMPILING, 100)
            clock.tell_run(PROGRAM, (1, 7))
            clock.pass_time(2)
            prof.step()
    return prof


def test_each_step_is_told_with_its_parts(clock):
    prof = loop(clock)
    steps = prof.step_times()
    assert steps.kind == ["compiling", *["steady"] * 5]
    assert (steps.time_ns / MS).tolist() == [190, 14, 15, 16, 15, 15]
    assert {name: (ns / MS).tolist() for name, ns in steps.parts.items()} == {
        "compiling": [100, 0, 0, 0, 0, 0],
        "waiting for data": [*map(float, WAITS)],
        "kernels": [8.0] * 6,
        "Python": [52, 2, 2, 2, 2, 2],
    }
    assert sum(steps.parts.values()).tolist() == steps.time_ns.tolist()
    assert prof.breakdown().step == {
        "kernels": 8 * MS,
        "waiting for data": 5 * MS,
        "Python": 2 * MS,
    }
    lines = steps.table(row_limit=2).splitlines()
    assert lines[2].split()[:5] == ["median", "of", "5", "15.000", "ms"]
    assert lines[-1] == "and 4 more steps"


def test_a_series_of_many_steps_is_thinned(clock):
    data = loop(clock).step_times().to_dict(most=3)
    assert (data["count"], data["number"], len(data["parts"]["kernels"])) == (6, [0, 2, 5], 3)


def test_the_input_pipeline_has_the_share_of_the_median_step(clock):
    prof = loop(clock)
    result = prof.input_pipeline()
    assert result.is_bound and result.share == pytest.approx(5 / 15)
    assert (result.waits_ns / MS).tolist() == [*map(float, WAITS[1:])]
    assert result.parts == {REST: 5 * MS} and result.copies_ns == pytest.approx(MS)
    assert result.sentence == (
        "The input pipeline takes 33.3% of a median step (5.000 ms of 15.000 ms): "
        "workers and the rest 5.000 ms."
    )
    assert "copies to the device, beside the host: 1.000 ms" in result.table()
    assert "waits of steady steps: 4.000 ms to 6.000 ms, median 5.000 ms" in result.table()
    assert data_of(prof.trace)["input"]["sentence"] == result.sentence


@pytest.mark.parametrize(("wait", "is_bound"), [(10 * BOUND / (1 - BOUND), True), (0.4, False)])
def test_a_twentieth_of_a_step_is_worth_a_look(clock, wait, is_bound):
    result = loop(clock, [wait + 1e-4] * 4).input_pipeline()
    assert result.is_bound == is_bound
    assert result.sentence.startswith("The program is not input-bound: waiting") != is_bound


def test_a_recording_without_steps_or_data_has_an_input_pipeline(clock):
    with gh.profile() as prof:
        clock.pass_time(1)
    result = prof.input_pipeline()
    assert (result.ns, result.parts, len(prof.step_times())) == (0, {}, 0)
    assert "not input-bound" in str(result) and str(prof.step_times())


class Samples:
    """Samples that take 2 ms to read, 1 of them in a region of the user's."""

    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 16

    def __getitem__(self, i):
        self.clock.pass_time(1)
        begin_ns = self.clock.ns
        self.clock.pass_time(1)
        tell("annotation", "decode", begin_ns)
        return np.ones(3, np.float32)


def of_ms(clock, ms, fn):
    """A function that takes so many ms."""

    def slow(*args):
        clock.pass_time(ms)
        return fn(*args)

    return slow


EXPECTED = {"decode": 2, "read samples": 2, "collate": 3}  # ms in a batch of 2


def recorded(clock, loader):
    with gh.profile() as prof:
        for _ in loader:
            clock.pass_time(10)
            tell("annotation", "outside", clock.ns - 10 * MS)
            prof.step()
    return prof


def parts_ms(prof):
    parts = {name: ns / MS for name, ns in prof.input_pipeline().parts.items()}
    assert sum(parts.values()) == pytest.approx(prof.breakdown().step["waiting for data"] / MS)
    return parts


def test_our_loader_tells_what_it_does(clock):
    samples = gh.data.ListDataset(range(16)).map(of_ms(clock, 4, float))
    loader = gh.data.DataLoader(samples, batch_size=2, collate_fn=of_ms(clock, 3, list))
    assert parts_ms(recorded(clock, loader)) == {"transform": 8, "collate": 3}


@pytest.mark.parametrize("library", ["ours", "torch"])
def test_reading_collating_and_the_users_regions_are_told_apart(clock, library, monkeypatch):
    loaders = gh.data
    if library == "torch":
        loaders = pytest.importorskip("torch").utils.data
        gh.profile().start().stop()  # what looks on at PyTorch is imported
        clock = Clock(monkeypatch)
    loader = loaders.DataLoader(Samples(clock), batch_size=2, collate_fn=of_ms(clock, 3, list))
    assert parts_ms(recorded(clock, loader)) == EXPECTED


class Slept(gh.data.Dataset):
    """Samples that take 4 ms to read."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        time.sleep(0.004)
        return np.full(3, i, np.float32)


def halved(x):
    time.sleep(0.002)
    return x / 2


def stacked(samples):
    time.sleep(0.003)
    return np.stack(samples)


LEAST = {"transform": 8, "collate": 3, "read samples": 16, "hand over": 0}  # ms in a batch of 4


@pytest.mark.parametrize("kind", ["fork", "threads"])
def test_workers_of_a_loader_tell_what_they_spend(kind):
    options = {"threads": True} if kind == "threads" else {"multiprocessing_context": kind}
    samples = Slept().map(halved)
    loader = gh.data.DataLoader(samples, 4, num_workers=2, collate_fn=stacked, **options)
    with gh.profile() as prof:
        for _ in loader:
            prof.step()
    result = prof.input_pipeline()
    steps = int(prof.step_times().steps.is_steady.sum())
    whole_ns = prof.step_times().steps.steady.total_ns
    names = [f"loader's worker {i}" for i in range(2)]
    assert kind == "threads" or [*result.workers] == names
    for times in result.workers.values():
        assert sum(times.values()) == pytest.approx(whole_ns / steps)
    done = {name: sum(x.get(name, 0) for x in result.workers.values()) / MS for name in LEAST}
    batches = {name: done[name] * steps / most for name, most in LEAST.items() if most}
    assert all(count >= 2 for count in batches.values()), batches  # some were read before
    assert set(result.parts) <= {*LEAST, REST} and "transform" in result.parts
    assert (
        "transform" in result.table_of_workers() and result.to_dict()["workers"] == result.workers
    )
    item = next(x for x in advice(prof.trace) if x.cause == "waiting for data")
    spent = sum((Counter(times) for times in result.workers.values()), Counter())
    most = max(spent, key=spent.__getitem__)  # to read samples, unless the machine is busy
    assert f"2 workers spend the time on {most}" in item.text and "read samples" in item.text


def test_workers_tell_nothing_where_nobody_watches(monkeypatch):
    messages = []
    unpack = pickle.loads
    monkeypatch.setattr(pool.pickle, "loads", lambda x: messages.append(x) or unpack(x))
    assert len([*gh.data.DataLoader(Slept(), 12, num_workers=1)]) == 2
    assert not any(b"read samples" in message for message in messages)


def test_a_stream_is_read_and_collated(clock, monkeypatch):
    torch = pytest.importorskip("torch")
    gh.profile().start().stop()
    clock = Clock(monkeypatch)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return map(of_ms(clock, 1, float), range(8))

    loader = torch.utils.data.DataLoader(Stream(), 2, collate_fn=of_ms(clock, 3, list))
    assert parts_ms(recorded(clock, loader)) == {"collate": 3, "read samples": 2}


def test_steps_and_input_are_read_back(clock, tmp_path):
    prof = loop(clock)
    path = prof.export_chrome_trace(tmp_path / "t.json")
    again, live = (json.loads(json.dumps(data_of(p.trace))) for p in (gh.profile.read(path), prof))
    assert {name: again[name] for name in ("steps", "input")} == {
        name: live[name] for name in ("steps", "input")
    }
