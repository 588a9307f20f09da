"""Profiles of ranks: what transports do beside kernels, traces of all ranks as one, HTA."""

import json

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.flags import flags
from glasshouse.profile.advice import advice
from glasshouse.profile.report import timeline_data
from glasshouse.profile.steps.breakdown import Breakdown
from glasshouse.profile.traces import chrome

STEPS, SIZE, MICROBATCHES = 12, 300, 4  # of few steps, HTA may miss all that overlaps


def profiled(folder):
    """Steps of products, each summed over ranks while the next is computed; (names of steps, ns by
    part, the rank, causes of advice, the report's timeline)."""
    a = gh.asarray(np.full((SIZE, SIZE), 1e-3, np.float32))

    def step():
        x, sums = a, []
        for _ in range(4):
            x = gh.tanh(x @ a)
            sums.append(dist.all_reduce(x * 2))
        gh.eval(x, *[s + 1 for s in sums])

    with flags.override(compile="always"):
        step()
        dist.barrier()
        with gh.profile(record_shapes=True, profile_memory=True) as prof:
            for _ in range(STEPS):
                with gh.record_function("train"):
                    step()
                prof.step()
    rank = dist.rank()
    prof.export_chrome_trace(f"{folder}/plain{rank}.json")
    prof.export_chrome_trace(f"{folder}/hta/rank{rank}.json.gz", hta=True)
    names = sorted({row.name for row in prof.kernels() if "all_reduce" in row.name})
    causes = [piece.cause for piece in advice(prof.trace)]
    return names, Breakdown(prof.trace).ns, prof.trace.rank, causes, timeline_data(prof.trace)


