"""Training steps of PyTorch ahead of time, beside what PyTorch's own tools measure of real ones."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from torch.utils.checkpoint import checkpoint  # noqa: E402

from glasshouse.torch.ahead.eager import EagerStep  # noqa: E402

TRACKER = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "torch_tracker.py"))
pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def measured(model, loss, optimizer, inputs):
    """Bytes at the peak of step 1 and of steps 1 and 2, by PyTorch's tracker."""
    step = EagerStep(model, loss, optimizer, inputs, None)
    return TRACKER["measured_peaks"](step, optimizer, inputs)


class Words(nn.Module):
    """A small language model with one matrix at both ends, and a branch on its input's values."""

    def __init__(self, again=False):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1) for _ in range(2)
        )
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.again, self.last = again, None

    def forward(self, ids):
        x = self.embed(ids)
        if (ids == 0).any():
            x = x * (ids != 0).unsqueeze(-1)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        self.last = x
        return self.head(x).transpose(1, 2)


class Picture(nn.Module):
    """Convolutions with normalisation, pooling, and a path beside them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.silu(self.norm(self.first(x)))
        x = F.max_pool2d(x + self.deep(x), 2)
        return self.out(x.mean((2, 3)))


def ids(*shape):
    return torch.randint(1, 50, shape)


CASES = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)),
        F.mse_loss,
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda: [torch.randn(32, 8), torch.randn(32, 4)],
    ),
    "pictures": (
        Picture,
        F.cross_entropy,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda: [torch.randn(2, 3, 16, 16), torch.tensor([1, 2])],
    ),
    "words": (
        Words,
        F.cross_entropy,
        lambda p: torch.optim.Adam(p, amsgrad=True),
        lambda: [ids(2, 12), ids(2, 12)],
    ),
    "words with a 0": (
        Words,
        F.cross_entropy,
        lambda p: torch.optim.RMSprop(p),
        lambda: [ids(2, 12) * torch.tensor([0, 1] * 6), ids(2, 12)],
    ),
    "checkpoints": (
        lambda: Words(again=True),
        F.cross_entropy,
        lambda p: torch.optim.Adagrad(p),
        lambda: [ids(4, 24), ids(4, 24)],
    ),
    "recurrent": (
        lambda: nn.Sequential(nn.GRU(8, 12, batch_first=True)),
        lambda out, y: F.mse_loss(out[0], y),
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda: [torch.randn(2, 5, 8), torch.randn(2, 5, 12)],
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    make, loss, optimizer, inputs = CASES[request.param]
    model = make()
    return model, loss, optimizer(model.parameters()), inputs()


def test_predicts_what_is_measured_to_the_byte(case):
    costs = gh.analyze.step(*case, convention="torch")
    assert sum(row.nbytes for row in costs.memory) == costs.peaks[-1]
    assert max(moment.nbytes for moment in costs.timeline) == costs.peaks[-1]
    assert [costs.peaks[0], costs.peak_bytes] == measured(*case)


@pytest.mark.parametrize("name", ["pictures", "recurrent"])
def test_counts_as_a_counter_around_the_real_step(name):
    make, loss, optimizer_of, inputs_of = CASES[name]
    model, inputs = make(), inputs_of()
    optimizer = optimizer_of(model.parameters())
    costs = gh.analyze.step(model, loss, optimizer, inputs, steps=1, convention="torch")
    with gh.FlopCounter(model) as counter:
        EagerStep(model, loss, optimizer, inputs, None).run(optimizer, inputs)
    assert costs.counter.by_phase("all") == counter.by_phase("all")
    assert costs.counter.by_module(None, "all") == counter.by_module(None, "all")


def test_changes_nothing():
    model = Words()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = [ids(2, 12), ids(2, 12)]
    EagerStep(model, F.cross_entropy, optimizer, inputs, None).run(optimizer, inputs)
    last, parameters, seed = model.last, list(model.parameters()), torch.get_rng_state()
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    entries = {p: {k: x.clone() for k, x in own.items()} for p, own in optimizer.state.items()}
    gradients = [p.grad for p in parameters]
    gh.analyze.step(model, F.cross_entropy, optimizer, inputs, convention="torch")
    assert model.last is last
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(p.grad is grad for p, grad in zip(parameters, gradients, strict=True))
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert optimizer.state.keys() == entries.keys()
    for p, own in optimizer.state.items():
        assert all(torch.equal(x, entries[p][k]) for k, x in own.items())
    assert torch.equal(torch.get_rng_state(), seed)


def test_a_model_on_the_meta_device_costs_the_same():
    inputs = [((2, 3, 16, 16), "float32"), ((2,), torch.int64)]
    with torch.device("meta"):
        model = Picture()
    options = {"convention": "torch"}
    adamw = torch.optim.AdamW
    costs = gh.analyze.step(model, F.cross_entropy, adamw(model.parameters()), inputs, **options)
    real = gh.analyze.step(Picture(), F.cross_entropy, adamw, inputs, **options)
    assert costs.peaks == real.peaks
    assert costs.to_dict()["memory"] == real.to_dict()["memory"]
    assert all(p.is_meta for p in model.parameters())


def test_kinds_and_tables():
    model = Picture()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = [((2, 3, 16, 16), "float32"), ((2,), "int64")]
    costs = gh.analyze.step(model, F.cross_entropy, optimizer, inputs, convention="torch")
    parameters = sum(p.nbytes for p in model.parameters())
    kinds = costs.memory_by_kind
    assert kinds["parameters"] == parameters
    assert kinds["buffers"] == sum(b.nbytes for b in model.buffers())
    assert kinds["optimizer state"] == 2 * parameters + 4 * len(list(model.parameters()))
    assert kinds["inputs"] == 2 * 3 * 16 * 16 * 4 + 2 * 8
    assert costs.peak_at.phase == "backward"
    text = str(costs)
    assert "PyTorch eager: peak" in text and "deep" in text and "optimizer state" in text
    assert json.loads(json.dumps(costs.to_dict()))["peak_bytes"] == costs.peak_bytes
    names = {kernel.name for kernel in costs.kernels}
    assert {"aten::convolution", "aten::convolution_backward"} <= names
    assert costs.predicted_ns > 0


def test_the_model_may_return_its_loss():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, x, scale=1.0):
            return self.inner(x).mean() * scale

    inputs = [{"x": ((8, 4), "float32"), "scale": 2.0}]
    costs = gh.analyze.step(Loss(), None, torch.optim.SGD, inputs, convention="torch")
    assert costs.counter.total() == 2 * (2 * 8 * 4)


def test_autocast_saves_memory():
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    inputs = [((512, 64), "float32")] * 2
    options = {"convention": "torch"}
    plain = gh.analyze.step(model, F.mse_loss, torch.optim.SGD, inputs, **options)
    narrow = gh.analyze.step(
        model, F.mse_loss, torch.optim.SGD, inputs, autocast="bfloat16", **options
    )
    assert narrow.peak_bytes < plain.peak_bytes


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_misspelled_convention_names_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'torch'"):
        gh.analyze.step(nn.Linear(2, 2), None, torch.optim.SGD, [], convention="touch")


def test_a_convention_is_for_one_librarys_models():
    ours = gh.nn.Linear(2, 2)
    with pytest.raises(OptionError, match='say convention="exact"'):
        gh.analyze.step(ours, None, gh.optim.SGD, [], convention="torch")


class Asking(nn.Module):
    """Reads a value that nobody can know."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        x = self.inner(x)
        return x if x.sum() > 0 else -x


