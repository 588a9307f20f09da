"""Forced alignment against all paths, one by one."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech

TOKENS = ["", " ", "a", "b"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("text", ["a", "ab", "aa", "b a", ""])
def test_segments_are_those_of_the_best_path(seed, text):
    x = np.random.default_rng(seed).normal(size=(5, 4))
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    numbers = [TOKENS.index(c) for c in text]
    paths = [
        path
        for path in itertools.product(range(4), repeat=5)
        if [t for t, _ in itertools.groupby(path) if t] == numbers
    ]
    best = max(paths, key=lambda path: sum(row[t] for row, t in zip(x, path)))
    runs, at = [], 0
    for token, group in itertools.groupby(best):
        size = len(list(group))
        if token:
            mean = np.exp(x[at : at + size, token]).mean()
            runs.append(speech.TimedText(TOKENS[token], at, at + size, pytest.approx(mean)))
        at += size
    assert speech.align_text(x, numbers, TOKENS) == runs


def test_words_are_joined():
    x = np.full((9, 4), -6.0)
    x[range(9), [0, 2, 3, 3, 1, 0, 2, 0, 1]] = -0.1
    words = speech.align_text(x, [2, 3, 1, 2, 1], TOKENS, boundary=" ")
    assert [(w.text, w.start, w.end) for w in words] == [("ab", 1, 4), ("a", 6, 7)]
    assert words[0].probability == pytest.approx(np.exp(-0.1))


def test_too_few_frames_are_named():
    with pytest.raises(gh.OptionError, match="frames enough for 2 tokens; got 2"):
        speech.align_text(np.zeros((2, 4)), [2, 2], TOKENS)
