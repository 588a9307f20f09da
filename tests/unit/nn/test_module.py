"""Module: attributes, walking, state, hooks, copies, printing, module paths."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError


class Net(nn.Module):
    """Two layers, a buffer of each kind, a shared layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.again = self.body[0]
        self.scale = nn.Parameter(gh.ones(4))
        self.register_buffer("offset", gh.zeros(4))
        self.register_buffer("cache", gh.zeros(2), persistent=False)
        self.register_parameter("absent", None)
        self.paths = []

    def forward(self, x):
        self.paths.append(nn.current_module_path())
        return self.again(self.body(self.first(x))) * self.scale + self.offset


NAMES = [
    "scale", "offset", "first.weight", "first.bias", "body.0.weight", "body.0.bias",
    "body.1.weight", "body.1.bias", "body.1.running_mean", "body.1.running_var",
    "body.1.num_batches_tracked", "again.weight", "again.bias",
]  # fmt: skip


def test_state_dict_names_and_order():
    assert list(Net().state_dict()) == NAMES


def test_parameters_are_counted_once_when_shared():
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    assert names == ["scale", *NAMES[2:8]]
    assert len(list(net.parameters())) == len(names)
    every = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert every == [*names, "again.weight", "again.bias"]
    assert [n for n, _ in net.named_buffers()][:2] == ["offset", "cache"]
    assert len(list(net.parameters(recurse=False))) == 1


def test_modules_and_children():
    net = Net()
    names = [name for name, _ in net.named_modules()]
    assert names == ["", "first", "body", "body.0", "body.1", "body.2"]
    assert [name for name, _ in net.named_children()] == ["first", "body", "again"]
    assert net.get_submodule("body.1") is net.body[1]
    assert net.get_parameter("body.0.bias") is net.body[0].bias
    assert net.get_buffer("body.1.running_mean") is net.body[1].running_mean


def test_train_eval_apply_requires_grad():
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    log = []
    net.body.apply(lambda m: log.append(type(m).__name__))
    assert log == ["Linear", "BatchNorm1d", "Dropout", "Sequential"]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad():
    net = Net()
    net(gh.ones((5, 3))).sum().backward()
    net.zero_grad(set_to_none=False)
    assert not net.scale.grad.numpy().any()
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_to_converts_floats_in_place():
    net = Net()
    net(gh.ones((5, 3))).sum().backward()
    weight = net.first.weight
    assert net.to("float64") is net and net.first.weight is weight
    assert weight.dtype is gh.float64 and weight.grad.dtype is gh.float64
    assert weight.requires_grad and weight.is_leaf
    assert net.body[1].num_batches_tracked.dtype is gh.int64
    for name in ("half", "bfloat16", "float", "double"):
        getattr(net, name)()
    assert net.offset.dtype is gh.float64
    assert net.to("cpu", gh.float32).scale.dtype is gh.float32
    assert net.to(gh.zeros(1, dtype="float64")).scale.dtype is gh.float64