def test_a_value_that_is_read_is_told_with_operator_module_and_line():
    model = nn.Sequential(Asking())
    inputs = [((2, 2), "float32")] * 2
    with pytest.raises(
        BackendError, match=r"reads no value.*_local_scalar_dense.* in 0, .*\.py:\d"
    ):
        gh.analyze.step(model, F.mse_loss, torch.optim.SGD, inputs, convention="torch")
    assert type(model[0].inner.weight) is nn.Parameter
    assert model[0].inner.weight.device.type == "cpu"


def test_an_operator_without_sizes_is_told_with_its_module():
    library = torch.library.Library("gh_test_ahead", "DEF")
    library.define("secret(Tensor x) -> Tensor")
    library.impl("secret", lambda x: x.clone(), "CPU")

    class Secret(nn.Module):
        def forward(self, x):
            return torch.ops.gh_test_ahead.secret(x)

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Secret()))
    inputs = [((2, 2), "float32")] * 2
    with pytest.raises(
        BackendError, match=r"gh_test_ahead.secret.default in 1\.0, .*register_fake"
    ):
        gh.analyze.step(model, F.mse_loss, torch.optim.SGD, inputs, convention="torch")


def test_operands_that_do_not_fit_are_told_with_their_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 2))
    inputs = [((2, 2), "float32")] * 2
    with pytest.raises(BackendError, match=r"aten\.addmm\.default in 1"):
        gh.analyze.step(model, F.mse_loss, torch.optim.SGD, inputs, convention="torch")


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(OptionError, match="an optimizer of torch.optim"):
        gh.analyze.step(nn.Linear(2, 2), F.mse_loss, 3, [], convention="torch")


