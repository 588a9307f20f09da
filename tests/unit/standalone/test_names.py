"""Names of a step's state."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import glasshouse as gh
from glasshouse.capture.check.world import outside
from glasshouse.standalone.names import ReachedNames

model = gh.nn.Linear(2, 2)
optimizer = gh.optim.Adam(model.parameters())
tables = [gh.ones(2)]


def helper(x):
    return x + tables[0]


def step(x):
    loss = helper(model(x)).sum()
    loss.backward()
    optimizer.step()
    return loss


step(gh.ones((1, 2)))
print(sorted(ReachedNames(outside(step)).tensors.values()))
"""


@pytest.mark.slow
def test_names_do_not_depend_on_the_order_of_sets():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            check=True,
            text=True,
            capture_output=True,
        ).stdout
        for seed in range(6)
    }
    assert len(outputs) == 1
    (names,) = outputs
    assert "'optimizer.state.model.weight.exp_avg'" in names and "'helper.tables.0'" in names
