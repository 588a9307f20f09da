"""Hooks of modules: around forward and backward, on state, on registration, for all modules."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError


def both(torch, build):
    """Return the records that `build(nn, library)` makes with ours and with PyTorch's."""
    return build(nn, gh), build(torch.nn, torch)


def numbers(x):
    if isinstance(x, tuple):
        return [numbers(part) for part in x]
    return None if x is None else np.round(np.asarray(x.detach().numpy(), "f8"), 6).tolist()


def net_of(nn, lib):
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    with lib.no_grad():
        for p in net.parameters():
            size = int(np.prod(tuple(p.shape)))
            values = np.linspace(-1, 1, num=size).reshape(tuple(p.shape))
            p.copy_(lib.asarray(values.astype("f4")))
    return net


def inputs(lib, grad=True):
    x = lib.asarray(np.linspace(-1, 2, 12).reshape(4, 3).astype("f4"))
    return x.requires_grad_(grad)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_backward_hooks_see_what_pytorchs_see(twin, grad):
    def build(nn, lib):
        net, log = net_of(nn, lib), []
        for i in (0, 2):
            net[i].register_full_backward_pre_hook(lambda m, go: log.append(("pre", numbers(go))))
            net[i].register_full_backward_hook(
                lambda m, gi, go: log.append(("post", numbers(gi), numbers(go)))
            )
        x = inputs(lib, grad)
        (net(x) ** 2).sum().backward()
        return log, [numbers(p.grad) for p in net.parameters()], grad and numbers(x.grad)

    ours, theirs = both(twin.torch, build)
    assert len(ours[0]) == 4
    assert [x[0] for x in ours[0]] == [x[0] for x in theirs[0]]
    for mine, other in zip(ours[0], theirs[0], strict=True):
        for a, b in zip(mine[1:], other[1:], strict=True):
            assert [x is None for x in a] == [x is None for x in b]
            for g, e in zip(a, b, strict=True):
                assert g is None or np.allclose(g, e, atol=1e-5)
    assert np.allclose(ours[1][0], theirs[1][0], atol=1e-5)


def test_backward_hooks_replace_gradients_as_pytorchs(twin):
    def build(nn, lib):
        net = net_of(nn, lib)
        net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
        net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] + 1,), prepend=True)
        net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        x = inputs(lib)
        net(x).sum().backward()
        return [numbers(p.grad) for p in net.parameters()] + [numbers(x.grad)]

    ours, theirs = both(twin.torch, build)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


def test_backward_hooks_of_several_results_and_inputs():
    class Pair(nn.Module):
        def forward(self, a, b, k):
            return a * b, a + k

    log = []
    pair = Pair()
    pair.register_full_backward_hook(lambda m, gi, go: log.append((numbers(gi), numbers(go))))
    a, b = gh.tensor(2.0, requires_grad=True), gh.tensor(3.0, requires_grad=True)
    first, second = pair(a, b, 1.0)
    (first + 2 * second).backward()
    assert log == [([5.0, 2.0, None], [1.0, 2.0])]


def test_second_derivatives_pass_backward_hooks(twin):
    def build(nn, lib):
        net = nn.Tanh()
        net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        x = lib.tensor(0.5, requires_grad=True)
        (g,) = lib.autograd.grad(net(x), x, create_graph=True)
        g.backward()
        return numbers(x.grad)

    ours, theirs = both(twin.torch, build)
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_hooks_that_are_always_called(twin):
    def build(nn, lib):
        class Bad(nn.Module):
            def forward(self, x):
                raise KeyError("forward")

        log, bad = [], Bad()
        bad.register_forward_hook(lambda m, args, y: log.append("sometimes"))
        bad.register_forward_hook(lambda m, args, y: log.append(y), always_call=True)
        with pytest.raises(KeyError, match="forward"):
            bad(lib.ones(1))
        return log

    ours, theirs = both(twin.torch, build)
    assert ours == theirs == [None]


def test_an_error_in_a_hook_after_an_error_is_a_warning():
    class Bad(nn.Module):
        def forward(self, x):
            raise KeyError("forward")

    bad = Bad()
    bad.register_forward_hook(lambda m, args, y: y.shape, always_call=True)
    with pytest.warns(UserWarning, match="hook of Bad raised"), pytest.raises(KeyError):
        bad(gh.ones(1))