@pytest.mark.parametrize("sizes", [((6, 8), (3, 5, 8)), ((2, 3, 8), (2, 5, 8)), ((8, 8), (6, 8))])
def test_products_of_groups_have_the_memory_that_they_have_in_earnest(sizes):
    from glasshouse.torch.ahead.no_contents import grouped_product

    a, b = torch.randn(sizes[0]), torch.randn(sizes[1]).mT
    offs = None if a.dim() == b.dim() == 3 else torch.tensor([2, 4, 6], dtype=torch.int32)
    real = torch._grouped_mm(a, b, offs)
    sized = grouped_product(a, b, offs)
    assert (sized.shape, sized.stride()) == (real.shape, real.stride())
    assert sized.untyped_storage().nbytes() == real.untyped_storage().nbytes()


# -- what if ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_largest_batch_fits_and_the_next_does_not():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    inputs = [torch.randn(2, 16), torch.tensor([0, 3])]
    options = {"convention": "torch"}
    batch = gh.analyze.max_batch(
        model, F.cross_entropy, torch.optim.SGD, inputs, 40_000, limit=128, **options
    )

    def peak(n):
        arguments = [((n, 16), "float32"), ((n,), "int64")]
        costs = gh.analyze.step(model, F.cross_entropy, torch.optim.SGD, arguments, **options)
        return costs.peak_bytes

    assert peak(batch) <= 40_000 < peak(batch + 1)


def test_a_sweep_takes_other_optimizers_and_dtypes():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    costs = gh.analyze.sweep(
        model,
        F.mse_loss,
        torch.optim.SGD,
        lambda n: [((n, 16), "float32"), ((n, 4), "float32")],
        convention="torch",
    )
    assert costs(256).flops == 2 * costs(128).flops
    assert costs(8, torch.optim.AdamW).peak_bytes > costs(8).peak_bytes
    assert costs(512, autocast="bfloat16").peak_bytes < costs(512).peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("convention", ["torch", "exact"])
def test_new_memory_is_told_with_its_time(convention):
    machine = replace(gh.analyze.MachineProfile.load("cpu2"), new_bytes_per_s=1e9)
    model = torch.nn.Linear(3072, 3072, device="meta")
    inputs = [torch.empty(64, 3072, device="meta") for _ in range(2)]
    adam = torch.optim.AdamW(model.parameters())
    options = {"convention": convention, "machine": machine}
    costs = gh.analyze.step(model, torch.nn.functional.mse_loss, adam, inputs, **options)
    assert costs.new_bytes > 3072 * 3072 * 4  # AdamW makes a tensor of a weight's size and drops it
    assert costs.to_dict()["new_bytes"] == costs.new_bytes
    nanoseconds = costs.new_bytes  # at 1 GB/s
    assert f"new memory take {nanoseconds / 1e6:.3f} ms of that" in str(costs)
    without = replace(machine, new_bytes_per_s=0.0)
    same = gh.analyze.step(
        model, torch.nn.functional.mse_loss, adam, inputs, **options | {"machine": without}
    )
    assert costs.kernel_ns - same.kernel_ns == pytest.approx(nanoseconds, rel=1e-6)
