"""The default compiler makes one Program for all numbers that are inputs of it."""

import numpy as np

import glasshouse as gh
from glasshouse.capture.glass import Glass


def test_a_number_and_a_size_that_vary_share_programs(monkeypatch):
    made, first = [], Glass.first
    monkeypatch.setattr(Glass, "first", lambda *args: made.append(args) or first(*args))

    @gh.optimize(dynamic=True)
    def fn(x, rate):
        return (x * rate).sum()

    for i in range(30):
        x = np.arange(3.0 + i % 2)
        assert np.isclose(fn(gh.asarray(x), 0.3 + i).item(), (x * (0.3 + i)).sum())
    assert 1 <= len(made) <= 4
