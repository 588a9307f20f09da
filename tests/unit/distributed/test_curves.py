"""A few rows of tools/judges/distributed_curves.py, which runs all of them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "judges"))

import distributed_curves as tool

STEPS = 3
ROWS = [
    ("gpt", "AdamW", "1f1b × tensor"),
    ("gpt", "AdamW", "1f1b × context"),
    ("gpt", "SGD", "interleaved × sequence"),
    ("gpt", "SGD", "sequence × context"),
    ("mlp", "AdamW", "ZeRO 1 × 1f1b"),
    ("mlp", "AdamW", "tensor, 4 ranks"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rule", "name"), ROWS)
def test_a_row_is_the_curve_of_one_process(ranks, kind, rule, name):
    task = tool.Task(kind, rule, name, STEPS)
    result = ranks(tool.curves, [task], size=task.scheme.ranks)
    losses = np.mean([own["losses"] for (own,) in result], 0)
    alone = tool.curve_alone(*tool.key_of(task))["losses"]
    np.testing.assert_allclose(losses, alone, rtol=tool.TOLERANCES[rule])
