"""Metrics of text: error rates of words and characters, perplexity, BLEU."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.base import DTypeError, IndexOutOfRangeError, OptionError, ShapeError, type_name
from glasshouse.metrics.edit_distance import EditDistance
from glasshouse.metrics.metric import Metric, to_labels, to_numbers
from glasshouse.ops.checks import check_integer, check_option, check_several

LARGEST = math.log(sys.float_info.max)


def checked_text(where: str, **texts: Any) -> None:
    for name, text in texts.items():
        if not isinstance(text, str):
            raise DTypeError(where, f"{name} to be a string", type_name(text), "Decode it.")


def pairs_of(where: str, predicted: Any, targets: Any) -> list[tuple[Any, ...]]:
    """(predicted text, target) of one of each, or of a list of each."""
    if isinstance(predicted, str):
        return [(predicted, targets)]
    fix = "Pass a string and its target, or a list of each."
    predicted = check_several(where, predicted, "a predicted text, or a list", fix)
    if isinstance(targets, str):
        raise DTypeError(where, "a list of targets for a list of texts", "str", fix)
    targets = check_several(where, targets, "a list of targets", fix)
    if len(predicted) != len(targets):
        got = f"{len(targets)} for {len(predicted)}"
        raise ShapeError(where, "a target for each predicted text", got, fix)
    return list(zip(predicted, targets, strict=True))


def text_pairs(
    where: str, predicted: Any, targets: Sequence[str] | str | None
) -> list[tuple[Any, ...]]:
    """`pairs_of` whose targets are texts."""
    pairs = pairs_of(where, predicted, targets)
    for predicted, target in pairs:
        checked_text(where, predicted=predicted, target=target)
    return pairs


class WordErrorRate(EditDistance):
    """Edits of words for each word of the targets.

    Example:
        >>> errors = WordErrorRate()
        >>> errors.update("the cat sat", "the black cat sat")
        >>> errors.value()
        0.25
    """

    def update(self, predicted: Sequence[str] | str, target: Sequence[str] | str) -> None:
        """Compare the words of a predicted text with those of its target; or of lists of them.

        Raises: DTypeError unless all are strings, ShapeError for lists of different lengths.
        """
        for text, reference in text_pairs("WordErrorRate.update", predicted, target):
            super().update(text.split(), reference.split())


class CharErrorRate(EditDistance):
    """Edits of characters, spaces included, for each character of the targets."""

    def update(self, predicted: Sequence[str] | str, target: Sequence[str] | str) -> None:
        """Compare the characters of a predicted text with those of its target; or of lists of them.

        Raises: DTypeError unless all are strings, ShapeError for lists of different lengths.
        """
        for text, reference in text_pairs("CharErrorRate.update", predicted, target):
            super().update(text, reference)


class Perplexity(Metric):
    """exp(-mean of the targets' log-probabilities).

    Source: Jelinek et al. 1977.
    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update([[0.0, 0.0], [0.0, 0.0]], [0, 1])
        >>> round(perplexity.value(), 6)
        2.0
    """

    gathered: dict[Any, Any] = {"surprise": 0.0, "tokens": 0}

    def __init__(self, ignore_index: int | None = None) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def update(self, scores: Any, targets: Any) -> None:
        """Take in scores (..., C), as logits or log-probabilities, and the true classes (...).

        Raises: ShapeError, DTypeError; IndexOutOfRangeError for a class outside [0, C).
        """
        where = "Perplexity.update"
        targets = to_labels(where, "targets", targets)
        scores = to_numbers(where, "scores", scores).astype(np.float64)
        if scores.shape[:-1] != targets.shape or not scores.ndim:
            got = f"{scores.shape} and {targets.shape}"
            raise ShapeError(where, "scores (..., C) and targets (...)", got, "Reshape them.")
        counts = targets != self.ignore_index
        scores, targets = scores[counts], targets[counts]
        outside = targets[(targets < 0) | (targets >= scores.shape[-1])]
        if outside.size:
            expected = f"classes from 0 to {scores.shape[-1] - 1}"
            raise IndexOutOfRangeError(where, expected, outside[0], "Set ignore_index.")
        top = scores.max(axis=-1, keepdims=True)
        total = np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0]
        target_scores = np.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
        self.surprise += float((total - target_scores).sum())
        self.tokens += targets.size

    def value(self) -> float:
        """The perplexity, 1 or more; nan before the first update."""
        if not self.tokens:
            return math.nan
        mean = self.surprise / self.tokens
        return math.exp(mean) if mean < LARGEST else math.inf


class BitsPerCharacter(Perplexity):
    """Bits that a model needs for each character of a text: -log₂ of the targets' probabilities,
    divided by the number of characters.

    Source: Shannon 1951, Prediction and entropy of printed English.
    Example:
        >>> bits = BitsPerCharacter()
        >>> bits.update([[0.0, 0.0], [0.0, 0.0]], [0, 1], characters=4)
        >>> round(bits.value(), 6)
        0.5
    """

    gathered: dict[Any, Any] = {**Perplexity.gathered, "characters": 0}

    def update(self, scores: Any, targets: Any, characters: int | None = None) -> None:
        """Take in scores and true tokens as Perplexity does, and the number of characters that the
        tokens stand for; without it each token is one.

        Raises: as Perplexity's; OptionError for a number below 0.
        """
        where = "BitsPerCharacter.update"
        count = None if characters is None else check_integer(where, "characters", characters)
        tokens = self.tokens
        super().update(scores, targets)
        self.characters += self.tokens - tokens if count is None else count

    def value(self) -> float:
        """The bits for each character; nan before the first one."""
        return self.surprise / math.log(2) / self.characters if self.characters else math.nan


class BLEU(Metric):
    """Corpus BLEU, 0 to 100, as sacrebleu has it, which has to be installed: n-grams up to 4 are
    counted with each update, and only the counts are kept.

    Raises: OptionError if sacrebleu is missing or does not know an option.
    Source: Papineni et al. 2002; Post 2018, arXiv:1804.08771.
    Example:
        >>> bleu = BLEU()  # doctest: +SKIP
        >>> bleu.update("the cat sat", ["the cat sat down"])  # doctest: +SKIP
    """

    gathered: dict[Any, Any] = {
        "counts": np.zeros(4, np.int64),
        "totals": np.zeros(4, np.int64),
        "predicted_length": 0,
        "target_length": 0,
    }

    def __init__(self, tokenize: str | None = None, lowercase: bool = False) -> None:
        try:
            from sacrebleu.metrics import BLEU as scorer
        except ImportError:
            fix = "Install it: pip install sacrebleu."
            raise OptionError("BLEU", "sacrebleu to be installed", "none", fix) from None
        if tokenize is not None:
            check_option("BLEU", "tokenize", tokenize, scorer.TOKENIZERS)
        options: dict[str, Any] = {} if tokenize is None else {"tokenize": tokenize}
        self.scorer: Any = scorer(lowercase=lowercase, **options)
        super().__init__()

    def update(self, predicted: Any, targets: Any) -> None:
        """Count the n-grams of a predicted text that occur in a target, or in one of several; of a
        list of texts each has its target, or its several.

        Raises: DTypeError unless all are strings, ShapeError for lists of different lengths.
        """
        for text, references in [
            checked_pair(*pair) for pair in pairs_of("BLEU.update", predicted, targets)
        ]:
            score = self.scorer.corpus_score([text], [[target] for target in references])
            self.counts: np.ndarray = self.counts + np.asarray(score.counts)
            self.totals: np.ndarray = self.totals + np.asarray(score.totals)
            self.predicted_length += score.sys_len
            self.target_length += score.ref_len

    def value(self) -> float:
        """The score of all texts; nan before the first update."""
        if not self.target_length:
            return math.nan
        lengths = self.predicted_length, self.target_length
        statistics = self.counts.tolist(), self.totals.tolist(), *lengths
        method = self.scorer.smooth_method
        return self.scorer.compute_bleu(*statistics, smooth_method=method).score


def checked_pair(predicted: str, targets: list[str] | str) -> tuple[str, list[Any]]:
    """A predicted text and all that it may be, for BLEU."""
    targets = [targets] if isinstance(targets, str) else targets
    fix = "Pass a string, or a list of them."
    targets = check_several("BLEU.update", targets, "target texts", fix)
    if not targets:
        raise ShapeError("BLEU.update", "at least one target", "none", fix)
    named = {f"target {i}": text for i, text in enumerate(targets)}
    checked_text("BLEU.update", predicted=predicted, **named)
    return predicted, targets
