"""Linear, embedding, attention and transformer layers against PyTorch's, with its weights."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn import functional as F

rng = np.random.default_rng(0)


def batch(*shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize("options", [{}, {"bias": False}])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_linear(twin, options, shape):
    twin.module(nn.Linear(4, 3, **options), twin.torch.nn.Linear(4, 3, **options), batch(*shape))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}])
def test_embedding(twin, options):
    ours, theirs = nn.Embedding(5, 3, **options), twin.torch.nn.Embedding(5, 3, **options)
    twin.module(ours, theirs, np.array([[0, 1, 4], [1, 1, 2]]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "float", "bool"])
def test_scaled_dot_product_attention(twin, causal, mask):
    if causal and mask:
        return
    theirs = twin.torch.nn.functional.scaled_dot_product_attention
    q, k, v = batch(2, 3, 4, 5), batch(2, 3, 6, 5), batch(2, 3, 6, 7)
    if causal:
        k, v = batch(2, 3, 4, 5), batch(2, 3, 4, 7)
    weights = None if mask is None else batch(4, 6)
    if mask == "bool":
        weights = weights > -0.5
        weights[:, 0] = True
    other = None if weights is None else twin.torch.tensor(weights)
    twin.function(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if weights is None else gh.asarray(weights), is_causal=causal
        ),
        lambda q, k, v: theirs(q, k, v, attn_mask=other, is_causal=causal),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_multihead_attention(twin, batch_first, bias):
    options = {"batch_first": batch_first, "bias": bias}
    x = batch(2, 5, 8)
    twin.module(
        nn.MultiheadAttention(8, 2, **options),
        twin.torch.nn.MultiheadAttention(8, 2, **options),
        x, x, x,
    )  # fmt: skip


def pair_with(twin, ours, theirs):
    """Both modules in float64 with equal weights, in evaluation mode."""
    theirs = theirs.double().eval()
    ours = ours.double().eval()
    ours.load_state_dict({k: v.numpy().copy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def test_attention_with_masks(twin):
    ours, theirs = pair_with(
        twin,
        nn.MultiheadAttention(8, 2, batch_first=True),
        twin.torch.nn.MultiheadAttention(8, 2, batch_first=True),
    )
    x, padding = batch(2, 5, 8), np.array([[False] * 5, [False] * 3 + [True] * 2])
    causal = np.triu(np.ones((5, 5), bool), 1)
    got, weights = ours(
        gh.asarray(x),
        gh.asarray(x),
        gh.asarray(x),
        key_padding_mask=gh.asarray(padding),
        attn_mask=gh.asarray(causal),
    )
    t = twin.torch.tensor
    expected, others = theirs(t(x), t(x), t(x), key_padding_mask=t(padding), attn_mask=t(causal))
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), atol=1e-10)
    np.testing.assert_allclose(weights.numpy(), others.detach().numpy(), atol=1e-10)
    assert ours(gh.asarray(x), gh.asarray(x), gh.asarray(x), need_weights=False)[1] is None


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
def test_transformer_encoder_layer(twin, options):
    options = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 16, **options}
    ours = nn.TransformerEncoderLayer(8, 2, **options)
    theirs = twin.torch.nn.TransformerEncoderLayer(8, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours, theirs = pair_with(twin, ours, theirs)
    x = batch(2, 5, 8)
    twin.function(lambda v: ours(v), lambda v: theirs.train()(v), x, rtol=1e-8, atol=1e-9)


def test_transformer_encoder(twin):
    options = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 16}
    torch = twin.torch.nn
    ours = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **options), 2)
    theirs = torch.TransformerEncoder(
        torch.TransformerEncoderLayer(8, 2, **options), 2, enable_nested_tensor=False
    )
    ours, theirs = pair_with(twin, ours, theirs)
    x = batch(2, 5, 8)
    twin.function(lambda v: ours(v), lambda v: theirs.train()(v), x, rtol=1e-8, atol=1e-9)


def test_per_example_gradients_of_a_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    xs = gh.random.normal((3, 4, 8))
    grads = gh.vmap(gh.grad(lambda x: (layer(x[None]) ** 2).sum()))(xs)
    alone = gh.grad(lambda x: (layer(x[None]) ** 2).sum())(xs[1])
    np.testing.assert_allclose(grads[1].numpy(), alone.numpy(), rtol=1e-3, atol=1e-4)
