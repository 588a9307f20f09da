"""The differentiable beam-search decoder: a beam search whose scores are added by log-add under our
autograd, as a loss that trains a recogniser together with its decoder."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import adopt, as_value, cast, reshape
from glasshouse.nn.checks import check_floating
from glasshouse.nn.functional.asg import alignments, with_transitions
from glasshouse.nn.functional.ctc import ctc_loss, sequences
from glasshouse.nn.functional.lattice import NEVER, all_paths
from glasshouse.ops.checks import check_integer
from glasshouse.ops.index import gather, scatter_add
from glasshouse.speech.beam import MIX, START, grown_hash
from glasshouse.speech.ngram import LanguageModel
from glasshouse.tensor import Tensor, concat, exp, log, zeros
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["BeamCriterion", "BeamLattice"]


@dataclass
class Step:
    """The edges of one frame: the node that each comes from, its token, the node that it leads to,
    the last token of the node that it comes from, ln p of the language model, the words it ends;
    and the scores of the nodes."""

    source: np.ndarray
    token: np.ndarray
    target: np.ndarray
    before: np.ndarray
    log_p: np.ndarray
    words: np.ndarray
    scores: np.ndarray


@dataclass
class BeamLattice:
    """All that a beam search has added up: the edges of each frame, and for each node at the end
    the hash of its tokens, the terms of the text's end (ln p, words), and its score."""

    steps: list[Step]
    hashes: np.ndarray
    end: tuple[np.ndarray, np.ndarray]

    def counts(self) -> tuple[int, int]:
        """(nodes: a log-add each; edges: an add each)."""
        steps = self.steps
        return sum(len(s.scores) for s in steps), sum(len(s.source) for s in steps)

    def pruned(self) -> "BeamLattice":
        """The lattice without the nodes from which no path leads to the end."""
        steps: list[Step] = []
        kept = np.arange(len(self.hashes))
        for step in reversed(self.steps):
            place = np.full(len(step.scores), -1)
            place[kept] = np.arange(len(kept))
            edges = np.flatnonzero(place[step.target] >= 0)
            before, source = np.unique(step.source[edges], return_inverse=True)
            rows = (step.token, step.before, step.log_p, step.words)
            token, last, log_p, words = (row[edges] for row in rows)
            target = place[step.target[edges]]
            steps.append(Step(source, token, target, last, log_p, words, step.scores[kept]))
            kept = before
        return BeamLattice(steps[::-1], self.hashes, self.end)

    def scores(
        self, emissions: Tensor, transitions: Any, lm_weight: Tensor, word_score: Tensor
    ) -> Tensor:
        """The scores of the nodes at the end, as a function of emissions (T, C) and the rest.

        Shapes: transitions (C, C) or None, weights () -> (nodes at the end,).
        """
        classes, dtype = emissions.shape[1], emissions.dtype
        flat = reshape(emissions, (emissions.size,))
        at = [i * classes + step.token for i, step in enumerate(self.steps)]
        weights = gather(flat, adopt(np.concatenate(at)), axis=0)
        if transitions is not None:
            at = [np.maximum(s.before, 0) * classes + s.token for s in self.steps]
            moved = gather(reshape(transitions, (classes**2,)), adopt(np.concatenate(at)), axis=0)
            later = adopt(np.concatenate([s.before for s in self.steps]) >= 0)
            weights = weights + choose(later, moved, 0)
        gains = [(s.log_p, s.words) for s in self.steps]
        log_p, words = (constant(np.concatenate(row), dtype) for row in zip(*gains))
        weights = weights + lm_weight * log_p + word_score * words
        state, first = zeros((1,), dtype=dtype), 0
        for step in self.steps:
            last = first + len(step.source)
            x = gather(state, adopt(step.source), axis=0) + weights[first:last]
            state, first = added(x, step, dtype), last
        log_p, words = (constant(row, dtype) for row in self.end)
        return state + lm_weight * log_p + word_score * words


def constant(rows: np.ndarray, dtype: Any) -> Tensor:
    return cast(adopt(rows.astype(np.float64)), dtype)


def added(x: Tensor, step: Step, dtype: Any) -> Tensor:
    """log Σ exp of the edges (E,) that lead to each node."""
    top = constant(step.scores, dtype)  # the search has found it: no exp is above 1
    target = adopt(step.target)
    parts = exp(x - gather(top, target, axis=0))
    return log(scatter_add(zeros(top.shape, dtype=dtype), target, parts, axis=0)) + top