def test_state_dict_is_a_snapshot_and_loads_back():
    net = Net()
    state = net.state_dict()
    handle = net.scale
    with gh.no_grad():
        net.scale += 1
    assert state["scale"].tolist() == [1.0] * 4 and not state["scale"].requires_grad
    assert repr(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert net.scale is handle and handle.tolist() == [1.0] * 4 and handle.requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is handle
    assert list(nn.Linear(1, 1).state_dict(prefix="a.")) == ["a.weight", "a.bias"]


def test_a_bad_state_changes_nothing_and_is_named():
    net, other = Net(), Net()
    before = {n: v.numpy() for n, v in net.state_dict().items()}
    state = other.state_dict()
    del state["first.weight"]
    state["secnd.weight"] = gh.ones(1)
    state["scale"] = gh.ones(5)
    with pytest.raises(CheckpointError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Net.load_state_dict: expected")
    assert "missing first.weight" in text and "unexpected secnd.weight" in text
    assert "scale of shape (5,), not (4,)" in text
    with pytest.raises(CheckpointError, match="scale of shape"):
        net.load_state_dict(state, strict=False)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    del state["scale"]
    keys = net.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["scale", "first.weight"]
    assert keys.unexpected_keys == ["secnd.weight"]
    np.testing.assert_array_equal(net.first.bias.numpy(), other.first.bias.numpy())


def test_values_that_are_no_numbers_are_refused():
    with pytest.raises(CheckpointError, match="mismatched weight"):
        nn.Linear(1, 1).load_state_dict({"weight": "text", "bias": gh.ones(1)})


def test_pytorchs_state_loads_directly(twin):
    theirs = twin.torch.nn.Linear(3, 2)
    ours = nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().numpy())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_apart_and_keep_sharing(duplicate):
    net = Net()
    twin = duplicate(net)
    assert list(twin.state_dict()) == NAMES
    assert twin.again is twin.body[0] and twin.again is not net.again
    assert type(twin.scale) is nn.Parameter and twin.scale.requires_grad
    assert type(twin.offset) is gh.Tensor
    with gh.no_grad():
        twin.scale += 1
    assert net.scale.tolist() == [1.0] * 4
    twin.eval()(gh.ones((2, 3))).sum().backward()
    assert twin.scale.grad is not None and net.scale.grad is None


def test_hooks_see_and_replace():
    net = nn.Linear(2, 2)
    log = []
    pre = net.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    post = net.register_forward_hook(lambda m, args, y: log.append(args[0].tolist()))
    first = net.register_forward_pre_hook(lambda m, args: log.append("first"), prepend=True)
    np.testing.assert_array_equal(net(gh.ones(2)).numpy(), net.bias.numpy())
    assert log == ["first", [0.0, 0.0]]
    pre.remove()
    first.remove()
    net.register_forward_hook(lambda m, args, y: y * 2)
    expected = 2 * (net.weight.numpy().sum(1) + net.bias.numpy())
    np.testing.assert_allclose(net(gh.ones(2)).numpy(), expected, rtol=1e-6)
    with post:
        pass
    net(gh.ones(2))
    assert len(log) == 3


def test_hooks_with_keywords():
    net = nn.Linear(2, 2)
    log = []
    net.register_forward_pre_hook(lambda m, a, k: (a, {"input": gh.zeros(2)}), with_kwargs=True)
    net.register_forward_hook(lambda m, a, k, y: log.append(list(k)), with_kwargs=True)
    np.testing.assert_array_equal(net(input=gh.ones(2)).numpy(), net.bias.numpy())
    assert log == [["input"]]


def test_module_path_names_the_running_module():
    net = Net()
    paths = []
    for m in net.modules():
        m.register_forward_hook(lambda m, args, y: paths.append(nn.current_module_path()))
    net(gh.ones((2, 3)))
    assert paths == [
        "Net.first",
        "Net.body.0",
        "Net.body.1",
        "Net.body.2",
        "Net.body",
        "Net.body.0",
        "Net",
    ]
    assert net.paths == ["Net"]
    assert nn.current_module_path() == ""


def test_module_path_is_empty_after_an_error():
    with pytest.raises(ValueError, match="features"):
        nn.Sequential(nn.Linear(2, 2))(gh.ones(3))
    assert nn.current_module_path() == ""


def test_functional_call_and_gradients_of_parameters():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = gh.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    weights = dict(net.named_parameters())
    gradient = gh.grad(lambda w: nn.functional_call(net, w, x).sum())(weights)
    net(x).sum().backward()
    for name, p in net.named_parameters():
        np.testing.assert_allclose(gradient[name].numpy(), p.grad.numpy())
    each = gh.vmap(gh.grad(lambda w, x: nn.functional_call(net, w, x).sum()), in_axes=(None, 0))
    per_example = each(weights, x)
    for name, p in net.named_parameters():
        np.testing.assert_allclose(per_example[name].numpy().sum(0), p.grad.numpy(), rtol=1e-12)
    assert dict(net.named_parameters()) == weights or all(
        a is b for a, b in zip(net.parameters(), weights.values(), strict=True)
    )


def test_functional_call_replaces_shared_parameters_everywhere():
    net = Net().eval()
    zero = gh.zeros((4, 4))
    inside = []
    net.again.register_forward_hook(lambda m, a, y: inside.append(m.weight is zero))
    nn.functional_call(net, {"again.weight": zero}, gh.ones((1, 3)))
    assert inside == [True, True] and net.again.weight is not zero


def test_attributes():
    net = Net()
    net.scale = nn.Parameter(gh.zeros(4))
    net.offset = gh.ones(4)
    assert net.state_dict()["offset"].tolist() == [1.0] * 4
    net.offset = None
    assert "offset" not in net.state_dict()
    net.first = nn.Identity()
    net.body = None
    assert list(net.state_dict()) == ["scale", "again.weight", "again.bias"]
    del net.scale
    assert not hasattr(net, "scale")
    net.plain = 3
    net.plain = nn.Parameter(gh.ones(1))
    assert "plain" not in net.__dict__ and "plain" in net.state_dict()
    assert "again" in dir(net)


def test_repr_is_pytorchs(twin):
    def build(nn):
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(2, 3, bias=False)
                self.b = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Sequential(nn.Tanh())])
                self.c = nn.ModuleDict({"x": nn.Identity(), "y": nn.Flatten()})

            def forward(self, x):
                return x

        return nn.Sequential(Block(), nn.Embedding(4, 2, padding_idx=0), nn.Sequential())

    assert repr(build(nn)) == repr(build(twin.torch.nn))


