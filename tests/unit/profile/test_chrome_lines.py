"""The lines that are made from columns are the text of the records, made one by one."""

import threading

import numpy as np
import pytest
from tests.unit.profile.clear_exporters import ClearExporter, ClearHtaExporter
from tests.unit.profile.test_profiler import make_step, prof  # noqa: F401  a fixture
from tests.unit.profile.test_read_trace import gpu_trace, read  # noqa: F401  a fixture

import glasshouse as gh
from glasshouse.profile import record
from glasshouse.profile.traces import chrome
from glasshouse.profile.traces.chrome import Exporter, makes_node
from glasshouse.profile.traces.chrome_lines import LineExporter
from glasshouse.profile.traces.hta import HtaExporter


def assert_same_text(trace, shapes: bool) -> None:
    pairs = (LineExporter, ClearExporter), (HtaExporter, ClearHtaExporter)
    for by_columns, one_by_one in pairs:
        lines, records = by_columns(trace, shapes).lines(), one_by_one(trace, shapes).lines()
        assert list(lines) == list(records)


@pytest.mark.parametrize("shapes", [False, True])
def test_recordings_with_stacks_and_memory(prof, shapes):  # noqa: F811
    assert_same_text(prof.trace, shapes)


@pytest.mark.parametrize("backend", ["lazy", "numpy"])
@pytest.mark.parametrize("captured", [False, True])
def test_recordings_of_a_step(backend, captured):
    with gh.backends.use(backend):
        step = gh.optimize(make_step()) if captured else make_step()
        with gh.profile(with_modules=not captured) as p:
            for _ in range(3):
                step()
                p.step()
    assert_same_text(p.trace, False)


def test_recordings_of_a_device(read):  # noqa: F811
    assert (read.trace.steps.device >= 0).any()
    assert_same_text(read.trace, True)


def test_recordings_of_threads_whose_annotations_overlap():
    def work(name):
        with gh.record_function(f'{name} "quoted" \n'):
            (gh.ones(3) + 1).numpy()

    with gh.profile() as p, gh.record_function("across"):
        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        p.step()
        for thread in threads:
            thread.join()
        work("é")
    assert_same_text(p.trace, True)


def test_a_recording_of_nothing():
    with gh.profile() as p:
        pass
    assert_same_text(p.trace, True)


def test_arrows_lead_from_the_first_call_of_a_node_to_its_pull(prof):  # noqa: F811
    trace, pairs, linked = prof.trace, [], set()
    pulls = {int(e["seq"]): i for i, e in enumerate(trace.events) if e["kind"] == record.PULL}
    for i, e in enumerate(trace.events):
        seq = int(e["seq"])
        if makes_node(e["kind"]) and seq >= 0 and seq in pulls and seq not in linked:
            linked.add(seq)
            if e["begin"] < trace.events[pulls[seq]]["begin"]:
                pairs.append((i, pulls[seq]))
    assert Exporter(trace, False).backward_pairs() == pairs and pairs


def test_lengths_are_exact(prof, tmp_path):  # noqa: F811
    """Begin and end of a slice are whole nanoseconds, whoever reads them."""
    data = chrome.read(prof.export_chrome_trace(tmp_path / "t.json"))
    times = np.array([(r["ts"], r["dur"]) for r in data["traceEvents"] if r["ph"] == "X"]) * 1000
    assert np.abs(times - np.round(times)).max() < 1e-3
    assert max(len(repr(r.get("dur", 0))) for r in data["traceEvents"]) < 16
