"""Captured Modules: structure, attributes, state, hooks, and what happens when they change."""

import copy
import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from checking import Counting, X

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn import functional as F


def same(a, b):
    """Two results are equal: type, structure, dtype, shape, tracking and values."""
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, gh.Tensor):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif hasattr(a, "__dataclass_fields__"):
        same(vars(a), vars(b))
    else:
        assert a == b


def same_state(a, b):
    same(dict(a.state_dict()), dict(b.state_dict()))


class Basic(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x):
        return F.relu(self.inner(x)) * self.scale


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = Basic(), Basic(3.0)
        self.body = nn.Sequential(Basic(0.5), nn.ReLU(), Basic())

    def forward(self, x):
        return self.body(self.left(x) + self.right(x)) + x


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = gh.tanh(layer(x))
        return x


class Numbered(Layers):
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        return x / len(self.layers)


class Sliced(Layers):
    def forward(self, x):
        x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = x + layer(x)
        return self.layers[-1](x)


class Backwards(Layers):
    def forward(self, x):
        for layer, k in zip(reversed(list(self.layers)), (1, 2, 3)):
            x = layer(x) + k
        return x


class ByKey(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh(), "c": nn.Linear(4, 2)})

    def forward(self, x):
        return self.parts["c"](self.parts["b"](self.parts["a"](x)))


class Items(ByKey):
    def forward(self, x):
        names = []
        for name, part in self.parts.items():
            names.append(name)
            x = part(x)
        return x, names


class Contains(ByKey):
    def forward(self, x):
        if "a" in self.parts:
            x = self.parts["a"](x)
        return x - 1 if "z" in self.parts else x + 1


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("offset", X(4, seed=5))
        self.register_buffer("seen", gh.zeros(()))
        self.register_buffer("none", None)

    def forward(self, x):
        if self.none is not None:
            return x
        return x + self.offset


class Counts(nn.Module):
    """A buffer that each forward replaces."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", gh.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return x * self.seen


class CountsInPlace(Counts):
    def forward(self, x):
        self.seen += 1
        return x * self.seen


class Methods(nn.Module):
    factor = 3.0

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self._gain = 1.5

    @property
    def gain(self):
        return self._gain * 2

    @staticmethod
    def shift(x):
        return x + 1

    @classmethod
    def grow(cls, x):
        return x * cls.factor

    def helper(self, x, twice=False):
        return self.lin(x) * (2 if twice else 1)

    def forward(self, x):
        return self.grow(self.shift(self.helper(x, twice=True))) * self.gain


class Child(Methods):
    factor = 0.5

    @classmethod
    def grow(cls, x):
        return super().grow(x) - 1

    def helper(self, x, twice=False):
        return super().helper(x, twice) + 0.25

    def forward(self, x):
        return super().forward(x).sum(axis=0)


class Optional(nn.Module):
    def __init__(self, down=None, mode="relu"):
        super().__init__()
        self.down, self.mode = down, mode
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        y = self.lin(x)
        y = F.relu(y) if self.mode == "relu" else gh.tanh(y)
        return y if self.down is None else self.down(y)


class Kind(enum.Enum):
    SUM = 1
    MEAN = 2


class Reduces(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return x.sum() if self.kind is Kind.SUM else x.mean()


class Stored(nn.Module):
    """Functions and layers in attributes, lists and dicts."""

    def __init__(self, act=F.relu):
        super().__init__()
        self.act, self.ops = act, [gh.sin, gh.cos]
        self.last = lambda t: t * 2
        self.plain = {"k": nn.Linear(4, 4)}
        self.pair = (nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x):
        for op in self.ops:
            x = op(x)
        return self.last(self.act(self.plain["k"](x))) + self.pair[1](self.pair[0](x))


class OwnParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(X(4, 4, seed=3))
        self.b = nn.Parameter(gh.ones(4))
        self.register_parameter("absent", None)

    def forward(self, x):
        y = x @ self.w + self.b
        return y if self.absent is None else y + self.absent


class Norm(Layers):
    def forward(self, x):
        total = 0.0
        for p in self.parameters():
            total = total + (p * p).sum()
        return self.layers[0](x).sum() + total


class NormByName(Layers):
    def forward(self, x):
        total = gh.zeros(())
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                total = total + p.sum()
        return x + total


class Walks(Layers):
    def forward(self, x):
        n = 0
        for part in self.layers.children():
            if isinstance(part, nn.Linear):
                x, n = part(x), n + 1
        return x * n * len(list(self.modules()))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x)) @ self.first.weight


class Twice(Basic):
    def forward(self, x):
        return self.inner(self.inner(x)) + self.inner.forward(x)


Pair = namedtuple("Pair", "sum top")


@dataclass
class Output:
    logits: gh.Tensor
    loss: gh.Tensor | None = None


class Outputs(Basic):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        y = self.inner(x)
        if self.kind == "dict":
            return {"y": y, "n": 3, "both": [y, y * 2]}
        if self.kind == "named":
            return Pair(y.sum(), y.max(axis=1))
        if self.kind == "data":
            return Output(y, y.sum())
        return y, (x, None), [y]


class Asks(Basic):
    def forward(self, x):
        if hasattr(self, "inner") and not hasattr(self, "outer") and callable(self.inner):
            x = self.inner(x)
        return x + (1 if self.training else 2) + getattr(self, "missing", 3)


class Keywords(Basic):
    def forward(self, x, *rest, bias=0.5, **words):
        for r in rest:
            x = x + r
        for name in sorted(words):
            x = x * words[name]
        return self.inner(x) + bias


class Called(Basic):
    def __call__(self, x):
        return super().__call__(x) + 1


class Lookup(Basic):
    """__getattr__ of the user's own behind that of Module."""

    def __getattr__(self, name):
        if name == "secret":
            return 7.0
        return super().__getattr__(name)

    def forward(self, x):
        return self.inner(x) * self.secret


