"""The default compiler makes one Program for all numbers that are inputs of it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.capture.programs.program_compiler import CompiledGraph


def test_a_number_and_a_size_that_vary_share_programs(monkeypatch):
    results, first = [], CompiledGraph.make_program
    monkeypatch.setattr(
        CompiledGraph, "make_program", lambda *args: results.append(args) or first(*args)
    )

    @gh.optimize(dynamic=True)
    def fn(x, rate):
        return (x * rate).sum()

    for i in range(30):
        x = np.arange(3.0 + i % 2)
        assert np.isclose(fn(gh.asarray(x), 0.3 + i).item(), (x * (0.3 + i)).sum())
    assert 1 <= len(results) <= 4


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_are_one_object_are_one_object(dynamic):
    """A shift by nothing gives its operand, which is written to as both."""

    def plain(x):
        y = x + x
        return y, gh.roll(y, 0), y

    fn = gh.optimize(plain, dynamic=dynamic)
    for n in (2, 2, 3, 4, 4):
        x = gh.asarray(np.arange(float(n)))
        x.requires_grad = True
        first, second, third = fn(x)
        assert first is second is third
        (first.sum() + second.sum()).backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.full(n, 4.0))


PEAK = """
import gc
import sys
import glasshouse as gh

def peak_of_a_step(train):
    "The most bytes in use during a step of training, after some."
    for _ in range(3):
        train()
    gc.collect()  # what the first call left behind
    events, manager = [], gh.memory.current()
    manager.subscribe(events.append)
    used = most = manager.stats().allocated_bytes
    train()
    for event in events:
        used += {"alloc": event.nbytes, "free": -event.nbytes}.get(event.kind, 0)
        most = max(most, used)
    return most

def peak(captured):
    model = gh.nn.Linear(512, 512, bias=False)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    x = gh.ones((64, 512))

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    fn = gh.optimize(step) if captured else step
    return peak_of_a_step(lambda: fn(x).item())

print(peak(sys.argv[1] == "captured"))
"""


@pytest.mark.slow
def test_a_captured_step_takes_no_more_memory_than_a_plain_one():
    environment = {
        **os.environ,
        "GH_COMPILE": "always",
        "GH_BACKEND": "lazy",
        "PYTHONPATH": str(Path(gh.__file__).parents[1]),
    }
    peaks = []
    for how in ("plain", "captured"):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, how],
            env=environment,
            text=True,
            capture_output=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    assert peaks[1] <= peaks[0] * 1.05
