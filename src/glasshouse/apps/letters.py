"""Texts of a recogniser's scores: of its likeliest letters, or of a beam search."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse import speech
from glasshouse.apps.prompts import TOKENS
from glasshouse.base.errors import CheckpointError
from glasshouse.metrics import CharErrorRate, Metric

LANGUAGE, WEIGHTS = "words.arpa", "weights.json"  # of the beam search, beside the checkpoint
GRID = [{"lm_weight": x, "word_score": y, "unknown_score": -10.0}
        for x, y in itertools.product((0.4, 0.8, 1.2, 1.6), (0.0, 1.5, 3.0, 4.5))]  # fmt: skip


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


def make_decoder(out: Path, weights: dict[str, Any]) -> speech.BeamDecoder:
    """The beam search with the language model of the run in a folder.

    Raises: CheckpointError where it has none.
    """
    return speech.BeamDecoder(TOKENS, speech.load_language_model(out / LANGUAGE), **weights)


def read_weights(out: Path) -> dict[str, float]:
    """The weights of the beam search of the run in a folder.

    Raises: CheckpointError where it has none.
    """
    try:
        return json.loads((out / WEIGHTS).read_text())
    except (OSError, ValueError) as error:
        fix = "Train it again, or read the likeliest letters: --greedy."
        raise CheckpointError("transcribe", f"a file {out / WEIGHTS}", error, fix) from None


def tune_weights(out: Path, scored: list[tuple[np.ndarray, str]]) -> dict[str, float]:
    """The weights of a beam search with the fewest wrong letters in the texts of some scores,
    which are kept in the run's folder."""
    language = speech.load_language_model(out / LANGUAGE)

    def wrong(weights: dict[str, Any]) -> float:
        meter, decoder = CharErrorRate(), speech.BeamDecoder(TOKENS, language, **weights)
        for scores, text in scored:
            meter.update(read_scores(scores, decoder), text)
        return meter.value()

    best = min(GRID, key=wrong)
    (out / WEIGHTS).write_text(json.dumps(best) + "\n")
    return best
