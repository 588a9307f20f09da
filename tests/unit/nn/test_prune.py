"""Pruning against PyTorch's."""

import copy

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn.utils import prune

METHODS = {
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 0.4),
    "l1 number": lambda p, m: p.l1_unstructured(m, "weight", 3),
    "l2": lambda p, m: p.ln_structured(m, "weight", 0.5, 2, 0),
    "infinity": lambda p, m: p.ln_structured(m, "weight", 1, float("inf"), 1),
    "frobenius": lambda p, m: p.ln_structured(m, "weight", 1, 1, -1),
    "identity": lambda p, m: p.identity(m, "weight"),
    "twice": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 1, 2, 0), "weight", 0.5),
    "structured twice": lambda p, m: p.ln_structured(
        p.ln_structured(m, "weight", 1, 2, 0), "weight", 1, 1, 0
    ),
    "crossed": lambda p, m: p.ln_structured(p.l1_unstructured(m, "weight", 5), "weight", 1, 1, 1),
}


def pair(twin):
    theirs = twin.torch.nn.Sequential(twin.torch.nn.Linear(4, 3), twin.torch.nn.Linear(3, 2))
    ours = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def same(ours, theirs):
    state = theirs.state_dict()
    assert sorted(ours.state_dict()) == sorted(state)
    for name, value in ours.state_dict().items():
        np.testing.assert_allclose(value.numpy(), state[name].numpy(), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_methods_equal_pytorchs(twin, method):
    import torch.nn.utils.prune as other

    ours, theirs = pair(twin)
    METHODS[method](prune, ours[0])
    METHODS[method](other, theirs[0])
    same(ours, theirs)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("f4")
    twin.function(ours, theirs, x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        ours[0].weight_orig.grad.numpy(), theirs[0].weight_orig.grad.numpy(), rtol=1e-4, atol=1e-6
    )
    assert prune.is_pruned(ours)
    prune.remove(ours[0], "weight")
    other.remove(theirs[0], "weight")
    same(ours, theirs)
    assert not prune.is_pruned(ours)


def test_global_pruning_equals_pytorchs(twin):
    import torch.nn.utils.prune as other

    ours, theirs = pair(twin)
    for net, lib in ((ours, prune), (theirs, other)):
        pairs = [(net[0], "weight"), (net[1], "weight")]
        lib.global_unstructured(pairs, lib.L1Unstructured, amount=0.3)
        lib.global_unstructured(pairs, lib.L1Unstructured, amount=0.3)
    same(ours, theirs)


def test_scores_decide_if_given():
    net = nn.Linear(3, 1, bias=False)
    prune.l1_unstructured(net, "weight", 1, importance_scores=gh.asarray([[3.0, 1.0, 2.0]]))
    assert net.weight_mask.tolist() == [[1.0, 0.0, 1.0]]


def test_random_pruning():
    gh.random.seed(0)
    net = prune.random_unstructured(nn.Linear(10, 10), "weight", 0.3)
    assert net.weight_mask.sum().item() == 70
    net = prune.random_structured(nn.Linear(10, 10), "weight", 4, 1)
    assert sorted(net.weight_mask.sum(0).tolist()) == [0.0] * 4 + [10.0] * 6


def test_a_method_of_ones_own():
    class EveryOther(prune.BasePruningMethod):
        def compute_mask(self, t, default_mask):
            mask = default_mask.reshape(-1)
            mask[::2] = 0
            return mask.reshape(default_mask.shape)

    net = nn.Linear(4, 1, bias=False)
    EveryOther.apply(net, "weight")
    assert net.weight_mask.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    pruned = EveryOther().prune(gh.ones(4))
    assert pruned.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_pruned_modules_are_trained_copied_and_captured():
    net = prune.l1_unstructured(nn.Linear(3, 2), "weight", 0.5)
    x = gh.ones((2, 3))
    opt = gh.optim.SGD(net.parameters(), lr=0.1)
    other = copy.deepcopy(net)

    @gh.optimize
    def step():
        opt.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        opt.step()
        return loss

    losses = [step().item() for _ in range(4)]
    assert losses[-1] < losses[0]
    assert ((net.weight == 0) == (net.weight_mask == 0)).all()
    plain = gh.optim.SGD(other.parameters(), lr=0.1)
    for expected in losses:
        plain.zero_grad()
        loss = (other(x) ** 2).sum()
        loss.backward()
        plain.step()
        assert loss.item() == pytest.approx(expected, rel=1e-5)
