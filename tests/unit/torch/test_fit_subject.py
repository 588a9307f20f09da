"""gh.estimate.fits of PyTorch's models and of configurations, beside published figures."""

import math
import runpy
import sys
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError

torch = pytest.importorskip("torch")
nn = torch.nn

from glasshouse.torch.ahead.eager import EagerStep  # noqa: E402

TRACKER = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "torch_tracker.py"))
pytestmark = [pytest.mark.library_warnings, pytest.mark.filterwarnings("ignore::UserWarning")]


class MasterAdam(torch.optim.Optimizer):
    """Adam with mixed precision: a float32 copy of each weight, and two moments."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if not self.state[p]:
                    names = ("master", "mean", "square")
                    self.state[p] = {
                        name: torch.zeros_like(p, dtype=torch.float32) for name in names
                    }
                p.add_(self.state[p]["mean"])


class Layer(nn.Module):
    """A layer of a transformer as Korthikanti et al. count it, without dropout."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).mul_(1 / math.sqrt(width // self.heads)).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def mean_square(out, *_):
    return out.float().square().mean()


def on_meta(make):
    with torch.device("meta"):
        return make()


PUBLISHED_STATES_GB = {  # Rajbhandari et al. 2020, Figure 1: 7.5 billion parameters, 64 ranks
    "": 120,
    "ZeRO 1 on 64 ranks": 31.4,
    "ZeRO 2 on 64 ranks": 16.6,
    "ZeRO 3 on 64 ranks": 1.9,
}


@pytest.mark.slow
def test_model_states_of_zero_are_the_published_ones():
    width, layers = 12_500, 48  # 7.5 billion parameters
    model = on_meta(lambda: nn.Sequential(*(nn.Linear(width, width, False) for _ in range(layers))))
    model.to(torch.bfloat16)
    data = [((1, width), torch.bfloat16)]
    answer = gh.estimate.fits(
        model, MasterAdam, data, "32 GB", loss=mean_square, ranks=64, changes=True
    )
    result = {change.name: change.by_kind for change in answer.changes} | {"": answer.by_kind}
    one_gradient = 2 * width**2  # is whole until ranks have shared it out, which they do not count
    for name, published in PUBLISHED_STATES_GB.items():
        states = sum(result[name][kind] for kind in ("parameters", "gradients", "optimizer state"))
        states -= one_gradient * name.startswith(("ZeRO 2", "ZeRO 3"))
        assert states / 1e9 == pytest.approx(published, abs=0.05), name
    assert result["ZeRO 3 on 64 ranks"]["gathered parameters"] == 2 * one_gradient
    assert not answer


def test_activations_of_a_layer_are_the_published_formula():
    # Korthikanti et al. 2022, arXiv:2205.05198, equation 2: sbh (34 + 5 a s / h) bytes a layer in
    # 16 bits; dropout's masks and the copy that it makes of the scores are 2 sbh + 3 a s^2 b of it.
    s, b, h, a = 256, 4, 128, 4
    expected = s * b * h * (34 + 5 * a * s / h) - 2 * s * b * h - 3 * a * s * s * b
    kept = []
    for layers in (3, 4):
        model = on_meta(lambda n=layers: nn.Sequential(*(Layer(h, a) for _ in range(n))))
        model.to(torch.bfloat16)
        data = [((b, s, h), torch.bfloat16)]
        answer = gh.estimate.fits(model, "sgd", data, "1 GB", loss=mean_square)
        kept.append(answer.by_kind["activations"])
    statistics = 2 * 2 * s * b * 4  # mean and deviation of two norms, in float32
    assert kept[1] - kept[0] == pytest.approx(expected + statistics, abs=2 * s * b * 4)


def mlp(width: int = 64, blocks: int = 4):
    own = (nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(blocks))
    return nn.Sequential(*own)


