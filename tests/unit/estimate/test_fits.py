"""gh.estimate.fits: whether a step fits, by what it takes in earnest and by published figures."""

import resource

import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError
from glasshouse.bench.worker import Ours

MSE = nn.functional.mse_loss


def blocks_of(count: int = 6, width: int = 128) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(count)))


def data_of(batch: int = 2048, width: int = 128):
    return [((batch, width), "float32")] * 2


def changes_by_name(answer) -> dict:
    return {change.name: change for change in answer.changes}


def test_the_answer_is_the_analysis_of_the_step():
    model, data = blocks_of(), data_of()
    optimizer = gh.optim.AdamW(model.parameters())
    costs = gh.analyze.step(model, MSE, optimizer, data)
    answer = gh.estimate.fits(model, optimizer, data, "1 GiB", loss=MSE)
    assert answer and answer.fits and not answer.changes
    assert answer.peak_bytes == costs.peak_bytes + costs.outside_bytes
    assert sum(answer.by_kind.values()) == answer.peak_bytes
    assert not gh.estimate.fits(model, optimizer, data, answer.peak_bytes - 1, loss=MSE)
    assert gh.estimate.fits(model, optimizer, data, answer.peak_bytes, loss=MSE)


@pytest.mark.quick
def test_small_parameters_are_parameters_wherever_they_lie():
    """Small arrays are NumPy's, not the manager's."""
    model, data = blocks_of(2, 8), data_of(4, 8)
    answer = gh.estimate.fits(model, "adamw", data, "1 MiB", loss=MSE)
    weights = sum(p.nbytes for p in model.parameters())
    kinds = {"parameters": weights, "gradients": weights, "optimizer state": 2 * weights}
    assert {kind: answer.by_kind[kind] for kind in kinds} == kinds
    assert answer.by_kind["inputs"] == 2 * 4 * 8 * 4
    assert sum(answer.by_kind.values()) == answer.peak_bytes


def test_what_it_says_fits_runs_within_that_memory(own_memory):
    gh.random.seed(0)
    model = blocks_of()
    x = gh.random.normal((2048, 128))
    optimizer = gh.optim.AdamW(model.parameters())
    answer = gh.estimate.fits(model, optimizer, [x, x], "1 GiB", loss=MSE)
    manager = gh.memory.current()
    peaks = []
    with gh.base.flags.flags.override(compile="always"):  # references would compute outside of it
        gh.eval(x, *model.parameters())
        before = manager.stats().allocated_bytes - sum(p.nbytes for p in model.parameters())
        for _ in range(2):
            manager.reset_peak()
            optimizer.zero_grad()
            loss = MSE(model(x), x)
            loss.backward()
            optimizer.step()
            gh.eval(loss)
            peaks.append(manager.stats().peak_allocated_bytes - before)
    rest = answer.analysis.outside_bytes
    assert answer.peak_bytes - rest == pytest.approx(max(peaks), rel=0.01)


def test_each_change_is_a_step_that_an_analysis_agrees_with():
    model, data = blocks_of(), data_of()
    optimizer = gh.optim.AdamW(model.parameters())
    answer = gh.estimate.fits(model, optimizer, data, "1 GiB", loss=MSE, ranks=4, changes=True)
    changes = changes_by_name(answer)

    def build():
        own = blocks_of()
        across = gh.distributed.mesh({"data": 4})
        sharded = gh.distributed.zero(own, gh.optim.AdamW(own.parameters()), across, stage=2)
        return own, MSE, sharded, data

    (costs,) = gh.distributed.step_costs(build, 4, ranks=[0])
    assert changes["ZeRO 2 on 4 ranks"].peak_bytes == costs.peak_bytes + costs.outside_bytes
    cast = gh.analyze.step(model, MSE, optimizer, data, autocast="bfloat16")
    assert changes["autocast bfloat16"].peak_bytes == cast.peak_bytes + cast.outside_bytes
    weights = 6 * 128 * (128 + 1) * 2
    states = {"parameters": weights, "gradients": weights}
    assert {kind: changes["weights in bfloat16"].by_kind[kind] for kind in states} == states
    assert changes["checkpoints"].peak_bytes < answer.peak_bytes
    assert model[0][0].weight.dtype == gh.float32


@pytest.mark.slow
def test_all_together_goes_with_the_last_stage_of_zero():
    """Layers of transformers and blocks of convolutions gather their parameters when they run
    again."""
    for name in ("bert", "resnet50"):
        case = Ours(name, None, "float32", True)
        inputs = [case.inputs, *case.targets]
        options = {"loss": case.loss_of, "ranks": 2}
        answer = gh.estimate.fits(case.model, "adamw", inputs, "1 KiB", **options)
        last = answer.changes[-1]
        assert last.name == "all, ZeRO 3 on 2 ranks" and last.peak_bytes


