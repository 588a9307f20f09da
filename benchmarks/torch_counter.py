"""Time that counting and profiling add to an operator of eager PyTorch, ours and PyTorch's own, in
turn.

`operators`: nothing, an empty TorchDispatchMode, our FlopCounter, PyTorch's FlopCounterMode.
`profile`: our profiler and torch.profiler, both with shapes, stacks and memory, on a CPU: what is
added while the steps run, with what it takes to stop, and with the first table of operators.

Aims: FlopCounter at most 12 µs an operator; our profiler, stopped and with its table, below
torch.profiler's. Seconds are the thread's own (time.thread_time), so that other processes disturb
them less; each figure is the median of rounds in which the cases took turns.
"""

import gc
import os
import statistics
import time
import warnings
from contextlib import nullcontext

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler prints at every start

import torch
from harness import parse_arguments, save, show
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import glasshouse as gh

SIZE, LAYERS = 8, 10
PARTS = ("operators", "profile")


class EmptyMode(TorchDispatchMode):
    """Does what no mode would do, and counts calls for this script."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        EmptyMode.calls += 1
        return func(*args, **(kwargs or {}))


def programs() -> dict:
    """Return the programs to run: small operators, so that added time stands out."""
    x, y = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE, requires_grad=True)
    model = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE) for _ in range(LAYERS)))
    weights = [(layer.weight, layer.bias) for layer in model]

    def additions():
        for _ in range(100):
            x + x

    def inference():
        with torch.no_grad():
            model(x)

    def functions():
        z = y
        for w, b in weights:
            z = torch.nn.functional.linear(z, w, b)
        z.sum().backward()

    def training():
        model(y).sum().backward()

    return {
        "100 additions": additions,
        f"{LAYERS} modules, inference": inference,
        f"{LAYERS} functions, both passes": functions,
        f"{LAYERS} modules, both passes": training,
    }


def operators_of(run) -> int:
    with EmptyMode():
        run()
        EmptyMode.calls = 0
        run()
    return EmptyMode.calls


def in_turn(run, contexts: dict, rounds: int, times: int) -> dict[str, list[tuple[float, ...]]]:
    """For each context and round: seconds of the loop, with the context's end, and with what
    `table` makes of it."""
    results: dict[str, list[tuple[float, ...]]] = {name: [] for name in contexts}
    gc.disable()
    for k in range(rounds + 1):
        for name in (list(contexts) * 2)[k % len(contexts) :][: len(contexts)]:
            make, table = contexts[name]
            context = make()
            with context:
                run()
                begin = time.thread_time()
                for _ in range(times):
                    run()
                looped = time.thread_time()
            ended = time.thread_time()
            table(context)
            if k:
                results[name].append(tuple(t - begin for t in (looped, ended, time.thread_time())))
        gc.collect()
    gc.enable()
    return results


def added(result: dict, calls: int) -> dict[str, list[float]]:
    """Median µs that each context adds to an operator: in the loop, with its end, and its table."""
    micro = {
        name: [1e6 * statistics.median(column) / calls for column in zip(*rows, strict=True)]
        for name, rows in result.items()
    }
    plain = micro.pop("nothing")
    return {"nothing": plain, **{n: [a - b for a, b in zip(x, plain)] for n, x in micro.items()}}


def no_table(context) -> None:
    return None


def count_operators(smoke: bool) -> dict:
    contexts = {
        "nothing": (nullcontext, no_table),
        "empty mode": (EmptyMode, no_table),
        "FlopCounter": (gh.FlopCounter, no_table),
        "FlopCounterMode": (lambda: FlopCounterMode(display=False), no_table),
    }
    rounds, results = (2 if smoke else 9), {}
    for name, run in programs().items():
        calls = operators_of(run)
        times = 1 if smoke else max(1, 4000 // calls)
        micro = added(in_turn(run, contexts, rounds, times), calls * times)
        results[name] = {"operators": calls, "us": {mode: t[0] for mode, t in micro.items()}}
    return results


def their_profile():
    activities = [torch.profiler.ProfilerActivity.CPU]
    options = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    return torch.profiler.profile(activities=activities, **options)


def our_profile():
    return gh.profile(record_shapes=True, profile_memory=True, with_stack=True)


def profile(smoke: bool) -> dict:
    contexts = {
        "nothing": (nullcontext, no_table),
        "gh.profile": (our_profile, lambda prof: prof.key_averages().table()),
        "torch.profiler": (their_profile, lambda prof: prof.key_averages().table()),
    }
    rounds, results = (1 if smoke else 5), {}
    for name, run in programs().items():
        calls = operators_of(run)
        times = 1 if smoke else max(1, 2000 // calls)
        results[name] = {
            "operators": calls,
            "us": added(in_turn(run, contexts, rounds, times), calls * times),
        }
    return results


def show_operators(result: dict) -> None:
    modes = ("nothing", "empty mode", "FlopCounter", "FlopCounterMode")
    rows = [[name, *(f"{r['us'][mode]:.1f}" for mode in modes)] for name, r in result.items()]
    columns = ["µs an operator", "plain", "empty mode adds", "FlopCounter", "FlopCounterMode"]
    show("Counting eager PyTorch", columns, rows, "medians; aim: FlopCounter at most 12")


def show_profile(result: dict) -> None:
    rows = [
        [name, *(f"{t:.1f}" for mode in ("gh.profile", "torch.profiler") for t in r["us"][mode])]
        for name, r in result.items()
    ]
    parts = ("loop", "and stop", "and table")
    columns = ["µs an operator", *(f"{mode}: {p}" for mode in ("ours", "torch") for p in parts)]
    show("Profiling eager PyTorch", columns, rows, "added, medians; with shapes, stacks, memory")


def main() -> None:
    options = parse_arguments(__doc__, PARTS)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: dict = {}
    parts = options.parts or PARTS
    if "operators" in parts:
        results["operators"] = count_operators(options.smoke)
        show_operators(results["operators"])
    if "profile" in parts:
        results["profile"] = profile(options.smoke)
        show_profile(results["profile"])
    save("torch_counter", results, options)


if __name__ == "__main__":
    main()
