"""From scores of the next token to a token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.ops.checks import check_integer, check_range

__all__ = ["TokenSampler", "allowed_scores", "check_scores"]


@dataclass(frozen=True)
class TokenSampler:
    """How a token is chosen. With temperature 0 it is the likeliest one; otherwise it is drawn from
    softmax(scores / temperature) after three filters, in this order: `top_k` keeps the k likeliest
    tokens, `top_p` the fewest likeliest ones whose probabilities sum to at least that value, and
    `min_p` those with at least that fraction of the highest probability. Before that, scores of
    tokens in the text are divided by `repetition_penalty` if positive, else multiplied by it.

    Raises: OptionError for values outside their ranges.
    Source: Fan et al. 2018, arXiv:1805.04833 (top_k); Holtzman et al. 2019, arXiv:1904.09751
        (top_p); Nguyen et al. 2024, arXiv:2407.01082 (min_p); Keskar et al. 2019,
        arXiv:1909.05858 (repetition_penalty).
    Example:
        >>> TokenSampler(1.0, top_k=2).probabilities([0.0, 0.0, -1.0], [])
        array([0.5, 0.5, 0. ])
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        where = "TokenSampler"
        check_range(where, "temperature", self.temperature, 0.0, 1e6)
        check_range(where, "top_p", self.top_p, 0.0, 1.0)
        check_range(where, "min_p", self.min_p, 0.0, 1.0)
        check_range(where, "repetition_penalty", self.repetition_penalty, 1e-6, 1e6)
        if self.top_k is not None:
            check_integer(where, "top_k", self.top_k, 1)

    def penalized(self, scores: Any, before: Sequence[int]) -> np.ndarray:
        """The scores with those of tokens that the text has made smaller."""
        x = np.array(scores, np.float64)
        if self.repetition_penalty != 1.0 and len(before):
            tokens = np.unique(np.asarray(before))
            factor = self.repetition_penalty
            x[tokens] = np.where(x[tokens] > 0, x[tokens] / factor, x[tokens] * factor)
        return x

    def probabilities(self, scores: Any, before: Sequence[int]) -> np.ndarray:
        """The probability of each token, in float64.

        Shapes: scores (V,) -> (V,).
        """
        x = self.penalized(scores, before)
        x = (x - x.max()) / self.temperature
        if self.top_k is not None and self.top_k < x.size:
            least = np.partition(x, -self.top_k)[-self.top_k]
            x[x < least] = -math.inf
        p = np.exp(x)
        p /= p.sum()
        if self.top_p < 1.0:
            kept = np.flatnonzero(p)
            order = kept[np.argsort(-p[kept], kind="stable")]
            likelier = np.cumsum(p[order]) - p[order]
            p[order[1:][likelier[1:] >= self.top_p]] = 0.0
        p[p < self.min_p * p.max()] = 0.0
        return p / p.sum()

    def choose(self, scores: np.ndarray, before: Sequence[int], rng: Any) -> int:
        """A token.

        Raises: OptionError for scores that are not numbers.
        """
        check_scores(scores)
        if self.temperature == 0.0:
            x = scores if self.repetition_penalty == 1.0 else self.penalized(scores, before)
            return int(x.argmax())
        total = np.cumsum(self.probabilities(scores, before))
        # The last step is at a token of positive probability, wherever rounding puts the total.
        return int(np.searchsorted(total, rng.random() * total[-1], side="right"))


def allowed_scores(scores: np.ndarray, mask: Any) -> np.ndarray:
    """The scores of tokens that a mask allows, -∞ for others and those beyond its end."""
    if mask is None:
        return scores
    result = np.full_like(scores, -math.inf)
    places = np.flatnonzero(np.asarray(mask, bool)[: scores.size])
    result[places] = scores[places]
    return result


def check_scores(scores: np.ndarray) -> None:
    """Check that the largest score is finite, and that none is NaN."""
    top = scores.max()
    if not np.isfinite(top):
        bad = int(np.flatnonzero(~(scores < math.inf))[0]) if top != -math.inf else 0
        got = f"{scores[bad]} for token {bad}"
        fix = "Look for NaN or infinity in the weights, or for a mask that allows no token."
        raise OptionError("generate", "scores of the next token that are numbers", got, fix)
