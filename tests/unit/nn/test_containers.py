"""Containers against PyTorch's lists and dictionaries."""

import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import DTypeError, IndexOutOfRangeError


def test_sequential():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert net(gh.ones((1, 2))).shape == (1, 3)
    assert len(net) == 2 and net[-1] is list(net)[1]
    assert list(net[:1].state_dict()) == ["0.weight", "0.bias"]
    net.append(nn.Linear(3, 1))
    net.insert(0, nn.Identity())
    assert list(net.state_dict()) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    del net[0]
    net[1] = nn.Tanh()
    assert repr(net[1]) == "Tanh()" and list(net.state_dict())[0] == "0.weight"
    del net[1:]
    assert len(net) == 1


def test_sequential_of_names():
    net = nn.Sequential({"fc": nn.Linear(2, 3), "act": nn.ReLU()})
    assert list(net.state_dict()) == ["fc.weight", "fc.bias"] and net.act is net[1]
    net.append(nn.Linear(3, 1))
    assert list(net.state_dict())[2] == "2.weight"


def test_module_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers += [nn.Linear(2, 1)]
    assert len(layers) == 4 and [m.out_features for m in layers] == [2, 2, 2, 1]
    assert isinstance(layers[1:3], nn.ModuleList)
    assert len(layers + nn.ModuleList([nn.ReLU()])) == 5
    assert list(layers.state_dict())[-1] == "3.bias"
    assert layers.pop().out_features == 1 and len(layers) == 3
    first = layers[0]
    assert layers.pop(0) is first and list(layers.state_dict())[-1] == "1.bias"
    with pytest.raises(NotImplementedError):
        layers(1)


def test_module_dict():
    layers = nn.ModuleDict({"a": nn.ReLU()})
    layers["b"] = nn.Linear(1, 1)
    layers.update({"a": nn.Tanh()})
    assert list(layers.keys()) == ["a", "b"] and "a" in layers and len(layers) == 2
    assert repr(layers["a"]) == "Tanh()"
    assert layers.pop("a") and list(layers) == ["b"]
    del layers["b"]
    assert not list(layers.items())


def test_parameter_list(twin):
    torch = twin.torch
    ours = nn.ParameterList([nn.Parameter(gh.ones(2)), gh.zeros((1, 3))])
    theirs = torch.nn.ParameterList([torch.ones(2), torch.zeros(1, 3)])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.append(gh.ones(1))
    assert len(list(ours.parameters())) == 3 and ours[-1].requires_grad


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: nn.Sequential(lambda x: x), DTypeError, "Sequential: expected modules"),
        (lambda: nn.Sequential(nn.ReLU)[0], DTypeError, "Sequential: expected modules"),
        (lambda: nn.ModuleList([3]), DTypeError, "ModuleList: expected modules; got 3 (int)"),
        (lambda: nn.ModuleList([nn.ReLU()])[1], IndexOutOfRangeError, "from -1 to 0; got 1"),
        (lambda: nn.ModuleDict({"a": 3}), DTypeError, "expected a Module"),
        (
            lambda: nn.ModuleDict({"relu": nn.ReLU()})["rleu"],
            AttributeError,
            "Did you mean 'relu'?",
        ),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_parameter_dicts_are_pytorchs(twin):
    def build(nn, lib):
        table = nn.ParameterDict({"a": lib.ones(2), "b": lib.zeros((1, 3))})
        table["c"] = nn.Parameter(lib.ones(1))
        table.update({"a": lib.zeros(2)})
        table.setdefault("d", lib.ones(4))
        both = table | nn.ParameterDict({"e": lib.ones(1)})
        del both["c"]
        last = both.popitem()
        return table, [
            list(table), list(both), last[0], len(table), "c" in table, table.get("x"),
            list(reversed(table)), list(table.copy().keys()), list(table.state_dict()),
            [tuple(p.shape) for p in table.values()], list(table.fromkeys("xy", lib.ones(1))),
        ]  # fmt: skip

    (ours, mine), (theirs, other) = build(nn, gh), build(twin.torch.nn, twin.torch)
    assert mine == other and isinstance(ours["a"], nn.Parameter)
    assert [line.split(":")[0] for line in repr(ours).split("\n")] == [
        line.split(":")[0] for line in repr(theirs).split("\n")
    ]


def test_containers_hold_modules_by_name():
    net = nn.Container(first=nn.ReLU(), second=nn.Linear(2, 2))
    assert [name for name, _ in net.named_children()] == ["first", "second"]
