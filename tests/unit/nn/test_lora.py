"""LoRA adapters: what they add, merging, what is trained and saved."""

import copy

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.nn import lora

rng = np.random.default_rng(0)
LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), rng.normal(size=(2, 4))),
    "transposed": (lambda: nn.TransposedLinear(4, 3), rng.normal(size=(2, 4))),
    "embedding": (lambda: nn.Embedding(6, 3, padding_idx=1), np.array([[0, 1, 5]])),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1), rng.normal(size=(2, 2, 5))),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, dilation=2), rng.normal(size=(1, 2, 9, 9))),
    "groups": (lambda: nn.Conv2d(4, 4, 3, groups=2, bias=False), rng.normal(size=(1, 4, 5, 5))),
    "circular": (
        lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"),
        rng.normal(size=(2, 2, 5)),
    ),
}


def adapted(kind):
    """A layer with adapters that add something, and an input."""
    make, x = LAYERS[kind]
    net = nn.Sequential(make()).double()
    lora.attach(net, rank=2, alpha=3.0)
    with gh.no_grad():
        for p in lora.parameters(net):
            p.copy_(rng.normal(size=p.shape))
        if kind == "embedding":
            net[0].lora.A[:, 1] = 0.0  # the row of the padding
    return net, gh.asarray(x)


@pytest.mark.parametrize("kind", LAYERS)
def test_adapters_add_a_product_of_low_rank(kind):
    net, x = adapted(kind)
    layer = net[0]
    other = copy.deepcopy(layer)
    lora.detach(other)
    a, b = layer.lora.A.numpy(), layer.lora.B.numpy()
    delta = 1.5 * (b @ a)
    delta = delta.T if kind in ("embedding", "transposed") else delta
    with gh.no_grad():
        other.weight += gh.asarray(delta.reshape(other.weight.shape))
    np.testing.assert_allclose(net(x).numpy(), other(x).numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", LAYERS)
def test_merging_and_unmerging(kind):
    net, x = adapted(kind)
    before, y = net[0].weight.numpy().copy(), net(x).numpy()
    for _ in range(2):
        lora.merge(net)
    np.testing.assert_allclose(net(x).numpy(), y, rtol=1e-9, atol=1e-10)
    lora.unmerge(net)
    np.testing.assert_allclose(net[0].weight.numpy(), before, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(net(x).numpy(), y, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", LAYERS)
def test_new_adapters_change_nothing(kind):
    make, x = LAYERS[kind]
    net = nn.Sequential(make()).double()
    x = gh.asarray(x)
    y = net(x).numpy()
    lora.attach(net)
    np.testing.assert_array_equal(net(x).numpy(), y)


def network():
    gh.random.seed(0)
    body = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(10, 8), body, nn.Linear(8, 10))


def test_names_choose_the_layers():
    net = network()
    assert lora.attach(net, ["1.linear?", "1.*.out_proj"], rank=2) == [
        "1.self_attn.out_proj",
        "1.linear1",
        "1.linear2",
    ]
    assert lora.attach(net, "2", rank=2) == ["2"]
    names = {n for n, p in net.named_parameters() if p.requires_grad}
    assert names == set(lora.state_dict(net)) and len(names) == 8
    assert len(lora.parameters(net)) == 8


@pytest.mark.slow
def test_adapters_alone_are_trained_and_saved():
    net = network()
    plain = {n: x.numpy().copy() for n, x in net.state_dict().items()}
    lora.attach(net, rank=2)
    opt = gh.optim.SGD(lora.parameters(net), lr=0.5)
    index = gh.asarray(rng.integers(0, 10, size=(2, 5)))

    @gh.optimize
    def step():
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(index).reshape(-1, 10), index.reshape(-1))
        loss.backward()
        opt.step()
        return loss

    losses = [step().item() for _ in range(12)]
    assert losses[-1] < losses[0]
    state = net.state_dict()
    for name, x in plain.items():
        np.testing.assert_array_equal(state[name].numpy(), x)
    other = network()
    lora.attach(other, rank=2)
    lora.load_state_dict(other, lora.state_dict(net))
    np.testing.assert_allclose(other(index).numpy(), net(index).numpy(), rtol=1e-5, atol=1e-6)
    other = network()
    lora.attach(other, "2", rank=2)
    with pytest.raises(CheckpointError, match="unexpected"):
        lora.load_state_dict(other, lora.state_dict(net))


def tied(kind, names):
    """A net in which two layers have one weight."""
    make, _ = LAYERS[kind]
    net = nn.Sequential(make(), make())
    net[1].weight = net[0].weight
    lora.attach(net, names)
    return net


@pytest.mark.parametrize("names", ["0", "1", "*"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_weight_of_two_layers_is_not_merged(kind, names):
    net = tied(kind, names)
    before = net[0].weight.numpy()
    for move in (lora.merge, lora.unmerge):
        with pytest.raises(OptionError) as caught:
            move(net)
        assert "0.weight and 1.weight" in str(caught.value)
    assert np.array_equal(net[1].weight.numpy(), before)


def test_detached_layers_are_plain_again():
    net = network()
    names = list(net.state_dict())
    lora.attach(net)
    lora.detach(net)
    assert list(net.state_dict()) == names and all(p.requires_grad for p in net.parameters())
    assert not any(m._forward_hooks for m in net.modules())


def test_dropout_acts_on_the_adapter_alone_while_training():
    net = nn.Sequential(nn.Linear(50, 4))
    lora.attach(net, rank=4, dropout=0.5)
    with gh.no_grad():
        net[0].lora.B.copy_(1.0)
    x = gh.ones((1, 50))
    assert (net(x).numpy() != net(x).numpy()).any()
    net.eval()
    np.testing.assert_array_equal(net(x).numpy(), net(x).numpy())


def test_gradients_under_vmap_and_autocast():
    net = nn.Sequential(nn.Linear(4, 3))
    lora.attach(net, rank=2)
    xs = gh.asarray(rng.normal(size=(3, 4)).astype("f4"))
    weights = {n: p for n, p in net.named_parameters() if "lora" in n}

    def loss(w, x):
        return (nn.functional_call(net, w, x) ** 2).sum()

    each = gh.vmap(gh.grad(loss), in_axes=(None, 0))(weights, xs)
    alone = gh.grad(loss)(weights, xs[1])
    for name, g in alone.items():
        np.testing.assert_allclose(each[name][1].numpy(), g.numpy(), rtol=1e-4, atol=1e-6)
    with gh.autocast("bfloat16"):
        assert net(xs).shape == (3, 3)
