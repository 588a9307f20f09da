"""Beam search over a recogniser's scores, with lexicon and language model, in pieces or whole."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.metrics.metric import check_lengths, to_numbers
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.speech.beam import NEVER, BeamStream, Hypothesis, log_add
from glasshouse.speech.lexicon import OUTSIDE, Alphabet, Lexicon
from glasshouse.speech.ngram import LanguageModel

__all__ = ["BeamDecoder", "BeamStream", "Hypothesis", "rescore"]


class BeamDecoder:
    """The best texts for the log-probabilities of a CTC model: those with the highest
    ln p(tokens) + lm_weight · ln p_lm(words) + word_score · words + silence_score · boundaries
    + unknown_score · unknown words, where p(tokens) is summed over alignments ("max": the best).

    `tokens` has the text of each class, the blank's too. Words are spelled in them: they stand
    between tokens `boundary`, or begin with tokens that start with it, if they are pieces ("▁the").
    With boundary None the language model scores tokens in place of words. With a `lexicon`, words
    or {word: spellings}, only its words come out, or others at `unknown_score` each; without one
    the words are the language model's, if it lists them by `words()`, and free if it does not.

    A beam has at most `beam_size` texts, none worse than the best by `beam_threshold`; frames take
    the tokens above `token_threshold`, `token_limit` at most, and always the best one.

    Raises: OptionError for an option out of its range.
    Source: Hannun et al. 2014, arXiv:1408.2873, alg. 1; Collobert et al. 2016, arXiv:1609.03193.
    Example:
        >>> decoder = BeamDecoder(["", "a", "b"], boundary=None)
        >>> scores = np.log([[0.4, 0.6, 0.0001], [0.4, 0.6, 0.0001], [0.1, 0.1, 0.8]])
        >>> [h.text for h in decoder.decode(scores, best=2)]
        ['ab', 'a']
    """

    def __init__(
        self,
        tokens: Sequence[str],
        language_model: LanguageModel | None = None,
        lexicon: Any = None,
        *,
        blank: int = 0,
        boundary: str | None = " ",
        beam_size: int = 100,
        beam_threshold: float = 25.0,
        token_limit: int | None = None,
        token_threshold: float = -5.0,
        lm_weight: float = 1.0,
        word_score: float = 0.0,
        silence_score: float = 0.0,
        unknown_score: float = -math.inf,
        merge: str = "sum",
    ) -> None:
        where = "BeamDecoder"
        if not beam_threshold > 0:
            fix = "Use e.g. 25."
            raise OptionError(where, "beam_threshold above 0", repr(beam_threshold), fix)
        check_option(where, "merge", merge, ("sum", "max"))
        self.alphabet: Alphabet = Alphabet(where, tokens, blank, boundary)
        self.beam_size: int = check_integer(where, "beam_size", beam_size, 1)
        self.token_limit: int = len(self.alphabet.tokens)
        if token_limit is not None:
            self.token_limit = check_integer(where, "token_limit", token_limit, 1)
        self.beam_threshold = beam_threshold
        self.token_threshold = token_threshold
        self.model = language_model
        self.lm_weight = lm_weight
        self.word_score = word_score
        self.silence_score = silence_score
        self.unknown: float = max(unknown_score, NEVER)
        self.most: float = max(word_score, 0.0) + max(silence_score, 0.0)  # that a token can gain
        self.add: Any = np.logaddexp if merge == "sum" else np.maximum
        self.add_two: Any = log_add if merge == "sum" else max
        self.lexicon: Lexicon | None = None
        self.ahead: np.ndarray = np.zeros(2)  # of nodes 0 and 1, where there is no lexicon
        own = getattr(language_model, "words", None)
        if boundary is not None and (lexicon is not None or own is not None):
            strict = lexicon is not None
            self.lexicon = Lexicon(
                lexicon if own is None or strict else own(), self.alphabet, strict
            )
            self.ahead = self.looked_ahead(self.lexicon, language_model)

    def looked_ahead(self, lexicon: Lexicon, model: Any) -> np.ndarray:
        """The gain that an open word counts with at each node until it ends and is scored: of the
        best word below, without a context. A word outside counts as an unknown one that all
        spellings share: each token more takes one of as many as there are.

        Source: Steinbiss, Tran & Ney 1994, "Improvements in beam search"."""
        ahead = np.zeros(lexicon.nodes + OUTSIDE)
        spelling = np.arange(OUTSIDE, 0, -1) * math.log(len(self.alphabet.tokens))
        if hasattr(model, "no_context"):
            state = model.no_context()
            gains = {
                node: max(model.score(state, word)[1] for word in words)
                for node, words in lexicon.words.items()
            }
            ahead[: lexicon.nodes] = lexicon.best_below(gains)
            ahead[lexicon.nodes :] = model.score(state, "<unk>")[1]
            ahead = np.maximum(self.lm_weight * ahead, NEVER) + self.word_score
            ahead[0] = 0.0  # between words
        ahead[lexicon.nodes :] -= spelling
        return ahead

    def stream(self) -> "BeamStream":
        """Return a search that is fed frames in pieces."""
        return BeamStream(self)

    def decode(self, log_probs: Any, lengths: Any = None, best: int = 1) -> list[Any]:
        """The `best` texts of one recording, the best first; of a batch, such a list for each.

        Shapes: log_probs (T, tokens) or (N, T, tokens), lengths (N,) -> lists of Hypothesis.
        Raises: ShapeError for other shapes or NaN.
        """
        x = to_numbers("BeamDecoder.decode", "log_probs", log_probs)
        if x.ndim == 2:
            stream = self.stream()
            stream.feed(x)
            return stream.finish(best)
        if x.ndim != 3:
            expected = (
                f"log_probs (T, {len(self.alphabet.tokens)}) or (N, T, {len(self.alphabet.tokens)})"
            )
            raise ShapeError("BeamDecoder.decode", expected, x.shape, "Time comes before tokens.")
        sizes = np.full(len(x), x.shape[1])
        if lengths is not None:
            sizes = to_numbers("BeamDecoder.decode", "lengths", lengths)
            check_lengths("BeamDecoder.decode", rows=x[:, 0, 0], lengths=sizes)
        return [self.decode(row[:size], best=best) for row, size in zip(x, sizes.tolist())]


def rescore(
    hypotheses: Sequence[Hypothesis],
    log_prob: Callable[[list[str]], Any],
    weight: float = 1.0,
    word_score: float = 0.0,
) -> list[Hypothesis]:
    """Hypotheses in a new order: score + weight · log_prob(texts) + word_score · words, where
    `log_prob` gives ln p of each text of a list, by any language model.

    Raises: ShapeError unless it gives a number for each text.
    Source: standard (rescoring of n best).
    Example:
        >>> rows = [Hypothesis("a b", -1.0, -1.0, (), ()), Hypothesis("a c", -2.0, -2.0, (), ())]
        >>> [h.text for h in rescore(rows, lambda texts: [-5.0, -1.0])]
        ['a c', 'a b']
    """
    texts = [h.text for h in hypotheses]
    more = to_numbers("rescore", "log-probabilities", log_prob(texts))
    if more.shape != (len(texts),):
        expected = f"log-probabilities ({len(texts)},)"
        raise ShapeError("rescore", expected, more.shape, "Return one for each text.")
    totals = [
        h.score + weight * float(log_p) + word_score * len(h.text.split())
        for h, log_p in zip(hypotheses, more)
    ]
    order = sorted(range(len(texts)), key=lambda i: -totals[i])
    return [replace(hypotheses[i], score=totals[i]) for i in order]