def test_the_answer_is_the_analysis_of_the_step():
    model, data = mlp(), [((512, 64), "float32")] * 2
    optimizer, loss = torch.optim.AdamW(model.parameters()), nn.functional.mse_loss
    answer = gh.estimate.fits(model, optimizer, data, "1 KB", loss=loss)
    costs = gh.analyze.step(model, loss, optimizer, data, convention="torch")
    assert answer.peak_bytes == costs.peak_bytes == sum(answer.by_kind.values())
    changes = {change.name: change for change in answer.changes}
    assert changes["checkpoints"].peak_bytes < answer.peak_bytes
    halved = sum(p.numel() * 2 for p in model.parameters())
    assert changes["weights in bfloat16"].by_kind["parameters"] == halved
    parts = gh.analyze.step(
        model, loss, optimizer, [((1, 64), "float32")] * 2, convention="torch", micro_batches=4
    )
    assert changes["micro-batches of 1"].peak_bytes == parts.peak_bytes
    assert model[0][0].weight.dtype == torch.float32 and "forward" not in vars(model[0])
    compiled = gh.estimate.fits(model, optimizer, data, "1 GB", loss=loss, convention="exact")
    assert compiled.peak_bytes == gh.analyze.step(model, loss, optimizer, data).peak_bytes


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_the_answer_is_what_pytorch_counts_of_real_steps(kind):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *(nn.Flatten(), nn.LazyLinear(5))
    )
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8) % 5
    model(images)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
    answer = gh.estimate.fits(model, optimizer, [images, labels], "1 GiB")
    step = EagerStep(model, nn.functional.cross_entropy, optimizer, [images, labels], None)
    assert answer.peak_bytes == max(TRACKER["measured_peaks"](step, optimizer, [images, labels]))


class Gathering(nn.Module):
    """Looks up whole numbers that a buffer holds."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 8)
        self.register_buffer("positions", torch.zeros(1, 4, dtype=torch.int64))

    def forward(self, ids):
        return self.table(ids.gather(1, self.positions[:, : ids.shape[1]].expand_as(ids)))


def test_whole_numbers_that_nobody_wrote_are_not_read():
    model, ids = on_meta(Gathering), [((2, 4), "int64")]
    assert gh.estimate.fits(model, "sgd", ids, "1 GiB", loss=mean_square)

    class Reading(Gathering):
        def forward(self, ids):
            return super().forward(ids) * (1 if ids.sum() > 0 else 2)

    with pytest.raises(BackendError, match="reads no value"):
        gh.estimate.fits(on_meta(Reading), "sgd", ids, "1 GiB", loss=mean_square)


def test_accumulated_gradients_are_there_while_a_micro_batch_runs():
    model, data = mlp(), [((512, 64), "float32")] * 2
    descent = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(out, y):
        return (out - y).square().mean()

    once, twice, more = (
        gh.analyze.step(model, loss, descent, data, convention="torch", micro_batches=count)
        for count in (1, 2, 5)
    )
    gradients = sum(p.numel() * 4 for p in model.parameters())
    assert once.peak_bytes < twice.peak_bytes <= once.peak_bytes + gradients + 8
    assert more.peak_bytes == twice.peak_bytes


def test_without_transformers_a_configuration_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BackendError, match="pip install transformers"):
        gh.estimate.fits({"model_type": "llama"}, "adamw", (1, 128), "24 GiB")


SIZES = {  # configurations, with what is known of their parameters
    "gpt2": ({"model_type": "gpt2"}, 124_439_808),  # Radford et al. 2019; the published checkpoint
    "llama": ({"model_type": "llama"}, 6_738_415_616),  # Touvron et al. 2023, "6.7B"
    "bert": ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, 109_514_298),
    "vit": ({"model_type": "vit"}, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_configurations_have_the_published_weights(name):
    pytest.importorskip("transformers")
    config, parameters = SIZES[name]
    batch = (1, 64) if name != "vit" else 1
    answer = gh.estimate.fits(config, "adamw", batch, "1 TB")
    assert answer
    if parameters:
        assert answer.by_kind["parameters"] == 4 * parameters
        states = ("parameters", "gradients", "optimizer state")
        counts = sum(answer.by_kind[kind] for kind in states) - 16 * parameters
        assert 0 <= counts < 1e4  # how many steps each parameter has had


@pytest.mark.slow
def test_changes_of_a_configuration():
    pytest.importorskip("transformers")
    small = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256}
    small |= {"intermediate_size": 512, "num_attention_heads": 4, "vocab_size": 512}
    answer = gh.estimate.fits(small, "adamw", (8, 256), "40 MB")
    changes = {change.name: change for change in answer.changes}
    assert all(change.peak_bytes for change in answer.changes)
    assert changes["checkpoints"].peak_bytes < answer.peak_bytes
    assert changes["ZeRO 3 on 8 ranks"].peak_bytes < changes["ZeRO 1 on 8 ranks"].peak_bytes


def test_a_configuration_of_an_unknown_type_is_told():
    pytest.importorskip("transformers")
    with pytest.raises(OptionError, match="model_type"):
        gh.estimate.fits({"model_type": "nowhere"}, "adamw", 1, "1 GB")
