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
    text = run("flops", "resnet50", "--smoke")
    assert "conv_weight_grad" in text
    assert "resnet50: a training step, batch 4, of float32[4, 3, 48, 48], int64[4]" in text
    text = run("flops", script)
    assert "matmul" in text and "3.072 k" in text  # 3 steps of 2 products of 2 * 4 * 8 * 8
    assert "MACs" in run("flops", script, "--macs", "--all")


def test_unknown_targets_suggest(tmp_path):
    assert "Did you mean 'resnet50'" in run("flops", "resnet5", code=2)
    assert "Did you mean 'vit_b_16'" in run("analyze", "vit_b16", code=2)
    assert "can be imported" in run("analyze", "nowhere:made", code=2)


@pytest.mark.slow
def test_profile_writes_what_is_asked_for(script, tmp_path):
    report, trace, data = (tmp_path / n for n in ("r.html", "t.json.gz", "p.json"))
    text = run("profile", script, "--report", report, "--trace", trace, "--json", data, "--stack")
    assert "Linear" in text and "alive at the peak" in text
    assert report.stat().st_size > 10_000 and trace.exists()
    assert len(json.loads(data.read_text())["step_ns"]) == 3
    again = run("profile", script, "--against", data, "--fail-above", "1000000")
    assert "times (95%" in again
    assert "needs --against" in run("profile", script, "--fail-above", "3", code=2)


@pytest.mark.slow
def test_a_slower_run_fails(script, tmp_path):
    data = tmp_path / "p.json"
    run("profile", script, "--json", data)
    numbers = json.loads(data.read_text())
    numbers["median_step"]["steady_ns"] = [1000] * 3
    data.write_text(json.dumps(numbers))
    run("profile", script, "--against", data, "--fail-above", "3", code=1)


@pytest.mark.slow
def test_analyze_says_whether_a_step_fits():
    shown = run("analyze", "bert", "--smoke", "--fits", "64 KiB", "--optimizer", "adamw")
    assert "does not fit" in shown and "ZeRO 1 on 8 ranks" in shown
    assert json.loads(run("analyze", "alexnet", "--smoke", "--fits", "1GiB", "--json"))["fits"]
    assert "1.5GiB" in run("analyze", "bert", "--smoke", "--fits", "lots", code=2)


@pytest.mark.slow
def test_analyze_prints_nodes_steps_and_plans():
    assert "conv1" in run("analyze", "resnet50", "--smoke", "--sort", "temp")
    assert json.loads(run("analyze", "alexnet", "--smoke", "--json"))[0]["op"] == "placeholder"
    step = run("analyze", "bert", "--smoke", "--train", "--optimizer", "adamw", "--machine", "h200")
    assert "peak" in step and "on h200" in step
    assert json.loads(run("analyze", "asr", "--smoke", "--train", "--json"))["peak_bytes"] > 0
    assert "compute again" in run("analyze", "vit_b_16", "--smoke", "--budget", "0.95")
    shown = run("analyze", "vit_b_16", "--smoke", "--budget", "95%")
    assert "budget 95% of the peak" in shown and "AppliedBlocks(model, blocks)" in shown
    peak = int(shown.split("peak ")[1].split(" ")[0].replace(",", ""))
    assert f"budget {peak:,} bytes" in run("analyze", "vit_b_16", "--smoke", "--budget", str(peak))
    assert '"1.5GiB"' in run("analyze", "vit_b_16", "--smoke", "--budget", "1.5", code=2)


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


@pytest.mark.slow
def test_calibrate_writes_a_profile(tmp_path):
    path = tmp_path / "here.json"
    assert "GFLOP/s" in run("calibrate", path, "--smoke")
    assert "on here" in run("analyze", "alexnet", "--smoke", "--train", "--machine", path)


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        pytest.param("1 / 0", 1, "ZeroDivisionError", marks=pytest.mark.slow),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("raise KeyboardInterrupt", 1, "Aborted"),
        ("open('nowhere')", 1, "line 9"),
    ],
)
def test_what_a_script_did_is_shown_however_it_ends(script, tmp_path, ending, code, said):
    script.write_text(f"{SCRIPT}{ending}\n")
    text = run("flops", script, code=code)
    assert "3.072 k" in text and said in text and "click" not in text
    text = run("profile", script, "--json", tmp_path / "p.json", code=code)
    assert "alive at the peak" in text and said in text
    assert len(json.loads((tmp_path / "p.json").read_text())["step_ns"]) == 3


