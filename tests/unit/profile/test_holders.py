"""Memory at the peak is named by who holds it: parameters by their paths, gradients, optimizers'
state; else by module and operator."""

import functools
import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch import primitives
from glasshouse.profile.memory import UNUSED

pytestmark = pytest.mark.usefixtures("own_memory")

WIDE, ROWS = 96, 32


class Block(gh.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = gh.nn.LayerNorm(WIDE)
        self.mlp = gh.nn.Sequential(
            gh.nn.Linear(WIDE, 2 * WIDE), gh.nn.GELU(), gh.nn.Linear(2 * WIDE, WIDE)
        )

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(gh.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = gh.nn.ModuleList([Block() for _ in range(2)])
        self.head = gh.nn.Linear(WIDE, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(gh.relu(x))


OPTIMIZERS = {
    "AdamW": ("exp_avg of", "exp_avg_sq of"),
    "SGD": ("momentum_buffer of",),
    "RMSprop": ("square_avg of",),
}


HOW = [(False, False), (False, True), (True, True)]  # whether captured, whether steps ran before


@functools.cache
def peak_of(name: str, clips: bool, captured: bool, warm: bool):
    """The tensors at the peak of a small model's training, and the names of its parameters."""
    gh.manual_seed(0)
    model = Net()
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(gh.optim, name)(model.parameters(), lr=1e-3, **options)
    rng = np.random.default_rng(0)
    x = gh.asarray(rng.standard_normal((ROWS, WIDE), np.float32))
    y = gh.asarray(rng.integers(0, 10, ROWS))

    def step():
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if clips:
            gh.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step = gh.optimize(step) if captured else step
    with flags.override(compile="always"):
        for _ in range(3 * warm):
            step().item()
        gc.collect()  # cycles that capture leaves hold what nobody knows
        with gh.profile(profile_memory=True, with_stack=True) as prof:
            for _ in range(4):
                step()
                prof.step()
    gh.reset()
    return prof.memory(), [path for path, _ in model.named_parameters()]


def compiled(step) -> set[str]:
    """The names at the peak of two steps that are compiled."""
    with flags.override(compile="always"), gh.profile(profile_memory=True) as prof:
        step()
        step()
    return {str(t.tag) for t in prof.memory().tensors}


LIBRARIES = {"onednn"}  # whose functions take scratch


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "clips", "captured", "warm"),
    [
        *[("AdamW", True, *how) for how in HOW],
        ("AdamW", True, True, False),
        ("SGD", False, False, False),
        ("SGD", True, True, True),
        ("RMSprop", False, False, True),
    ],
)
def test_each_large_tensor_at_the_peak_has_a_true_name(name, clips, captured, warm):
    memory, paths = peak_of(name, clips, captured, warm)
    for t in memory.tensors:
        if t.nbytes < 0.01 * memory.peak_bytes or t.tag == UNUSED:
            continue
        what, module, phase = t.tag
        if what in ("parameter", "gradient of", *OPTIMIZERS[name]):
            assert module in paths and t.spec
            continue
        words = set(what.removeprefix("scratch of ").replace(" in ", " ").split()) - LIBRARIES
        assert words <= {*primitives, "gelu", "relu", "cross_entropy", "layer_norm"}, t
        assert module.startswith("Net") and phase in ("forward", "backward") and t.spec, t
        assert t.line.startswith(__file__), t


@pytest.mark.parametrize(("captured", "warm"), HOW)
def test_all_that_models_and_optimizers_hold_is_at_the_peak(captured, warm):
    memory, paths = peak_of("AdamW", True, captured, warm)
    sums = {}
    for t in memory.tensors:
        sums.setdefault((t.tag.primitive, t.tag.module), 0)
        sums[t.tag.primitive, t.tag.module] += t.nbytes
    matrices = [path for path in paths if "mlp" in path and "weight" in path]
    for path in matrices:
        for what in ("parameter", *OPTIMIZERS["AdamW"]):
            assert sums.get((what, path)), (what, path)
    kinds = memory.kinds()
    size = sum(sums["exp_avg of", path] for path in matrices)
    assert 2 * size <= kinds["optimizer state"] <= 2.2 * size and size <= kinds["parameters"]
    assert sum(kinds.values()) == sum(t.nbytes for t in memory.tensors)
    assert f"{kinds['optimizer state'] / 1e3:.1f} kB" in memory.table()


def test_parameters_without_a_model_are_named_by_their_optimizer():
    w = gh.asarray(np.ones((64, 64), np.float32))
    w.requires_grad = True
    optimizer = gh.optim.Adam([w], lr=0.1)

    def step():
        (w * w).sum().backward()
        optimizer.step()

    assert {"parameter 0 of Adam", "exp_avg of 0 of Adam optimizer"} <= compiled(step)


def test_models_that_are_made_in_a_recording_are_found():
    def train():
        model = gh.nn.Linear(64, 64)
        optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
        model(gh.asarray(np.ones((4, 64), np.float32))).sum().backward()
        optimizer.step()

    assert {"parameter weight", "gradient of weight backward"} <= compiled(train)
