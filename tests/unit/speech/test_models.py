"""The model of speech: its size, its frames, and that it learns by CTC."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.base.errors import ShapeError
from glasshouse.speech.models import TDSCTC, AsrTransformer, ConformerCTC, sinusoids

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


CTC_MODELS = {
    "Conformer": lambda: ConformerCTC(8, 5, 1, 8, 2, kernel_size=5, pos_context=32, dropout=0.0),
    "TDS": lambda: TDSCTC(8, 5, channels=(2, 3), blocks=(1, 1), kernel_size=5),
}


@pytest.mark.parametrize("name", CTC_MODELS)
@pytest.mark.parametrize("length", [7, 8, 9, 30, 31, 41])
def test_frames_say_how_long_the_scores_are(name, length):
    gh.random.seed(0)
    model = CTC_MODELS[name]()
    assert model(gh.zeros((2, length, 8))).shape == (2, model.frames(length), 5)
    assert model.frames(np.array([length])).tolist() == [model.frames(length)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CTC_MODELS)
def test_models_of_ctc_learn(name):
    gh.random.seed(0)
    model = CTC_MODELS[name]()
    x = gh.random.normal((2, 40, 8))
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        scores = nn.functional.log_softmax(model(x), dim=2).transpose(0, 1)
        sizes = [model.frames(40)] * 2
        loss = nn.functional.ctc_loss(scores, gh.asarray([[1, 2], [3, 3]]), sizes, [2, 2])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3


@pytest.mark.slow
def test_padding_changes_nothing_in_front_of_it():
    gh.random.seed(0)
    model = CTC_MODELS["Conformer"]().eval()
    x = np.random.default_rng(0).normal(size=(1, 63, 8)).astype("f4")
    short = model(x[:, :31]).numpy()  # 7 frames
    whole = np.concatenate([x[:, :31], np.zeros((1, 32, 8), "f4")], axis=1)
    mask = np.arange(model.frames(63)) >= 7
    reach = 2  # of the convolution over time, which sees what is masked as it is
    padded = model(whole, mask[None]).numpy()
    np.testing.assert_allclose(padded[:, : 7 - reach], short[:, : 7 - reach], atol=1e-5)


@pytest.mark.parametrize("name", CTC_MODELS)
def test_shapes_that_do_not_fit_are_named(name):
    for shape in ((2, 30, 7), (30, 8), (2, 0, 8)):
        with pytest.raises(ShapeError, match="Time is the second axis"):
            CTC_MODELS[name]()(gh.zeros(shape))
