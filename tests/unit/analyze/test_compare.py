"""Measurements are those of the steady steps."""

import time

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.watch import COMPILING, tell
from glasshouse.profile.steps.steady import LoopSteps


@pytest.fixture(scope="module")
def recording():
    """A step that warms up with eight times the work of the others, and compiles meanwhile."""
    layer, x = gh.nn.Linear(64, 64), gh.asarray(np.ones((256, 64), np.float32))
    optimizer = gh.optim.SGD(layer.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    with flags.override(compile="always"):
        step(), step()
        costs = gh.analyze.step(layer, lambda out: out.square().mean(), optimizer, [x])
        with gh.profile() as prof:
            for i in range(6):
                begin_ns = time.perf_counter_ns()
                for _ in range(8 if i == 0 else 1):
                    step()
                if i == 0:
                    time.sleep(0.05)
                    tell("region", COMPILING, begin_ns)
                prof.step()
    return costs, prof


def test_kernels_are_those_of_a_steady_step(recording):
    costs, prof = recording
    beside, steps = gh.analyze.compare(costs, prof), LoopSteps(prof.trace)
    assert not steps.is_steady[0] and beside.steps == steps.is_steady.sum()
    own = sum(row.flops * row.runs for row in prof.kernels())
    flops = next(line for line in beside.totals if line.name == "FLOPs of kernels")
    assert flops.measured == pytest.approx(own / 13)  # 8 in the first of 6 steps


def test_the_time_of_a_step_is_the_median_steady_one(recording):
    costs, prof = recording
    beside, steps = gh.analyze.compare(costs, prof), LoopSteps(prof.trace)
    took = next(line for line in beside.totals if line.name == "time of a step")
    assert took.measured == steps.median_ns == np.median(steps.time_ns[steps.is_steady])