class Tree(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.kids = nn.ModuleList([Tree(depth - 1) for _ in range(2)] if depth else [])

    def forward(self, x):
        y = gh.tanh(self.lin(x))
        return sum((kid(y) for kid in self.kids), y)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.block(x).mean(axis=1)


class Params(nn.Module):
    def __init__(self):
        super().__init__()
        self.ws = nn.ParameterList([nn.Parameter(X(4, 4, seed=i)) for i in range(3)])

    def forward(self, x):
        for w in self.ws:
            x = x @ w
        return x + len(self.ws)


def vision():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(27, 5),
    )


x24 = (2, 4)
STRUCTURES = {
    "linear": (lambda: nn.Linear(4, 3), x24),
    "sequential": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), x24),
    "sequential_named": (
        lambda: nn.Sequential(OrderedDict(a=nn.Linear(4, 8), b=nn.Tanh(), c=nn.Linear(8, 1))),
        x24,
    ),
    "sequential_nested": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), Basic()), nn.ReLU()),
        x24,
    ),
    "basic": (Basic, x24),
    "nested": (Nested, x24),
    "list": (Layers, x24),
    "list_enumerate": (Numbered, x24),
    "list_slice": (Sliced, x24),
    "list_reversed": (Backwards, x24),
    "dict_key": (ByKey, x24),
    "dict_items": (Items, x24),
    "dict_contains": (Contains, x24),
    "buffers": (Buffers, x24),
    "methods": (Methods, x24),
    "super": (Child, x24),
    "optional_none": (Optional, x24),
    "optional_layer": (lambda: Optional(nn.Linear(4, 2)), x24),
    "string": (lambda: Optional(mode="tanh"), x24),
    "enum_sum": (lambda: Reduces(Kind.SUM), x24),
    "enum_mean": (lambda: Reduces(Kind.MEAN), x24),
    "stored": (Stored, x24),
    "stored_builtin": (lambda: Stored(gh.tanh), x24),
    "own_parameter": (OwnParameter, x24),
    "parameters": (Norm, x24),
    "named_parameters": (NormByName, x24),
    "children": (Walks, x24),
    "tied": (Tied, x24),
    "called_twice": (Twice, x24),
    "gives_tuple": (lambda: Outputs("tuple"), x24),
    "gives_dict": (lambda: Outputs("dict"), x24),
    "gives_namedtuple": (lambda: Outputs("named"), x24),
    "gives_dataclass": (lambda: Outputs("data"), x24),
    "hasattr": (Asks, x24),
    "keywords": (Keywords, x24),
    "own_call": (Called, x24),
    "own_getattr": (Lookup, x24),
    "tree": (lambda: Tree(2), x24),
    "attention": (Attention, (2, 3, 8)),
    "parameter_list": (Params, x24),
    "vision_train": (vision, (2, 1, 8, 8)),
    "vision_eval": (lambda: vision().eval(), (2, 1, 8, 8)),
    "dropout_eval": (lambda: nn.Sequential(Basic(), nn.Dropout(0.5)).eval(), x24),
    "layer_norm": (lambda: nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.LayerNorm(4)), x24),
    "buffer_replaced": (Counts, x24),
    "buffer_in_place": (CountsInPlace, x24),
}


