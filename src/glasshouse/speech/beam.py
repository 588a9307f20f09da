"""A beam search under way: hypotheses side by side, and how each frame changes them."""

import math
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from glasshouse.base.errors import ShapeError
from glasshouse.metrics.metric import to_numbers
from glasshouse.ops.checks import check_integer

__all__ = ["BeamStream", "Hypothesis"]

MIX = 0x1E3779B97F4A7C15  # odd, as 2⁶⁴ over the golden ratio: Knuth, TAOCP 3, sec. 6.4
START = 0x2545F4914F6CDD1D  # the hash of no tokens: far from all small numbers
NEVER = -1e30
FEW = 24  # hypotheses times tokens: with more, arrays are faster


def grown_hash(code: np.ndarray, token: np.ndarray) -> np.ndarray:
    """The hash of a sequence with a token more."""
    code = (code ^ (token + 1)) * MIX
    return code ^ (code >> 29)


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@dataclass(frozen=True)
class Hypothesis:
    """A text, its score (the higher the better) and the parts of the score.

    `score` is acoustic + language model with all weights; `tokens` have no blanks, and `frames`
    says where each of them enters."""

    text: str
    score: float
    acoustic: float
    tokens: tuple[int, ...]
    frames: tuple[int, ...]


class Beam:
    """Hypotheses side by side: rows of floats, of integers, and the language model's states.

    A hypothesis is a sequence of tokens, merged by a hash of 64 bits. `silent` and `spoken` are its
    log-probabilities if its last frame is a blank or not; `gain` adds up language model and
    rewards. `node` is where its last word is in the lexicon: 0 between words, < 0 outside."""

    silent: Any
    spoken: Any
    gain: Any
    hash: Any
    last: Any
    node: Any
    entry: Any

    def __init__(self, numbers: np.ndarray, places: np.ndarray, state: np.ndarray) -> None:
        self.numbers = numbers
        self.places = places
        self.state = state
        self.silent, self.spoken, self.gain = numbers
        self.hash, self.last, self.node, self.entry = places

    def take(self, at: np.ndarray) -> "Beam":
        return Beam(self.numbers[:, at], self.places[:, at], self.state[at])

    def join(self, other: "Beam") -> "Beam":
        numbers = np.concatenate([self.numbers, other.numbers], axis=1)
        places = np.concatenate([self.places, other.places], axis=1)
        return Beam(numbers, places, np.concatenate([self.state, other.state]))


