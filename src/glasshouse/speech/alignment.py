"""Which frames say which token, where the text is known: forced alignment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.nn.checks import check_floating
from glasshouse.nn.functional import ctc_align

__all__ = ["TimedText", "align_text"]


@dataclass(frozen=True)
class TimedText:
    """A token, or a word, its frames from `start` to before `end`, and its mean probability."""

    text: str
    start: int
    end: int
    probability: float


def align_text(
    log_probs: Any,
    numbers: Sequence[int],
    tokens: Sequence[str],
    blank: int = 0,
    boundary: str | None = None,
) -> list[TimedText]:
    """The frames of each token of a text on the likeliest path of CTC that reads as it; with a
    `boundary` those of each word between such tokens.

    Shapes: log_probs (T, tokens) -> a segment for each of `numbers`, or each word.
    Raises: as `ctc_align`; OptionError if no path reads as the text, as there are too few frames.
    Source: Graves et al. 2006, sec. 4; Viterbi 1967.
    Example:
        >>> scores = np.log([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.1, 0.1, 0.8]])
        >>> [(s.text, s.start, s.end) for s in align_text(scores, [1, 2], ["", "a", "b"])]
        [('a', 0, 1), ('b', 2, 4)]
    """
    x = check_floating("align_text", log_probs, "log_probs")
    path, score = ctc_align(x, np.asarray(numbers, np.int64), [x.shape[0]], [len(numbers)], blank)
    if not math.isfinite(score.item()):
        expected = f"frames enough for {len(numbers)} tokens"
        raise OptionError("align_text", expected, x.shape[0], "Shorten the text.")
    labels, rows = path.numpy(), np.exp(x.detach().numpy())
    starts = np.flatnonzero((labels != blank) & (labels != np.append(blank, labels[:-1])))
    segments = []
    for start in starts.tolist():
        end = start + 1
        while end < len(labels) and labels[end] == labels[start]:
            end += 1
        token = int(labels[start])
        segments.append(TimedText(tokens[token], start, end, float(rows[start:end, token].mean())))
    return segments if boundary is None else words_of(segments, boundary)


def words_of(segments: list[TimedText], boundary: str) -> list[TimedText]:
    words: list[list[TimedText]] = [[]]
    for segment in segments:
        if segment.text == boundary:
            words.append([])
        else:
            words[-1].append(segment)
    return [
        TimedText(
            "".join(s.text for s in word),
            word[0].start,
            word[-1].end,
            sum(s.probability * (s.end - s.start) for s in word)
            / sum(s.end - s.start for s in word),
        )
        for word in words
        if word
    ]
