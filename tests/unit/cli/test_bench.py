"""`glasshouse bench`: both sides compute the same step, and the command measures and saves."""

import importlib.util
import json

import numpy as np
import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse.base.errors import BackendError
from glasshouse.bench.own_models import Worker, count_work
from glasshouse.bench.worker import CASES, Ours, Torch
from glasshouse.cli import main
from glasshouse.vision.models.detr import file_names

LIBRARIES = {"detr": ("timm", "transformers"), "llama": ("transformers",)}
HAS_TORCH = importlib.util.find_spec("torch") is not None
KEYS = {
    "model",
    "framework",
    "mode",
    "dtype",
    "step_s",
    "first_step_s",
    "peak_bytes",
    "gflops_per_s",
    "fraction_of_limit",
}


def to_double(run, convert):
    """A run in float64, so that the two sides differ by rounding only."""
    run.model.double()
    run.inputs, *run.targets = [convert(x) for x in (run.inputs, *run.targets)]


@pytest.mark.slow
@pytest.mark.parametrize("model", CASES)
def test_loss_and_gradients_equal_those_of_the_twin(model):
    torch = pytest.importorskip("torch")
    missing = [x for x in LIBRARIES.get(model, ()) if importlib.util.find_spec(x) is None]
    if missing:
        pytest.skip(f"no {missing[0]}")
    torch.manual_seed(0)
    theirs, ours = (cls(model, None, "float32", True) for cls in (Torch, Ours))
    to_double(theirs, lambda x: x.double() if x.dtype.is_floating_point else x)
    to_double(ours, lambda x: x.double() if x.dtype.is_floating else x)
    rename = file_names if model == "detr" else dict
    state = {name: value.numpy().copy() for name, value in theirs.model.state_dict().items()}
    state = rename(state)
    assert sorted(ours.model.state_dict()) == sorted(state)
    ours.model.load_state_dict(state)
    losses = [run.train().item() for run in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # positions of asr are float32
    others = rename(dict(theirs.model.named_parameters()))
    for name, p in ours.model.named_parameters():
        expected = others[name].grad.numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            p.grad.numpy(), expected, atol=1e-5 * scale + 1e-12, err_msg=name
        )
        np.testing.assert_allclose(p.numpy(), others[name].detach().numpy(), atol=1e-6)


@pytest.mark.quick("bench")
def test_the_work_of_a_step_is_counted():
    work = count_work("resnet50", smoke=False)
    assert work.parameter_bytes == 4 * 25_557_032
    # 4.09 G multiply-adds an image forward; backward doubles them, but for the first layer's input
    assert work.flops == pytest.approx(16 * 3 * 2 * 4.09e9, rel=0.02)


def bench(tmp_path, *arguments, expect=0):
    path = tmp_path / "bench.json"
    result = CliRunner().invoke(
        main, ["bench", *arguments, "--json", str(path)], prog_name="glasshouse"
    )
    assert result.exit_code == expect, result.output
    return result.output, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.slow
def test_a_smoke_run_prints_a_table_and_saves_records(tmp_path):
    text, records = bench(tmp_path, "resnet50", "--smoke")
    assert [r["framework"] for r in records] == ["glasshouse", "pytorch"][: 1 + HAS_TORCH]
    for record in records:
        assert set(record) >= KEYS
        assert record["model"] == "resnet50" and record["dtype"] == "float32"
        assert min(record["step_s"], record["first_step_s"], record["gflops_per_s"]) > 0
        assert record["peak_bytes"] > 2**20
        assert len(record["steps_s"]) == 2
        assert np.isfinite(record["first_loss"])
    assert records[0]["mode"] == gh.backends.current().name
    assert "GFLOP/s" in text and "glasshouse" in text
    assert "geometric mean" not in text and "nothing of speed" in text
    if importlib.util.find_spec("matplotlib") is not None:
        assert (tmp_path / "bench.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["resnet5", "--smoke"], "Did you mean 'resnet50'?"),
        (["resnet50", "--against", "eagre"], "Did you mean 'eager'?"),
        (["resnet50", "--dtype", "float16"], "bfloat16"),
    ],
)
@pytest.mark.quick("bench")
def test_bad_options(tmp_path, arguments, text):
    assert text in bench(tmp_path, *arguments, expect=2)[0]


def test_a_worker_that_fails_or_dies_is_reported():
    with Worker("test") as worker:
        with pytest.raises(BackendError, match="test worker; got KeyError"):
            worker.ask("build", framework="glasshous", model="vgg16")
        worker.process.kill()
        with pytest.raises(BackendError, match="its end with exit code -9"):
            worker.ask("peak")
    assert worker.process.returncode == -9
