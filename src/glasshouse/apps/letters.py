"""Texts of a recogniser's scores: of its likeliest letters, or of a beam search."""

from typing import Any

import numpy as np

from glasshouse import speech
from glasshouse.apps.prompts import TOKENS
from glasshouse.metrics import Metric


class LetterErrorRate(Metric):
    """Edits for each letter of the targets; faster than `EditDistance`, which tells their kinds."""

    edits: int
    letters: int

    gathered: dict[Any, Any] = {"edits": 0, "letters": 0}

    def update(self, scores: Any, targets: Any) -> None:
        """Take in a batch of scores (N, T, tokens) and targets (N, S)."""
        for likely, target in zip(scores.detach().numpy(), targets.numpy()):
            target = target[target > 0]
            row = at = np.arange(len(target) + 1)
            for letter in likeliest_letters(likely):
                best = np.minimum(row[1:] + 1, row[:-1] + (target != letter))
                row = np.minimum.accumulate(np.append(row[0] + 1, best) - at) + at
            self.edits, self.letters = self.edits + int(row[-1]), self.letters + len(target)

    def value(self) -> float:
        """Edits for each letter."""
        return self.edits / self.letters if self.letters else float("nan")


def read_scores(scores: np.ndarray, decoder: speech.BeamDecoder | None) -> str:
    """The text of a recording's scores: of a beam search, or of the likeliest token by frame."""
    if decoder is not None:
        return decoder.decode(scores)[0].text.strip()
    return " ".join("".join(TOKENS[i] for i in likeliest_letters(scores)).split())


def likeliest_letters(scores: np.ndarray) -> np.ndarray:
    """The likeliest token of each frame (frames, tokens), without blanks and repetitions."""
    path = scores.argmax(axis=1)
    return path[(path != 0) & (path != np.append(0, path[:-1]))]
