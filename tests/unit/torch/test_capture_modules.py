"""Modules of PyTorch, captured by our own frame hook: what is guarded, what lives beside it."""

import copy
import enum
import gc
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import same_outcome  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402


class Block(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0

    def forward(self, x, *, extra=None):
        y = self.linear(x) * self.scale
        if extra is not None:
            y = y + extra
        return F.gelu(y)


class Counting(Block):
    def forward(self, x):
        self.count += 1
        return super().forward(x) + self.count


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.by_name = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(4)) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        for name, module in self.by_name.items():
            x = module(x) if name == "a" else x + module(x)
        return x * self.weights[0] + self.weights[1]


def layers():
    yield nn.Linear(4, 3)
    yield nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3))
    yield nn.LayerNorm(4)
    yield nn.BatchNorm1d(4)
    yield nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten())
    yield nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    yield nn.MultiheadAttention(4, 2).eval()
    yield nn.GRU(4, 5)
    yield nn.LSTM(4, 5)
    yield nn.PReLU()
    yield nn.GroupNorm(2, 4)
    yield nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    yield Block()
    yield Counting()
    yield Listed()


@pytest.mark.parametrize("module", [*layers()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("training", [True, False])
def test_layers(module, training):
    module = copy.deepcopy(module).train(training)

    def call(module, x):
        if isinstance(module, nn.MultiheadAttention):
            return module(x, x, x)
        return module(x)

    torch.manual_seed(0)
    same_outcome(call, *[(module, torch.randn(6, 4)) for _ in range(3)])


def calling(module, x):
    return module(x)


def changes():
    """Return changes to a module, after which its calls give something else."""
    yield "eval", lambda m: m.eval()
    yield "weight in place", lambda m: m.linear.weight.data.mul_(2)
    yield "weight replaced", lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(4, 4)))
    yield "bias None", lambda m: setattr(m.linear, "bias", None)
    yield "requires_grad", lambda m: m.linear.weight.requires_grad_(False)
    yield "double", lambda m: m.linear.weight.data.copy_(m.linear.weight.double())
    yield "submodule replaced", lambda m: setattr(m, "linear", nn.Identity())
    yield "attribute", lambda m: setattr(m, "scale", 5.0)
    yield "class attribute", lambda m: setattr(type(m), "scale", 7.0)
    yield "forward replaced", lambda m: setattr(m, "forward", lambda x: x - 1)
    yield "forward of a layer", lambda m: setattr(m.linear, "forward", lambda x: x + 7)
    yield "forward of its class", lambda m: setattr(nn.Linear, "forward", lambda self, x: x + 9)
    yield "hook", lambda m: m.register_forward_hook(lambda m, args, out: out * 3)
    yield "pre-hook", lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    yield "inner hook", lambda m: m.linear.register_forward_hook(lambda m, args, out: out - 1)
    yield "data", lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4))
    yield "load", lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()})
    yield "dtype", lambda m: m.to(torch.float32)


@pytest.mark.parametrize("change", [c for _, c in changes()], ids=[n for n, _ in changes()])
def test_guards(change, monkeypatch):
    monkeypatch.setattr(Block, "scale", 2.0)
    monkeypatch.setattr(nn.Linear, "forward", nn.Linear.forward)
    torch.manual_seed(0)
    module, x = Block(), torch.randn(3, 4)
    captured = gh.optimize("eager")(calling)
    for _ in range(3):
        torch.testing.assert_close(captured(module, x), calling(module, x))
    change(module)
    for _ in range(3):
        want = calling(module, x)
        got = captured(module, x)
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad


def inputs():
    x = torch.linspace(0, 1, 12).reshape(3, 4)
    yield "shape", torch.ones(5, 4)
    yield "rank", torch.ones(2, 3, 4)
    yield "strides", torch.ones(4, 3).t()
    yield "requires_grad", x.clone().requires_grad_()
    yield "no leaf", x.clone().requires_grad_() * 2
    yield "view", torch.ones(6, 8)[::2, 4:]
    yield "expanded", torch.ones(1, 4).expand(3, 4)
    yield "empty", torch.ones(0, 4)
    yield "parameter", nn.Parameter(x.clone())