def layers_of(kind: str):
    """A model of several equal layers, and its inputs."""
    if kind == "perceptron":
        return blocks_of(4, 256), data_of(512, 256)
    if kind == "transformer":
        layers = [nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True) for _ in range(3)]
        return nn.Sequential(*layers), [((8, 64, 64), "float32")] * 2
    # So many layers that the loss, which is computed in float32, is a small part of the peak.
    convolutions = [(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(16)]
    model = nn.Sequential(*(m for pair in convolutions for m in pair))
    return model, [((8, 16, 16, 16), "float32")] * 2


@pytest.mark.parametrize("kind", ["perceptron", "transformer", "convolutions"])
def test_narrow_weights_keep_narrow_activations(kind):
    """Also where the processor has no products of bfloat16, and operands are widened for them."""
    model, data = layers_of(kind)
    answer = gh.estimate.fits(model, "sgd", data, 1, loss=MSE, ranks=1, changes=True)
    narrow = changes_by_name(answer)["weights in bfloat16"]
    assert narrow.by_kind["activations"] <= 0.65 * answer.by_kind["activations"]
    assert narrow.peak_bytes < answer.peak_bytes


def test_micro_batches_add_up_gradients_as_a_loop_does():
    model = blocks_of()
    data, optimizer = data_of(), gh.optim.SGD(model.parameters(), lr=0.1)
    answer = gh.estimate.fits(model, optimizer, data, "1 MiB", loss=MSE, ranks=1)
    (change,) = [c for c in answer.changes if c.name.startswith("micro-batches")]
    costs = gh.analyze.step(model, MSE, optimizer, data_of(1), micro_batches=3)
    assert change.peak_bytes == costs.peak_bytes + costs.outside_bytes


def test_the_largest_micro_batch_that_fits_is_named():
    model = blocks_of()
    data, optimizer = data_of(), gh.optim.SGD(model.parameters(), lr=0.1)
    half = gh.analyze.step(model, MSE, optimizer, data_of(512), micro_batches=2)
    room = half.peak_bytes + half.outside_bytes
    answer = gh.estimate.fits(model, optimizer, data, room, loss=MSE, ranks=1)
    assert changes_by_name(answer)["micro-batches of 512"].fits


def test_models_far_too_large_take_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with gh.meta():
        model = nn.Sequential(*(nn.Linear(20_000, 20_000, bias=False) for _ in range(20)))
    data = [((4, 20_000), "float32")] * 2
    answer = gh.estimate.fits(model, "adamw", data, "24 GiB", loss=MSE, changes=False)
    states = ("parameters", "gradients", "optimizer state")
    parameters = 20 * 20_000**2  # 8 billion
    # float32 weights, gradients and Adam's two moments are 16 bytes a parameter, as many as the
    # rule for mixed precision has (Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12).
    assert sum(answer.by_kind[kind] for kind in states) == 16 * parameters
    assert not answer
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # kB


def test_the_page_names_kinds_changes_and_what_is_missing():
    answer = gh.estimate.fits(blocks_of(2), "adamw", data_of(64), "100 KiB", loss=MSE)
    page = str(answer)
    assert page.startswith("does not fit") and "optimizer state" in page
    assert "ZeRO 3 on 8 ranks" in page and "Sequential" in page
    assert answer.to_dict()["fits"] is False


def test_a_change_that_a_model_cannot_make_says_why():
    class Casting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            if self.inner.weight.dtype != gh.float32:
                raise DTypeError("Casting", "float32 weights", "others", "Leave them.")
            return self.inner(x)

    answer = gh.estimate.fits(Casting(), "sgd", data_of(8, 8), 100, loss=MSE, ranks=1)
    refused = changes_by_name(answer)["weights in bfloat16"]
    assert refused.peak_bytes is None and "float32 weights" in refused.problem
    assert not refused.fits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "a Module, a torch.nn.Module or a configuration"),
        ({"optimizer": "adamv"}, "adamw"),
        ({"device_memory": "24 gigs"}, "1.5GiB"),
        ({"ranks": 0}, "ranks to be 1 or more"),
        ({"convention": "torch"}, "no other convention"),
    ],
)
@pytest.mark.quick
def test_bad_arguments_are_told(change, message):
    options = {"model": blocks_of(1), "optimizer": "sgd", "batch": data_of(2), "device_memory": 1}
    options |= {"loss": MSE, **change}
    with pytest.raises(OptionError, match=message):
        gh.estimate.fits(**options)