def test_hooks_of_all_modules_are_called_first():
    net, log = nn.Sequential(nn.ReLU()), []
    net[0].register_forward_hook(lambda m, args, y: log.append("own"))
    handles = [
        nn.register_module_forward_pre_hook(lambda m, args: log.append(f"pre {type(m).__name__}")),
        nn.register_module_forward_hook(lambda m, args, y: y + 1),
        nn.register_module_full_backward_pre_hook(lambda m, go: log.append("back")),
        nn.register_module_full_backward_hook(lambda m, gi, go: log.append("through")),
    ]
    try:
        x = gh.tensor([-1.0, 2.0], requires_grad=True)
        y = net(x)
        y.sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert y.tolist() == [2.0, 4.0]
    assert log == ["pre Sequential", "pre ReLU", "own", *["back", "back", "through", "through"]]
    assert net(x).tolist() == [0.0, 2.0] and len(log) == 8


def test_registration_hooks_replace_members():
    log = []

    def count(module, name, member):
        log.append(name)

    def double(module, name, member):
        return nn.Parameter(member.detach() * 2)

    with (
        nn.register_module_parameter_registration_hook(double),
        nn.register_module_module_registration_hook(count),
        nn.register_module_buffer_registration_hook(count),
    ):
        module = nn.Module()
        module.weight = nn.Parameter(gh.ones(2))
        module.inner = nn.Identity()
        module.register_buffer("offset", gh.zeros(1))
    assert module.weight.tolist() == [2.0, 2.0] and log == ["inner", "offset"]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_have_the_hooks(duplicate):
    net = nn.Linear(2, 2)
    net.register_forward_hook(doubled)
    x = gh.ones(2)
    np.testing.assert_array_equal(duplicate(net)(x).numpy(), net(x).numpy())


def doubled(module, args, y):
    return y * 2


class Counter(nn.Module):
    """A module with state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.inner, self.count = nn.Linear(1, 1), 0

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_extra_state_is_saved_and_loaded():
    module, other = Counter(), Counter()
    module.count = 3
    state = module.state_dict(prefix="a.")
    assert list(state) == ["a._extra_state", "a.inner.weight", "a.inner.bias"]
    other.load_state_dict(module.state_dict())
    assert other.count == 3
    with pytest.raises(CheckpointError, match="missing _extra_state"):
        other.load_state_dict(module.inner.state_dict(prefix="inner."))


def test_hooks_on_state():
    module, log = Counter(), []
    module.register_state_dict_pre_hook(lambda m, prefix, keep: log.append((prefix, keep)))
    module.inner.register_state_dict_post_hook(
        lambda m, state, prefix, meta: state.update({f"{prefix}old": state.pop(f"{prefix}bias")})
    )
    state = module.state_dict()
    assert log == [("", False)] and list(state)[-1] == "inner.old"

    def rename(m, state, prefix, meta, strict, missing, unexpected, errors):
        state[f"{prefix}bias"] = state.pop(f"{prefix}old")

    with pytest.raises(CheckpointError, match="unexpected inner.old"):
        module.load_state_dict(state)
    with module.inner.register_load_state_dict_pre_hook(rename):
        module.load_state_dict(state)
    assert "inner.old" in state

    def refuse(m, state, prefix, meta, strict, missing, unexpected, errors):
        errors.append("this one")

    module.register_load_state_dict_pre_hook(refuse)
    with pytest.raises(CheckpointError, match="mismatched this one"):
        module.load_state_dict(state, strict=False)


def test_hooks_after_loading_change_what_is_reported():
    net = nn.Sequential(nn.Linear(1, 1))
    order = []
    net[0].register_load_state_dict_post_hook(lambda m, keys: order.append("inner"))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    keys = net.load_state_dict({}, strict=False)
    assert keys.missing_keys == [] and order == ["inner"]


def test_load_state_dict_assigns():
    net = nn.BatchNorm1d(2).requires_grad_(False)
    state = {n: gh.ones_like(x, dtype=gh.float64) for n, x in net.state_dict().items()}
    before = net.weight
    net.load_state_dict(state, assign=True)
    assert net.weight is not before and type(net.weight) is nn.Parameter
    assert net.weight.dtype is gh.float64 and not net.weight.requires_grad
    assert net.running_mean is not None and net.running_mean.tolist() == [1.0, 1.0]


def test_captured_modules_call_their_hooks():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x) * 2

    net = Twice()
    fast, x = gh.optimize(net), gh.ones((1, 2))
    plain = fast(x).numpy()
    for _ in range(2):
        fast(x)
    log = []
    handle = net.inner.register_full_backward_hook(lambda m, gi, go: log.append(1))
    np.testing.assert_allclose(fast(x).numpy(), plain, rtol=1e-6)
    fast(x).sum().backward()
    assert log == [1]
    handle.remove()
    with nn.register_module_forward_hook(lambda m, args, y: y * 0):
        assert not fast(x).numpy().any()
    np.testing.assert_allclose(fast(x).numpy(), plain, rtol=1e-6)
