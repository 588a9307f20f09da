"""Beam search over a recogniser's scores, with lexicon and language model, in pieces or whole."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.metrics.metric import check_lengths, to_numbers
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.speech.lexicon import Alphabet, Lexicon
from glasshouse.speech.ngram import LanguageModel

__all__ = ["BeamDecoder", "BeamStream", "Hypothesis", "rescore"]

MIX = 0x1E3779B97F4A7C15  # odd, as 2⁶⁴ over the golden ratio: Knuth, TAOCP 3, sec. 6.4
START = 0x2545F4914F6CDD1D  # the hash of no tokens: far from all small numbers
NEVER = -1e30


def grown_hash(code: np.ndarray, token: np.ndarray) -> np.ndarray:
    """The hash of a sequence with a token more."""
    code = (code ^ (token + 1)) * MIX
    return code ^ (code >> 29)


@dataclass(frozen=True)
class Hypothesis:
    """A text, its score (the higher the better) and what that is made of.

    `score` is acoustic + language model with all weights; `tokens` stand without blanks, and
    `frames` says where each of them enters."""

    text: str
    score: float
    acoustic: float
    tokens: tuple[int, ...]
    frames: tuple[int, ...]


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
        self.alphabet = Alphabet(where, tokens, blank, boundary)
        self.beam_size = check_integer(where, "beam_size", beam_size, 1)
        self.token_limit = len(self.alphabet.tokens)
        if token_limit is not None:
            self.token_limit = check_integer(where, "token_limit", token_limit, 1)
        self.beam_threshold, self.token_threshold = beam_threshold, token_threshold
        self.model, self.lm_weight = language_model, lm_weight
        self.word_score, self.silence_score = word_score, silence_score
        self.unknown = max(unknown_score, NEVER)
        self.most = max(word_score, 0.0) + max(silence_score, 0.0)  # that a token can gain
        self.add: Any = np.logaddexp if merge == "sum" else np.maximum
        self.lexicon: Lexicon | None = None
        self.ahead = np.zeros(2)  # of nodes 0 and 1, where there is no lexicon
        own = getattr(language_model, "words", None)
        if boundary is not None and (lexicon is not None or own is not None):
            strict = lexicon is not None
            self.lexicon = Lexicon(
                lexicon if own is None or strict else own(), self.alphabet, strict
            )
            self.ahead = np.zeros(self.lexicon.nodes + 1)
            if hasattr(language_model, "no_context"):
                self.ahead = self.looked_ahead(self.lexicon, language_model)

    def looked_ahead(self, lexicon: Lexicon, model: Any) -> np.ndarray:
        """The gain of the best word below each node without a context; the last: an unknown one. An
        open word counts with it until it ends and is scored.

        Source: Steinbiss, Tran & Ney 1994, "Improvements in beam search"."""
        state = model.no_context()
        gains = {
            node: max(model.score(state, word)[1] for word in words)
            for node, words in lexicon.words.items()
        }
        best = lexicon.best_below(gains)
        ahead = np.append(best, model.score(state, "<unk>")[1])
        ahead = np.maximum(self.lm_weight * ahead, NEVER) + self.word_score
        ahead[0] = 0.0  # between words
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


class Beam:
    """Hypotheses side by side: rows of numbers, of whole numbers, and the language model's states.

    A hypothesis is a sequence of tokens, merged by a hash of 64 bits. `silent` and `spoken` are its
    log-probabilities, where its last frame is a blank or is not; `gain` is what language model and
    rewards add. `node` is where its last word is in the lexicon: 0 between words, -1 outside."""

    def __init__(self, numbers: np.ndarray, places: np.ndarray, state: np.ndarray) -> None:
        self.numbers, self.places, self.state = numbers, places, state
        self.silent, self.spoken, self.gain = numbers
        self.hash, self.last, self.node, self.entry = places

    def take(self, at: np.ndarray) -> "Beam":
        return Beam(self.numbers[:, at], self.places[:, at], self.state[at])

    def join(self, other: "Beam") -> "Beam":
        numbers = np.concatenate([self.numbers, other.numbers], axis=1)
        places = np.concatenate([self.places, other.places], axis=1)
        return Beam(numbers, places, np.concatenate([self.state, other.state]))


class BeamStream:
    """A search under way: `feed` it frames, look at the `best` so far, `finish` it; `prune` makes
    it forget what no hypothesis differs in.

    Example:
        >>> stream = BeamDecoder(["", "a", "b"], boundary=None).stream()
        >>> for frame in np.log([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]):
        ...     _ = stream.feed(frame[None])
        >>> stream.finish()[0].text
        'ab'
    """

    def __init__(self, decoder: BeamDecoder) -> None:
        self.decoder, self.frame = decoder, 0
        # (entry before, token, frame, word that the token ends) of each token of a hypothesis
        self.past: list[tuple[int, int, int, str]] = [(-1, -1, -1, "")]
        self.fixed: list[tuple[int, int, int, str]] = []  # what all hypotheses begin with
        self.memory: dict[Any, tuple[float, Any, str]] = {}  # of the language model's steps
        self.ended: dict[int, tuple[float, Any, str]] = {}  # if the word ends with this entry
        state = np.empty(1, object)
        state[0] = None if decoder.model is None else decoder.model.start()
        # a boundary in front of the first word changes nothing, so it counts as the last token
        places = np.array([[START], [decoder.alphabet.silence], [0], [0]])
        self.beam = Beam(np.array([[0.0], [NEVER], [0.0]]), places, state)

    def feed(self, log_probs: Any) -> "BeamStream":
        """Go on with the log-probabilities of more frames.

        Shapes: (T, tokens).
        Raises: ShapeError for another shape, or NaN with its frame.
        """
        x = to_numbers("BeamStream.feed", "log_probs", log_probs).astype(np.float64)
        d = self.decoder
        if x.ndim != 2 or x.shape[1] != len(d.alphabet.tokens):
            expected = f"log_probs (T, {len(d.alphabet.tokens)})"
            raise ShapeError("BeamStream.feed", expected, x.shape, "Pass a score of each token.")
        if np.isnan(x).any():
            got = f"NaN in frame {self.frame + int(np.isnan(x).any(1).argmax())}"
            raise ShapeError("BeamStream.feed", "log_probs without NaN", got, "Check the model.")
        if not len(x):
            return self
        x = np.maximum(x, NEVER)
        wanted = x >= np.minimum(d.token_threshold, x.max(1, keepdims=True))
        if d.token_limit < x.shape[1]:
            wanted &= x >= -np.partition(-x, d.token_limit - 1, axis=1)[:, d.token_limit - 1, None]
        # one column more, so that the last token of no tokens, -1, has a score too
        rows = np.pad(np.where(wanted, x, NEVER), ((0, 0), (0, 1)), constant_values=NEVER)
        wanted[:, d.alphabet.blank] = False
        breaks = (wanted & d.alphabet.breaks).any(1).tolist()
        for row, chosen, grows, ends in zip(rows, wanted, wanted.any(1).tolist(), breaks):
            if grows:
                self.step(row, chosen.nonzero()[0], ends)
            else:  # all hypotheses stay as they are
                beam = self.beam
                beam.silent[:] = d.add(beam.silent, beam.spoken) + row[d.alphabet.blank]
                beam.spoken[:] = NEVER
            self.frame += 1
        return self

    def step(self, row: np.ndarray, tokens: np.ndarray, breaks: bool) -> None:
        """One frame: each hypothesis stays, by a blank or its last token again, or grows; `breaks`
        says whether one of the tokens ends words."""
        d, beam, blank = self.decoder, self.beam, row[self.decoder.alphabet.blank]
        repeated = len(tokens) == 1 and (beam.last == tokens[0]).all()
        if repeated and max(blank, beam.silent.max()) <= NEVER:  # none grows
            beam.spoken += row[tokens[0]]
            return
        both = d.add(beam.silent, beam.spoken)
        repeats = beam.last[:, None] == tokens  # a token again needs a blank between
        scores = np.where(repeats, beam.silent[:, None], both[:, None]) + row[tokens]  # (B, K)
        if breaks:  # two boundaries are one
            scores[repeats & (tokens == d.alphabet.silence)] = NEVER
            beam.spoken[:] = np.where(beam.last == d.alphabet.silence, both, beam.spoken)
        beam.spoken += row[beam.last]
        beam.silent[:] = both + blank
        hashes = grown_hash(beam.hash[:, None], tokens)
        if len(both) > 1:
            self.merge(hashes, scores)
        level = d.add(beam.silent, beam.spoken) + beam.gain + d.ahead[beam.node]
        floor = max(level.max() - d.beam_threshold - d.most, NEVER / 2)
        rows, columns = (scores + beam.gain[:, None] > floor).nonzero()
        words: dict[int, str] = {}
        if len(rows):
            grown = beam.take(rows)
            grown.hash[:], grown.last[:] = hashes[rows, columns], tokens[columns]
            grown.silent[:], grown.spoken[:] = NEVER, scores[rows, columns]
            self.score(grown, words, breaks)
            beam = beam.join(grown)
            more = grown.spoken + grown.gain + d.ahead[grown.node]
            level = np.concatenate([level, more])
        self.select(beam, level, words)

    def merge(self, hashes: np.ndarray, scores: np.ndarray) -> None:
        """Give the paths that grow into a hypothesis that is in the beam already to that one."""
        beam = self.beam
        order = beam.hash.argsort()
        at = order[beam.hash.searchsorted(hashes, sorter=order) % len(order)]
        merged = beam.hash[at] == hashes
        if merged.any():
            self.decoder.add.at(beam.spoken, at[merged], scores[merged])
            scores[merged] = NEVER

    def score(self, grown: Beam, words: dict[int, str], breaks: bool) -> None:
        """Add what the last token of each hypothesis gains, and write the words that it ends."""
        d = self.decoder
        if d.alphabet.boundary is None:
            for i, (state, token) in enumerate(zip(grown.state, grown.last.tolist())):
                gain, grown.state[i], _ = self.gain_of(state, [d.alphabet.tokens[token]])
                grown.gain[i] += gain
            return
        before, ends = grown.node, False
        if breaks:
            ends, begin = grown.last == d.alphabet.silence, d.alphabet.breaks[grown.last]
            grown.gain += d.silence_score * ends
            for i in (begin & (grown.node != 0)).nonzero()[0].tolist():
                gain, grown.state[i], words[i] = self.word_gain(grown, i)
                grown.gain[i] += gain
            before = np.where(begin, 0, grown.node)
        after = 1 if d.lexicon is None else d.lexicon.follow(before, grown.last)
        after = np.where(ends, 0, after) if breaks else after
        if d.lexicon is not None and after.min() < 0:
            grown.gain += d.unknown * ((after < 0) & (before >= 0))
        grown.node[:] = after

    def word_gain(self, beam: Beam, i: int) -> tuple[float, Any, str]:
        """(what the open word of hypothesis i gains, the language model's state, the word)."""
        d, node, entry = self.decoder, int(beam.node[i]), int(beam.entry[i])
        if entry not in self.ended:
            words = d.lexicon.words.get(node) if d.lexicon is not None else None
            gain, state, word = self.gain_of(beam.state[i], words or [self.open_word(entry)])
            # those outside of the trie have it already
            stranger = d.lexicon is not None and words is None and node > 0
            self.ended[entry] = gain + (d.unknown if stranger else 0.0), state, word
        return self.ended[entry]

    def gain_of(self, state: Any, words: list[str]) -> tuple[float, Any, str]:
        """The best of words that are spelled alike."""
        key = state, *words
        if key not in self.memory:
            d, rows = self.decoder, []
            for word in words:
                after, log_p = (state, 0.0) if d.model is None else d.model.score(state, word)
                rows.append((max(d.lm_weight * log_p, NEVER) + d.word_score, after, word))
            self.memory[key] = max(rows, key=lambda row: row[0])
        return self.memory[key]

    def open_word(self, entry: int) -> str:
        """The tokens since the last word ended, joined."""
        d, parts = self.decoder, []
        while entry > 0:
            before, token, _, _ = self.past[entry]
            if token == d.alphabet.silence:
                break
            parts.append(d.alphabet.tokens[token])
            if d.alphabet.begins[token]:
                break
            entry = before
        text = "".join(reversed(parts))
        return text.removeprefix(d.alphabet.boundary) if d.alphabet.begins.any() else text

    def select(self, beam: Beam, level: np.ndarray, words: dict[int, str]) -> None:
        """The best of what stayed and of what has grown, by their levels, become the beam."""
        d, stayed = self.decoder, len(self.beam.last)
        top = level.max()
        kept = (level >= min(top, max(top - d.beam_threshold, NEVER / 2))).nonzero()[0]
        if len(kept) > d.beam_size:
            kept = kept[(-level[kept]).argpartition(d.beam_size)[: d.beam_size]]
            kept.sort()
        self.beam = beam.take(kept)
        first = int(kept.searchsorted(stayed))
        if first < len(kept):
            new, size = kept[first:], len(self.past)
            ended = [words.get(i, "") for i in (new - stayed).tolist()]
            entries, tokens = beam.entry[new].tolist(), beam.last[new].tolist()
            self.past.extend(zip(entries, tokens, repeat(self.frame), ended))
            self.beam.entry[first:] = np.arange(size, size + len(new))

    def path(self, entry: int) -> list[tuple[int, int, int, str]]:
        """The entries of a hypothesis that are not fixed, the first one first."""
        rows = []
        while entry > 0:
            rows.append(self.past[entry])
            entry = rows[-1][0]
        return rows[::-1]

    def best(self, count: int = 1, ends: bool = False) -> list[Hypothesis]:
        """The `count` best texts of the frames so far; scored as whole texts if `ends`."""
        d, beam = self.decoder, self.beam
        check_integer("BeamStream.best", "count", count, 1)
        gain, last = beam.gain.copy(), [""] * len(beam.gain)
        for i in range(len(gain)):
            state = beam.state[i]
            if d.alphabet.boundary is not None and beam.node[i] != 0:
                more, state, last[i] = self.word_gain(beam, i)
                gain[i] += more if ends else 0.0
            if ends and d.model is not None:
                gain[i] += d.lm_weight * d.model.finish(state)
        acoustic = d.add(beam.silent, beam.spoken)
        results: dict[str, Hypothesis] = {}
        for i in np.argsort(-(acoustic + gain), kind="stable").tolist():
            rows = self.fixed + self.path(int(beam.entry[i]))
            words = [row[3] for row in rows] + [last[i]]
            text = " ".join(word for word in words if word)
            if d.alphabet.boundary is None:
                text = "".join(d.alphabet.tokens[row[1]] for row in rows)
            tokens, frames = tuple(row[1] for row in rows), tuple(row[2] for row in rows)
            parts = float(acoustic[i] + gain[i]), float(acoustic[i]), tokens, frames
            results.setdefault(text, Hypothesis(text, *parts))
            if len(results) == count:
                break
        return list(results.values())

    def finish(self, best: int = 1) -> list[Hypothesis]:
        """The `best` texts, whose last word and end are scored too."""
        return self.best(best, ends=True)

    def prune(self) -> str:
        """Forget all but what hypotheses differ in; returns the words that are certain by now."""
        paths = [self.path(entry) for entry in self.beam.entry.tolist()]
        same = 0
        while all(len(p) > same and p[same][1:] == paths[0][same][1:] for p in paths):
            same += 1
        # the last word's tokens are read again when it ends
        d = self.decoder
        starts = [n for n in range(same) if paths[0][n][1] == d.alphabet.silence or paths[0][n][3]]
        same = same if d.alphabet.boundary is None else max(starts, default=0)
        self.fixed += paths[0][:same]
        numbers: dict[Any, int] = {}
        past = [self.past[0]]
        for i, path in enumerate(paths):
            entry = 0
            for row in path[same:]:
                key = entry, row[1:]
                if key not in numbers:
                    numbers[key] = len(past)
                    past.append((entry, *row[1:]))
                entry = numbers[key]
            self.beam.entry[i] = entry
        self.past = past
        self.memory.clear()
        self.ended.clear()
        if d.alphabet.boundary is None:
            return "".join(d.alphabet.tokens[row[1]] for row in self.fixed)
        return " ".join(row[3] for row in self.fixed if row[3])


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
