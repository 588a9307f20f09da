"""Latency and bandwidth of collectives between two ranks, beside other transports.

    python benchmarks/collectives.py

The transport `local` beside `shared_files`, PyTorch's gloo and MPI (mpi4py) where those are
installed, and beside one plain copy of as many bytes. Each transport has its own pair of processes,
which stay; rounds go through all transports in turn, and medians and lowest times are taken.

A second table is of collectives in Programs, each started before a product and waited for after
it: what a Program with all-reduces takes longer than the same without them, for each of them, by
`local` in C and by its methods, in turn, beside a direct call."""

import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse import distributed
from glasshouse.base.flags import flags
from glasshouse.ops.process import process

SIZE = 2
COUNTS = {"4 B": 1, "4 KB": 1_000, "1 MB": 250_000, "100 MB": 25_000_000}  # of float32
SECONDS = 0.3  # of calls in a round
MOST_CALLS = 2000
IN_PROGRAMS = {"4 B": 1, "4 KB": 1_000, "64 KB": 16_000, "1 MB": 250_000}
CALLS_OF_PROGRAM, RUNS = 16, 10


class Ours:
    """A transport of this package."""

    def __init__(self, name: str, rank: int, folder: str):
        distributed.init(name, rank=rank, size=SIZE, rendezvous=folder)
        self.transport = process.transport(process.world)

    def all_reduce(self, x, out):
        self.transport.all_reduce(x, out)

    def barrier(self):
        self.transport.barrier()


class Gloo:
    """PyTorch's transport between processors; its all-reduce works in place."""

    def __init__(self, rank: int, folder: str):
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(1)
        self.dist = importlib.import_module("torch.distributed")
        self.dist.init_process_group(
            "gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=SIZE
        )

    def all_reduce(self, _x, out):
        self.dist.all_reduce(self.torch.from_numpy(out))

    def barrier(self):
        self.dist.barrier()


class PlainMpi:
    """MPI's own call, as mpi4py gives it."""

    def __init__(self):
        self.comm = importlib.import_module("mpi4py.MPI").COMM_WORLD

    def all_reduce(self, x, out):
        self.comm.Allreduce(x, out)

    def barrier(self):
        self.comm.Barrier()


def seconds_of(peer, count: int, calls: int) -> list[float]:
    """Of each call, on this rank."""
    x, out, results = np.ones(count, np.float32), np.zeros(count, np.float32), []
    peer.all_reduce(x, out)
    peer.barrier()
    for _ in range(calls):
        begin = time.perf_counter()
        peer.all_reduce(x, out)
        results.append(time.perf_counter() - begin)
    return results


def serve(peer, channel) -> None:
    """Do what is told, until there is no more."""
    while (task := channel.recv()) is not None:
        channel.send(seconds_of(peer, *task))


def run_ours(name: str, rank: int, folder: str, channel) -> None:
    serve(Gloo(rank, folder) if name == "gloo" else Ours(name, rank, folder), channel)
    if name != "gloo":
        distributed.shutdown()


class Pair:
    """Two processes of a transport; `run` times calls on both and gives those of the first."""

    def __init__(self, name: str, folder: str):
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(SIZE)]
        self.channels = [pipe for pipe, _ in pipes]
        self.workers = [
            context.Process(target=run_ours, args=(name, rank, folder, pipes[rank][1]))
            for rank in range(SIZE)
        ]
        for worker in self.workers:
            worker.start()

    def run(self, count: int, calls: int) -> list[float]:
        for channel in self.channels:
            channel.send((count, calls))
        return [channel.recv() for channel in self.channels][0]

    def end(self) -> None:
        for channel in self.channels:
            channel.send(None)
        for worker in self.workers:
            worker.join()


class MpiPair(Pair):
    """Two processes started by mpiexec, which connect to this one."""

    def __init__(self, folder: str):
        listener = Listener(f"{folder}/mpi", "AF_UNIX")
        launcher = Path(sys.executable).with_name("mpiexec")
        command = [launcher, "-n", str(SIZE), sys.executable, __file__, "--mpi", listener.address]
        self.process = subprocess.Popen(command)
        self.channels = [listener.accept() for _ in range(SIZE)]

    def end(self):
        for channel in self.channels:
            channel.send(None)
        self.process.wait()


def run_mpi(address: str) -> None:
    peer = PlainMpi()
    for rank in range(SIZE):  # the first to connect is rank 0
        peer.barrier()
        if rank == peer.comm.rank:
            channel = Client(address, "AF_UNIX")
    serve(peer, channel)


