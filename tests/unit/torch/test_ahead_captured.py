"""Training steps of PyTorch models that gh.optimize captures whole, ahead of time, beside real
ones: the memory that PyTorch's allocator and our manager hand out, and what a counter counts."""

import json
import runpy
from pathlib import Path

import pytest
from test_ahead_compiled import CASES, Picture, case, ids

import glasshouse as gh

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from glasshouse.bench.torch_cases import import_transformers  # noqa: E402
from glasshouse.torch.ahead.eager import EagerStep  # noqa: E402

TRACKER = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "torch_tracker.py"))
pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
MODELS = {  # of transformers: the configuration beside SMALL, and the optimizer
    "GPT2LMHeadModel": ({}, torch.optim.AdamW),
    "BertForMaskedLM": ({}, torch.optim.SGD),
    "LlamaForCausalLM": ({"intermediate_size": 64}, torch.optim.AdamW),
    "Qwen2ForCausalLM": ({"intermediate_size": 64, "num_key_value_heads": 1}, torch.optim.Adagrad),
    "OPTForCausalLM": ({"ffn_dim": 64, "word_embed_proj_dim": 32}, torch.optim.NAdam),
    "DistilBertForMaskedLM": ({"dim": 32, "hidden_dim": 64, "n_layers": 1}, torch.optim.RMSprop),
}


def captured(model, loss, optimizer, inputs, calls=3):
    """A step that gh.optimize has captured and compiled, as a function without arguments."""
    step, run = EagerStep(model, loss, optimizer, inputs, None), gh.optimize(EagerStep.run)

    def call():
        run(step, optimizer, inputs)

    for _ in range(calls):
        call()
    return call


def analysed(*inputs, **named):
    return gh.analyze.step(*inputs, convention="captured", **named)


def measured(model, loss, optimizer, inputs, steps=2, autocast=None):
    """Bytes at the peak of each captured step, of PyTorch's allocator and our manager together."""
    step = EagerStep(model, loss, optimizer, inputs, autocast)
    return TRACKER["captured_peaks"](step, optimizer, inputs, steps)


def of_transformers(name: str):
    """A small language model with its optimizer and inputs."""
    transformers = import_transformers()
    more, optimizer = MODELS[name]
    config = getattr(transformers, name).config_class(**SMALL | more, use_cache=False)
    model = getattr(transformers, name)(config)
    words = ids(4, 16)
    inputs = [{"input_ids": words, "labels": words}]
    return model, None, optimizer(model.parameters(), lr=1e-3), inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_predicts_what_a_captured_step_takes_to_the_byte(name):
    inputs = case(name)
    result = analysed(*inputs)
    assert len(result.runs) == 3 and not result.breaks
    assert sum(row.nbytes for row in result.memory) == result.peaks[-1]
    assert max(moment.nbytes for moment in result.timeline) == result.peaks[-1]
    assert result.peaks == measured(*inputs)


@pytest.mark.parametrize("name", MODELS)
def test_predicts_models_of_transformers_to_the_byte(name):
    pytest.importorskip("transformers")
    inputs = of_transformers(name)
    result = analysed(*inputs)
    assert not result.breaks
    assert result.peaks == measured(*inputs)


@pytest.mark.slow
def test_autocast_is_predicted_to_the_byte():
    inputs = case("perceptron")
    assert analysed(*inputs, autocast="bfloat16").peaks == measured(*inputs, autocast="bfloat16")


@pytest.mark.slow
def test_a_model_on_the_meta_device_costs_the_same():
    inputs = [((4, 3, 32, 32), "float32"), ((4,), torch.int64)]
    with torch.device("meta"):
        model = Picture()
    optimizer = torch.optim.AdamW(model.parameters())
    result = analysed(model, F.cross_entropy, optimizer, inputs)
    real = Picture()
    optimizer = torch.optim.AdamW(real.parameters())
    target = [torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])]
    assert result.peaks == measured(real, F.cross_entropy, optimizer, target)
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.slow
def test_counts_and_runs_what_the_real_step_does():
    inputs = case("pictures")
    result, call = analysed(*inputs), captured(*inputs)
    with gh.FlopCounter(inputs[0]) as counter:
        call()
    with gh.profile() as prof:
        call()
    ran = [info.name for run in prof.trace.program_runs for info in run.program.step_infos()]
    planned = [info.name for run in result.runs for info in run.plan.step_infos()]
    assert result.counter.by_phase("all") == counter.by_phase("all")
    assert ran == planned
    assert result.predicted_ns > 0


@pytest.mark.slow
def test_changes_nothing():
    model, loss, optimizer, inputs = case("pictures")
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    analysed(model, loss, optimizer, inputs)
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert not optimizer.state and all(p.grad is None for p in model.parameters())
    call = captured(model, loss, optimizer, inputs)
    before = {name: x.clone() for name, x in optimizer.state_dict()["state"][0].items()}
    state = torch.get_rng_state()
    assert analysed(model, loss, optimizer, inputs).peaks[0] > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(optimizer.state_dict()["state"][0][k], x) for k, x in before.items())
    call()


def test_breaks_are_told_with_their_lines():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            x = self.inner(x)
            gh.graph_break()
            return x * 2

    inputs = [((2, 2), "float32")] * 2
    result = analysed(Asking(), F.mse_loss, torch.optim.SGD, inputs)
    assert any("test_ahead_captured.py" in one.line for one in result.breaks)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["convention"] == "captured" and data["breaks"]


def test_no_value_that_is_read_is_made_up():
    class Asking(nn.Linear):
        def forward(self, x):
            x = super().forward(x)
            return x if x.sum() > 0 else -x

    inputs = [((2, 2), "float32")] * 2
    with pytest.raises(gh.BackendError, match=r"reads no value.*test_ahead_captured\.py:\d"):
        analysed(Asking(2, 2), F.mse_loss, torch.optim.SGD, inputs)


def test_the_head_says_what_was_captured():
    assert "captured by gh.optimize: peak" in analysed(*case("perceptron")).head()
