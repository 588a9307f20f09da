"""Memory budgets of captured and compiled PyTorch programs: less is kept between the passes, and
losses, gradients and parameters are those without one."""

import gc

import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional
pytestmark = pytest.mark.library_warnings


def perceptron():
    layers = [x for _ in range(4) for x in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers), torch.randn(64, 64)


def pictures():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.GELU(),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(32 * 64, 5),
    )
    return model, torch.randn(4, 3, 16, 16)


def words():
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 32), layer, nn.Linear(32, 50))
    return model, torch.randint(0, 50, (8, 24))


def words_with_dropout():
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Dropout(0.1), nn.LayerNorm(32), layer)
    return model, torch.randint(0, 50, (8, 24))


class Bottleneck(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList([norm(16), norm(16)])
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)))
        x = F.relu(x + self.norms[1](self.second(F.dropout2d(x, 0.2))))
        return self.out(F.silu(x).mean((2, 3)))


def pictures_by_groups():
    return Bottleneck(lambda n: nn.GroupNorm(4, n)), torch.randn(4, 3, 16, 16)


def pictures_by_batches():
    return Bottleneck(nn.BatchNorm2d), torch.randn(4, 3, 16, 16)


def pictures_without_statistics():
    norm = lambda n: nn.BatchNorm2d(n, track_running_stats=False)  # noqa: E731
    return Bottleneck(norm), torch.randn(4, 3, 16, 16)


MODELS = {
    make.__name__: make
    for make in (
        perceptron,
        pictures,
        words,
        words_with_dropout,
        pictures_by_groups,
        pictures_by_batches,
        pictures_without_statistics,
    )
}


def trained(make, compiled_by, steps=4) -> list[torch.Tensor]:
    """The last loss, parameters, buffers and gradients after some steps."""
    torch.manual_seed(0)
    model, x = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = compiled_by(model, optimizer)
    torch.manual_seed(1)
    for _ in range(steps):
        loss = step(x)
    state = [loss.detach(), *model.state_dict().values()]
    return state + [p.grad for p in model.parameters()]


def compiling(budget):
    """The model compiled, the rest as it is."""

    def compiled_by(model, optimizer):
        options = {"memory_budget": budget} if budget else {}
        forward = torch.compile(model, backend="glasshouse", options=options)

        def step(x):
            optimizer.zero_grad()
            loss = forward(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return compiled_by


def capturing(budget):
    """The whole step captured."""

    def compiled_by(model, optimizer):
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return gh.optimize(memory_budget=budget)(step) if budget else gh.optimize(step)

    return compiled_by


# Without AVX-512 some sums of batch norm's gradients differ in their last bits within a budget.
NOT_TO_THE_BIT = pytest.mark.xfail(
    torch.backends.cpu.get_cpu_capability() != "AVX512",
    reason="sums of batch norm's gradients are not in the same order without AVX-512",
)
BATCH_NORMS = (pictures_by_batches, pictures_without_statistics)
CASES = [
    pytest.param(name, way, marks=NOT_TO_THE_BIT if make in BATCH_NORMS else ())
    for name, make in MODELS.items()
    for way in (compiling, capturing)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), CASES)
def test_gradients_and_parameters_are_those_without_a_budget(name, way):
    plain = trained(MODELS[name], way(None))
    within = trained(MODELS[name], way("40%"))
    for a, b in zip(plain, within, strict=True):
        assert torch.equal(a, b)


def bytes_between(budget) -> int:
    """Return the bytes that our manager has handed out between the passes of a captured step."""
    between = []
    torch.manual_seed(0)
    model, x = perceptron()

    @gh.disable
    def look():
        gc.collect()
        between.append(gh.memory.stats().wanted_bytes)

    def forward(x):
        return model(x).square().mean()

    compiled = gh.optimize(memory_budget=budget)(forward) if budget else gh.optimize(forward)
    for _ in range(3):
        gc.collect()
        before = gh.memory.stats().wanted_bytes
        loss = compiled(x)
        look()
        loss.backward()
    return between[-1] - before


@pytest.mark.slow
def test_a_captured_step_keeps_less():
    whole = bytes_between(None)
    assert bytes_between("40%") <= 0.4 * whole < whole


def sigmoids():
    return nn.Sequential(nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 8)), torch.randn(64, 64)


@pytest.mark.parametrize("way", [compiling, capturing])
def test_a_budget_that_cannot_be_met_names_the_least(way):
    with pytest.raises((OptionError, RuntimeError), match=r"at least [\d,]+ bytes.*1KB"):
        trained(sigmoids, way("1KB"))


def test_a_budget_that_cannot_be_met_is_refused_in_each_call():
    model, x = sigmoids()
    forward = gh.optimize(memory_budget="1KB")(lambda x: model(x).square().mean())
    for _ in range(2):
        with pytest.raises(OptionError, match="at least"):
            for _ in range(3):
                forward(x).backward()
