"""N-grams against KenLM on the same files, against the formulas of their smoothing; bad files."""

import gzip
import math
import random

import pytest

import glasshouse as gh
from glasshouse import speech

WORDS = "the a cat dog bird sat ran saw on near mat tree".split()


def texts(count=200, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def model(request):
    return speech.train_ngrams(texts(), order=request.param)


def test_probabilities_of_each_context_add_up_to_one(model):
    vocabulary = [*model.words(), "</s>", "<unk>"]
    for text in ["", "the", "the cat", "cat zebra", *texts(20, seed=1)]:
        state = model.start()
        for word in text.split():
            state, _ = model.score(state, word)
        total = math.fsum(math.exp(model.score(state, word)[1]) for word in vocabulary)
        assert total == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("ending", ["arpa", "arpa.gz"])
def test_a_file_gives_the_model_back(model, tmp_path, ending):
    path = tmp_path / f"model.{ending}"
    model.save_arpa(path)
    again = speech.load_language_model(path)
    for text in texts(20, seed=2):
        assert again.score_text(text) == pytest.approx(model.score_text(text), abs=1e-4)


def test_scores_equal_those_of_kenlm(model, tmp_path):
    kenlm = pytest.importorskip("kenlm")
    if model.order == 1:
        pytest.skip("KenLM reads orders from 2")
    path = tmp_path / "model.arpa"
    model.save_arpa(path)
    other, ours = kenlm.Model(str(path)), speech.NGramModel.from_arpa(path)
    through = speech.KenLM(path)
    for text in [*texts(100, seed=3), "zebra", "the zebra cat sat", ""]:
        for ends in (True, False):
            expected = other.score(text, bos=True, eos=ends) * math.log(10)
            assert ours.score_text(text, ends) == pytest.approx(expected, abs=1e-4)
        state, total = through.start(), 0.0
        for word in text.split():
            state, gain = through.score(state, word)
            total += gain
        total += through.finish(state)
        assert total == pytest.approx(ours.score_text(text), abs=1e-4)


def test_a_pruned_model_backs_off_as_kenlm_does(tmp_path):
    kenlm = pytest.importorskip("kenlm")
    model = speech.train_ngrams(texts(), order=4)
    draw = random.Random(0)
    contexts = {gram[:n] for gram in model.probabilities for n in range(1, len(gram))}
    kept = {
        gram: p
        for gram, p in model.probabilities.items()
        if len(gram) == 1 or gram in contexts or draw.random() < 0.5
    }
    path = tmp_path / "pruned.arpa"
    backoffs = {gram: b for gram, b in model.backoffs.items() if gram in kept}
    speech.NGramModel(kept, backoffs).save_arpa(path)
    other, ours = kenlm.Model(str(path)), speech.NGramModel.from_arpa(path)
    for text in texts(100, seed=4):
        expected = other.score(text) * math.log(10)
        assert ours.score_text(text) == pytest.approx(expected, abs=1e-4)


def test_bigrams_follow_the_formula():
    """Counts a b 1, a c 1, <s> a 2, b </s> 1, c </s> 1: fallback discounts, as counts are few."""
    model = speech.train_ngrams(["a b", "a c"], order=2)
    # words before: a 1 (<s>), b 1, c 1, </s> 2 (b, c); five in all, three once and one twice
    total, left = 5, (3 * 0.5 + 1 * 1.0) / 5
    b = (1 - 0.5) / total + left / 5
    state, _ = model.score(model.start(), "a")
    expected = (1 - 0.5) / 2 + (2 * 0.5) / 2 * b
    assert math.exp(model.score(state, "b")[1]) == pytest.approx(expected)
    assert math.exp(model.score(0, "zebra")[1]) == pytest.approx(left / 5)


def test_longer_contexts_predict_better():
    rows = ["the cat sat on the mat"] * 50 + texts(50)
    perplexities = [speech.train_ngrams(rows, order=n).perplexity(rows) for n in (1, 2, 3)]
    assert perplexities == sorted(perplexities, reverse=True)
    assert math.isnan(speech.train_ngrams(rows).perplexity([]))


ONE_WORD = "\\1-grams:\n-1 <s> -0.5\n-1 a -0.5\n-1 b\n\n"
GOOD = "\\data\\\nngram 1=3\nngram 2=1\n\n" + ONE_WORD + "\\2-grams:\n-1 a b\n\n\\end\\\n"
BROKEN = {
    "cut off": (GOOD[: GOOD.index("-1 a b")], "cut off"),
    "a count": (GOOD.replace("1=3", "1=4"), "{1: 4, 2: 1} n-grams"),
    "no number": (GOOD.replace("-1 b", "x b"), "line 8"),
    "too many parts": (GOOD.replace("-1 a b", "-1 a b 0 0"), "line 11"),
    "too few parts": (GOOD.replace("-1 a b", "-1 a"), "line 11"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("packed", [False, True])
def test_broken_files_are_named_with_their_line(tmp_path, name, packed):
    text, message = BROKEN[name]
    path = tmp_path / ("m.arpa.gz" if packed else "m.arpa")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(gh.CheckpointError, match=message):
        speech.NGramModel.from_arpa(path)


BAD = [
    (lambda: speech.train_ngrams([], 2), gh.OptionError, "texts with words"),
    (lambda: speech.train_ngrams(["a"], 0), gh.OptionError, "order"),
    (lambda: speech.train_ngrams([3], 1), gh.DTypeError, "int"),
    (lambda: speech.NGramModel({}, {}), gh.OptionError, "one word"),
    (lambda: speech.NGramModel({("a",): -1.0, ("b", "a"): -1.0}, {}), gh.OptionError, "'b a'"),
    (lambda: speech.load_language_model("no.arpa"), gh.CheckpointError, "no.arpa"),
    (lambda: speech.load_language_model("no.bin"), gh.CheckpointError, "no.bin"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()