class BeamStream:
    """A search under way: `feed` it frames, look at the `best` so far, `finish` it; `prune` drops
    the past that all hypotheses share.

    Example:
        >>> stream = gh.speech.BeamDecoder(["", "a", "b"], boundary=None).stream()
        >>> for frame in np.log([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]):
        ...     _ = stream.feed(frame[None])
        >>> stream.finish()[0].text
        'ab'
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.frame: int = 0
        self.few = FEW
        # (entry before, token, frame, word that the token ends) of each token of a hypothesis
        self.past: list[tuple[int, int, int, str]] = [(-1, -1, -1, "")]
        self.fixed: list[tuple[int, int, int, str]] = []  # the past that all hypotheses share
        self.memory: dict[Any, tuple[float, Any, str]] = {}  # of the language model's steps
        self.ended: dict[int, tuple[float, Any, str]] = {}  # if the word ends with this entry
        state = np.empty(1, object)
        state[0] = None if decoder.model is None else decoder.model.start()
        # a boundary in front of the first word changes nothing, so it counts as the last token
        places = np.array([[START], [decoder.alphabet.silence], [0], [0]])
        self.beam: Beam = Beam(np.array([[0.0], [NEVER], [0.0]]), places, state)

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
                tokens = chosen.nonzero()[0]
                if len(tokens) * len(self.beam.last) <= self.few:
                    self.step_few(row.tolist(), tokens)
                else:
                    self.step(row, tokens, ends)
            else:  # all hypotheses stay as they are
                beam = self.beam
                beam.silent[:] = d.add(beam.silent, beam.spoken) + row[d.alphabet.blank]
                beam.spoken[:] = NEVER
            self.frame += 1
        return self

    def step_few(self, row: list[float], tokens: np.ndarray) -> None:
        """`step`, one hypothesis after the other: the clear twin, and faster where they are few."""
        d, alphabet, beam = self.decoder, self.decoder.alphabet, self.beam
        add, silence, blank = d.add_two, alphabet.silence, row[alphabet.blank]
        before = list(zip(beam.numbers.T.tolist(), beam.places.T.tolist(), beam.state))
        after: dict[int, Any] = {}  # by hash: numbers, places, state, ended word
        for (silent, spoken, gain), places, state in before:
            both = add(silent, spoken)
            repeated = both if places[1] == silence else spoken  # two boundaries are one
            numbers = [both + blank, repeated + row[places[1]], gain]
            after[places[0]] = numbers, places, state, None
        hashes = grown_hash(beam.hash[:, None], tokens).tolist()
        named = tokens.tolist()
        for ((silent, spoken, gain), (_, last, node, entry), state), codes in zip(before, hashes):
            both = add(silent, spoken)
            for token, code in zip(named, codes):
                score = (silent if token == last else both) + row[token]
                if score <= NEVER / 2 or token == last == silence:
                    continue
                if code in after:
                    after[code][0][1] = add(after[code][0][1], score)
                else:
                    more, *rest = self.gain_of_token(node, state, entry, token)
                    numbers = [NEVER, score, gain + more]
                    after[code] = numbers, [code, token, rest[1], entry], rest[0], rest[2]
        levels = [
            add(silent, spoken) + gain + d.ahead.item(places[2])
            for (silent, spoken, gain), places, _, _ in after.values()
        ]
        top = max(levels)
        floor = min(top, max(top - d.beam_threshold, NEVER / 2))
        rows = [row for row, level in zip(after.values(), levels) if level >= floor]
        if len(rows) > d.beam_size:
            order = sorted(zip(levels, after.values()), key=lambda pair: -pair[0])
            rows = [row for _, row in order[: d.beam_size]]
        for _, places, _, word in rows:
            if word is not None:
                self.past.append((places[3], places[1], self.frame, word))
                places[3] = len(self.past) - 1
        states = np.empty(len(rows), object)
        for i, hypothesis in enumerate(rows):
            states[i] = hypothesis[2]
        self.beam = Beam(
            np.array([row[0] for row in rows]).T.copy(),
            np.array([row[1] for row in rows]).T.copy(),
            states,
        )

    def gain_of_token(
        self, node: int, state: Any, entry: int, token: int
    ) -> tuple[float, Any, int, str]:
        """(the gain of one more token, the state and the node after it, the word that it ends)."""
        d, alphabet, gain, word = self.decoder, self.decoder.alphabet, 0.0, ""
        if alphabet.boundary is None:
            gain, state, _ = self.gain_of(state, [alphabet.tokens[token]])
            return gain, state, node, word
        if alphabet.breaks[token]:
            if node != 0:
                gain, state, word = self.word_gain(node, state, entry)
            node = 0
        if token == alphabet.silence:
            return gain + d.silence_score, state, 0, word
        if d.lexicon is None:
            return gain, state, 1, word
        child = d.lexicon.step(node, token)
        return gain + (d.unknown if child < 0 <= node else 0.0), state, child, word

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
        """Add the gain of the last token of each hypothesis, and write the words that it ends."""
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
                gain, grown.state[i], words[i] = self.word_gain(
                    int(grown.node[i]), grown.state[i], int(grown.entry[i])
                )
                grown.gain[i] += gain
            before = np.where(begin, 0, grown.node)
        after: Any = 1 if d.lexicon is None else d.lexicon.follow(before, grown.last)
        after = np.where(ends, 0, after) if breaks else after
        if d.lexicon is not None and after.min() < 0:
            grown.gain += d.unknown * ((after < 0) & (before >= 0))
        grown.node[:] = after

    def word_gain(self, node: int, state: Any, entry: int) -> tuple[float, Any, str]:
        """(the gain of a hypothesis's open word, the language model's state, the word)."""
        d = self.decoder
        if entry not in self.ended:
            words = d.lexicon.words.get(node) if d.lexicon is not None else None
            gain, state, word = self.gain_of(state, words or [self.open_word(entry)])
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
        """Make the beam of the best hypotheses, unchanged and extended, by their levels."""
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
                place = int(beam.node[i]), state, int(beam.entry[i])
                more, state, last[i] = self.word_gain(*place)
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
        """Drop the past that all hypotheses share; returns the words that are certain by now."""
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
