"""The model of speech: its size, its frames, and that it learns by CTC."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.base.errors import ShapeError
from glasshouse.speech.models import AsrTransformer, sinusoids

SMALL = {"features": 8, "labels": 5, "layers": 1, "dim": 16, "heads": 2, "ff": 32, "max_len": 20}


def test_the_full_model_has_256_million_parameters():
    with gh.backends.use("stub"):
        model = AsrTransformer()
        assert sum(p.size for p in model.parameters()) == 256_048_318
        assert model(gh.zeros((2, 600, 80))).shape == (2, 200, 30)


def test_positions_are_a_buffer_that_is_not_saved():
    model = AsrTransformer(**SMALL)
    assert "positions" in dict(model.named_buffers())
    assert "positions" not in model.state_dict()
    rotation = sinusoids(5, 8).numpy()
    np.testing.assert_allclose((rotation**2).sum(1), 4, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 58, 60])
def test_each_third_frame_gets_scores(length):
    y = AsrTransformer(**SMALL)(gh.zeros((1, length, 8)))
    assert y.shape == (1, AsrTransformer.frames(length), 5)


@pytest.mark.slow
def test_it_learns_to_read_two_recordings():
    gh.random.seed(0)
    model = AsrTransformer(**SMALL)
    x = gh.asarray(np.random.default_rng(0).normal(size=(2, 30, 8)).astype("f4"))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        lp = nn.functional.log_softmax(model(x), dim=-1).transpose(0, 1)
        loss = nn.functional.ctc_loss(lp, [[1, 2, 2], [3, 1, 0]], [10, 10], [3, 2])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("shape", [(2, 30), (2, 30, 7), (2, 61, 8)])
def test_bad_features(shape):
    with pytest.raises(ShapeError, match="AsrTransformer: expected"):
        AsrTransformer(**SMALL)(gh.zeros(shape))