def test_what_cannot_be_written_or_read_is_said_before_the_script_runs(script, tmp_path):
    script.write_text("print('it ran')")
    for option, path, code in (
        ("--trace", "t.txt", 2),
        ("--report", "no/r.html", 1),
        ("--json", "no/p.json", 1),
        ("--against", script, 2),
    ):
        text = run("profile", script, option, tmp_path / path, code=code)
        assert "expected a" in text and "it ran" not in text


def test_options_of_models_and_of_scripts_are_told_apart(script):
    for command in ("flops", "profile"):
        text = run(command, script, "--batch", "7", code=2)
        assert "--batch is for a MODEL" in text and "-- --batch" in text
        assert "takes no '--smok'" in run(command, "resnet50", "--smok", code=2)
    script.write_text("import sys; print(sys.argv[1:])")
    assert "['--batch', '7', '--help']" in run("flops", script, "--", "--batch", "7", "--help")


def test_a_script_may_change_where_modules_are_found(script):
    script.write_text("import sys\nsys.path = sys.path[1:]\n")
    assert "total" in run("flops", script)


def test_a_function_is_called_once_a_step(tmp_path, monkeypatch):
    (tmp_path / "counted_steps.py").write_text(
        "import glasshouse as gh\n"
        "calls = []\n"
        "def step():\n"
        "    calls.append(1)\n"
        "    (gh.ones((4, 4)) @ gh.ones((4, 4))).numpy()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "128" in run("flops", "counted_steps:step")
    data = tmp_path / "p.json"
    run("profile", "counted_steps:step", "--steps", 2, "--json", data)
    assert len(json.loads(data.read_text())["step_ns"]) == 2
    assert "can be imported" in run("profile", "counted_steps:nothing", code=2)


def test_scripts_of_pytorch_are_counted_and_profiled(tmp_path):
    pytest.importorskip("torch")
    path, data = tmp_path / "train.py", tmp_path / "p.json"
    path.write_text(
        "import torch\nlayer = torch.nn.Linear(8, 8)\nlayer(torch.ones(4, 8)).sum().backward()\n"
    )
    text = run("flops", path)
    assert "aten::addmm" in text and "1.024 k" in text  # forward and the weight's gradient
    text = run("profile", path, "--json", data)
    assert "Linear" in text and "aten::addmm" in text and "alive at the peak" in text


def test_a_trace_of_torch_profiler_is_read(tmp_path):
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::relu",
        "pid": 1,
        "tid": 1,
        "ts": 5,
        "dur": 7,
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event | {"dur": 7}]}))
    assert "aten::relu" in run("profile", path)
    assert "times (95%" in run("profile", path, "--against", path)


TORCH_MODEL = """
import torch

def made():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(8, 4))
    return model, [((2, 8), "float32"), ((2,), "int64")]

model, inputs = made()
loss = torch.nn.functional.cross_entropy
optimizer = torch.optim.AdamW(model.parameters())
if __name__ == "__main__":
    raise SystemExit("not this")
"""


def test_models_of_pytorch_are_analysed(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "torch_to_analyse.py").write_text(TORCH_MODEL)
    monkeypatch.chdir(tmp_path)
    shown = run("analyze", "torch_to_analyse:made", "--batch", "16")
    assert "PyTorch eager: peak" in shown and "parameters" in shown
    said = json.loads(run("analyze", "torch_to_analyse.py", "--json"))
    assert said["convention"] == "torch"
    assert "optimizer state" in {row["kind"] for row in said["memory"]}
    table = run("analyze", "torch_to_analyse.py", "--convention", "colossal")
    assert "call_module" in table and "64 b" in table
    planned = run("analyze", "torch_to_analyse.py", "--budget", "100%")
    assert "nothing is computed again" in planned and 'backend="glasshouse"' in planned