def test_parameter():
    p = nn.Parameter([1.0, 2.0])
    assert p.requires_grad and p.is_leaf and isinstance(p, gh.Tensor)
    assert not nn.Parameter(gh.asarray([1])).requires_grad
    assert not nn.Parameter(gh.ones(1), requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter containing:\n")
    base = gh.ones(2).requires_grad_() * 2
    assert nn.Parameter(base).is_leaf


def no_init():
    class Bad(nn.Module):
        def __init__(self):
            self.layer = nn.Identity()

    Bad()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda net: net.frist, AttributeError, "Did you mean 'first'?"),
        (lambda net: net.get_submodule("body.7"), AttributeError, "got '7' of 'body.7'"),
        (lambda net: net.get_parameter("scal"), AttributeError, "Did you mean 'scale'?"),
        (lambda net: setattr(net, "scale", gh.ones(4)), DTypeError, "expected a Parameter or None"),
        (
            lambda net: setattr(net, "first", 3),
            DTypeError,
            "expected a Module or None for module 'first'",
        ),
        (
            lambda net: setattr(net, "offset", 3.0),
            DTypeError,
            "expected a Value or None for buffer",
        ),
        (lambda net: net.register_buffer("scale", gh.ones(1)), OptionError, "expected a new name"),
        (lambda net: net.register_parameter("a.b", None), OptionError, "a name without dots"),
        (lambda net: net.register_parameter("new", gh.ones(1)), DTypeError, "expected a Parameter"),
        (lambda net: net.add_module("new", 3), DTypeError, "expected a Module"),
        (lambda net: net.train(1), OptionError, "expected True or False"),
        (lambda net: net.to("int32"), DTypeError, "floating or complex dtype; got int32"),
        (lambda net: net.register_forward_hook(3), DTypeError, "expected hook to be callable"),
        (lambda net: nn.Module()(1), NotImplementedError, "expected a method forward"),
        (lambda net: no_init(), AttributeError, "expected super().__init__() to have run"),
        (
            lambda net: nn.functional_call(net, {"scal": gh.ones(4)}, ()),
            OptionError,
            "Did you mean 'scale'?",
        ),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call(Net())
    assert text in str(caught.value)


def test_special_names_are_not_taken_for_misspelled_ones():
    with pytest.raises(AttributeError) as caught:
        Net().__first__
    assert str(caught.value) == "Net: expected an attribute; got '__first__'."


def test_buffers_are_registered_when_they_are_set():
    net = nn.Module()
    net.kept = nn.Buffer(gh.ones(2))
    net.left = nn.Buffer(gh.ones(2), persistent=False)
    assert [n for n, _ in net.named_buffers()] == ["kept", "left"]
    assert list(net.state_dict()) == ["kept"] and not net.kept.requires_grad
    net.left = nn.Buffer(gh.zeros(1))
    assert list(net.state_dict()) == ["kept", "left"]


def test_submodules_are_replaced():
    net = Net()
    net.set_submodule("body.2", nn.Identity())
    net.set_submodule("new", nn.Identity())
    assert type(net.body[2]) is nn.Identity and type(net.new) is nn.Identity
    with pytest.raises(AttributeError, match="'newer'"):
        net.set_submodule("newer", nn.Identity(), strict=True)


def test_compiled_modules_compute_the_same():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    x = gh.ones((2, 3))
    expected = net(x).numpy()
    assert net.compile(nopython=True) is None
    for _ in range(3):
        np.testing.assert_allclose(net(x).numpy(), expected, rtol=1e-6)
    net(x).sum().backward()
    assert net[0].weight.grad is not None


def test_emptied_and_converted_modules_keep_their_tensors():
    net = Net()
    weight = net.first.weight
    assert net.to_empty(device="cpu") is net and net.first.weight is weight
    assert weight.shape == (4, 3) and weight.requires_grad
    assert net.type("float64") is net and weight.dtype is gh.float64
