"""Traces: they nest, their arrows end somewhere, and their readers take them."""

import json
import threading

import pytest
from tests.unit.profile.test_profiler import prof  # noqa: F401  a fixture

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.profile.traces import chrome


def kinds(data):
    return {(r["ph"], r.get("cat")) for r in data["traceEvents"]}


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("hta", [False, True])
def test_traces_nest_and_their_arrows_end(prof, tmp_path, name, hta):  # noqa: F811
    path = prof.export_chrome_trace(tmp_path / name, hta=hta)
    data = chrome.read(path)
    assert chrome.check(data) == []
    result = kinds(data)
    assert {("X", "cpu_op"), ("X", "kernel"), ("X", "module"), ("X", "user_annotation")} <= result
    assert {("s", "fwdbwd"), ("f", "ac2g"), ("C", None), ("X", "python_function")} <= result
    assert list(tmp_path.iterdir()) == [path]


def test_kernels_name_their_calls_and_modules(prof, tmp_path):  # noqa: F811
    data = chrome.read(prof.export_chrome_trace(tmp_path / "t.json"))
    slices = [r for r in data["traceEvents"] if r["ph"] == "X"]
    kernel = next(r for r in slices if r["cat"] == "kernel" and r["name"].startswith("conv"))
    assert "Net.conv" in kernel["args"]["modules"] and kernel["args"]["kind"] == "onednn"
    for args in (r["args"] for r in slices if r["cat"] == "kernel" and r["args"]["primitives"]):
        assert len(args["parts"]) == len(args["primitives"])
        assert sum(args["parts"]) == pytest.approx(1, abs=1e-4)
    call = next(r for r in slices if r["cat"] == "cpu_op" and r["name"] == "conv")
    assert call["args"]["Input Dims"] == [[4, 3, 10, 10], [8, 3, 3, 3]]
    assert call["args"]["module"] == "Net.conv"
    arrows = [r for r in data["traceEvents"] if r["ph"] == "s" and r["ts"] == call["ts"]]
    assert {r["cat"] for r in arrows} == {"fwdbwd", "ac2g"}


def test_metadata_comes_first_as_streaming_readers_need_it(prof, tmp_path):  # noqa: F811
    path = prof.export_chrome_trace(tmp_path / "t.json", hta=True)
    head = path.read_text().split('"traceEvents"')[0]
    assert '"rank": 0' in head and '"baseTimeNanoseconds"' in head


def test_what_overlaps_gets_a_track_of_its_own(tmp_path):
    with gh.profile() as p:
        with gh.record_function("across"):
            gh.ones(3) + 1
            p.step()
            gh.ones(3) * 2
        p.step()
    data = chrome.read(p.export_chrome_trace(tmp_path / "t.json"))
    assert chrome.check(data) == []
    names = {r["name"] for r in data["traceEvents"] if r["ph"] == "X"}
    assert {"across", "ProfilerStep#0", "ProfilerStep#1"} <= names


@pytest.mark.parametrize("name", ['a"b\\c', "line\nbreak", "emoji 🙂", "\x00\x1f", "</script>"])
def test_odd_names_stay_valid(tmp_path, name):
    with gh.profile() as p, gh.record_function(name):
        gh.ones(3) + 1
    data = json.loads(p.export_chrome_trace(tmp_path / "t.json").read_text("utf-8"))
    assert name in {r["name"] for r in data["traceEvents"]}


def test_traces_of_ranks_are_merged(tmp_path):
    paths = []
    for rank in range(2):
        with gh.profile(rank=rank) as p:
            thread = threading.Thread(target=lambda: (gh.ones(3) + 1).numpy())
            thread.start()
            thread.join()
        paths.append(p.export_chrome_trace(tmp_path / f"{rank}.json"))
    data = chrome.read(gh.profile.merge(paths, tmp_path / "all.json.gz"))
    assert chrome.check(data) == []
    assert {r["pid"] for r in data["traceEvents"]} == {0, 1}  # numbers, as the format has it
    names = {r["args"]["name"] for r in data["traceEvents"] if r["name"] == "process_name"}
    assert names == {"glasshouse rank 0", "glasshouse rank 1"}
    with pytest.raises(OptionError, match="one trace file or more"):
        gh.profile.merge([], tmp_path / "x.json")
    p.export_json(tmp_path / "p.json")
    with pytest.raises(OptionError, match="one trace file or more.*p.json"):
        gh.profile.merge([tmp_path / "p.json"], tmp_path / "x.json")


def test_paths_that_cannot_be_written(prof, tmp_path):  # noqa: F811
    with pytest.raises(OptionError, match="ends in .json"):
        prof.export_chrome_trace(tmp_path / "t.txt")
    writers = (
        prof.export_chrome_trace,
        prof.export_json,
        prof.export_stacks,
        prof.report,
        prof.export_memory_timeline,
    )
    for write in writers:
        with pytest.raises(FileNotFoundError, match="expected a path in a folder that exists"):
            write(tmp_path / "no" / "folder.json")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there.json").mkdir()
    for write in writers:
        with pytest.raises(IsADirectoryError, match="expected the path of a file; got the folder"):
            write(tmp_path / "there.json")


def test_check_finds_what_is_wrong():
    def x(name, ts, dur):
        return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}

    arrow = {"ph": "s", "cat": "c", "name": "n", "id": 1, "pid": 1, "tid": 1, "ts": 99}
    wrong = chrome.check({"traceEvents": [x("a", 0, 10), x("b", 5, 10), arrow]})
    assert len(wrong) == 2 and "overlaps" in wrong[0] and "no slice" in wrong[1]


@pytest.mark.parametrize("hta", [False, True])
def test_annotations_that_overlap_and_kernels_of_threads_nest(tmp_path, hta):
    @gh.record_function("generator")
    def made(n):
        for i in range(n):
            yield (gh.ones(3) + i).numpy()

    started, many = threading.Barrier(3), gh.ones((400, 400))

    def work():
        started.wait()
        for _ in range(5):
            (many @ many).numpy()

    with gh.profile() as p:
        several = [made(4) for _ in range(3)]
        for _ in range(4):
            for generator in several:
                next(generator)
        for generator in several:
            assert not list(generator)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for act in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                act(thread)
    data = chrome.read(p.export_chrome_trace(tmp_path / "t.json", hta=hta))
    assert chrome.check(data) == []
    kernels = {(r["pid"], r["tid"]) for r in data["traceEvents"] if r.get("cat") == "kernel"}
    assert len(kernels) == 4
