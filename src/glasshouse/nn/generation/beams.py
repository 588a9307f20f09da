"""A search for the likeliest text, with several beginnings of it side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.nn.generation.rows import ends_with
from glasshouse.nn.generation.sampling import TokenSampler, allowed_scores, check_scores


class Beams:
    """The beams of one row: texts with the sums of their tokens' log-probabilities, and those that
    have ended, by their means."""

    def __init__(self, count: int, penalty: float) -> None:
        self.count = count
        self.penalty = penalty
        self.texts: list[list[int]] = [[] for _ in range(count)]
        self.sums: np.ndarray = np.array([0.0] + [-np.inf] * (count - 1))
        self.ended: list[tuple[float, list[int]]] = []
        self.is_done: bool = False

    def mean(self, total: float, length: int) -> float:
        return total / length**self.penalty

    def end(self, total: float, text: list[int]) -> None:
        """Keep a text that has ended, if it is among the best."""
        self.ended.append((self.mean(total, len(text)), text))
        self.ended.sort(key=lambda pair: -pair[0])
        del self.ended[self.count :]

    def advance(self, logs: np.ndarray, stops: list[list[int]]) -> tuple[list[int], list[int]]:
        """(the beam that each new one continues, its token) for log-probabilities of the next
        tokens."""
        sums = (self.sums[:, None] + logs).ravel()
        wide = min((1 + max(len(stops), 1)) * self.count, sums.size)
        best = np.argpartition(-sums, wide - 1)[:wide]
        best = best[np.argsort(-sums[best], kind="stable")]
        parents: list[int] = []
        tokens: list[int] = []
        texts, totals = [], []
        for rank, place in enumerate(best):
            parent, token = divmod(int(place), logs.shape[1])
            text = [*self.texts[parent], token]
            if ends_with(text, stops):
                if rank < self.count and np.isfinite(sums[place]):
                    self.end(sums[place], text)
            elif len(parents) < self.count:
                parents.append(parent)
                tokens.append(token)
                texts.append(text)
                totals.append(sums[place])
        self.texts, self.sums = texts, np.array(totals)
        if len(self.ended) == self.count:
            self.is_done = self.ended[-1][0] >= self.mean(totals[0], len(texts[0]))
        return parents, tokens

    def best(self) -> list[int]:
        """The likeliest text."""
        for total, text in zip(self.sums, self.texts, strict=True):
            if not self.is_done and np.isfinite(total):
                self.end(total, text)
        return self.ended[0][1]


def search(
    writer: Any,
    task: Any,
    sampler: TokenSampler,
    length_penalty: float,
    count: int,
    allowed: Callable[[int, list[int]], Any] | None,
) -> list[list[int]]:
    """The likeliest new tokens of each row that `count` beams find."""
    rows, stops, limit = task.rows, task.stops, task.limit
    beams = [Beams(count, length_penalty) for _ in rows]
    feeds = [list(row) for row in rows for _ in range(count)]
    for step in range(limit):
        scores = writer.feed(feeds).astype(np.float64)
        order, feeds = list(range(len(scores))), [[] for _ in scores]
        for i, row in enumerate(beams):
            if row.is_done:
                continue
            part = range(i * count, (i + 1) * count)
            logs = np.stack([
                log_probabilities(scores[slot], [*rows[i], *row.texts[slot - part[0]]], sampler,
                                  allowed and allowed(i, list(row.texts[slot - part[0]])))
                for slot in part
            ])  # fmt: skip
            parents, tokens = row.advance(logs, stops)
            for slot, parent, token in zip(part, parents, tokens, strict=True):
                order[slot], feeds[slot] = part[0] + parent, [token]
        if all(row.is_done for row in beams) or step + 1 == limit:
            break
        if order != list(range(len(order))):
            reorder(writer, order)
    return [row.best() for row in beams]


def log_probabilities(
    scores: np.ndarray, before: list[int], sampler: TokenSampler, mask: Any
) -> np.ndarray:
    check_scores(scores)
    x = scores - scores.max()
    x = sampler.penalized(x - np.log(np.exp(x).sum()), before)
    return allowed_scores(x, mask)


def reorder(writer: Any, order: list[int]) -> None:
    """Give each slot the text of another."""
    writer.lengths = writer.lengths[order]
    if writer.cache is None:
        writer.texts = [list(writer.texts[slot]) for slot in order]
    else:
        writer.cache.reorder(order)
