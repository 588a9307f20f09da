"""Time that watching adds to a call, a kernel, a captured call, an annotation; ours and
PyTorch's."""

import gc
import os
import time
from contextlib import nullcontext

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.graph.record import recorder
from glasshouse.profile.record import EVENT

CALLS = 2000
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler prints at every start


def import_torch():
    """PyTorch, or None where it is not installed."""
    try:
        import torch
        import torch.utils.flop_counter
    except ImportError:
        return None
    return torch


def adding(x, y, after=lambda: None):
    """CALLS additions."""

    def run():
        for _ in range(CALLS):
            x + y
        after()

    return run


def forget():
    recorder.pending = []


def microseconds_added(run, contexts: dict, repeats: int, calls: int = CALLS) -> dict[str, float]:
    """µs that each context adds to a call of `run`: the shortest of the rounds against the shortest
    plain one. The rounds begin with different contexts, so that nothing is always first."""
    results = {"plain": nullcontext, **contexts}
    times: dict[str, list[float]] = {name: [] for name in results}
    gc.disable()
    for k in range(repeats + 1):
        for name in (list(results) * 2)[k % len(results) :][: len(results)]:
            run()
            with results[name]():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        gc.collect()
    gc.enable()
    plain = min(times.pop("plain"))
    return {name: 1e6 * (min(result) - plain) / calls for name, result in times.items()}


def ours(repeats: int) -> dict[str, float]:
    x, y = gh.ones((10,)), gh.ones((10,))
    with flags.override(compile="always"):  # from now on calls are recorded by C, as in training
        gh.eval(x + y)
    counter = gh.FlopCounter()
    full = {"record_shapes": True, "profile_memory": True}
    contexts = {
        "nothing, again": nullcontext,
        "FLOP counter": lambda: counter,
        "profiler": gh.profile,
        "profiler, shapes, modules, memory": lambda: gh.profile(**full),
        "profiler, stacks too": lambda: gh.profile(**full, with_stack=True),
    }
    return microseconds_added(adding(x, y, forget), contexts, repeats)


def theirs(torch, repeats: int) -> dict[str, float]:
    """The same of PyTorch."""
    x = torch.ones(10)
    profile, cpu = torch.profiler.profile, [torch.profiler.ProfilerActivity.CPU]
    full = {"activities": cpu, "record_shapes": True, "profile_memory": True}
    contexts = {
        "nothing, again": nullcontext,
        "FLOP counter": lambda: torch.utils.flop_counter.FlopCounterMode(display=False),
        "profiler": lambda: profile(activities=cpu),
        "profiler, shapes, modules, memory": lambda: profile(**full, with_modules=True),
        "profiler, stacks too": lambda: profile(**full, with_stack=True),
    }
    return microseconds_added(adding(x, x), contexts, repeats)


def annotation_us(make, repeats: int) -> float:
    """µs of an annotation while nothing records, without the loop around it."""
    with make("region"):
        pass  # compiles what makes it fast
    whole, loops = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(CALLS):
            with make("region"):
                pass
        middle = time.perf_counter()
        for _ in range(CALLS):
            pass
        whole.append(middle - start)
        loops.append(time.perf_counter() - middle)
    return 1e6 * (min(whole) - min(loops)) / CALLS


def per_kernel_us(repeats: int) -> float:
    """µs that timing adds to a kernel: a Program of small kernels with and without it."""
    x = gh.ones((8, 8))
    gh.eval(x)

    def chain():
        y = x
        for _ in range(100):
            y = y @ x
        return y

    times: dict[bool, list[float]] = {False: [], True: []}
    kernels = 1
    with gh.base.flags.flags.override(compile="always"):
        chain().numpy()
        for _ in range(10 * repeats):
            for watched in times:
                y = chain()
                with gh.profile() if watched else nullcontext() as prof:
                    start = time.perf_counter()
                    y.numpy()
                    times[watched].append(time.perf_counter() - start)
                if watched:
                    kernels = len(prof.trace.steps.step)
    return 1e6 * (min(times[True]) - min(times[False])) / kernels


def captured_step():
    """A small training step under `gh.optimize`, and what it calls."""
    gh.random.seed(0)
    layers = (gh.nn.Linear(64, 64), gh.nn.ReLU(), gh.nn.Linear(64, 10))
    model = gh.nn.Sequential(*layers)
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = gh.random.normal((32, 64)), gh.zeros(32, dtype=gh.int64)

    @gh.optimize
    def step(x, y):
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(8):
        step(x, y).item()
    return lambda: step(x, y)


def captured(repeats: int) -> dict[str, float]:
    """µs that watching adds to a captured call (a step of about 150 primitives), and the call's."""
    call, calls = captured_step(), 50

    def run():
        for _ in range(calls):
            call()

    counter = gh.FlopCounter()
    contexts = {
        "nothing, again": nullcontext,
        "FLOP counter": lambda: counter,
        "profiler": gh.profile,
        "profiler, shapes, modules, memory": lambda: gh.profile(
            record_shapes=True, profile_memory=True
        ),
    }
    result = microseconds_added(run, contexts, repeats, calls)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    call_us = 1e6 * min(times) / calls
    return {
        "call_us": call_us,
        "ratio with FLOP counter": 1 + result["FLOP counter"] / call_us,
        **result,
    }


def table_seconds(calls: int) -> dict[str, float]:
    """Seconds to stop and print the table of a recording of that many calls."""
    x, y = gh.ones((10,)), gh.ones((10,))
    gh.eval(x, y)
    prof = gh.profile(profile_memory=True)
    prof.start()
    for _ in range(calls // CALLS):
        adding(x, y, forget)()
    start = time.perf_counter()
    prof.stop()
    prof.key_averages().table()
    return {"calls": calls, "seconds": time.perf_counter() - start}


def table_seconds_theirs(torch, calls: int) -> dict[str, float]:
    """The same of PyTorch."""
    x = torch.ones(10)
    prof = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    )
    prof.start()
    for _ in range(calls // CALLS):
        adding(x, x)()
    start = time.perf_counter()
    prof.stop()
    prof.key_averages().table()
    return {"calls": calls, "seconds": time.perf_counter() - start}


def overheads(smoke: bool) -> dict:
    """Measure what is added to a call, an annotation and a kernel, in µs."""
    repeats, torch = 2 if smoke else 25, import_torch()
    results = {"ours_us": ours(repeats), "torch_us": theirs(torch, repeats) if torch else {}}
    results["ours_us"]["annotation, nothing records"] = annotation_us(gh.record_function, repeats)
    if torch:
        results["torch_us"]["annotation, nothing records"] = annotation_us(
            torch.profiler.record_function, repeats
        )
    results["ours_us"]["kernel of a Program"] = per_kernel_us(repeats)
    return results | {"captured_us": captured(repeats), "event_bytes": EVENT.itemsize}


def tables(smoke: bool) -> dict:
    """Seconds from the end of a recording to its table."""
    torch = import_torch()
    results = {"ours": table_seconds(10_000 if smoke else 1_000_000)}
    if torch:
        results["torch"] = table_seconds_theirs(torch, 2_000 if smoke else 40_000)
    return results
