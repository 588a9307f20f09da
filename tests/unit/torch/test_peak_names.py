"""Memory at the peak of PyTorch programs is named by who holds it, else by module and operator;
what a compiled model's own forward computes belongs to its class."""

import functools

import pytest

import glasshouse as gh
from glasshouse import memory
from glasshouse.base.flags import flags
from glasshouse.dispatch import primitives
from glasshouse.profile.memory import UNUSED

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WIDE, ROWS, CLASSES = 96, 64, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDE)
        self.mlp = nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.GELU(), nn.Linear(2 * WIDE, WIDE))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDE, CLASSES)

    def forward(self, x):
        x = torch.exp(torch.sin(x)) * x
        for block in self.blocks:
            x = block(x)
        return self.head(torch.tanh(x).sin())


@functools.cache
def tags_of_other_tests(how: str) -> set:
    """The tags of memory that is held before the model is made."""
    return {tag for _, tag in memory.current().live.values()}


@functools.cache
def recorded(how: str):
    """A profile of the training of a small model, and the names of its parameters."""
    tags_of_other_tests(how)
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run = torch.compile(model, backend="glasshouse") if how == "compiled" else model
    x, y = torch.randn(ROWS, WIDE), torch.randint(0, CLASSES, (ROWS,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step = gh.optimize(step) if how == "captured" else step
    with flags.override(compile="always"):
        for _ in range(3):
            step()
        with gh.profile(profile_memory=True, with_stack=True) as prof:
            for _ in range(3):
                step()
                prof.step()
    return prof, [path for path, _ in model.named_parameters()]


HOW = ["eager", "compiled", "captured"]


LIBRARIES = {"onednn"}  # whose functions take scratch


@pytest.mark.parametrize("how", HOW)
def test_each_large_tensor_at_the_peak_has_a_true_name(how):
    prof, paths = recorded(how)
    peak = prof.memory()
    named = {"layer_norm", "gelu", "log_softmax"}
    for t in peak.tensors:
        small = t.nbytes < 0.01 * peak.peak_bytes
        if small or t.tag == UNUSED or t.tag in tags_of_other_tests(how):
            continue
        what, module, phase = t.tag
        assert t.spec, t
        if what in ("parameter", "gradient of", "exp_avg of", "exp_avg_sq of"):
            assert module in paths, t
        elif what != "tensors that were there before":
            words = set(what.removeprefix("scratch of ").replace(" in ", " ").split()) - LIBRARIES
            assert what.startswith("aten::") or words <= {*primitives, *named}, t
            assert phase in ("forward", "backward", "recompute", "optimizer"), t
            assert t.line.startswith(__file__), t


@pytest.mark.parametrize("how", HOW)
def test_all_that_models_and_optimizers_hold_is_at_the_peak(how):
    prof, paths = recorded(how)
    memory = prof.memory()
    tags = {(t.tag.primitive, t.tag.module) for t in memory.tensors}
    for path in paths:
        assert {(what, path) for what in ("parameter", "exp_avg of", "exp_avg_sq of")} <= tags
    sizes = memory.kinds()
    assert sizes["parameters"] > 0 and sizes["optimizer state"] >= 2 * sizes["parameters"]


@pytest.mark.parametrize("how", HOW)
def test_what_the_root_module_computes_belongs_to_its_class(how):
    prof, _ = recorded(how)
    rows = {(r.module, r.phase): r for r in prof.modules().rows()}
    for phase in ("forward", "backward"):
        assert rows["Net", phase].kernel_ns > 0
    for row in prof.kernels():
        if "sin" in row.name.split(" + ") and row.phase == "forward" and not row.module:
            raise AssertionError(row)
