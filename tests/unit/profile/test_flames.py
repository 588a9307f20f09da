"""Flame graphs are of modules or of Python functions; Programs' kernels have Python frames too."""

import json

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.profile.report import data_of, folded, page_of, write_report


class Net(gh.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = gh.nn.Linear(64, 64)
        self.last = gh.nn.Linear(64, 8)

    def forward(self, x):
        return self.last(gh.relu(self.first(x)))


@pytest.fixture(scope="module", params=["recorded", "captured"])
def recorded(request):
    model = Net()
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    x = gh.asarray(np.ones((32, 64), np.float32))

    def train_step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = gh.optimize(train_step) if request.param == "captured" else train_step
    with flags.override(compile="always"):
        for _ in range(3):
            step()
        with gh.profile(with_stack=True) as prof:
            for _ in range(2):
                step()
                prof.step()
    yield prof
    gh.reset()


def test_a_flame_graph_has_modules_or_functions_but_not_both(recorded):
    by_module, by_function = (folded(recorded.trace, by=by) for by in ("modules", "functions"))
    frames = {frame for path, _ in by_module for frame in path}
    assert {"Net", "first", "last", "forward", "backward"} <= frames
    assert not any(".py" in frame for frame in frames)
    frames = {frame for path, _ in by_function for frame in path}
    assert any(__file__ in frame for frame in frames)
    assert not {"Net", "first", "last"} & frames


def test_each_kernel_of_a_flame_graph_by_function_has_a_frame(recorded):
    without = sum(ns for path, ns in folded(recorded.trace, by="functions") if len(path) < 3)
    assert without <= 0.01 * recorded.trace.kernel_ns


def test_files_have_functions_where_stacks_were_recorded(recorded, tmp_path):
    recorded.export_stacks(tmp_path / "functions.txt")
    recorded.export_stacks(tmp_path / "modules.txt", by="modules")
    assert __file__ in (tmp_path / "functions.txt").read_text()
    assert __file__ not in (tmp_path / "modules.txt").read_text()


def test_the_report_draws_both_apart(recorded, tmp_path):
    page = write_report(recorded.trace, tmp_path / "r.html").read_text()
    flames = json.loads(page[page.index('"flames":') + 9 :].partition(',"timeline"')[0])
    assert set(flames) == {"modules", "functions"}
    assert page_of(data_of(recorded.trace) | {"flames": flames})


def test_kernels_of_programs_run_below_a_python_frame(recorded, tmp_path):
    recorded.export_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    frames = [e for e in events if e.get("cat") == "python_function"]
    own = [e for e in frames if __file__ in e["name"] and "train_step" in e["name"]]
    assert kernels and own
    for kernel in kernels:
        end = kernel["ts"] + kernel["dur"]
        assert any(f["ts"] <= kernel["ts"] and end <= f["ts"] + f["dur"] + 1e-3 for f in own)
    lined = [k for k in kernels if any(__file__ in line for line in k["args"]["lines"])]
    assert len(lined) >= 0.9 * len(kernels)
    programs = [e for e in events if e.get("cat") == "program"]
    assert programs and all(__file__ in p["args"]["stack"][0] for p in programs)


def test_the_table_of_kernels_has_the_lines(recorded):
    text = recorded.kernels().table(10)
    assert "line" in text and "test_flames.py:" in text