@pytest.mark.sample(25)
@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_structure(name, compiler):
    make, shape = STRUCTURES[name]
    plain = make()
    captured = copy.deepcopy(plain)
    fast = gh.optimize(compiler)(captured)
    for seed in range(4):
        same(fast(X(*shape, seed=seed)), plain(X(*shape, seed=seed)))
    same_state(captured, plain)


@pytest.mark.parametrize("name", [x for x in STRUCTURES if x != "list_slice"])
def test_structure_is_one_graph(name):
    make, shape = STRUCTURES[name]
    counting = Counting()
    fast = gh.optimize(counting, nopython=True)(make())
    for seed in range(4):
        fast(X(*shape, seed=seed))
    assert len(counting.graphs) == 1
    assert counting.runs == 4


@pytest.mark.parametrize("name", ["sequential", "nested", "list", "tied", "own_parameter", "tree"])
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_gradients_outside(name, compiler):
    make, shape = STRUCTURES[name]
    plain = make()
    captured = copy.deepcopy(plain)
    fast = gh.optimize(compiler)(captured)
    for seed in range(3):
        for model, module in ((plain, plain), (fast, captured)):
            module.zero_grad()
            model(X(*shape, seed=seed)).sum().backward()
        for a, b in zip(plain.parameters(), captured.parameters()):
            same(a.grad, b.grad)


def set_(name, value):
    return lambda m: setattr(m, name, value())


def fill(p, value):
    with gh.no_grad():
        p.copy_(gh.full(p.shape, value))


def with_absent():
    module = OwnParameter()
    module.absent = nn.Parameter(gh.ones(4))
    return module


def doubled_forward(module):
    before = module.forward
    module.forward = lambda x: before(x) * 2


def pop(container, key):
    del container[key]


