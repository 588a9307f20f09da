"""Training steps of PyTorch models on our engine ahead of time, beside real ones: the memory that
PyTorch's allocator and our manager hand out, and what a FLOP counter counts."""

import json
import runpy
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from glasshouse.bench.torch_cases import import_transformers  # noqa: E402
from glasshouse.torch.ahead.eager import EagerStep  # noqa: E402
from glasshouse.torch.lowering import segments  # noqa: E402

TRACKER = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "torch_tracker.py"))
pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Picture(nn.Module):
    """Convolutions with normalisation and pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.out(F.max_pool2d(self.second(x), 2).mean((2, 3)))


class Words(nn.Module):
    """A small language model, in which the graph breaks between its blocks if asked to."""

    def __init__(self, breaks=False):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.1) for _ in range(2)
        )
        self.head = nn.Linear(32, 50)
        self.breaks = breaks

    def forward(self, ids):
        x = self.blocks[0](self.embed(ids))
        if self.breaks:
            torch._dynamo.graph_break()
        x = self.blocks[1](x)
        return self.head(x).transpose(1, 2)


class Pooled(nn.Module):
    """Its pools are steps of PyTorch's own, in both passes; what they make is copied."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)

    def forward(self, x):
        return F.adaptive_max_pool2d(self.conv(x), 3)


def ids(*shape):
    return torch.randint(1, 50, shape)


def perceptron():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))


CASES = {
    "perceptron": (
        perceptron,
        F.cross_entropy,
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda: [torch.randn(256, 64), torch.randint(0, 10, (256,))],
    ),
    "pictures": (
        Picture,
        F.cross_entropy,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda: [torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])],
    ),
    "steps of PyTorch's own": (
        Pooled,
        F.mse_loss,
        lambda p: torch.optim.AdamW(p),
        lambda: [torch.randn(2, 3, 40, 40), torch.randn(2, 16, 3, 3)],
    ),
    "words": (
        Words,
        F.cross_entropy,
        lambda p: torch.optim.AdamW(p),
        lambda: [ids(8, 24), ids(8, 24)],
    ),
    "words with breaks": (
        lambda: Words(breaks=True),
        F.cross_entropy,
        lambda p: torch.optim.RMSprop(p),
        lambda: [ids(8, 24), ids(8, 24)],
    ),
}


def case(name: str):
    make, loss, optimizer, inputs = CASES[name]
    model = make()
    return model, loss, optimizer(model.parameters()), inputs()


def measured(model, loss, optimizer, inputs, steps=3, autocast=None):
    """Bytes at the peak of each step, of PyTorch's allocator and our manager together."""
    step = EagerStep(model, loss, optimizer, inputs, autocast)
    return TRACKER["compiled_peaks"](step, optimizer, inputs, steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_predicts_what_a_compiled_step_takes_to_the_byte(name):
    inputs = case(name)
    costs = gh.analyze.step(*inputs, steps=3)
    assert sum(row.nbytes for row in costs.memory) == costs.peaks[-1]
    assert max(moment.nbytes for moment in costs.timeline) == costs.peaks[-1]
    assert costs.peaks == measured(*inputs)


@pytest.mark.parametrize("name", ["perceptron", "pictures", "words"])
def test_a_profile_of_the_step_has_the_predicted_peak(name, own_memory):
    model, loss_of, optimizer, inputs = case(name)
    costs = gh.analyze.step(model, loss_of, optimizer, inputs, steps=3)
    compiled = torch.compile(model, backend="glasshouse")
    x, *targets = inputs

    def step():
        optimizer.zero_grad()
        out = compiled(x)
        loss = loss_of(out, *targets)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    with gh.profile(profile_memory=True) as prof:
        for _ in range(2):
            step()
    assert prof.memory().peak_bytes == costs.peaks[-1]


@pytest.mark.parametrize("name", list(CASES)[:2])
def test_predicts_backward_passes_in_segments_to_the_byte(name, monkeypatch):
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1 << 12)
    inputs = case(name)
    costs = gh.analyze.step(*inputs, steps=3)
    assert costs.peaks == measured(*inputs)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM"])
def test_predicts_models_of_transformers_to_the_byte(name):
    pytest.importorskip("transformers")
    transformers = import_transformers()
    small = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = getattr(transformers, name.split("LM")[0].split("For")[0] + "Config")(**small)
    model = getattr(transformers, name)(config)
    arguments = [model, None, torch.optim.AdamW(model.parameters())]
    words = ids(8, 32)
    inputs = [{"input_ids": words, "labels": words}]
    assert gh.analyze.step(*arguments, inputs, steps=2).peaks == measured(
        *arguments, inputs, steps=2
    )


def test_autocast_is_predicted_to_the_byte():
    model, loss, optimizer, inputs = case("perceptron")
    costs = gh.analyze.step(model, loss, optimizer, inputs, autocast="bfloat16")
    assert costs.peaks == measured(model, loss, optimizer, inputs, 2, "bfloat16")


def test_counts_as_a_counter_around_the_real_step():
    model, loss, optimizer, inputs = case("pictures")
    costs = gh.analyze.step(model, loss, optimizer, inputs)
    step = EagerStep(model, loss, optimizer, inputs, None)
    step.forward = torch.compile(model, backend="glasshouse")
    step.run(optimizer, inputs)
    with gh.FlopCounter(model) as counter:
        step.run(optimizer, inputs)
    assert costs.counter.total() > 0
    assert costs.counter.by_phase("all") == counter.by_phase("all")
    assert costs.counter.by_module(None, "all") == counter.by_module(None, "all")


