"""Tokens that a small model proposes and a large one checks, several in one call."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.nn.generation.rows import ends_with
from glasshouse.nn.generation.sampling import TokenSampler

PROPOSALS = 4  # of each round


def write_with_draft(
    writer: Any,
    drafter: Any,
    task: Any,
    sampler: TokenSampler,
    stream: Callable[[int, int], Any] | None,
) -> list[list[int]]:
    """The likeliest tokens of each row, as without the draft.

    In a round the draft writes a few tokens one by one, then the model reads all of them in one
    call. The model's choices up to the first that differs from the draft's are the new tokens;
    setting back the lengths drops the draft's tokens from that one on.
    """
    rows, stops, limit = task.rows, task.stops, task.limit
    results: list[list[int]] = [[] for _ in rows]
    texts = [list(row) for row in rows]
    rng = np.random.default_rng(0)
    heads = [row[:-1] for row in rows]
    for one in (writer, drafter):
        if any(heads):
            one.feed(heads)
    active = list(range(len(rows)))
    while active:
        proposals = proposed(drafter, texts, active)
        feeds = [
            [texts[row][-1], *proposals[row]] if row in active else [] for row in range(len(rows))
        ]
        scores = writer.feed_each(feeds, PROPOSALS + 1)
        still = []
        for row in active:
            ended = False
            for i in range(PROPOSALS + 1):
                token = sampler.choose(scores[row, i], texts[row], rng)
                texts[row].append(token)
                results[row].append(token)
                is_told = stream is not None and stream(row, token) is True
                ended = is_told or ends_with(results[row], stops) or len(results[row]) == limit
                if ended or i == PROPOSALS or token != proposals[row][i]:
                    break
            if not ended:
                still.append(row)
        active = still
        for row in range(len(rows)):  # the caches hold all but the last token
            writer.lengths[row] = len(texts[row]) - 1
            drafter.lengths[row] = min(drafter.lengths[row], len(texts[row]) - 1)
    return results


def proposed(drafter: Any, texts: list[list[int]], active: list[int]) -> dict[int, list[int]]:
    """The draft's next tokens of each text, after it reads the tokens that are new to it."""
    results: dict[int, list[int]] = {row: [] for row in active}
    feeds = [
        text[drafter.lengths[row] :] if row in active else [] for row, text in enumerate(texts)
    ]
    for _ in range(PROPOSALS):
        scores = drafter.feed(feeds)
        feeds = [[] for _ in texts]
        for row in active:
            feeds[row] = [int(scores[row].argmax())]
            results[row] += feeds[row]
    return results
