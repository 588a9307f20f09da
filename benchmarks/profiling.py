"""What watching costs, beside PyTorch's own tools on the same operations in the same run.

Aims: FLOP counter at most 0.5 µs a call; profiler at most 1 µs a call, 2 µs with stacks, 0.2 µs a
kernel; an unused annotation 0.15 µs; a table of 1,000,000 events in 3 s; 2 % of a ResNet-50 step.
"""

import gc
import os
import statistics
import time
from contextlib import nullcontext

from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse.graph.record import recorder

CALLS = 2000
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler prints at every start


def adding(x, y, after=lambda: None):
    """CALLS additions."""

    def run():
        for _ in range(CALLS):
            x + y
        after()

    return run


def forget():
    recorder.pending = []


def microseconds_added(run, contexts: dict, repeats: int) -> dict[str, float]:
    """µs that each context adds to a call of `run`, against the plain loop in the same round."""
    times: dict[str, list[float]] = {name: [] for name in ("plain", *contexts)}
    gc.disable()
    for _ in range(repeats + 1):
        for name, make in {"plain": nullcontext, **contexts}.items():
            with make():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        gc.collect()
    gc.enable()
    plain = times.pop("plain")
    return {
        name: 1e6 * statistics.median(a - b for a, b in zip(found[1:], plain[1:])) / CALLS
        for name, found in times.items()
    }


class Digested(gh.FlopCounter):
    """A counter whose sorting of the last calls is timed too."""

    def __exit__(self, *exc_info):
        self.digest()
        super().__exit__(*exc_info)


def ours(repeats: int) -> dict[str, float]:
    x, y = gh.ones((10,)), gh.ones((10,))
    gh.eval(x, y)
    counter = Digested()
    contexts = {
        "FLOP counter": lambda: counter,
        "profiler": gh.profile,
        "profiler, shapes, modules, memory": lambda: gh.profile(
            record_shapes=True, profile_memory=True
        ),
        "profiler, stacks too": lambda: gh.profile(
            record_shapes=True, profile_memory=True, with_stack=True
        ),
    }
    return microseconds_added(adding(x, y, forget), contexts, repeats)


def theirs(repeats: int) -> dict[str, float]:
    """The same of PyTorch; nothing where it is not installed."""
    try:
        import torch
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return {}
    x = torch.ones(10)
    profile, cpu = torch.profiler.profile, [torch.profiler.ProfilerActivity.CPU]
    contexts = {
        "FLOP counter": lambda: FlopCounterMode(display=False),
        "profiler": lambda: profile(activities=cpu),
        "profiler, shapes, modules, memory": lambda: profile(
            activities=cpu, record_shapes=True, profile_memory=True, with_modules=True
        ),
        "profiler, stacks too": lambda: profile(
            activities=cpu, record_shapes=True, profile_memory=True, with_stack=True
        ),
    }
    return microseconds_added(adding(x, x), contexts, repeats)


def annotation_us(make, repeats: int) -> float:
    """µs of an annotation while nothing records."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(CALLS):
            with make("region"):
                pass
        found.append(time.perf_counter() - start)
    return 1e6 * min(found) / CALLS


def table_seconds(calls: int) -> float:
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
    return time.perf_counter() - start


def training_step(smoke: bool):
    """A training step of ResNet-50, warmed up."""
    options = {"width": 4, "layers": (1, 1, 1, 1), "num_classes": 10} if smoke else {}
    gh.random.seed(0)
    model = gh.vision.models.resnet50(**options)
    size, batch = (48, 2) if smoke else (224, 16)
    x, y = gh.random.normal((batch, 3, size, size)), gh.zeros((batch,), dtype=gh.int64)
    optimizer = gh.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = gh.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    for _ in range(3):
        step()
    return step


def share_of_a_step(smoke: bool) -> dict[str, float]:
    """Part of a step that profiling adds, and how much of its wall time lies in kernels."""
    step, plain, watched, shares, kernels = training_step(smoke), [], [], [], 0
    for _ in range(2 if smoke else 7):
        start = time.perf_counter()
        step()
        plain.append(time.perf_counter() - start)
        with gh.profile(record_shapes=True, profile_memory=True) as prof:
            start = time.perf_counter()
            step()
            watched.append(time.perf_counter() - start)
        shares.append(prof.trace.kernel_ns / (1e9 * watched[-1]))
        runs = [run.end_ns - run.begin_ns for run in prof.trace.runs]
        kernels = prof.trace.steps.time_ns.sum() / sum(runs)
    return {
        "step_s": statistics.median(plain),
        "added_part": statistics.median(watched) / statistics.median(plain) - 1,
        "kernels_part_of_step": statistics.median(shares),
        "kernels_part_of_program": float(kernels),
    }


def per_kernel_us(repeats: int) -> float:
    """µs that timing adds to a kernel: a Program of small kernels with and without it."""
    x = gh.ones((64, 64))
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
        for _ in range(repeats):
            for watched in times:
                y = chain()
                with gh.profile() if watched else nullcontext() as prof:
                    start = time.perf_counter()
                    y.numpy()
                    times[watched].append(time.perf_counter() - start)
                if watched:
                    kernels = len(prof.trace.steps.step)
    added = statistics.median(times[True]) - statistics.median(times[False])
    return 1e6 * added / kernels


def main() -> None:
    options = parse_arguments(__doc__)
    repeats = 2 if options.smoke else 25
    found, torchs = ours(repeats), theirs(repeats)
    found["annotation, nothing records"] = annotation_us(gh.record_function, repeats)
    if torchs:
        import torch

        torchs["annotation, nothing records"] = annotation_us(
            torch.profiler.record_function, repeats
        )
    found["kernel of a Program"] = per_kernel_us(repeats)
    rows = [
        [name, f"{us:.2f}", f"{torchs[name]:.2f}" if name in torchs else ""]
        for name, us in found.items()
    ]
    show("profiling", ["", "µs added, ours", "PyTorch"], rows, "aims: 0.5, 1, 1, 2, 0.15, 0.2")
    calls = 10_000 if options.smoke else 1_000_000
    seconds = table_seconds(calls)
    step = share_of_a_step(options.smoke)
    more = [
        [f"stop and table of {calls:,} events, s", f"{seconds:.2f}"],
        ["added to a ResNet-50 step", f"{step['added_part']:.1%}"],
        ["kernels / step", f"{step['kernels_part_of_step']:.1%}"],
        ["kernels / Program run", f"{step['kernels_part_of_program']:.1%}"],
    ]
    show("", ["", "ours"], more, "aims: 3 s for 1,000,000; 2 %; 98 %")
    results = {"ours_us": found, "torch_us": torchs, "table_s": seconds, "events": calls, **step}
    print(save("profiling", results, options))


if __name__ == "__main__":
    main()