def test_the_kernels_are_those_that_run():
    model, loss, optimizer, inputs = case("pictures")
    costs = gh.analyze.step(model, loss, optimizer, inputs)
    step = EagerStep(model, loss, optimizer, inputs, None)
    step.forward = torch.compile(model, backend="glasshouse")
    step.run(optimizer, inputs)
    with gh.profile() as prof:
        step.run(optimizer, inputs)
    ran = [info.name for run in prof.trace.program_runs for info in run.program.step_infos()]
    planned = [info.name for run in costs.runs for info in run.plan.step_infos()]
    assert ran == planned and len(costs.runs) == 2
    assert {kernel.program for kernel in costs.kernels} == {0, 1, 2}
    assert costs.predicted_ns > 0


def test_gradients_that_are_there_go_before_the_step():
    arguments = case("perceptron")
    clean = gh.analyze.step(*arguments).peaks
    model, loss, optimizer, inputs = arguments
    loss(model(inputs[0]), inputs[1]).backward()
    assert gh.analyze.step(*arguments).peaks == clean


@pytest.mark.slow
def test_a_model_on_the_meta_device_costs_the_same():
    inputs = [((4, 3, 32, 32), "float32"), ((4,), torch.int64)]
    with torch.device("meta"):
        model = Picture()
    optimizer = torch.optim.AdamW(model.parameters())
    costs = gh.analyze.step(model, F.cross_entropy, optimizer, inputs)
    real = gh.analyze.step(Picture(), F.cross_entropy, torch.optim.AdamW, inputs)
    assert costs.peaks == real.peaks
    assert costs.memory == real.memory
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.slow
def test_changes_nothing_and_leaves_nothing():
    model, loss, optimizer, inputs = case("pictures")
    compiled = torch.compile(model, backend="glasshouse")
    before = compiled(inputs[0])
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    for _ in range(2):
        gh.analyze.step(model, loss, optimizer, inputs)
        arguments = [((8, 64), "float32"), ((8, 10), "float32")]
        gh.analyze.step(perceptron(), F.mse_loss, torch.optim.SGD, arguments)
    assert not entries(nn.Sequential.forward.__code__)
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert not optimizer.state and all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        model.norm.load_state_dict(weights | {}, strict=False)
    torch.testing.assert_close(compiled(inputs[0]), before)


def test_kinds_and_tables():
    model, loss, optimizer, inputs = case("perceptron")
    costs = gh.analyze.step(model, loss, optimizer, inputs)
    parameters, kinds = sum(p.nbytes for p in model.parameters()), costs.memory_by_kind
    assert kinds["parameters"] == parameters
    assert kinds["optimizer state"] == 2 * parameters + 4 * len(list(model.parameters()))
    assert kinds["inputs"] == 256 * 64 * 4 + 256 * 8
    assert kinds["activations"] and costs.arena_bytes > 0
    text = str(costs)
    assert "compiled by Glasshouse: peak" in text and "optimizer state" in text
    data = json.loads(json.dumps(costs.to_dict()))
    assert data["convention"] == "exact" and data["arena_bytes"] == costs.arena_bytes


def test_a_compiled_model_is_taken_as_it_is():
    model, loss, optimizer, inputs = case("perceptron")
    costs = gh.analyze.step(torch.compile(model), loss, optimizer, inputs)
    assert costs.peaks == gh.analyze.step(model, loss, optimizer, inputs).peaks


@pytest.mark.slow
def test_the_largest_batch_fits_and_the_next_does_not():
    model, inputs = perceptron(), [((2, 64), "float32"), ((2,), "int64")]
    arguments = model, F.cross_entropy, torch.optim.SGD
    batch = gh.analyze.max_batch(*arguments, inputs, 200_000, limit=64)
    costs = gh.analyze.sweep(*arguments, lambda n: [((n, 64), "float32"), ((n,), "int64")])
    assert costs(batch).peak_bytes <= 200_000 < costs(batch + 1).peak_bytes


def test_a_value_that_is_read_is_told_with_its_line():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            x = self.inner(x)
            return x if x.sum() > 0 else -x

    inputs = [((2, 2), "float32")] * 2
    with pytest.raises(BackendError, match=r"reads no value.*test_ahead_compiled\.py:\d"):
        gh.analyze.step(Asking(), F.mse_loss, torch.optim.SGD, inputs)


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(OptionError, match="an optimizer of torch.optim"):
        gh.analyze.step(nn.Linear(2, 2), F.mse_loss, 3, [])


def test_tensors_without_contents_run_through_a_compiled_function():
    from torch._subclasses.fake_tensor import FakeTensorMode

    function = torch.compile(lambda x: (x @ x).relu() + 1, backend="glasshouse")
    with FakeTensorMode():
        result = function(torch.empty(8, 8))
    assert result.shape == (8, 8)
    x = torch.eye(8)
    torch.testing.assert_close(function(x), x + 1)


def test_a_profile_lies_beside_the_prediction(own_memory):
    model, loss, optimizer, inputs = case("perceptron")
    costs = gh.analyze.step(model, loss, optimizer, inputs)
    step = EagerStep(model, loss, optimizer, inputs, None)
    step.forward = torch.compile(model, backend="glasshouse")
    for _ in range(2):
        step.run(optimizer, inputs)
    with gh.profile(profile_memory=True) as prof:
        step.run(optimizer, inputs)
    beside = gh.analyze.compare(costs, prof)
    lines = {line.name: line for line in beside.totals}
    assert lines["FLOPs of kernels"].ratio == 1.0
    assert 0.9 < lines["peak bytes"].ratio < 1.1  # small results are in no manager's memory
    assert beside.kernels and all(line.predicted > 0 for line in beside.kernels)
