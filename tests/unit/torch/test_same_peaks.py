"""The peak of a profile and the predicted one are one number, to the byte: of small programs in
eager, compiled, and captured whole; steps of the host, which PyTorch computes, are in many."""

import gc

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WIDE, ROWS = 48, 32
CONVENTIONS = {"eager": "torch", "compiled": "exact", "captured": "captured"}
OPTIMIZERS = [
    lambda p: torch.optim.AdamW(p, lr=1e-3),
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    lambda p: torch.optim.SGD(p, lr=0.01),
]


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def pictures(*layers):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers), torch.randn(4, 3, 16, 16)


def rows(*layers):
    return nn.Sequential(nn.Linear(WIDE, WIDE), *layers), torch.randn(ROWS, WIDE)


def words(*layers):
    return nn.Sequential(nn.Embedding(40, 32), *layers), torch.randint(0, 40, (8, 24))


def of_rows(function):
    return lambda: rows(Apply(function))


PROGRAMS = {
    "adaptive max pool": lambda: pictures(nn.ReLU(), nn.AdaptiveMaxPool2d(4)),
    "of a transposed picture": lambda: pictures(
        Apply(lambda x: x.transpose(2, 3)), nn.AdaptiveMaxPool2d((3, 5))
    ),
    "fractional pool": lambda: pictures(nn.FractionalMaxPool2d(3, 5)),
    "average pool": lambda: pictures(nn.AdaptiveAvgPool2d(5)),
    "batch norm": lambda: pictures(nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
    "group norm": lambda: pictures(nn.GroupNorm(2, 8), nn.SiLU()),
    "pixels": lambda: pictures(nn.PixelShuffle(2)),
    "bicubic": lambda: pictures(nn.Upsample(scale_factor=2, mode="bicubic")),
    "sort": of_rows(lambda x: x.sort(-1)[0]),
    "median": of_rows(lambda x: x.median(-1)[0]),
    "k-th value": of_rows(lambda x: x.kthvalue(3)[0]),
    "renorm": of_rows(lambda x: x.renorm(2, 0, 1.0)),
    "distances": of_rows(lambda x: torch.cdist(x, x)),
    "spectrum": of_rows(lambda x: torch.fft.rfft(x).abs()),
    "dropout": lambda: rows(nn.Dropout(0.2), nn.GELU(), nn.Linear(WIDE, WIDE)),
    "attention": lambda: words(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)),
    "recurrent": lambda: words(nn.GRU(32, 32, batch_first=True), Apply(lambda x: x[0])),
}
QUICK = ("adaptive max pool", "dropout")
CASES = [
    pytest.param(name, how, number % 3, marks=[pytest.mark.slow] * (name not in QUICK))
    for number, name in enumerate(PROGRAMS)
    for how in CONVENTIONS
]


def loss_of(output):
    return (output * output).mean()


@pytest.fixture(autouse=True)
def compiled_always():
    with flags.override(compile="always"):
        yield


@pytest.mark.parametrize(("name", "how", "number"), CASES)
def test_a_profile_has_the_predicted_peak(name, how, number, own_memory):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = PROGRAMS[name]()
    optimizer = OPTIMIZERS[number](model.parameters())
    arguments = model, loss_of, optimizer, [x]
    costs = gh.analyze.step(*arguments, steps=3, convention=CONVENTIONS[how])
    run = torch.compile(model, backend="glasshouse") if how == "compiled" else model

    def step():
        optimizer.zero_grad()
        output = run(x)
        loss = loss_of(output)
        loss.backward()
        optimizer.step()

    step = gh.optimize(step) if how == "captured" else step
    for _ in range(4):
        step()
    gc.collect()
    with gh.profile(profile_memory=True) as prof:
        for _ in range(2):
            step()
            prof.step()
    assert prof.memory().peak_bytes == costs.peaks[-1]
