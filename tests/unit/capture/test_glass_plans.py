"""The default compiler makes one Program for all numbers that are inputs of it."""

import numpy as np

import glasshouse as gh
from glasshouse.base.flags import flags
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


def peak_of_a_step(train) -> int:
    """The most bytes in use during a step of training, after some."""
    for _ in range(3):
        train()
    events: list = []
    manager = gh.memory.current()
    manager.subscribe(events.append)
    used = most = manager.stats().allocated_bytes
    train()
    for event in events:
        used += {"alloc": event.nbytes, "free": -event.nbytes}.get(event.kind, 0)
        most = max(most, used)
    return most


def test_a_captured_step_takes_no_more_memory_than_a_plain_one():
    peaks = []
    for captured in (False, True):
        with gh.memory.use(gh.memory.CachingManager()), gh.backends.use("lazy"):
            model = gh.nn.Linear(512, 512, bias=False)
            optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
            x = gh.ones((64, 512))

            def step(x, model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                return loss

            fn = gh.optimize(step) if captured else step
            with flags.override(compile="always"):
                peaks.append(peak_of_a_step(lambda fn=fn, x=x: fn(x).item()))
            del model, optimizer, fn, step
    assert peaks[1] <= peaks[0] * 1.05
