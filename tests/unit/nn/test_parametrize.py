"""Parametrizations, weight and spectral norm against PyTorch's."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import OptionError
from glasshouse.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    """The symmetric part; its right inverse is the matrix itself."""

    def forward(self, x):
        return (x + x.mT) / 2

    def right_inverse(self, x):
        return x


class Scaled(nn.Module):
    """Three times the tensor."""

    def forward(self, x):
        return x * 3

    def right_inverse(self, x):
        return x / 3


class Halves(nn.Module):
    """The sum of two originals."""

    def forward(self, a, b):
        return a + b

    def right_inverse(self, x):
        return x / 2, x / 2


class Flat(nn.Module):
    """A tensor of another shape."""

    def forward(self, x):
        return x.reshape(-1)


def layer():
    return parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())


def test_a_parametrized_tensor_is_computed_when_read():
    net = layer()
    original = net.parametrizations.weight.original
    assert parametrize.is_parametrized(net) and parametrize.is_parametrized(net, "weight")
    assert not parametrize.is_parametrized(net, "bias")
    assert [n for n, _ in net.named_parameters()] == ["bias", "parametrizations.weight.original"]
    np.testing.assert_array_equal(net.weight.numpy(), (original + original.mT).numpy() / 2)
    x = gh.ones((2, 3))
    (net(x) ** 2).sum().backward()
    assert original.grad is not None and (original.grad == original.grad.mT).all()
    assert isinstance(net, nn.Linear) and repr(net).startswith("ParametrizedLinear(")
    assert parametrize.type_before_parametrizations(net) is nn.Linear


def test_assigning_goes_through_the_right_inverse():
    net = nn.Linear(3, 3)
    before = net.weight.numpy().copy()
    parametrize.register_parametrization(net, "weight", Scaled())
    np.testing.assert_allclose(net.weight.numpy(), before, rtol=1e-6)
    original = net.parametrizations.weight.original
    net.weight = nn.Parameter(gh.ones((3, 3)) * 6)
    assert net.parametrizations.weight.original is original
    np.testing.assert_allclose(original.numpy(), 2)
    parametrize.register_parametrization(net, "weight", Symmetric())
    np.testing.assert_allclose(net.weight.numpy(), 6, rtol=1e-6)
    assert len(net.parametrizations.weight) == 2


def test_several_originals():
    net = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Halves())
    names = [n for n, _ in net.named_parameters()]
    assert names == [
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    net.weight = gh.ones((2, 2))
    assert net.parametrizations.weight.original1.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(OptionError, match="one original"):
        parametrize.remove_parametrizations(net, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(net, "weight")
    assert net.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]] and type(net) is nn.Linear


@pytest.mark.parametrize("leave", [True, False])
def test_removing(leave):
    net = layer()
    original = net.parametrizations.weight.original
    expected = (net.weight if leave else original).numpy().copy()
    parametrize.remove_parametrizations(net, "weight", leave)
    assert net.weight is original and type(net) is nn.Linear
    np.testing.assert_array_equal(net.weight.numpy(), expected)
    assert not parametrize.is_parametrized(net) and list(net.state_dict()) == ["bias", "weight"]


def test_buffers_are_parametrized_too():
    net = nn.BatchNorm1d(3)
    parametrize.register_parametrization(net, "running_mean", Scaled())
    assert [n for n, _ in net.named_buffers()][-1] == "parametrizations.running_mean.original"
    assert net.running_mean.tolist() == [0.0] * 3
    parametrize.remove_parametrizations(net, "running_mean")
    assert "running_mean" in net._buffers


def test_caching():
    net = layer()
    assert net.weight is not net.weight
    with parametrize.cached():
        first = net.weight
        assert net.weight is first
        net.weight = gh.eye(3)
        assert net.weight is not first
    assert not parametrize.cache


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(duplicate):
    net = layer()
    other = duplicate(net)
    np.testing.assert_array_equal(other.weight.numpy(), net.weight.numpy())
    other.weight = gh.zeros((3, 3))
    assert net.weight.numpy().any() and isinstance(other, nn.Linear)
    net.load_state_dict(other.state_dict())
    assert not net.weight.numpy().any()


def test_transfer():
    net, other = layer(), nn.Linear(3, 3)
    parametrize.transfer_parametrizations_and_params(net, other)
    np.testing.assert_array_equal(other.weight.numpy(), net.weight.numpy())


def test_a_parametrization_that_does_not_fit_changes_nothing():
    net = nn.Linear(3, 3)
    weight = net.weight
    with pytest.raises(gh.ShapeError, match="keeps float32"):
        parametrize.register_parametrization(net, "weight", Flat())
    assert net.weight is weight and type(net) is nn.Linear
    net = layer()
    with pytest.raises(gh.ShapeError):
        parametrize.register_parametrization(net, "weight", Flat())
    assert len(net.parametrizations.weight) == 1
    parametrize.register_parametrization(net, "bias", Flat(), unsafe=True)
    assert net.bias.shape == (3,)


def test_captured_and_batched():
    net = layer()
    x = gh.ones((2, 3))
    expected = net(x).numpy()

    @gh.optimize
    def run(x):
        return net(x)

    for _ in range(3):
        np.testing.assert_allclose(run(x).numpy(), expected, rtol=1e-6)
    net.weight = gh.eye(3)
    np.testing.assert_allclose(run(x).numpy(), net(x).numpy(), rtol=1e-6)
    weights = dict(net.named_parameters())
    grads = gh.grad(lambda w: nn.functional_call(net, w, x).sum())(weights)
    assert grads["parametrizations.weight.original"].shape == (3, 3)


NORMED = {
    "linear": (lambda nn: nn.Linear(4, 3), (2, 4)),
    "conv": (lambda nn: nn.Conv2d(2, 3, 2), (2, 2, 4, 4)),
    "transposed": (lambda nn: nn.ConvTranspose1d(2, 3, 2), (2, 2, 4)),
}


@pytest.mark.parametrize("kind", NORMED)
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm.*:FutureWarning")
def test_weight_norm_equals_pytorchs(twin, kind, dim, old):
    make, shape = NORMED[kind]
    torch = twin.torch
    if old:
        ours = nn.utils.weight_norm(make(nn), dim=dim)
        theirs = torch.nn.utils.weight_norm(make(torch.nn), dim=dim)
    else:
        ours = parametrizations.weight_norm(make(nn), dim=dim)
        theirs = torch.nn.utils.parametrizations.weight_norm(make(torch.nn), dim=dim)
    check(twin, ours, theirs, np.random.default_rng(0).normal(size=shape))


def check(twin, ours, theirs, x):
    """State, values and gradients; the representations of parametrizations differ."""
    ours, theirs = ours.double(), theirs.double()
    state = {n: v.detach().numpy().copy() for n, v in theirs.state_dict().items()}
    assert {n: v.shape for n, v in ours.state_dict().items()} == {
        n: v.shape for n, v in state.items()
    }
    ours.load_state_dict(state)
    twin.function(ours, theirs, x)
    others = dict(theirs.named_parameters())
    for name, p in ours.named_parameters():
        twin.same_gradient(p, others[name], 1e-8, 1e-10)
    for name, b in theirs.named_buffers():
        np.testing.assert_allclose(ours.get_buffer(name).numpy(), b.numpy(), atol=1e-9)


@pytest.mark.parametrize("kind", NORMED)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("old", [False, True])
def test_spectral_norm_equals_pytorchs(twin, kind, training, old):
    make, shape = NORMED[kind]
    torch = twin.torch
    space = torch.nn.utils if old else torch.nn.utils.parametrizations
    theirs = space.spectral_norm(make(torch.nn), n_power_iterations=2)
    ours = (nn.utils if old else parametrizations).spectral_norm(make(nn), n_power_iterations=2)
    x = np.random.default_rng(0).normal(size=shape)
    check(twin, ours.train(training), theirs.train(training), x)


def test_old_state_of_weight_norm_loads():
    old, new = nn.utils.weight_norm(nn.Linear(3, 2)), parametrizations.weight_norm(nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    np.testing.assert_array_equal(new.weight.numpy(), old.weight.numpy())


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_removing_norms_keeps_the_weight(name):
    net = getattr(nn.utils, name)(nn.Linear(3, 2))
    x = gh.ones((1, 3))
    net(x)
    y = net.eval()(x).numpy()
    getattr(nn.utils, f"remove_{name}")(net)
    np.testing.assert_allclose(net(x).numpy(), y, rtol=1e-6)
    assert sorted(net.state_dict()) == ["bias", "weight"] and not net._forward_pre_hooks


MAPS = ["matrix_exp", "cayley", "householder"]


@pytest.mark.parametrize("map_name", [*MAPS, None])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("based", [True, False])
def test_orthogonal_equals_pytorchs(twin, map_name, shape, based):
    torch, options = twin.torch, {"use_trivialization": based}
    ours, theirs = (lib.Linear(*shape[::-1]).double() for lib in (nn, torch.nn))
    if not based and (map_name or ("matrix_exp" if shape == (4, 4) else "")) in MAPS[:2]:
        with pytest.raises(OptionError, match="use_trivialization=True"):
            parametrizations.orthogonal(ours, orthogonal_map=map_name, **options)
        return
    ours.load_state_dict(theirs.state_dict())
    torch.nn.utils.parametrizations.orthogonal(theirs, "weight", map_name, **options)
    parametrizations.orthogonal(ours, orthogonal_map=map_name, **options)
    if not based:
        np.testing.assert_allclose(ours.weight.numpy(), theirs.weight.detach().numpy(), atol=1e-9)
    with torch.no_grad():
        original = theirs.parametrizations.weight.original
        original += 0.3 * torch.randn(original.shape, dtype=original.dtype).tril(-1)
    check(twin, ours, theirs, np.random.default_rng(0).normal(size=(2, shape[1])))
    w = ours.weight
    w = w.mT @ w if shape[0] >= shape[1] else w @ w.mT
    np.testing.assert_allclose(w.numpy(), np.eye(min(shape)), atol=1e-9)


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("shape", [(4, 4), (3, 5)])
def test_orthogonal_matrices_are_assigned(map_name, shape):
    net = parametrizations.orthogonal(nn.Linear(*shape[::-1]).double(), orthogonal_map=map_name)
    q = np.linalg.qr(np.random.default_rng(1).normal(size=shape[::-1]))[0].T
    net.weight = gh.asarray(q)
    np.testing.assert_allclose(net.weight.numpy(), q, atol=1e-9)


def test_orthogonal_weights_are_trained_and_stay_orthogonal():
    gh.random.seed(0)
    net = parametrizations.orthogonal(nn.Linear(4, 4))
    opt, x = gh.optim.SGD(net.parameters(), lr=0.1), gh.random.normal((8, 4))

    def step():
        opt.zero_grad()
        loss = ((net(x) - gh.flip(x, axis=1)) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.item()

    losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0]
    w = net.weight
    np.testing.assert_allclose((w @ w.mT).numpy(), np.eye(4), atol=1e-5)


# PyTorch's weight_norm has wrong second derivatives on the CPU: difference quotients tell.
@pytest.mark.parametrize("name", ["spectral_norm", "orthogonal"])
def test_second_derivatives_equal_pytorchs(twin, name):
    torch = twin.torch
    ours, theirs = (lib.Linear(3, 3).double() for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    theirs = getattr(torch.nn.utils.parametrizations, name)(theirs).eval()
    ours = getattr(parametrizations, name)(ours).eval()
    ours.load_state_dict({n: v.numpy().copy() for n, v in theirs.state_dict().items()})
    x, grads = np.random.default_rng(0).normal(size=(2, 3)), []
    for lib, module, tensor in ((gh, ours, gh.asarray(x)), (torch, theirs, torch.tensor(x))):
        p = list(module.parametrizations.weight.parameters())[-1]
        (g,) = lib.autograd.grad((module(tensor) ** 3).sum(), p, create_graph=True)
        (g**2).sum().backward()
        grads.append(p.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-7, atol=1e-9)
