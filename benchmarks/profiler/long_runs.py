"""Long recordings: the time of tables, trace and report of many steps; memory with a schedule."""

import tempfile
import time
from pathlib import Path

import numpy as np

import glasshouse as gh

STEPS, SMOKE_STEPS = 20_000, 200
CYCLE = {"wait": 90, "warmup": 5, "active": 5}


def small_step():
    """A step of a small program that is not captured: about 36 events."""
    gh.random.seed(0)
    layer = gh.nn.Linear(16, 4)
    optimizer = gh.optim.SGD(layer.parameters(), lr=0.01)
    x, y = gh.asarray(np.ones((8, 16), np.float32)), gh.asarray(np.ones((8, 4), np.float32))

    def step():
        optimizer.zero_grad()
        ((layer(x) - y) ** 2).mean().backward()
        optimizer.step()

    return step


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def run(step, steps: int, prof) -> float:
    """Record so many steps; the most MB that the process grew by."""
    before, most = resident_mb(), 0.0
    with prof:
        for i in range(steps):
            step()
            prof.step()
            if i % 50 == 0:
                most = max(most, resident_mb() - before)
    return most


def long_runs(smoke: bool) -> dict:
    """Seconds of processor time for each result of a long recording, and MB."""
    step, steps = small_step(), SMOKE_STEPS if smoke else STEPS
    for _ in range(30):
        step()
    scheduled = gh.profile(
        schedule=gh.profile.schedule(**CYCLE), on_trace_ready=lambda prof: prof.modules().rows()
    )
    scheduled_mb = run(step, steps, scheduled)
    prof = gh.profile()
    mb = run(step, steps, prof)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        results = {
            "modules": lambda: prof.modules().table(),
            "kernels": lambda: prof.kernels().table(),
            "operators": lambda: prof.key_averages().table(),
            "trace.json": lambda: prof.export_chrome_trace(path / "t.json"),
            "trace.json.gz": lambda: prof.export_chrome_trace(path / "t.json.gz"),
            "trace read back": lambda: gh.profile.read(path / "t.json.gz"),
            "report": lambda: prof.report(path / "r.html"),
        }
        seconds = {}
        for name, result in results.items():
            start = time.process_time()
            result()
            seconds[name] = time.process_time() - start
    return {
        "steps": steps,
        "events": len(prof.trace.events),
        "seconds": seconds,
        "mb": mb,
        "scheduled_mb": scheduled_mb,
    }
