"""Bags of embeddings against PyTorch's, and adaptive embeddings against their definition."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import IndexOutOfRangeError

rng = np.random.default_rng(0)
VECTOR, MATRIX = np.array([1, 2, 4, 5, 4, 3, 2, 9]), np.array([[1, 2, 4], [4, 3, 2]])
# input, offsets, options
CASES = {
    "matrix": (MATRIX, None, {}),
    "runs": (VECTOR, [0, 3, 7], {}),
    "empty bags": (VECTOR, [0, 0, 4, 8, 8], {}),
    "ends": (VECTOR, [0, 4, 8], {"include_last_offset": True}),
    "padding": (VECTOR, [0, 3, 7], {"padding_idx": 4}),
    "all padding": (np.array([4, 4, 1]), [0, 2], {"padding_idx": -6}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_equal_pytorchs(twin, case, mode):
    index, offsets, options = CASES[case]
    torch = twin.torch
    ours, theirs = (lib.EmbeddingBag(10, 3, mode=mode, **options) for lib in (nn, torch.nn))
    starts = [] if offsets is None else [np.array(offsets)]
    twin.module(ours, theirs, index, *starts)


def test_frequencies_scale_gradients_as_in_pytorchs_embedding(twin):
    """PyTorch's own bags on the CPU divide other rows than those that are used often."""
    torch = twin.torch.nn.functional
    index = twin.torch.tensor(MATRIX)
    twin.function(
        lambda t: F.embedding_bag(MATRIX, t, mode="sum", scale_grad_by_freq=True),
        lambda t: torch.embedding(index, t, scale_grad_by_freq=True).sum(1),
        rng.normal(size=(10, 3)),
    )


def test_weights_of_samples_equal_pytorchs(twin):
    torch = twin.torch
    weights = rng.normal(size=8)
    twin.function(
        lambda t, w: F.embedding_bag(VECTOR, t, [0, 3, 7], mode="sum", per_sample_weights=w),
        lambda t, w: torch.nn.functional.embedding_bag(
            torch.tensor(VECTOR), t, torch.tensor([0, 3, 7]), mode="sum", per_sample_weights=w
        ),
        rng.normal(size=(10, 3)),
        weights,
    )


def test_max_norm_equals_pytorchs(twin):
    ours, theirs = (lib.EmbeddingBag(10, 3, max_norm=0.5) for lib in (nn, twin.torch.nn))
    ours.load_state_dict(theirs.state_dict())
    y = theirs(twin.torch.tensor(MATRIX))
    np.testing.assert_allclose(ours(MATRIX).numpy(), y.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.weight.numpy(), theirs.weight.detach().numpy(), rtol=1e-5)


def test_a_table_that_is_given():
    bag = nn.EmbeddingBag.from_pretrained([[1.0], [2.0]], mode="sum", padding_idx=0)
    assert not bag.weight.requires_grad and bag([[0, 1, 1]]).tolist() == [[4.0]]


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_bags_are_captured_with_offsets_that_vary(mode):
    bag = nn.EmbeddingBag(10, 3, mode=mode)
    fast = gh.optimize(lambda index, offsets: bag(index, offsets))
    for offsets in ([0, 3, 7], [0, 1, 2], [0, 0, 5], [0, 2, 8]):
        inputs = gh.asarray(VECTOR), gh.asarray(offsets)
        np.testing.assert_allclose(fast(*inputs).numpy(), bag(*inputs).numpy(), rtol=1e-6)
    assert fast.hits >= 2


def test_adaptive_embeddings_are_rows_and_projections():
    gh.random.seed(0)
    net = nn.AdaptiveEmbedding(20, 8, [4, 10], div_value=2)
    index = rng.integers(0, 20, size=(3, 5))
    y = net(index).numpy()
    for i, n in np.ndenumerate(index):
        cluster = int(n >= 4) + int(n >= 10)
        table, projection = net.clusters[cluster]
        row = table.weight.numpy()[n - (0, 4, 10)[cluster]]
        np.testing.assert_allclose(y[i], projection.weight.numpy() @ row, rtol=1e-5, atol=1e-6)
    assert [c[0].weight.shape for c in net.clusters] == [(4, 8), (6, 4), (10, 2)]


def test_adaptive_gradients_reach_the_rows_in_use_alone():
    net = nn.AdaptiveEmbedding(20, 8, [4, 10], div_value=2)
    net(gh.asarray([1, 12, 12])).sum().backward()
    used = [cluster[0].weight.grad.numpy().any(1).nonzero()[0].tolist() for cluster in net.clusters]
    assert used == [[1], [], [2]]
    for bad in (-1, 20):
        with pytest.raises(IndexOutOfRangeError):
            net(gh.asarray([bad])).numpy()