@pytest.mark.parametrize("x", [x for _, x in inputs()], ids=[n for n, _ in inputs()])
def test_guards_on_inputs(x):
    torch.manual_seed(0)
    module, usual = Block(), torch.randn(3, 4)
    captured = gh.optimize("eager")(lambda m, x: (m(x), x.shape, x.stride(), x.requires_grad))
    for arguments in (usual, usual, x, x, usual):
        want, got = calling(module, arguments), captured(module, arguments)
        torch.testing.assert_close(got[0], want)
        assert got[1:] == (arguments.shape, arguments.stride(), arguments.requires_grad)


def test_guards_on_modes():
    x = torch.ones(3, requires_grad=True)
    captured = gh.optimize("eager")(lambda x: (x * 2, torch.is_grad_enabled()))
    for enabled in (True, False, True, False):
        with torch.set_grad_enabled(enabled):
            y, value = captured(x)
        assert y.requires_grad is enabled and value is enabled
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = gh.optimize("eager")(lambda a, b: a @ b)
        inside = product(torch.ones(2, 2), torch.ones(2, 2))
    assert inside.dtype == torch.bfloat16
    assert product(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32
    assert captured.hits == 2


def test_a_module_stays_a_module():
    module = Block()
    fast = gh.optimize("eager")(module)
    x = torch.randn(3, 4)
    torch.testing.assert_close(fast(x, extra=x), module(x, extra=x))
    assert isinstance(fast, nn.Module) and fast.linear is module.linear
    assert [*fast.state_dict()] == [*module.state_dict()]
    fast.eval()
    assert not module.training
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
    fast(x).sum().backward()
    optimizer.step()
    torch.testing.assert_close(fast(x), module(x))


def test_each_instance_has_its_weights():
    captured = gh.optimize("eager")(calling)
    modules, x = [Block() for _ in range(4)], torch.randn(3, 4)
    for _ in range(2):
        for module in modules:
            torch.testing.assert_close(captured(module, x), module(x))
    assert len(captured.capture.entries) == 1 and captured.hits == 7


def test_entries_keep_no_model_alive():
    captured = gh.optimize("eager")(lambda model, optimizer, x: train(model, optimizer, x))
    model = Block()
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(3, 4)
    for _ in range(4):
        captured(model, optimizer, x)
    assert captured.hits
    gone = weakref.ref(model), weakref.ref(model.linear.weight)
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss


def test_trained_models_are_copied_and_pickled():
    model = Block()
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(3, 4)
    captured = gh.optimize("eager")(train)
    for _ in range(4):
        captured(model, optimizer, x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(x), model(x))


def test_many_calls_leave_nothing():
    module, x = Block().eval(), torch.randn(3, 4)
    captured = gh.optimize("eager")(calling)
    with torch.no_grad():
        for _ in range(100):
            captured(module, x)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(3000):
            captured(module, x)
        gc.collect()
    assert len(gc.get_objects()) - before < 20


def test_shared_weights_are_one_input():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    x = torch.randn(3, 4)
    captured = same_outcome(calling, *[(module, x)] * 3, backward=True)
    assert captured.hits == 2
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    torch.testing.assert_close(captured(other, x), other(x))


class Layout(str, enum.Enum):  # noqa: UP042
    ROWS = "rows"
    COLUMNS = "columns"


class Arranged(nn.Module):
    """Keeps a member of an enumeration that is a string too, as timm's layers do."""

    def __init__(self):
        super().__init__()
        self.layout, self.layer = Layout.ROWS, nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        if self.layout != Layout.COLUMNS:
            y = y * 2
        return y + 1 if self.layout == "rows" else y


def test_members_of_enumerations():
    model, x = Arranged(), torch.ones(3, 4)
    captured = gh.optimize("eager", nopython=True)(lambda model, x: model(x))
    for layout in (Layout.ROWS, Layout.COLUMNS, Layout.ROWS, "rows", Layout.COLUMNS):
        model.layout = layout
        torch.testing.assert_close(captured(model, x), model(x))
    assert captured.hits >= 2
