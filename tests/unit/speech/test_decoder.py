"""The beam search against the sum over all paths, in pieces and whole, with lexicon and models."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech
from glasshouse.metrics import CharErrorRate
from glasshouse.speech.lexicon import OUTSIDE

TOKENS = ["", " ", "a", "b"]
TEXTS = ["a b ab", "ab a", "b ab", "ab ab a", "ba"]
MODEL = speech.train_ngrams(TEXTS, order=2)
EVERYTHING = {"beam_size": 10**6, "beam_threshold": 1e9, "token_threshold": -1e9}


def scores(steps, classes, seed=0, sharpness=1.0):
    x = np.random.default_rng(seed).normal(size=(steps, classes)) * sharpness
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def read(path, silence):
    """The tokens of a path: repeats merged, blanks out, of boundaries only those between words."""
    tokens = [t for t, _ in itertools.groupby(path) if t != 0]
    if silence is None:
        return tuple(tokens)
    merged = [t for i, t in enumerate(tokens) if t != silence or tokens[i - 1] != silence]
    return tuple(merged[1:] if merged[:1] == [silence] else merged)


def full_search(x, silence=1, best=False):
    """{tokens: log of the sum, or the best, of all paths that read so}: the slow, clear twin."""
    results = defaultdict(lambda: -math.inf)
    for path in itertools.product(range(x.shape[1]), repeat=len(x)):
        score = sum(row[t] for row, t in zip(x, path))
        key = read(path, silence)
        results[key] = max(results[key], score) if best else np.logaddexp(results[key], score)
    return results


def by_text(scores, gain, tokens=TOKENS):
    """[(text, score)] of the best tokens of each text, the best first."""
    rows = {}
    for key, score in scores.items():
        text = " ".join("".join(tokens[t] for t in key).split())
        more = gain(text, key)
        if more > -1e20:
            rows[text] = max(rows.get(text, -math.inf), score + more)
    return sorted(rows.items(), key=lambda row: -row[1])


def compare(decoder, x, expected, count=6):
    got = decoder.decode(x, best=count)
    assert [h.text for h in got] == [text for text, _ in expected[:count]]
    np.testing.assert_allclose([h.score for h in got], [s for _, s in expected[:count]], atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("merge", ["sum", "max"])
def test_a_wide_beam_finds_what_the_full_search_finds(seed, merge):
    x = scores(5, 4, seed)
    decoder = speech.BeamDecoder(TOKENS, merge=merge, silence_score=0.3, **EVERYTHING)
    result = full_search(x, best=merge == "max")
    compare(decoder, x, by_text(result, lambda text, key: 0.3 * key.count(1)))


@pytest.mark.parametrize("blank", range(4))
def test_the_blank_may_be_any_token(blank):
    """Hashes of short texts differ, whatever the numbers of their tokens are."""
    x = scores(5, 4)
    tokens, order = ["c", "a", "b"], [*range(1, 4)]
    order.insert(blank, 0)
    decoder = speech.BeamDecoder(
        [["", *tokens][i] for i in order], blank=blank, boundary=None, **EVERYTHING
    )
    result = by_text(full_search(x, None), lambda text, key: 0.0, ["", *tokens])
    compare(decoder, x[:, order], result, 30)


@pytest.mark.parametrize("seed", range(4))
def test_a_language_model_of_words_is_added(seed):
    x = scores(5, 4, seed)
    options = {"lm_weight": 0.7, "word_score": 0.4, "unknown_score": -3.0}
    decoder = speech.BeamDecoder(TOKENS, MODEL, **options, **EVERYTHING)

    def gain(text, key):
        words = text.split()
        unknown = sum(word not in MODEL for word in words)
        return 0.7 * MODEL.score_text(text) + 0.4 * len(words) - 3.0 * unknown

    compare(decoder, x, by_text(full_search(x), gain))


@pytest.mark.parametrize("seed", range(4))
def test_a_lexicon_lets_only_its_words_out(seed):
    x = scores(5, 4, seed)
    decoder = speech.BeamDecoder(TOKENS, lexicon=["ab", "b"], **EVERYTHING)
    allowed = {"ab", "b"}

    def gain(text, key):
        return 0.0 if set(text.split()) <= allowed else -math.inf

    compare(decoder, x, by_text(full_search(x), gain))


@pytest.mark.parametrize("seed", range(3))
def test_a_language_model_of_tokens(seed):
    x = scores(5, 4, seed)
    tokens = ["", "c", "a", "b"]
    model = speech.train_ngrams([list("abc"), list("ab"), list("cab")], order=3)
    decoder = speech.BeamDecoder(tokens, model, boundary=None, lm_weight=0.5, **EVERYTHING)
    result = full_search(x, None)
    compare(
        decoder, x, by_text(result, lambda text, key: 0.5 * model.score_text(list(text)), tokens)
    )


@pytest.mark.parametrize("seed", range(3))
def test_pieces_begin_words(seed):
    tokens = ["", "▁a", "b", "▁b"]
    x = scores(5, 4, seed)
    decoder = speech.BeamDecoder(
        tokens, MODEL, boundary="▁", unknown_score=-2.0, word_score=0.1, **EVERYTHING
    )
    rows = {}
    for key, score in full_search(x, None).items():
        words = "".join(tokens[t] for t in key).replace("▁", " ").split()
        # an unknown word costs the same, however it is spelled
        spelled = [w for w in words if w in MODEL]
        more = MODEL.score_text(words) - 2.0 * (len(words) - len(spelled)) + 0.1 * len(words)
        rows[" ".join(words)] = max(rows.get(" ".join(words), -math.inf), score + more)
    got = decoder.decode(x, best=3)
    by_score = sorted(rows.items(), key=lambda row: -row[1])
    for h, (_, score) in zip(got, by_score):
        assert h.score <= score + 1e-9
    assert got[0].text == by_score[0][0]


def test_words_that_are_spelled_alike_are_told_apart_by_the_model():
    model = speech.train_ngrams(["two cats", "two dogs", "to sleep", "to eat", "to run"], order=2)
    lexicon = {word: [[1]] for word in ("two", "to")} | {"cats": [[2]], "sleep": [[3]]}
    tokens = ["", "T", "K", "S", "|"]
    decoder = speech.BeamDecoder(tokens, model, lexicon, boundary="|")
    x = np.full((4, 5), -9.0)
    x[[0, 1, 2, 3], [1, 4, 3, 0]] = 0.0
    assert decoder.decode(x)[0].text == "to sleep"


@pytest.mark.parametrize("sizes", [(1,) * 40, (7, 13, 20), (40,)])
@pytest.mark.parametrize("boundary", [" ", None])
def test_pieces_give_what_the_whole_gives(sizes, boundary):
    x = scores(40, 4, 1, sharpness=3.0)
    decoder = speech.BeamDecoder(TOKENS, MODEL, boundary=boundary, beam_size=8, unknown_score=-4.0)
    whole = decoder.decode(x, best=4)
    stream, certain = decoder.stream(), ""
    for part in np.split(x, np.cumsum(sizes)[:-1]):
        before, certain = certain, stream.feed(part).prune()
        assert certain.startswith(before)
    assert len(stream.past) < 8 * 40
    assert stream.finish(4) == whole
    assert whole[0].text.startswith(certain)
    if boundary is None:
        assert whole[0].text == "".join(TOKENS[t] for t in whole[0].tokens)
    assert list(whole[0].frames) == sorted(whole[0].frames)


class Recent:
    """A language model whose states are tuples: the last two words."""

    def start(self):
        return ("", "")

    def score(self, state, word):
        return (state[1], word), -0.5 * len(word) - (0.7 if word in state else 0.0)

    def finish(self, state):
        return -0.1 * len(state[1])

    def __contains__(self, word):
        return True


KINDS = {
    "free": {},
    "lexicon": {"lexicon": ["ab", "b", "ba"]},
    "model": {"language_model": MODEL, "unknown_score": -3.0, "word_score": 0.5},
    "tuples": {"language_model": Recent(), "silence_score": 0.2},
    "tokens": {"language_model": Recent(), "boundary": None},
    "best path": {"merge": "max", "language_model": MODEL, "unknown_score": -2.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam_size", [3, 30])
def test_arrays_give_what_the_clear_twin_gives(kind, beam_size):
    x = scores(40, 4, 5, sharpness=2.0)
    decoder = speech.BeamDecoder(TOKENS, **KINDS[kind], beam_size=beam_size)
    results = []
    for few in (0, 10**9):
        stream = decoder.stream()
        stream.few = few
        results.append(stream.feed(x).finish(3))
    for ours, twin in zip(*results):
        assert (ours.text, ours.tokens, ours.frames) == (twin.text, twin.tokens, twin.frames)
        assert ours.score == pytest.approx(twin.score)
        assert ours.acoustic == pytest.approx(twin.acoustic)


def test_frames_say_where_tokens_enter():
    x = np.full((7, 4), -9.0)
    x[range(7), [0, 2, 2, 0, 1, 3, 3]] = 0.0
    (result,) = speech.BeamDecoder(TOKENS).decode(x)
    assert (result.text, result.tokens, result.frames) == ("a b", (2, 1, 3), (1, 4, 5))


def test_a_batch_is_cut_to_its_lengths():
    x = np.stack([scores(9, 4, seed, 3.0) for seed in range(3)])
    decoder = speech.BeamDecoder(TOKENS)
    rows = decoder.decode(gh.asarray(x), lengths=[9, 4, 0], best=2)
    assert rows[1] == decoder.decode(x[1, :4], best=2)
    assert [h.text for h in rows[2]] == [""]


def test_small_beams_and_limits_lose_a_little():
    """The text that they find is among the best of a wide beam, and never has a higher score."""
    x = scores(60, 4, 2, sharpness=6.0)
    wide = speech.BeamDecoder(TOKENS, MODEL, unknown_score=-5.0, **EVERYTHING | {"beam_size": 500})
    best = {h.text: h.score for h in wide.decode(x, best=20)}
    for options in ({"beam_size": 20}, {"beam_threshold": 12.0}, {"token_limit": 3}):
        narrow = speech.BeamDecoder(TOKENS, MODEL, unknown_score=-5.0, **options)
        result = narrow.decode(x)[0]
        assert result.score <= best[result.text] + 1e-9


def test_rescoring_takes_any_models_log_probabilities():
    x = scores(12, 4, 3)
    rows = speech.BeamDecoder(TOKENS).decode(x, best=5)
    again = speech.rescore(rows, lambda texts: [MODEL.score_text(t) for t in texts], 2.0, 0.5)
    totals = {h.text: h.score for h in rows}
    expected = {t: s + 2 * MODEL.score_text(t) + 0.5 * len(t.split()) for t, s in totals.items()}
    assert {h.text: pytest.approx(h.score) for h in again} == expected
    assert [h.score for h in again] == sorted((h.score for h in again), reverse=True)


NAN = np.zeros((3, 4))
NAN[1, 2] = np.nan
BAD = [
    (lambda: speech.BeamDecoder(TOKENS, blank=4), gh.OptionError, "4 of 4"),
    (lambda: speech.BeamDecoder(TOKENS, boundary="|"), gh.OptionError, "boundary"),
    (lambda: speech.BeamDecoder(TOKENS, beam_size=0), gh.OptionError, "beam_size"),
    (lambda: speech.BeamDecoder(TOKENS, beam_threshold=0), gh.OptionError, "beam_threshold"),
    (lambda: speech.BeamDecoder(TOKENS, merge="mean"), gh.OptionError, "mean"),
    (lambda: speech.BeamDecoder(TOKENS, lexicon=["ax"]), gh.OptionError, "'ax'"),
    (lambda: speech.BeamDecoder(TOKENS).decode(np.zeros((3, 5))), gh.ShapeError, r"\(3, 5\)"),
    (lambda: speech.BeamDecoder(TOKENS).decode(np.zeros(3)), gh.ShapeError, r"\(3,\)"),
    (lambda: speech.BeamDecoder(TOKENS).decode(NAN), gh.ShapeError, "NaN in frame 1"),
    (lambda: speech.BeamDecoder(TOKENS).stream().best(0), gh.OptionError, "count"),
    (lambda: speech.rescore([], lambda t: [1.0]), gh.ShapeError, "log-probabilities"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()


def test_long_words_outside_of_the_lexicon_do_not_crowd_out_known_ones():
    rng = np.random.default_rng(1)
    letters = ["", " ", *"abcdefghijklmnopqrstuvwxyz"]
    words = ["".join(rng.choice(letters[2:], rng.integers(3, 8))) for _ in range(60)]
    texts = [" ".join(rng.choice(words, 6)) for _ in range(100)]
    decoder = speech.BeamDecoder(
        letters, speech.train_ngrams(texts, 2), lm_weight=0.7, word_score=1.0,
        beam_size=50, beam_threshold=10.0, unknown_score=-16.0,
    )  # fmt: skip
    errors = {"charged": CharErrorRate(), "free": CharErrorRate()}
    for meter in errors.values():
        for text in texts[:6]:
            meter.update(decoder.decode(noisy_scores(text, letters))[0].text, text)
        decoder.ahead[-OUTSIDE:] = decoder.ahead[-1]
    assert errors["charged"].value() < 0.7 * errors["free"].value()


def noisy_scores(text, letters):
    """Log-probabilities of a recogniser that often takes a letter for another."""
    rng = np.random.default_rng(len(text))
    path = [n for letter in text for n in [letters.index(letter)] + [0] * rng.integers(1, 3)]
    logits = rng.normal(size=(len(path), len(letters))) * 3.5
    logits[range(len(path)), path] += 9
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
