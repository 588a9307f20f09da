"""Whole steps that gh.optimize captures, ahead of time."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import step
from glasshouse.analyze.host import CallCounter, HostWork
from glasshouse.base import OptionError
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import no_collection
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.watch import Watcher
from glasshouse.nn import functional as F


def small():
    rng = np.random.default_rng(0)
    gh.random.seed(0)
    model = gh.nn.Sequential(gh.nn.Linear(40, 64), gh.nn.Tanh(), gh.nn.Linear(64, 40))
    inputs = [gh.asarray(rng.standard_normal((32, 40), np.float32)) for _ in range(2)]
    return model, F.mse_loss, gh.optim.AdamW(model.parameters(), lr=1e-3), inputs


class Runs(Watcher):
    """Counts Programs' runs."""

    programs = 0

    def program(self, run):
        self.programs += 1


def test_a_whole_step_is_one_program_for_which_nothing_is_recorded():
    result = step(*small(), convention="captured")
    work, recorded = result.host_work, step(*small()).host_work
    handed = work.handed
    assert work == HostWork(work.calls, captured=1, handed=handed)
    assert 0 < work.calls < recorded.calls and 0 < handed < 2 * recorded.arrays
    assert result.counter.total() == step(*small()).counter.total()


def test_what_is_counted_is_what_a_real_one_does():
    predicted = step(*small(), convention="captured")
    model, loss, optimizer, inputs = small()

    def train():
        optimizer.zero_grad()
        value = loss(model(inputs[0]), *inputs[1:])
        value.backward()
        optimizer.step()

    with flags.override(compile="always"):
        captured = gh.optimize(train)
        for _ in range(4):
            captured()
        runs = Runs()
        runs.watch()
        try:
            captured()
        finally:
            runs.unwatch()
        with CallCounter(backends.current()) as counter, no_collection():
            captured()
    assert predicted.host_work.captured == runs.programs
    assert abs(predicted.host_work.calls - counter.calls) < 0.1 * counter.calls


@pytest.mark.parametrize("steps", [1, 3])
def test_as_many_steps_are_told_as_are_asked_for(steps):
    peaks = step(*small(), convention="captured", steps=steps).peaks
    assert len(peaks) == steps and len(set(peaks)) == 1


def test_a_step_is_left_as_it_was():
    model, loss, optimizer, inputs = small()
    before = model[0].weight.numpy().copy()
    step(model, loss, optimizer, inputs, convention="captured")
    assert (model[0].weight.numpy() == before).all() and not optimizer.state
    with pytest.raises(OptionError, match="torch.nn.Module"):
        step(model, loss, optimizer, inputs, convention="torch")
