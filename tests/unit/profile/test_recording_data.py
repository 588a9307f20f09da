"""Recordings are read back whole: tables and report of a trace file are the live ones."""

import json

import numpy as np
import pytest
from tests.unit.profile.test_profiler import make_step, prof  # noqa: F401  a fixture
from tests.unit.profile.test_read_trace import read  # noqa: F401  a fixture

import glasshouse as gh
from glasshouse.profile.advice import kernels
from glasshouse.profile.report import data_of, folded, timeline_data
from glasshouse.profile.traces import chrome
from glasshouse.profile.traces.recording_data import pack, unpack

NOW = ("made",)


@pytest.fixture(autouse=True)
def fixed_measurements(monkeypatch):
    """Fix what advice measures on the machine each time."""
    monkeypatch.setattr(kernels, "seconds_of_convs", lambda call, *channels: [1e-9] * len(channels))


def recorded(step, steps: int = 4, **options):
    with gh.profile(record_shapes=True, **options) as p:
        for _ in range(steps):
            step()
            p.step()
    return p


def assert_read_whole(p, tmp_path, hta: bool = False) -> None:
    path = p.export_chrome_trace(tmp_path / "t.json.gz", hta=hta)
    again = gh.profile.read(path)
    assert str(again.modules()) == str(p.modules())
    assert str(again.kernels()) == str(p.kernels())
    for grouped in ((False, 0), (True, 0), (True, 3)):
        assert str(again.key_averages(*grouped)) == str(p.key_averages(*grouped))
    assert again.events() == p.events()
    live, stored = (data_of(x.trace) for x in (p, again))
    for name in set(live) - set(NOW):
        assert json.dumps(stored[name], default=str) == json.dumps(live[name], default=str), name
    assert folded(again.trace) == folded(p.trace)
    assert timeline_data(again.trace) == timeline_data(p.trace)
    if p.trace.with_memory:
        assert str(again.memory()) == str(p.memory())
    second = again.export_chrome_trace(tmp_path / "again.json.gz", hta=hta)
    assert chrome.read(second)["traceEvents"] == chrome.read(path)["traceEvents"]


@pytest.mark.parametrize("hta", [False, True])
def test_a_recording_with_stacks_and_memory(prof, tmp_path, hta):  # noqa: F811
    assert_read_whole(prof, tmp_path, hta)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("backend", ["lazy", "numpy"])
@pytest.mark.parametrize("captured", [False, True])
def test_a_step_of_ours(backend, captured, seed, tmp_path):
    with gh.backends.use(backend):
        step = gh.optimize(make_step(seed)) if captured else make_step(seed)
        assert_read_whole(recorded(step, with_stack=bool(seed)), tmp_path)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_step_of_pytorch(compiled, seed, tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    x, call = torch.randn(4, 8), model
    if compiled:
        call = torch.compile(model, backend="glasshouse")

    def step():
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()

    step()
    assert_read_whole(recorded(step, with_stack=True, profile_memory=bool(seed)), tmp_path)


def test_a_trace_of_a_device(read, tmp_path):  # noqa: F811
    assert_read_whole(read, tmp_path)


def test_a_recording_of_nothing(tmp_path):
    with gh.profile() as p:
        pass
    assert_read_whole(p, tmp_path)


def test_a_merged_trace_is_of_no_single_recording(prof, tmp_path):  # noqa: F811
    paths = [prof.export_chrome_trace(tmp_path / f"{i}.json") for i in range(2)]
    merged = gh.profile.merge(paths, tmp_path / "all.json")
    assert chrome.read_recording(merged) is None
    assert chrome.read_recording(paths[0])["format"] == 1
    assert set(chrome.read(merged)) < set(chrome.read(paths[0]))


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1", "f8"])
def test_arrays_are_packed(dtype):
    for array in (np.arange(100, dtype=dtype), np.zeros(0, dtype), np.arange(9, dtype=dtype)[::2]):
        again = unpack(json.loads(json.dumps(pack(array))))
        assert again.tolist() == array.tolist() and again.dtype == array.dtype.newbyteorder("=")