@pytest.fixture(scope="module")
def profiles(ranks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    (folder / "hta").mkdir()
    return folder, ranks(profiled, str(folder))


def profiled_pipeline(folder):
    """A step of two stages; (ns by part, the names of annotations)."""
    x = gh.ones((8, SIZE))
    model = gh.nn.Sequential(gh.nn.Linear(SIZE, SIZE), gh.nn.Linear(SIZE, SIZE))
    pipe = dist.pipeline(model, dist.mesh({"pipe": 2}), example=x, microbatches=MICROBATCHES)
    pipe.step(x, x, gh.nn.functional.mse_loss).item()
    with gh.profile() as prof:
        pipe.step(x, x, gh.nn.functional.mse_loss).item()
        prof.step()
    prof.export_chrome_trace(f"{folder}/stage{dist.rank()}.json")
    prof.export_chrome_trace(f"{folder}/hta_of_stages/rank{dist.rank()}.json.gz", hta=True)
    names = [e.name for e in prof.events() if e.kind == "annotation"]
    return Breakdown(prof.trace).ns, names


@pytest.fixture(scope="module")
def profiles_of_stages(ranks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    (folder / "hta_of_stages").mkdir()
    return folder, ranks(profiled_pipeline, str(folder))


def messages(data) -> dict[str, list[tuple[float, float]]]:
    """(begin, end) of what went over each channel."""
    names = {
        (r["pid"], r["tid"]): r["args"]["name"].removesuffix(" execution")
        for r in data["traceEvents"]
        if r["name"] == "thread_name"
    }
    results = {}
    for r in slices(data, "kernel"):
        name = names[r["pid"], r["tid"]]
        if name.startswith("messages"):
            results.setdefault(name, []).append((r["ts"], r["ts"] + r["dur"]))
    return results


def slices(data, category, name=""):
    records = (r for r in data["traceEvents"] if r["ph"] == "X" and r["cat"] == category)
    return [r for r in records if name in r["name"]]


@pytest.mark.slow
def test_starts_and_waits_are_steps_with_names_and_their_time_is_communication(profiles):
    for rank, (names, parts, own, *_) in enumerate(profiles[1]):
        assert names == ["all_reduce world 360.0 kB", "start all_reduce world 360.0 kB"]
        assert parts["communication"] > 0 and own == rank


@pytest.mark.slow
def test_collectives_are_no_steps_of_the_host_to_replace(profiles):
    assert all("host step" not in causes for *_, causes, _ in profiles[1])


def test_the_report_has_what_the_transport_did_in_a_lane_of_its_own(profiles):
    for *_, timeline in profiles[1]:
        lanes = {name: track for track, name in timeline["lanes"].items()}
        (track,) = [lanes[name] for name in lanes if name.startswith("collectives of ranks 0, 1")]
        transfers = [x for x in timeline["slices"] if x[0] == track]
        assert len(transfers) == 4 * STEPS
        assert all("all_reduce" in timeline["names"][name] for _, _, _, name, _ in transfers)
        assert all(ns > 0 and 0 <= begin <= timeline["ns"] - ns for _, begin, ns, _, _ in transfers)


def test_what_the_transport_did_is_a_thread_of_its_own_beside_the_kernels(profiles):
    data = chrome.read(profiles[0] / "plain0.json")
    assert chrome.check(data) == []
    names = {r["tid"]: r["args"]["name"] for r in data["traceEvents"] if r["name"] == "thread_name"}
    (track,) = [tid for tid, name in names.items() if name.startswith("collectives of ranks 0, 1")]
    transfers = [r for r in slices(data, "kernel", "all_reduce") if r["tid"] == track]
    waits = [r for r in slices(data, "kernel", "all_reduce") if r["tid"] != track]
    assert len(transfers) == 4 * STEPS and len(waits) == 2 * len(transfers)
    starts = sorted(r["ts"] for r in waits if r["name"].startswith("start"))
    ends = sorted(r["ts"] + r["dur"] for r in waits if not r["name"].startswith("start"))
    for start, transfer, end in zip(starts, sorted(transfers, key=lambda r: r["ts"]), ends):
        assert start <= transfer["ts"] and transfer["ts"] + transfer["dur"] <= end


def test_one_trace_has_a_process_for_each_rank_on_one_clock(profiles, tmp_path):
    folder = profiles[0]
    path = gh.profile.merge([folder / "plain0.json", folder / "plain1.json"], tmp_path / "m.json")
    data = chrome.read(path)
    assert chrome.check(data) == []
    named = [r["args"]["name"] for r in data["traceEvents"] if r["name"] == "process_name"]
    assert sorted(named) == ["glasshouse rank 0", "glasshouse rank 1"]
    names = {
        (r["pid"], r["tid"]): r["args"]["name"]
        for r in data["traceEvents"]
        if r["name"] == "thread_name"
    }
    by_rank = {}
    for r in slices(data, "kernel", "all_reduce"):
        if names[r["pid"], r["tid"]].startswith("collectives"):
            by_rank.setdefault(r["pid"], []).append((r["ts"], r["ts"] + r["dur"]))
    assert len(by_rank) == 2
    for (begin, end), (other_begin, other_end) in zip(*map(sorted, by_rank.values()), strict=True):
        assert begin < other_end and other_begin < end  # all ranks were in it at a time


def test_clocks_of_other_hosts_are_laid_together_where_ranks_met(tmp_path):
    event = {"ph": "X", "name": "x", "cat": "kernel", "pid": 1, "tid": 1, "ts": 5.0, "dur": 1.0}
    paths = []
    for number, host in enumerate("ab"):
        clock = 10**9 + number * 7_000_000  # ns by which the clocks differ
        data = {"traceEvents": [event], "host_name": host}
        data |= {"metTimeNanoseconds": clock, "baseTimeNanoseconds": clock + 2_000 * (1 + number)}
        paths.append(tmp_path / f"{host}.json")
        paths[-1].write_text(json.dumps(data))
    data = chrome.read(gh.profile.merge(paths, tmp_path / "m.json"))
    assert [r["ts"] for r in data["traceEvents"]] == [5.0, 7.0]


def test_the_command_merges_traces(profiles, tmp_path):
    from click.testing import CliRunner

    from glasshouse.cli.profile import profile

    out = tmp_path / "all.json"
    inputs = [str(profiles[0] / f"plain{rank}.json") for rank in range(2)]
    result = CliRunner().invoke(profile, ["--merge", *inputs, "--trace", str(out)])
    assert result.exit_code == 0, result.output
    assert len({r["pid"] for r in chrome.read(out)["traceEvents"]}) == 2


@pytest.mark.filterwarnings("ignore")
def test_hta_finds_communication_and_its_overlap(profiles, monkeypatch):
    module = pytest.importorskip("hta.trace_analysis")
    import plotly.graph_objects

    monkeypatch.setattr(plotly.graph_objects.Figure, "show", lambda *a, **k: None)
    analysis = module.TraceAnalysis(trace_dir=str(profiles[0] / "hta"))
    overlap = analysis.get_comm_comp_overlap(False)
    assert sorted(overlap["rank"]) == [0, 1]
    assert (overlap["comp_comm_overlap_pctg"] > 0).all()
    kinds, _ = analysis.get_gpu_kernel_breakdown(False)
    told_apart = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
    assert sum(n for kind, n in told_apart.items() if "COMMUNICATION" in kind) > 0
    computed = analysis.get_temporal_breakdown(False).set_index("rank")["compute_time(us)"]
    for rank in (0, 1):
        data = chrome.read(profiles[0] / "hta" / f"rank{rank}.json.gz")
        kernels = [r for r in slices(data, "kernel") if not r["name"].startswith("nccl")]
        assert 0 < computed[rank] <= sum(r["dur"] for r in kernels)


def test_regions_of_a_stream_are_no_kernels(profiles):
    data = chrome.read(profiles[0] / "hta" / "rank0.json.gz")
    regions = slices(data, "gpu_user_annotation")
    assert regions and not any("stream" in r["args"] for r in regions)


def test_hta_traces_have_collectives_as_kernels_of_a_stream_of_their_own(profiles):
    data = chrome.read(profiles[0] / "hta" / "rank1.json.gz")
    assert chrome.check(data) == []
    result = slices(data, "kernel", "ncclKernel_all_reduce")
    others = [r for r in slices(data, "kernel") if "all_reduce" not in r["name"]]
    assert len(result) == 4 * STEPS
    assert {r["tid"] for r in result}.isdisjoint(r["tid"] for r in others)
    said = slices(data, "cpu_op", "record_param_comms")[0]["args"]
    assert (said["Group size"], said["Rank"], said["In msg nelems"]) == (2, 1, SIZE * SIZE)


def test_what_stages_pass_on_is_a_thread_for_each_channel(profiles_of_stages):
    folder = profiles_of_stages[0]
    path = gh.profile.merge([folder / f"stage{rank}.json" for rank in range(2)], folder / "m.json")
    data = chrome.read(path)
    assert chrome.check(data) == []
    result = messages(data)
    channels = [f"messages {way} rank {rank}" for rank in range(2) for way in ("from", "to")]
    assert {name: len(spans) for name, spans in result.items()} == dict.fromkeys(channels, 4)
    for one, other in ((1, 0), (0, 1)):
        ways = result[f"messages to rank {one}"], result[f"messages from rank {other}"]
        for (sent, _), (_, received) in zip(*map(sorted, ways), strict=True):
            assert sent < received


def test_what_a_stage_does_is_named_and_its_waiting_is_communication(profiles_of_stages):
    for stage, (parts, names) in enumerate(profiles_of_stages[1]):
        assert parts["communication"] > 0
        for kind in ("forward", "backward"):
            own = [name for name in names if name.startswith(kind)]
            assert own == [f"{kind} {i} of stage {stage}" for i in range(MICROBATCHES)]


@pytest.mark.filterwarnings("ignore")
def test_hta_finds_what_stages_pass_on(profiles_of_stages):
    module = pytest.importorskip("hta.trace_analysis")
    analysis = module.TraceAnalysis(trace_dir=str(profiles_of_stages[0] / "hta_of_stages"))
    kinds, _ = analysis.get_gpu_kernel_breakdown(False)
    told_apart = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
    assert sum(n for kind, n in told_apart.items() if "COMMUNICATION" in kind) > 0