# name: (what is made, its input, what changes it)
CHANGES = {
    "eval": (lambda: Asks(), x24, lambda m: m.eval()),
    "eval_dropout": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)),
        x24,
        lambda m: m.eval(),
    ),
    "eval_batch_norm": (vision, (2, 1, 8, 8), lambda m: m.eval()),
    "train_batch_norm": (lambda: vision().eval(), (2, 1, 8, 8), lambda m: m.train()),
    "eval_of_part": (vision, (2, 1, 8, 8), lambda m: m[1].eval()),
    "float_attribute": (Basic, x24, set_("scale", lambda: 5.0)),
    "float_to_int": (Basic, x24, set_("scale", lambda: 2)),
    "float_to_tensor": (Basic, x24, set_("scale", lambda: gh.ones(4) * 7)),
    "string_attribute": (Optional, x24, set_("mode", lambda: "tanh")),
    "enum_attribute": (lambda: Reduces(Kind.SUM), x24, set_("kind", lambda: Kind.MEAN)),
    "none_to_layer": (Optional, x24, set_("down", lambda: nn.Linear(4, 2))),
    "layer_to_none": (lambda: Optional(nn.Linear(4, 2)), x24, set_("down", lambda: None)),
    "layer_replaced": (Basic, x24, set_("inner", lambda: nn.Linear(4, 3))),
    "layer_to_user_module": (Basic, x24, set_("inner", lambda: Basic(9.0))),
    "weight_replaced": (
        Basic,
        x24,
        lambda m: setattr(m.inner, "weight", nn.Parameter(X(4, 4, seed=9))),
    ),
    "weight_replaced_shape": (
        Basic,
        x24,
        lambda m: (
            setattr(m.inner, "weight", nn.Parameter(X(6, 4, seed=9))),
            setattr(m.inner, "bias", None),
        ),
    ),
    "own_parameter_replaced": (OwnParameter, x24, set_("w", lambda: nn.Parameter(X(4, 4, seed=8)))),
    "parameter_from_none": (OwnParameter, x24, set_("absent", lambda: nn.Parameter(gh.ones(4)))),
    "parameter_to_none": (with_absent, x24, set_("absent", lambda: None)),
    "weight_filled": (Basic, x24, lambda m: fill(m.inner.weight, 0.3)),
    "own_parameter_filled": (OwnParameter, x24, lambda m: fill(m.w, 0.3)),
    "load_state_dict": (
        Basic,
        x24,
        lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    ),
    "buffer_replaced": (Buffers, x24, set_("offset", lambda: X(4, seed=77))),
    "buffer_shape": (Buffers, x24, set_("offset", lambda: X(2, 4, seed=77))),
    "buffer_filled": (Buffers, x24, lambda m: fill(m.offset, 4.0)),
    "buffer_from_none": (Buffers, x24, set_("none", lambda: gh.ones(1))),
    "frozen": (Basic, x24, lambda m: m.requires_grad_(False)),
    "bias_frozen": (Basic, x24, lambda m: m.inner.bias.requires_grad_(False)),
    "double": (OwnParameter, x24, lambda m: m.double()),
    "list_append": (Layers, x24, lambda m: m.layers.append(nn.Linear(4, 2))),
    "list_item": (Layers, x24, lambda m: m.layers.__setitem__(1, nn.Tanh())),
    "sequential_append": (
        lambda: nn.Sequential(nn.Linear(4, 4)),
        x24,
        lambda m: m.append(nn.Tanh()),
    ),
    "dict_added": (Contains, x24, lambda m: m.parts.__setitem__("z", nn.Tanh())),
    "dict_removed": (Contains, x24, lambda m: pop(m.parts, "a")),
    "dict_of_layers": (Items, x24, lambda m: m.parts.__setitem__("d", nn.Tanh())),
    "forward_on_instance": (Basic, x24, doubled_forward),
    "forward_on_child": (Nested, x24, lambda m: doubled_forward(m.left)),
    "forward_on_layer": (Basic, x24, lambda m: doubled_forward(m.inner)),
    "function_attribute": (Stored, x24, set_("act", lambda: gh.tanh)),
    "list_of_functions": (Stored, x24, lambda m: m.ops.append(gh.exp)),
    "dict_attribute": (Stored, x24, lambda m: m.plain.update(k=nn.Linear(4, 4))),
    "tuple_attribute": (Stored, x24, set_("pair", lambda: (nn.Tanh(), nn.ReLU()))),
    "shadows_class_attribute": (Methods, x24, set_("factor", lambda: 11.0)),
    "behind_property": (Methods, x24, set_("_gain", lambda: -1.0)),
    "method_on_instance": (Methods, x24, set_("helper", lambda: lambda x, twice: x * 3)),
    "attribute_appears": (Asks, x24, set_("missing", lambda: 30.0)),
    "attribute_appears_layer": (Asks, x24, set_("outer", lambda: nn.Tanh())),
    "class_changed": (Layers, x24, lambda m: setattr(m, "__class__", Numbered)),
    "parameter_list": (Params, x24, lambda m: m.ws.append(nn.Parameter(X(4, 2, seed=6)))),
    "hook": (Basic, x24, lambda m: m.register_forward_hook(lambda m, a, out: out + 1)),
    "pre_hook": (Basic, x24, lambda m: m.register_forward_pre_hook(lambda m, a: (a[0] * 2,))),
    "hook_on_layer": (Basic, x24, lambda m: m.inner.register_forward_hook(lambda m, a, o: o * 3)),
    "layer_option": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.1)),
        x24,
        lambda m: setattr(m[1], "negative_slope", 0.7),
    ),
    "norm_momentum": (vision, (2, 1, 8, 8), lambda m: setattr(m[1], "momentum", 0.9)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(name):
    make, shape, change = CHANGES[name]
    plain = make()
    captured = copy.deepcopy(plain)
    fast = gh.optimize("eager")(captured)
    for seed in range(2):
        same(fast(X(*shape, seed=seed)), plain(X(*shape, seed=seed)))
    for module in (plain, captured):
        gh.random.seed(3)
        change(module)
    for seed in range(3):
        x = X(*shape, seed=seed)
        x = x.double() if name == "double" else x
        same(fast(x), plain(x))
    same_state(captured, plain)


def test_no_recompile_for_values_of_parameters():
    counting, module = Counting(), Nested()
    fast = gh.optimize(counting)(module)
    for k in range(5):
        fill(module.left.inner.weight, k / 10)
        fast(X(2, 4))
    assert len(counting.graphs) == 1
    assert counting.runs == 5


def test_toggled_training_comes_back_to_its_entry():
    counting, module = Counting(), Asks()
    fast = gh.optimize(counting)(module)
    for _ in range(3):
        module.train()
        fast(X(2, 4))
        module.eval()
        fast(X(2, 4))
    assert len(counting.graphs) == 2
    assert counting.runs == 6


def test_unread_attributes_are_not_guarded():
    counting, module = Counting(), Basic()
    fast = gh.optimize(counting)(module)
    for k in range(5):
        module.label = f"run {k}"
        fast(X(2, 4))
    assert len(counting.graphs) == 1


class Counter(Basic):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.calls


def test_counter_attribute():
    plain = Counter()
    captured = copy.deepcopy(plain)
    counting = Counting()
    fast = gh.optimize(counting)(captured)
    for seed in range(12):
        same(fast(X(2, 4, seed=seed)), plain(X(2, 4, seed=seed)))
        assert captured.calls == plain.calls == seed + 1
    assert len(counting.graphs) <= 4


class Silent(Basic):
    """A counter that the tensors do not see."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


def test_counter_attribute_beside_the_graph():
    module, counting = Silent(), Counting()
    fast = gh.optimize(counting)(module)
    for k in range(12):
        fast(X(2, 4))
        assert module.calls == k + 1
    assert len(counting.graphs) <= 4


def test_history_list_attribute():
    class Remembers(Basic):
        def __init__(self):
            super().__init__()
            self.history = []

        def forward(self, x):
            y = self.inner(x)
            self.history.append(y.sum())
            return y

    module = Remembers()
    fast = gh.optimize("eager")(module)
    results = [fast(X(2, 4, seed=k)).sum() for k in range(5)]
    same(module.history, results)


@pytest.mark.parametrize("change", [5.0, -1.0, 0.0])
def test_class_attribute(change):
    class Scaled(nn.Module):
        factor = 3.0

        def forward(self, x):
            return x * self.factor

    fast = gh.optimize("eager")(Scaled())
    same(fast(X(3)), X(3) * 3.0)
    same(fast(X(3)), X(3) * 3.0)
    Scaled.factor = change
    same(fast(X(3)), X(3) * change)


def test_class_forward_replaced():
    class Local(Basic):
        def forward(self, x):
            return self.inner(x)

    plain = Local()
    captured = copy.deepcopy(plain)
    fast = gh.optimize("eager")(captured)
    fast(X(2, 4)), fast(X(2, 4))
    Local.forward = lambda self, x: self.inner(x) * 100
    same(fast(X(2, 4)), plain(X(2, 4)))


def test_base_class_method_replaced():
    class Base(nn.Module):
        def helper(self, x):
            return x + 1

    class Local(Base):
        def forward(self, x):
            return self.helper(x)

    fast = gh.optimize("eager")(Local())
    fast(X(2)), fast(X(2))
    Base.helper = lambda self, x: x - 1
    same(fast(X(2)), X(2) - 1)
    Local.helper = lambda self, x: x * 3
    same(fast(X(2)), X(2) * 3)


def test_hook_removed():
    module = Basic()
    fast = gh.optimize("eager")(module)
    want = module(X(2, 4))
    handle = module.register_forward_hook(lambda m, a, out: out + 1)
    same(fast(X(2, 4)), want + 1)
    same(fast(X(2, 4)), want + 1)
    handle.remove()
    same(fast(X(2, 4)), want)


def test_hooks_see_each_call():
    module, log = Basic(), []
    module.inner.register_forward_hook(lambda m, a, out: log.append(type(m).__name__))
    fast = gh.optimize("eager")(module)
    for _ in range(4):
        fast(X(2, 4))
    assert log == ["Linear"] * 4


def test_two_instances_of_a_class():
    one, two = Basic(), Basic(7.0)
    plain_one, plain_two = copy.deepcopy(one), copy.deepcopy(two)
    fast_one, fast_two = gh.optimize("eager")(one), gh.optimize("eager")(two)
    for seed in range(3):
        same(fast_one(X(2, 4, seed=seed)), plain_one(X(2, 4, seed=seed)))
        same(fast_two(X(2, 4, seed=seed)), plain_two(X(2, 4, seed=seed)))


def test_two_instances_share_a_decorated_method():
    class Local(Basic):
        @gh.optimize("eager")
        def forward(self, x):
            return self.inner(x) * self.scale

    models = [Local(float(k)) for k in range(4)]
    for _ in range(3):
        for m in models:
            same(m(X(2, 4)), m.inner(X(2, 4)) * m.scale)
    assert len(Local.forward.entries) == 4
    assert Local.forward.hits == 8


def test_module_as_argument():
    @gh.optimize("eager")
    def fn(module, x):
        return module(x) + 1

    models = [Basic(), Basic(4.0), nn.Linear(4, 4), Layers()]
    for _ in range(2):
        for m in models:
            same(fn(m, X(2, 4)), m(X(2, 4)) + 1)


def test_module_in_closure_and_in_global():
    module = Basic()

    @gh.optimize("eager")
    def fn(x):
        return module(x) + GLOBAL_MODULE(x)

    for seed in range(3):
        x = X(2, 4, seed=seed)
        same(fn(x), module(x) + GLOBAL_MODULE(x))
    module = Basic(3.0)
    same(fn(x), module(x) + GLOBAL_MODULE(x))


GLOBAL_MODULE = Basic(1.25)


def test_state_dict_of_wrapped_module():
    module = Nested()
    before = {k: v.numpy().copy() for k, v in module.state_dict().items()}
    fast = gh.optimize("program")(module)
    fast(X(2, 4)), fast(X(2, 4))
    assert list(fast.state_dict()) == list(before)
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_wrapped_module_forwards_its_attributes():
    module = Basic()
    fast = gh.optimize("eager")(module)
    assert isinstance(fast, Basic)
    assert isinstance(fast, nn.Module)
    assert fast.scale == 2.0
    assert fast.inner is module.inner
    assert list(fast.parameters())[0] is module.inner.weight
    fast.scale = 10.0
    assert module.scale == 10.0
    same(fast(X(2, 4)), module(X(2, 4)))
    fast.eval()
    assert not module.training
    fast.train()
    assert module.training
    del fast.scale
    assert not hasattr(module, "scale")


def test_wrapped_module_inside_a_module():
    part = gh.optimize("eager")(Basic())
    outer = nn.Sequential(nn.Linear(4, 4), part)
    same(outer(X(2, 4)), part(outer[0](X(2, 4))))
    assert len(list(outer.parameters())) == 4


def test_decorated_class_is_refused():
    with pytest.raises(gh.base.errors.OptionError):
        gh.optimize("eager")(Basic)


def test_forward_method_captured():
    module = Basic()
    fast = gh.optimize("eager")(module.forward)
    for seed in range(3):
        same(fast(X(2, 4, seed=seed)), module(X(2, 4, seed=seed)))


def test_input_of_another_batch_size():
    module = vision()
    module.eval()
    fast = gh.optimize("eager")(module)
    for n in (2, 3, 5, 2, 7):
        same(fast(X(n, 1, 8, 8)), module(X(n, 1, 8, 8)))


def test_batch_norm_statistics():
    plain = vision()
    captured = copy.deepcopy(plain)
    fast = gh.optimize("program")(captured)
    for seed in range(5):
        x = X(4, 1, 8, 8, seed=seed)
        same(fast(x), plain(x))
        same_state(captured, plain)
    assert captured[1].num_batches_tracked.item() == 5


@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_dropout_stream(compiler):
    plain = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 4), nn.Dropout(0.2))
    captured = copy.deepcopy(plain)
    fast = gh.optimize(compiler)(captured)
    gh.random.seed(5)
    wanted = [plain(X(3, 4)) for _ in range(5)] + [gh.random.normal((2,))]
    gh.random.seed(5)
    got = [fast(X(3, 4)) for _ in range(5)] + [gh.random.normal((2,))]
    same(got, wanted)
    assert not np.allclose(got[1].numpy(), got[2].numpy())


def test_module_made_inside():
    @gh.optimize("eager")
    def fn(x):
        layer = nn.Linear(4, 4)
        return layer(x), layer

    gh.random.seed(1)
    wanted = [nn.Linear(4, 4)(X(2, 4)) for _ in range(3)]
    gh.random.seed(1)
    layers = []
    for want in wanted:
        got, layer = fn(X(2, 4))
        same(got, want)
        layers.append(layer)
    assert len(set(map(id, layers))) == 3


def test_attribute_set_from_outside_of_the_class():
    @gh.optimize("eager")
    def fn(module, x):
        module.last_shape = x.shape
        module.total = module.inner(x).sum()
        return module.total * 2

    module = Basic()
    for n in (2, 3, 2):
        same(fn(module, X(n, 4)), module.inner(X(n, 4)).sum() * 2)
        assert module.last_shape == (n, 4)
        same(module.total, module.inner(X(n, 4)).sum())


def test_parameters_of_a_captured_step_keep_their_identity():
    module = Basic()
    ids = [id(p) for p in module.parameters()]
    fast = gh.optimize("program")(module)
    for _ in range(3):
        fast(X(2, 4)).sum().backward()
    assert [id(p) for p in module.parameters()] == ids


def test_functional_call():
    module = Basic()

    @gh.optimize("eager")
    def fn(x, w):
        return nn.functional_call(module, {"inner.weight": w}, (x,))

    for seed in range(3):
        x, w = X(2, 4, seed=seed), X(4, 4, seed=seed + 10)
        same(fn(x, w), nn.functional_call(module, {"inner.weight": w}, (x,)))
    assert isinstance(module.inner.weight, nn.Parameter)


def test_module_path_in_captured_forward():
    paths = []

    class Tells(nn.Module):
        def forward(self, x):
            paths.append(nn.current_module_path())
            return x * 2

    model = nn.Sequential(Tells(), Tells())
    model(X(2))
    wanted, paths[:] = list(paths), []
    fast = gh.optimize("eager")(model)
    for _ in range(3):
        fast(X(2))
    assert paths == wanted * 3