class BeamCriterion(nn.Module):
    """log Σ exp of the scores of all texts in a beam, and of the target, less the target's score:
    the negative log-probability of the target among the decoder's texts. A score is the sum over
    alignments of exp(emissions + transitions), and lm_weight · ln p(text) + word_score · words.
    Emissions, transitions and both weights are trained.

    With a `blank` paths read as CTC's, and there are no transitions; without one as ASG's, with
    transitions (C, C). The language model scores tokens, or with a `boundary` the words between.
    The search keeps `beam_size` nodes (a text and its last frame's token), and tries `token_limit`
    tokens of each frame. `prune` leaves out nodes that lead nowhere before gradients are taken.

    Shapes: emissions (N, T, C), any scores; targets (N, S), both lengths (N,) -> ().
    Raises: ShapeError, DTypeError and IndexOutOfRangeError as `ctc_loss`; OptionError for tokens
        that do not fit.
    Source: Collobert, Hannun & Synnaeve 2019, arXiv:1902.06022.
    Example:
        >>> criterion = BeamCriterion(["", "a", "b"], beam_size=50)
        >>> criterion(np.zeros((1, 2, 3), "f4"), [[1, 2]], [2], [2]).item()  # 1 of 9 paths
        2.1972246170043945
    """

    def __init__(
        self,
        tokens: Any,
        language_model: LanguageModel | None = None,
        *,
        blank: int | None = 0,
        boundary: str | None = None,
        beam_size: int = 500,
        token_limit: int | None = None,
        lm_weight: float = 1.0,
        word_score: float = 0.0,
        prune: bool = True,
    ) -> None:
        super().__init__()
        where = "BeamCriterion"
        self.tokens: list[Any] = list(tokens)
        self.model = language_model
        self.blank = blank
        self.prune = prune
        if boundary is not None and boundary not in self.tokens:
            raise OptionError(where, "a boundary among the tokens", repr(boundary), "Name it.")
        self.boundary: int = self.tokens.index(boundary) if boundary is not None else -1
        self.beam_size: int = check_integer(where, "beam_size", beam_size, 1)
        limit = len(self.tokens) if token_limit is None else token_limit
        self.token_limit: int = min(check_integer(where, "token_limit", limit, 1), len(self.tokens))
        self.lm_weight: nn.Parameter = nn.Parameter(adopt(np.array(lm_weight, "f4")))
        self.word_score: nn.Parameter = nn.Parameter(adopt(np.array(word_score, "f4")))
        size = len(self.tokens)
        self.transitions: nn.Parameter | None = (
            nn.Parameter(zeros((size, size))) if blank is None else None
        )

    def forward(self, emissions: Any, targets: Any, frames: Any, sizes: Any) -> Tensor:
        x = check_floating("BeamCriterion", emissions, "emissions")
        if x.ndim != 3 or x.shape[2] != len(self.tokens):
            expected = f"emissions (N, T, {len(self.tokens)})"
            raise ShapeError("BeamCriterion", expected, x.shape, "Give a score of each token.")
        rows, labels, frames, sizes = sequences(
            "BeamCriterion", x.transpose(0, 1), targets, frames, sizes, "emissions"
        )
        said = self.scores_of_targets(rows, labels, frames, sizes)
        losses = []
        lengths = zip(frames.numpy().tolist(), sizes.numpy().tolist(), labels.numpy())
        for i, (length, size, row) in enumerate(lengths):
            text, beam = row[:size].tolist(), x[i, :length]
            lattice = self.search(beam)
            log_p, words = self.gains_of(text)
            target = said[i] + self.lm_weight * log_p + self.word_score * words
            state = lattice.scores(beam, self.transitions, self.lm_weight, self.word_score)
            others = adopt(lattice.hashes != self.hash_of(text))
            state = choose(others, state, NEVER)
            every = concat([state, reshape(target, (1,))])
            losses.append(reshape(reduce.logsumexp(every) - target, (1,)))
        return reduce.mean(concat(losses))

    def scores_of_targets(self, x: Tensor, labels: Any, frames: Any, sizes: Any) -> Tensor:
        """log Σ exp over the alignments of each target (N,)."""
        if self.blank is not None:
            return -ctc_loss(x, labels, frames, sizes, self.blank, "none")
        x, transitions = with_transitions("BeamCriterion", x, self.transitions)
        weights, state, ends = alignments("BeamCriterion", x, labels, sizes, transitions)
        t, n, length = x.shape[0], x.shape[1], labels.shape[1]
        last = reshape(as_value(np.arange(t)), (t, 1, 1)) == reshape(frames - 1, (1, n, 1))
        paths = choose(last & ends, all_paths(weights, state), NEVER)
        return reduce.logsumexp(reshape(paths, (t, n, length)), axis=(0, 2))

    def hash_of(self, text: list[int]) -> np.int64:
        code = np.array([START])
        for token in text:
            code = grown_hash(code, np.array([token]))
        return code[0]

    def gains_of(self, text: list[int]) -> tuple[float, int]:
        """(ln p of the language model, how many words) of a whole text."""
        state, word, total, count = self.start(), "", 0.0, 0
        for token in text:
            log_p, words, state, word = self.gain(state, word, token)
            total, count = total + log_p, count + words
        log_p, words = self.end_gain(state, word)
        return total + log_p, count + words

    def start(self) -> Any:
        return None if self.model is None else self.model.start()

    def gain(self, state: Any, word: str, token: int) -> tuple[float, int, Any, str]:
        """(ln p and words that a token more adds, the state after it, the open word)."""
        if self.boundary >= 0 and token != self.boundary:
            return 0.0, 0, state, word + self.tokens[token]
        unit = word if self.boundary >= 0 else self.tokens[token]
        if self.model is None or not unit:
            return 0.0, int(bool(unit)), state, ""
        after, log_p = self.model.score(state, unit)
        return max(log_p, NEVER), 1, after, ""

    def gains(self, memory: dict[Any, np.ndarray], node: Any) -> np.ndarray:
        """ln p and words that each token adds to a node's state and open word (2, C)."""
        if node not in memory:
            memory[node] = np.zeros((2, len(self.tokens)))
            ends = [self.boundary] if self.boundary >= 0 else range(len(self.tokens))
            for token in ends:
                memory[node][:, token] = self.gain(node[0], node[1], token)[:2]
        return memory[node]

    def end_gain(self, state: Any, word: str) -> tuple[float, int]:
        log_p, words = 0.0, 0
        if word:
            log_p, words, state, _ = self.gain(state, word, self.boundary)
        return log_p + (0.0 if self.model is None else self.model.finish(state)), words

    def search(self, emissions: Any) -> BeamLattice:
        """The lattice of a beam search over emissions (T, C), in NumPy, without gradients."""
        x = as_value(emissions).detach().numpy().astype(np.float64)
        weight, reward = self.lm_weight.item(), self.word_score.item()
        moves = None if self.transitions is None else self.transitions.detach().numpy()
        score, code, last = np.zeros(1), np.array([START]), np.array([-1])
        nodes: list[Any] = [(self.start(), "")]
        memory: dict[Any, np.ndarray] = {}
        steps: list[Step] = []
        for t, row in enumerate(x):
            tokens = np.sort(np.argpartition(-row, self.token_limit - 1)[: self.token_limit])
            grows = (last[:, None] != tokens) & (
                tokens != (-1 if self.blank is None else self.blank)
            )
            codes = np.where(grows, grown_hash(code[:, None], tokens), code[:, None])
            gains = np.stack([self.gains(memory, node) for node in nodes])[:, :, tokens]
            log_p, words = (gains[:, i] * grows for i in (0, 1))
            scores = score[:, None] + row[tokens] + weight * log_p + reward * words
            if moves is not None and t:
                scores = scores + moves[last[:, None], tokens]
            # paths that end with the same text and token meet
            keys = (codes ^ (tokens + 7)) * MIX
            _, first, group = np.unique(keys, return_index=True, return_inverse=True)
            total = np.full(len(first), -np.inf)
            np.logaddexp.at(total, group.reshape(-1), scores.reshape(-1))
            kept = np.arange(len(total))
            if len(total) > self.beam_size:
                kept = np.sort(np.argpartition(-total, self.beam_size)[: self.beam_size])
            place = np.full(len(total), -1)
            place[kept] = np.arange(len(kept))
            target = place[group.reshape(grows.shape)]
            source, column = np.nonzero(target >= 0)
            edges = (target[source, column], last[source] if t else np.full(len(source), -1))
            parts = log_p[source, column], words[source, column]
            steps.append(Step(source, tokens[column], *edges, *parts, total[kept]))
            origins, columns = np.divmod(first[kept], len(tokens))
            nodes = [
                self.gain(nodes[i][0], nodes[i][1], int(tokens[k]))[2:] if grows[i, k] else nodes[i]
                for i, k in zip(origins.tolist(), columns.tolist())
            ]
            score, code = total[kept], codes.reshape(-1)[first[kept]]
            last = tokens[columns]
        ends = [self.end_gain(*node) for node in nodes]
        end = np.array([e[0] for e in ends]), np.array([float(e[1]) for e in ends])
        lattice = BeamLattice(steps, code, end)
        return lattice.pruned() if self.prune else lattice
