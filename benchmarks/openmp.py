"""Glasshouse and PyTorch in turn in one process: do their threads stand in each other's way?

The digits' training step in both frameworks: ours alone, PyTorch's alone, and one of each in turn,
with either imported first, each in a process of its own. A ratio is the step's time in turn over
that alone; times are the least of all rounds, which other processes disturb least. Aim: 1, but for
the caches that two models share.

With two OpenMP runtimes in a process, each has threads that wait for work on the same cores.
"""

import multiprocessing
import os
import sys
import time

THREADS = 2
OURS, THEIRS = "glasshouse", "torch"
ORDERS = ((OURS,), (THEIRS,), (OURS, THEIRS), (THEIRS, OURS))  # of imports, in each process


def make_steps(order: tuple[str, ...]) -> dict:
    """A training step of each framework, imported in this order."""
    assert not sys.modules.keys() & {OURS, THEIRS}
    for name in order:
        __import__(name)
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.random((64, 1, 8, 8), np.float32)
    labels = rng.integers(0, 10, 64)
    makers = {OURS: our_step, THEIRS: their_step}
    return {name: makers[name](images, labels) for name in order}


def our_step(images, labels):
    """The digits' training step, captured."""
    import glasshouse as gh
    from glasshouse import nn
    from glasshouse.cli.train_digits import make_network

    model = make_network()
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.005)
    x, y = gh.asarray(images), gh.asarray(labels)

    @gh.optimize
    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step().item()


def their_step(images, labels):
    """The same in PyTorch."""
    import torch
    from torch import nn

    torch.set_num_threads(THREADS)
    layers, width = [], 1
    for out, pools in ((16, False), (32, True), (32, True)):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * pools
        width = out
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def serve(order: tuple[str, ...], requests) -> None:
    """A process: for each number that it receives, it takes so many steps of each framework in
    turn, and sends the least of each framework's times."""
    steps = make_steps(order)
    for _ in range(10):
        for step in steps.values():
            step()
    requests.send("ready")
    while count := requests.recv():
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(count):
            for name, step in steps.items():
                begin = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - begin)
        requests.send({name: min(each) for name, each in times.items()})


def run_rounds(rounds: int, count: int) -> dict[tuple, list[float]]:
    """The times of all rounds, by (order of imports, framework); one process works at a time."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for order in ORDERS:
        pipes[order], other = spawn.Pipe()
        processes.append(spawn.Process(target=serve, args=(order, other), daemon=True))
        processes[-1].start()
        assert pipes[order].recv() == "ready"
    times: dict[tuple, list[float]] = {}
    for _ in range(rounds):
        for order, pipe in pipes.items():
            pipe.send(count)
            for name, seconds in pipe.recv().items():
                times.setdefault((order, name), []).append(seconds)
    for pipe, process in zip(pipes.values(), processes):
        pipe.send(0)
        process.join()
    return times


def main() -> int:
    # Not above: processes import this file first, and the harness imports glasshouse.
    from harness import parse_arguments, save, show

    options = parse_arguments(__doc__)
    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    times = run_rounds(*((2, 3) if options.smoke else (30, 20)))
    results, rows = {}, []
    for (order, name), seconds in times.items():
        alone = times[(name,), name]
        ratio = min(seconds) / min(alone)
        title = f"{name}'s step, " + (f"{order[0]} imported first" if len(order) > 1 else "alone")
        results[title] = {"least_s": min(seconds), "ratio": ratio}
        rows.append([title, f"{1e3 * min(seconds):.2f} ms", f"{ratio:.2f}"])
    show("openmp", ["", "least", "/ alone"], rows)
    print(save("openmp", results, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
