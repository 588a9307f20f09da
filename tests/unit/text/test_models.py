"""The models of text: their sizes, what tokens see, and what they refuse."""

import pytest

import glasshouse as gh
from glasshouse.base.errors import IndexOutOfRangeError, ShapeError
from glasshouse.text.models import BertLike, GptLike

SMALL = {"vocab": 20, "layers": 1, "dim": 8, "heads": 2, "ff": 16, "max_len": 4}


def test_the_full_model_has_406_million_parameters():
    with gh.backends.use("stub"):
        model = BertLike()
        assert sum(p.size for p in model.parameters()) == 405_828_697
        assert model(gh.zeros((4, 128), dtype="int64")).shape == (4, 128, 50265)


@pytest.mark.quick
def test_tokens_see_what_stands_after_them():
    model = BertLike(**SMALL)
    a, b = (model(gh.asarray([[1, 2, last]])).numpy()[0, 0] for last in (3, 4))
    assert abs(a - b).max() > 1e-6


def test_a_decoder_as_large_as_gpt_2_small():
    with gh.backends.use("stub"):
        model = GptLike()
        assert sum(p.size for p in model.parameters()) == 124_439_808
        assert model(gh.zeros((2, 16), dtype="int64")).shape == (2, 16, 50257)


def test_tokens_of_a_decoder_see_those_before_them_alone():
    model = GptLike(**SMALL)
    a, b = (model(gh.asarray([[1, 2, last]])).numpy()[0] for last in (3, 4))
    assert abs(a[:2] - b[:2]).max() == 0
    assert abs(a[2] - b[2]).max() > 1e-6


@pytest.mark.parametrize("kind", [BertLike, GptLike])
@pytest.mark.parametrize(
    "tokens, error, text",
    [
        ([[1, 2, 3, 4, 5]], ShapeError, "L at most 4; got (1, 5)"),
        ([1, 2], ShapeError, "expected tokens (N, L)"),
        ([[1, 20]], IndexOutOfRangeError, "indices from 0 to 19"),
    ],
)
@pytest.mark.quick
def test_bad_tokens(kind, tokens, error, text):
    with pytest.raises(error) as caught:
        kind(**SMALL)(gh.asarray(tokens))
    assert text in str(caught.value)
