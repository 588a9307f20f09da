"""Grouped-query attention with windows and caches: against the same without them."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

rng = np.random.default_rng(0)
OPTIONS = [{}, {"window": 2}, {"rotary": nn.RotaryEmbedding()}, {"is_causal": False}]


def layer(**options):
    gh.random.seed(0)
    return nn.GroupedQueryAttention(8, 4, 2, **options).double()


@pytest.mark.parametrize("options", OPTIONS)
def test_attention_is_that_of_repeated_heads(options):
    net, x = layer(**options), gh.asarray(rng.normal(size=(2, 5, 8)))
    q, k, v = (
        p(x).reshape(2, 5, -1, 2).permute(0, 2, 1, 3) for p in (net.q_proj, net.k_proj, net.v_proj)
    )
    if net.rotary is not None:
        q, k = net.rotary(q), net.rotary(k)
    k, v = (gh.repeat(y, 2, axis=1) for y in (k, v))
    i, j = np.ogrid[:5, :5]
    allowed = (j <= i) & (i - j < options.get("window", 5)) if net.is_causal else i > -1
    scores = np.where(allowed, (q @ k.mT).numpy() / 2**0.5, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y = (weights @ v.numpy()).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    np.testing.assert_allclose(net(x).numpy(), net.o_proj(gh.asarray(y)).numpy(), rtol=1e-9)


def caches():
    return {
        "static": nn.KVCache(2, 2, 7, 2, dtype="float64"),
        "growing": nn.GrowingKVCache(),
    }


@pytest.mark.parametrize("kind", ["static", "growing"])
@pytest.mark.parametrize("options", OPTIONS[:3])
def test_generating_step_by_step_gives_the_same(kind, options):
    net, x = layer(**options), gh.asarray(rng.normal(size=(2, 6, 8)))
    cache, whole = caches()[kind], net(x).numpy()
    for _ in range(2):
        parts = [net(x[:, a:b], cache).numpy() for a, b in ((0, 3), (3, 4), (4, 6))]
        np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-7, atol=1e-9)
        assert int(cache.length) == 6
        cache.reset()
    assert int(cache.length) == 0 and list(cache.state_dict()) == []


def test_a_captured_step_is_one_program():
    net, cache = layer(rotary=nn.RotaryEmbedding()), caches()["static"]
    x = gh.asarray(rng.normal(size=(2, 7, 8)))
    whole = net(x).numpy()

    @gh.optimize
    def step(token):
        return net(token, cache)

    with gh.no_grad():
        parts = [step(x[:, i : i + 1]).numpy() for i in range(7)]
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-7, atol=1e-9)
    assert step.hits >= 5


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_are_joined_with_causality(kind):
    net, x = layer(), gh.asarray(rng.normal(size=(2, 4, 8)))
    allowed = np.array([True, True, False, True])
    mask = allowed if kind == "bool" else np.where(allowed, 0.0, -np.inf)
    cut = net(x, attn_mask=gh.asarray(mask))[:, 3].numpy()
    kept = net(x.take(gh.asarray([0, 1, 3]), axis=1))[:, 2].numpy()
    np.testing.assert_allclose(cut, kept, rtol=1e-9)


@pytest.mark.slow
def test_gradients_autocast_and_batches():
    net = nn.GroupedQueryAttention(8, 4, 2, window=3, rotary=nn.RotaryEmbedding())
    xs = gh.asarray(rng.normal(size=(3, 1, 5, 8)).astype("f4"))

    def loss(x):
        return (net(x) ** 2).sum()

    grads = gh.vmap(gh.grad(loss))(xs)
    np.testing.assert_allclose(grads[1].numpy(), gh.grad(loss)(xs[1]).numpy(), rtol=1e-3, atol=1e-5)
    with gh.autocast("bfloat16"):
        low = net(xs[0])
    np.testing.assert_allclose(low.numpy().astype("f4"), net(xs[0]).numpy(), atol=0.05)


def test_dropout_acts_only_while_training():
    net = nn.GroupedQueryAttention(8, 4, 2, dropout=0.5)
    x = gh.ones((1, 6, 8)) + gh.arange(6).reshape(6, 1)
    assert (net(x).numpy() != net(x).numpy()).any()
    net.eval()
    np.testing.assert_array_equal(net(x).numpy(), net(x).numpy())


def test_attention_dropout_keeps_the_mean():
    gh.random.seed(0)
    q = gh.zeros((1, 400, 1))
    v = gh.ones((1, 100, 1))
    y = F.scaled_dot_product_attention(q, q[:, :100], v, dropout_p=0.3).numpy()
    assert y.mean() == pytest.approx(1.0, abs=0.02) and y.std() > 0.03


def test_a_full_cache_is_an_error():
    net = layer()
    cache = caches()["static"]
    x = gh.asarray(rng.normal(size=(2, 6, 8)))
    net(x, cache).numpy()
    with pytest.raises(IndexError):
        net(x, cache).numpy()
