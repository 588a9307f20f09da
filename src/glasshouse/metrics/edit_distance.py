"""Error rate of sequences, by edit distance."""

import math
from typing import Any

from glasshouse.base.errors import DTypeError, type_name
from glasshouse.dispatch.value import Value
from glasshouse.metrics.metric import Metric


class EditDistance(Metric):
    """Fewest insertions, deletions and substitutions that turn the predictions into the targets.
    value = (insertions + deletions + substitutions) / target length, summed over all updates:
    the word or character error rate when the sequences are words or characters.

    Source: Wagner & Fischer 1974, "The string-to-string correction problem".
    Example:
        >>> errors = EditDistance()
        >>> errors.update("kitten", "sitting")
        >>> errors.distance(), errors.substitutions, errors.insertions
        (3, 2, 1)
    """

    gathered: dict[Any, Any] = {"insertions": 0, "deletions": 0, "substitutions": 0, "length": 0}

    def update(self, predicted: Any, target: Any) -> None:
        """Compare one predicted sequence with its target: strings, lists or 1-d tensors.

        Raises: DTypeError if either is no sequence.
        """
        predicted, target = to_sequence("predicted", predicted), to_sequence("target", target)
        edits = (*count_edits(predicted, target), len(target))
        vars(self).update({k: getattr(self, k) + n for k, n in zip(self.gathered, edits)})

    def distance(self) -> int:
        """All edits so far."""
        return self.insertions + self.deletions + self.substitutions

    def value(self) -> float:
        """Edits per target element; nan while the targets are empty."""
        return self.distance() / self.length if self.length else math.nan


def to_sequence(name: str, x: Any) -> list[Any]:
    values = x.detach().numpy() if isinstance(x, Value) else x
    if getattr(values, "ndim", 1) != 1 or not hasattr(values, "__len__") or isinstance(x, dict):
        got = f"shape {x.shape}" if hasattr(x, "shape") else type_name(x)
        fix = "Pass a string, a list or a 1-d tensor; call update once per sequence."
        raise DTypeError("EditDistance.update", f"{name} to be one sequence", got, fix)
    return values.tolist() if hasattr(values, "tolist") else list(values)


def count_edits(predicted: list[Any], target: list[Any]) -> tuple[int, int, int]:
    """(insertions, deletions, substitutions) of a shortest way from `predicted` to `target`."""
    # row[j]: (edits, insertions, deletions, substitutions) from predicted[:i] to target[:j]
    row = [(j, j, 0, 0) for j in range(len(target) + 1)]
    for i, guess in enumerate(predicted, 1):
        diagonal, row[0] = row[0], (i, 0, i, 0)
        for j, token in enumerate(target, 1):
            above, left = row[j], row[j - 1]
            best = min(diagonal[0] + (guess != token), above[0] + 1, left[0] + 1)
            if best == diagonal[0] + (guess != token):
                step = (best, *diagonal[1:3], diagonal[3] + (guess != token))
            elif best == above[0] + 1:
                step = (best, above[1], above[2] + 1, above[3])
            else:
                step = (best, left[1] + 1, *left[2:])
            diagonal, row[j] = above, step
    return row[-1][1:]
