"""Tables of analyses of our models name parameters and an optimizer's state by their paths."""

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

WIDE, ROWS = 64, 32


class Net(gh.nn.Module):
    """Two layers that share a weight, and one that two paths lead to."""

    def __init__(self):
        super().__init__()
        self.first, self.second = gh.nn.Linear(WIDE, WIDE), gh.nn.Linear(WIDE, WIDE)
        self.second.weight = self.first.weight
        self.third = gh.nn.Linear(WIDE, WIDE)
        self.inner = gh.nn.Sequential(self.third, gh.nn.GELU())

    def forward(self, x):
        y = gh.tanh(self.first(x))
        return (y + self.second(gh.sin(y)) * self.inner(x)).mean()


def paths_of(model) -> set[str]:
    paths: dict[int, list[str]] = {}
    for path, p in model.named_parameters(remove_duplicate=False):
        if p.spec.nbytes >= 4096:  # smaller ones are NumPy's
            paths.setdefault(id(p), []).append(path)
    return {" and ".join(paths_of_one) for paths_of_one in paths.values()}


@pytest.mark.parametrize("convention", ["exact", "captured"])
def test_what_models_and_optimizers_hold_has_its_paths(convention):
    model = Net()
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    with flags.override(compile="always"):
        x = [((ROWS, WIDE), "float32")]
        costs = gh.analyze.step(model, None, optimizer, x, convention=convention)
    names: dict[str, set[str]] = {}
    for row in costs.memory:
        names.setdefault(row.kind, set()).add(row.name)
    paths = paths_of(model)
    assert "first.weight and second.weight" in paths
    assert names["parameters"] == paths
    state = {f"{what} of {path}" for what in ("exp_avg", "exp_avg_sq") for path in paths}
    assert names["optimizer state"] == state
    assert names.get("gradients", set()) <= {f"gradient of {path}" for path in paths}
    assert "exp_avg of first.weight and second.weight" in str(costs)
    for kernel in costs.kernels:
        assert kernel.module or kernel.phase == "optimizer", kernel


def test_a_profile_names_shared_parameters_by_all_their_paths():
    model = Net()
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    with flags.override(compile="always"), gh.profile(profile_memory=True) as prof:
        for _ in range(2):
            optimizer.zero_grad()
            model(gh.ones((ROWS, WIDE))).backward()
            optimizer.step()
            prof.step()
    assert paths_of(model) <= {t.tag.module for t in prof.memory().tensors if t.kind != "others"}
