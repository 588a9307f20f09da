"""`glasshouse flops`, `profile`, `analyze` and `calibrate`."""

import json

import pytest
from click.testing import CliRunner

from glasshouse.cli.main import main

SCRIPT = """
import glasshouse as gh
model = gh.nn.Linear(8, 8)
opt = gh.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    model(gh.ones((4, 8))).sum().backward()
    opt.step()
"""


def run(*args, code=0):
    done = CliRunner().invoke(main, list(map(str, args)))
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_flops_of_models_and_scripts(script):
    assert "conv_weight_grad" in run("flops", "resnet50", "--smoke")
    text = run("flops", script)
    assert "matmul" in text and "3.072 k" in text  # 3 steps of 2 products of 2 * 4 * 8 * 8
    assert "MACs" in run("flops", script, "--macs", "--all")


def test_unknown_targets_suggest(tmp_path):
    assert "Did you mean 'resnet50'" in run("flops", "resnet5", code=2)
    assert "Did you mean 'vit_b_16'" in run("analyze", "vit_b16", code=2)
    assert "can be imported" in run("analyze", "nowhere:made", code=2)


def test_profile_writes_what_is_asked_for(script, tmp_path):
    report, trace, data = (tmp_path / n for n in ("r.html", "t.json.gz", "p.json"))
    text = run("profile", script, "--report", report, "--trace", trace, "--json", data, "--stack")
    assert "Linear" in text and "alive at the peak" in text
    assert report.stat().st_size > 10_000 and trace.exists()
    assert len(json.loads(data.read_text())["step_ns"]) == 3
    again = run("profile", script, "--against", data, "--fail-above", "1000000")
    assert "times (95%" in again
    assert "needs --against" in run("profile", script, "--fail-above", "3", code=2)


def test_a_slower_run_fails(script, tmp_path):
    data = tmp_path / "p.json"
    run("profile", script, "--json", data)
    found = json.loads(data.read_text())
    found["step_ns"] = [1000] * 3
    data.write_text(json.dumps(found))
    run("profile", script, "--against", data, "--fail-above", "3", code=1)


def test_analyze_prints_nodes_steps_and_plans():
    assert "conv1" in run("analyze", "resnet50", "--smoke", "--sort", "temp")
    assert json.loads(run("analyze", "alexnet", "--smoke", "--json"))[0]["op"] == "placeholder"
    step = run("analyze", "bert", "--smoke", "--train", "--optimizer", "adamw", "--machine", "h200")
    assert "peak" in step and "on h200" in step
    assert json.loads(run("analyze", "asr", "--smoke", "--train", "--json"))["peak_bytes"] > 0
    assert "compute again" in run("analyze", "vit_b_16", "--smoke", "--budget", "0.95")


def test_a_users_model_is_analysed(tmp_path, monkeypatch):
    (tmp_path / "mine_to_analyse.py").write_text(
        "import glasshouse as gh\n"
        "def made():\n"
        "    return gh.nn.Linear(8, 4), [((2, 8), 'float32'), ((2,), 'int64')]\n"
        "def wrong():\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert "peak" in run("analyze", "mine_to_analyse:made", "--train", "--batch", "16")
    assert "(model, inputs)" in run("analyze", "mine_to_analyse:wrong", code=2)


def test_calibrate_writes_a_profile(tmp_path):
    path = tmp_path / "here.json"
    assert "GFLOP/s" in run("calibrate", path, "--smoke")
    assert "on here" in run("analyze", "alexnet", "--smoke", "--train", "--machine", path)
