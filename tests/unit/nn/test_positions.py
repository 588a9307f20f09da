"""Layers of positions against their definitions, written one number at a time."""

import math

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn

rng = np.random.default_rng(0)


def test_sinusoids():
    table = F.sinusoids(gh.arange(7), 6).numpy()
    for p in range(7):
        for i in range(3):
            angle = p / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(table[p, 2 * i], math.sin(angle), atol=1e-6)
            np.testing.assert_allclose(table[p, 2 * i + 1], math.cos(angle), atol=1e-6)
    layer = nn.SinusoidalPositionEmbedding()
    np.testing.assert_allclose(
        layer(gh.zeros((2, 3, 6)), offset=4)[1].numpy(), table[4:], atol=1e-6
    )
    assert layer(gh.zeros((3, 6), dtype="float16")).dtype is gh.float16


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_is_a_product_of_complex_numbers(interleaved):
    x = rng.normal(size=(2, 5, 6))
    y = nn.RotaryEmbedding(interleaved=interleaved)(gh.asarray(x), offset=3).numpy()
    pairs = (
        (lambda a: (a[..., ::2], a[..., 1::2])) if interleaved else (lambda a: np.split(a, 2, -1))
    )
    angle = np.arange(3, 8)[:, None] / 10000 ** (np.arange(3) * 2 / 6)
    (a, b), (c, d) = pairs(x), pairs(y)
    np.testing.assert_allclose(c + 1j * d, (a + 1j * b) * np.exp(1j * angle), rtol=1e-12)


def test_sinusoids_of_double_inputs_have_their_digits():
    x = gh.zeros((5, 6), dtype="float64")
    angle = np.arange(5)[:, None] / 10000 ** (np.arange(3) * 2 / 6)
    y = nn.SinusoidalPositionEmbedding()(x).numpy()
    np.testing.assert_allclose(y[:, ::2], np.sin(angle), rtol=1e-12)
    np.testing.assert_allclose(y[:, 1::2], np.cos(angle), rtol=1e-12)


def test_rotated_products_depend_on_distances_alone():
    rotary = nn.RotaryEmbedding()
    q, k = gh.asarray(rng.normal(size=(4, 8))), gh.asarray(rng.normal(size=(4, 8)))
    near, far = (rotary(q, i) @ rotary(k, i).mT for i in (0, 50))
    np.testing.assert_allclose(near.numpy(), far.numpy(), atol=1e-4)


def test_rotation_has_gradients_and_is_batched():
    x = gh.asarray(rng.normal(size=(3, 4, 6)))

    def loss(x):
        return (F.rotate(x, gh.arange(4)) ** 3).sum()

    eps = 1e-6
    g = gh.grad(loss)(x).numpy()
    step = np.zeros(x.shape)
    step[1, 2, 3] = eps
    slope = (loss(x + step) - loss(x - step)).item() / (2 * eps)
    assert g[1, 2, 3] == pytest.approx(slope, rel=1e-5)
    np.testing.assert_allclose(gh.vmap(gh.grad(loss))(x).numpy(), g, rtol=1e-9)


# heads: slopes, from the paper's rule for powers of two and its code for others
SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    8: [2.0**-k for k in range(1, 9)],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi(heads):
    np.testing.assert_allclose(F.alibi_slopes(heads).numpy(), SLOPES[heads], rtol=1e-6)
    bias = nn.ALiBi(heads)(3, 5, offset=2).numpy()
    i, j = np.arange(2, 5)[:, None], np.arange(5)
    expected = -np.array(SLOPES[heads])[:, None, None] * np.abs(i - j)
    np.testing.assert_allclose(bias, expected, rtol=1e-6)


def bucket(relative, buckets, most, bidirectional):
    """Raffel et al.'s rule for one number."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = math.log(distance / exact) / math.log(most / exact) * (buckets - exact)
    return first + min(exact + int(far + 1e-6), buckets - 1)


@pytest.mark.parametrize("options", [(32, 128, True), (32, 128, False), (16, 20, True)])
def test_relative_buckets(options):
    places = range(-150, 151)
    expected = [bucket(r, *options) for r in places]
    assert F.relative_buckets(list(places), *options).tolist() == expected


def test_relative_bias_is_trained_and_looked_up():
    layer = nn.RelativePositionBias(2, 8, 16)
    bias = layer(3, 4)
    table = layer.relative_attention_bias.weight.numpy()
    for i in range(3):
        for j in range(4):
            row = table[bucket(j - i, 8, 16, True)]
            np.testing.assert_array_equal(bias[:, i, j].numpy(), row)
    bias.sum().backward()
    assert layer.relative_attention_bias.weight.grad.sum().item() == 24.0
    assert list(layer.state_dict()) == ["relative_attention_bias.weight"]


@pytest.mark.parametrize("make", [nn.ALiBi, nn.RelativePositionBias])
def test_biases_serve_attention_in_both_forms(make):
    layer = make(2)
    q, k, v = (gh.asarray(rng.normal(size=(1, 2, n, 4)).astype("f4")) for n in (3, 5, 5))
    dense = F.scaled_dot_product_attention(q, k, v, layer(3, 5))
    flexible = F.flex_attention(q, k, v, layer.score_mod)
    np.testing.assert_allclose(flexible.numpy(), dense.numpy(), rtol=1e-5, atol=1e-6)


def test_learned_positions():
    layer = nn.LearnedPositionEmbedding(6, 4)
    y = layer(gh.zeros((2, 3, 4)), offset=2)
    np.testing.assert_array_equal(y[1].numpy(), layer.weight[2:5].numpy())
    assert layer.weight.numpy().std() < 0.05
