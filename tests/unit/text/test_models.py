"""The model of text: its size, and what it refuses."""

import pytest

import glasshouse as gh
from glasshouse.base.errors import IndexOutOfRangeError, ShapeError
from glasshouse.text.models import BertLike

SMALL = {"vocab": 20, "layers": 1, "dim": 8, "heads": 2, "ff": 16, "max_len": 4}


def test_the_full_model_has_406_million_parameters():
    with gh.backends.use("stub"):
        model = BertLike()
        assert sum(p.size for p in model.parameters()) == 405_828_697
        assert model(gh.zeros((4, 128), dtype="int64")).shape == (4, 128, 50265)


def test_tokens_see_what_stands_after_them():
    model = BertLike(**SMALL)
    a, b = (model(gh.asarray([[1, 2, last]])).numpy()[0, 0] for last in (3, 4))
    assert abs(a - b).max() > 1e-6


@pytest.mark.parametrize(
    "tokens, error, text",
    [
        ([[1, 2, 3, 4, 5]], ShapeError, "L at most 4; got (1, 5)"),
        ([1, 2], ShapeError, "expected tokens (N, L)"),
        ([[1, 20]], IndexOutOfRangeError, "indices from 0 to 19"),
    ],
)
def test_bad_tokens(tokens, error, text):
    with pytest.raises(error) as caught:
        BertLike(**SMALL)(gh.asarray(tokens))
    assert text in str(caught.value)
