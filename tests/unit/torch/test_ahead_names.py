"""Tables of analyses of PyTorch's models name what users wrote: parameters and an optimizer's state
by their paths, shared ones by all of them; sums of gradients belong to a module."""

import functools

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WIDE, ROWS = 48, 16
CONVENTIONS = ["torch", "exact", "captured"]
FUNCTIONS = [torch.sin, torch.tanh, torch.exp, nn.functional.gelu]


class Part(nn.Module):
    """One layer, or two on one operand, whose gradients are added."""

    def __init__(self, generator):
        super().__init__()
        self.first = nn.Linear(WIDE, WIDE)
        self.second = nn.LayerNorm(WIDE) if generator.integers(2) else None
        self.function = FUNCTIONS[generator.integers(len(FUNCTIONS))]

    def forward(this, x):  # whatever a method calls its module
        y = this.function(this.first(x))
        return y if this.second is None else y + this.second(x)


class Net(nn.Module):
    """Parts, of which some share weights or are the same; the loss is the model's own."""

    def __init__(self, seed: int):
        super().__init__()
        generator = np.random.default_rng(seed)
        self.parts = nn.ModuleList([Part(generator) for _ in range(3)])
        self.links = [bool(generator.integers(2)) for _ in self.parts]
        if seed % 3 == 1:
            self.parts[2].first.weight = self.parts[0].first.weight
        elif seed % 3 == 2:
            self.last = self.parts[1]

    def forward(this, x):
        x = torch.cos(x) * torch.sin(x)
        for part, is_linked in zip(this.parts, this.links, strict=True):
            x = x + part(x) if is_linked else part(x)
        return (torch.tanh(x) * x).mean()


def expected_paths(model) -> set[str]:
    paths: dict[int, list[str]] = {}
    for path, p in model.named_parameters(remove_duplicate=False):
        paths.setdefault(id(p), []).append(path)
    assert max(map(len, paths.values())) <= 2
    return {" and ".join(result) for result in paths.values()}


@functools.cache
def analysed(seed: int, convention: str):
    torch.manual_seed(seed)
    model = Net(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = [torch.randn(ROWS, WIDE)]
    return model, gh.analyze.step(model, None, optimizer, x, convention=convention)


SEEDS = range(3)
CASES = [
    pytest.param(seed, c, marks=[pytest.mark.slow] * (c != "torch"))
    for seed in SEEDS
    for c in CONVENTIONS
]


@pytest.mark.parametrize(("seed", "convention"), CASES)
def test_what_models_and_optimizers_hold_has_its_paths(seed, convention):
    model, result = analysed(seed, convention)
    paths, names = expected_paths(model), {}
    for row in result.memory:
        names.setdefault(row.kind, set()).add(row.name)
    assert names["parameters"] == paths
    state = {"step", "exp_avg", "exp_avg_sq"}
    assert names["optimizer state"] == {f"{what} of {path}" for what in state for path in paths}
    assert names.get("gradients", set()) <= {f"gradient of {path}" for path in paths}
    assert all(row.name for row in result.memory if row.kind != "unused arena")
    assert sum(row.nbytes for row in result.memory) == result.peaks[-1]
    assert any(path in result.table() for path in paths)


@pytest.mark.parametrize(("seed", "convention"), CASES)
def test_both_passes_belong_to_modules(seed, convention):
    model, result = analysed(seed, convention)
    modules = {"Net", *(name for name, _ in model.named_modules(remove_duplicate=False))}
    for kernel in result.kernels:
        if kernel.phase in ("forward", "backward") and kernel.name != "aten::ones_like":
            assert kernel.module in modules - {""}, kernel


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_sums_of_gradients_belong_to_the_same_modules_compiled_as_eager(seed):
    def adds(convention: str) -> dict[str, int]:
        counts = analysed(seed, convention)[1].counter.counts.items()
        results: dict[str, int] = {}
        for (call, origin), (times,) in counts:
            is_sum = call.name in ("add", "aten::add") and call.specs[0].shape == (ROWS, WIDE)
            if origin.phase == "backward" and is_sum:
                results[origin.module] = results.get(origin.module, 0) + times
        return results

    eager = adds("torch")
    assert eager and "" not in eager
    for convention in ("exact", "captured"):
        compiled = adds(convention)
        assert all(compiled.get(module, 0) >= n for module, n in eager.items()), (eager, compiled)


def test_a_profile_names_shared_parameters_by_all_their_paths():
    model = Net(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with gh.profile(profile_memory=True) as prof:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(ROWS, WIDE)).backward()
            optimizer.step()
            prof.step()
    names = {t.tag.module for t in prof.memory().tensors if t.kind != "others"}
    assert expected_paths(model) <= names


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.functional.mse_loss])
def test_the_state_of_a_root_modules_own_parameters_is_that_modules(loss, convention):
    """A loss that is a module has no part in it."""
    model = nn.Linear(WIDE, WIDE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = [torch.randn(ROWS, WIDE), torch.randn(ROWS, WIDE)]
    costs = gh.analyze.step(model, loss, optimizer, inputs, convention=convention)
    rows = [row for row in costs.memory if row.kind == "optimizer state" and " of " in row.name]
    assert {row.module for row in rows} == {"Linear"}