def copies(count: int, calls: int) -> list[float]:
    x, out, results = np.ones(count, np.float32), np.zeros(count, np.float32), []
    for _ in range(calls):
        begin = time.perf_counter()
        np.copyto(out, x)
        results.append(time.perf_counter() - begin)
    return results


def pairs(folder: str) -> dict[str, Pair]:
    """By the transports that are here."""
    names = ["local", "shared_files"] + ["gloo"] * bool(importlib.util.find_spec("torch"))
    results: dict[str, Pair] = {}
    for name in names:
        place = Path(folder, name)
        place.mkdir()
        results[name] = Pair(name, str(place))
    if importlib.util.find_spec("mpi4py") and Path(sys.executable).with_name("mpiexec").exists():
        results["mpi"] = MpiPair(folder)
    return results


def run_program(xs: list, a, collects: bool) -> None:
    """Products, each beside an all-reduce where it `collects`."""
    y, sums = a, []
    for x in xs:
        doubled = x * 2
        sums.append((distributed.all_reduce(doubled) if collects else doubled) + 1)
        y = gh.tanh(y @ a)
    gh.eval(y, *sums)


def seconds_in_program(count: int, rounds: int) -> dict[str, list[float]]:
    """Of a collective, by who makes it; on this rank."""
    transport = process.transport(process.world)
    xs = [gh.asarray(np.ones(count, np.float32)) for _ in range(CALLS_OF_PROGRAM)]
    a, direct = gh.asarray(np.full((128, 128), 1e-3, np.float32)), np.ones(count, np.float32)
    ways = {
        "none": lambda: run_program(xs, a, False),
        "C": lambda: run_program(xs, a, True),
        "methods": lambda: run_program(xs, a, True),
        "direct": lambda: [transport.all_reduce(direct, direct, "max") for _ in xs],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with flags.override(compile="always"):
        for _ in range(rounds):
            for name, run in ways.items():
                transport.may_work_in_c = name != "methods"
                run()
                distributed.barrier()
                begin = time.perf_counter()
                for _ in range(RUNS):
                    run()
                times[name].append((time.perf_counter() - begin) / RUNS / CALLS_OF_PROGRAM)
    without = times.pop("none")
    for name in ("C", "methods"):
        times[name] = [a - b for a, b in zip(times[name], without, strict=True)]
    return times


def calls_of(count: int, smoke: bool) -> int:
    expected_s = 10e-6 + 4 * count / 1e9
    return 2 if smoke else max(3, min(MOST_CALLS, int(SECONDS / expected_s)))


def summary(times: list[float], nbytes: int) -> dict[str, float]:
    median = statistics.median(times)
    return {
        "median_s": median,
        "lowest_s": min(times),
        "bytes_per_s": nbytes / median,
        "calls": len(times),
    }


def main() -> None:
    options = parse_arguments(__doc__)
    counts = {"4 B": 1, "4 KB": 1_000} if options.smoke else COUNTS
    with tempfile.TemporaryDirectory(prefix="collectives-") as folder:
        running = pairs(folder)
        try:
            times = {label: {name: [] for name in (*running, "one copy")} for label in counts}
            for _ in range(1 if options.smoke else 5):
                for label, count in counts.items():
                    calls = calls_of(count, options.smoke)
                    for name, pair in running.items():
                        few = min(calls, 200) if name == "shared_files" else calls
                        times[label][name] += pair.run(count, few)
                    times[label]["one copy"] += copies(count, calls)
        finally:
            for pair in running.values():
                with contextlib.suppress(OSError):
                    pair.end()
    results = {
        label: {name: summary(result, 4 * counts[label]) for name, result in by_name.items()}
        for label, by_name in times.items()
    }
    columns = ["median µs", "lowest µs"]
    show("all_reduce of float32, 2 ranks", ["bytes", "transport", *columns], rows_of(results))
    inside = {}
    for label, count in [*IN_PROGRAMS.items()][: 1 if options.smoke else None]:
        times = distributed.spawn(seconds_in_program, SIZE, count, 2 if options.smoke else 40)[0]
        inside[label] = {name: summary(result, 4 * count) for name, result in times.items()}
    show("the same in Programs", ["bytes", "made by", *columns], rows_of(inside))
    results |= {"in_programs": inside, "load": os.getloadavg()[0]}
    print(save("collectives", results, options))


def rows_of(results: dict) -> list[list[str]]:
    return [
        [label, name, *(f"{1e6 * result[key]:,.1f}" for key in ("median_s", "lowest_s"))]
        for label, by_name in results.items()
        for name, result in by_name.items()
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--mpi"]:
        run_mpi(sys.argv[2])
    else:
        main()
