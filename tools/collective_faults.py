"""Ranks that die, hang or disagree at random moments: all others have to end in time, and say why.

    python tools/collective_faults.py --faults 200 --seed 0
    python tools/collective_faults.py --faults 200 --seed 0 --programs

Each fault has fresh processes, a sequence of collectives, and one rank that does something else at
one step. With `--programs`, compiled Programs make the collectives, each started before other steps
and waited for behind them. Printed is each that was not survived or not reported as it should be.
The exit status is 1 where there is one."""

import argparse
import multiprocessing
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import CollectiveError
from glasshouse.base.flags import flags
from glasshouse.ops.collective import process

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
LIMIT_S = 30.0  # of a collective, where nothing hangs
SHORT_S = 2.0  # where something does
AT_ONCE_S = 15.0  # on a machine with much else to do
SLACK_S = 60.0  # until the script itself gives up
LARGE = 5_000_000

# What is done, and what the others have to say, as a pattern; {bad} is the rank.
FAULTS = {
    "kill": r"rank {bad} \(process \d+\) was killed",
    "kill inside": r"rank {bad} \(process \d+\) was killed",
    "leave": "rank {bad} has left",
    "memory": "rank {bad} has left with MemoryError",
    "stop": r"rank {bad} \(process \d+\) is stopped",
    "hang": "rank {bad} not there",
    "slow": None,
    "other": "rank {bad} ",
    "order": "rank {bad} ",
    "skip": "rank {bad} ",
    "dtype": "float64",
    "size": r"shape \((\d, )?8,?\)",
    "reduce": "max",
    "root": "root 1",
    "group": "of group pair",
    "message": r"float64, (4 elements|shape \(4,\))",
}
LATE = ("stop", "hang")  # only the limit ends these
ALL_SEE = ("other", "order", "skip", "dtype", "size", "reduce", "root", "group", "message")


class Plan(NamedTuple):
    """One fault: its kind, the ranks, the rank that does it, at which of these calls."""

    kind: str
    size: int
    bad: int
    step: int
    calls: tuple[str, ...]
    seed: int
    programs: bool = False

    @property
    def timeout_s(self) -> float:
        return SHORT_S if self.kind in LATE else LIMIT_S


def planned(seed: int, kind: str | None = None) -> Plan:
    rng = random.Random(seed)
    kind = kind or rng.choice(sorted(FAULTS))
    size = 3 if kind == "group" else rng.choice((2, 2, 3, 4))
    step = rng.randrange(1, 6)
    calls = [rng.choice(CALLS) for _ in range(8)]
    needs = {
        "dtype": rng.choice(CALLS[:5]),
        "size": rng.choice(CALLS[:5]),
        "reduce": rng.choice(("all_reduce", "reduce_scatter")),
        "root": "broadcast",
        "group": "all_reduce",
        "message": "message",
        "kill inside": "large",
    }
    calls[step] = needs.get(kind, calls[step])
    if kind in ("order", "skip"):  # what comes next has to be something else
        calls[step : step + 2] = rng.sample(CALLS, 2)
    bad = rng.randrange(2) if kind in ("message", "group") else rng.randrange(size)
    return Plan(kind, size, bad, step, tuple(calls), seed)


# -- what a rank does ------------------------------------------------------------------------------


class Way:
    """How ranks of this process call: by Programs, or a transport's methods."""

    programs = False


def call(name: str, count: int = 4, dtype=np.float32, **options) -> None:
    as_step = name not in ("message", "barrier") and (name != "reduce_scatter" or not options)
    if Way.programs and as_step:
        call_in_program(name, count, dtype, **options)
        return
    transport = process.transport(process.world)
    x, many = np.ones(count, dtype), np.ones((transport.size, count), dtype)
    if name == "large":
        x = np.ones(LARGE, dtype)
        transport.all_reduce(x, x)
    elif name == "message":
        exchange(transport, x)
    elif name == "all_reduce":
        transport.all_reduce(x, x, options.get("reduce", "sum"))
    elif name == "all_gather":
        transport.all_gather(x, many)
    elif name == "reduce_scatter":
        transport.reduce_scatter(many, x, options.get("reduce", "sum"))
    elif name == "all_to_all":
        transport.all_to_all(many, many.copy())
    elif name == "broadcast":
        transport.broadcast(x, options.get("root", 0))
    else:
        transport.barrier()


def call_in_program(name: str, count: int, dtype, **options) -> None:
    large, many = name == "large", name in ("reduce_scatter", "all_to_all")
    count = LARGE if large else dist.size() * count if many else count
    x, y = gh.asarray(np.ones(count, dtype)), gh.asarray(np.ones((64, 64), np.float32))
    function = getattr(dist, "all_reduce" if large else name)
    with flags.override(compile="always"):
        result = function(x * 2, **options)
        gh.eval(gh.tanh(y @ y) @ y, result + 1)


def exchange(transport, x: np.ndarray) -> None:
    """From rank 0 to rank 1, and back."""
    if transport.rank == 0:
        transport.send(x, 1)
        transport.receive(x, 1)
    elif transport.rank == 1:
        transport.receive(x, 0)
        transport.send(x, 0)


def other_than(name: str) -> str:
    return CALLS[(CALLS.index(name) + 1) % len(CALLS)]


def misbehave(plan: Plan, pair) -> None:
    """What the bad rank does in the place of the call of this step."""
    name, kind = plan.calls[plan.step], plan.kind
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "kill inside":
        moment_s = random.Random(plan.seed).uniform(0, 0.01)
        threading.Timer(moment_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        call(name)
        time.sleep(SLACK_S)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "hang":
        time.sleep(SLACK_S)
    elif kind == "memory":
        np.empty(1 << 60, np.uint8)
    elif kind == "slow":
        time.sleep(0.3)
        call(name)
    elif kind == "other":
        call(other_than(name))
    elif kind == "order":
        call(plan.calls[plan.step + 1])
    elif kind == "group":
        x = np.ones(4, np.float32)
        process.transport(pair).all_reduce(x, x)
    elif kind in ("dtype", "message"):
        call(name, dtype=np.float64)
    elif kind == "size":
        call(name, 8)
    elif kind == "reduce":
        call(name, reduce="max")
    elif kind == "root":
        call(name, root=1)


def run_rank(plan: Plan, rank: int, folder: str, sender) -> None:
    """Tell the error, or that there was none, and after how many seconds from the step on."""
    place = {"rank": rank, "size": plan.size, "rendezvous": folder, "timeout_s": plan.timeout_s}
    begin, answer, Way.programs = time.monotonic(), "survived", plan.programs
    try:
        dist.init("local", **place)
        pair = dist.group((0, 1), "pair")
        for step, name in enumerate(plan.calls):
            begin = time.monotonic() if step <= plan.step else begin
            if (rank, step) != (plan.bad, plan.step):
                call(name)
            elif plan.kind == "leave":
                break
            else:
                misbehave(plan, pair)
    except CollectiveError as error:
        answer = str(error)
    except MemoryError:
        dist.shutdown()
        answer = "out of memory"
    sender.send((answer, time.monotonic() - begin))
    sender.close()
    dist.shutdown()


# -- what is looked at -----------------------------------------------------------------------------


def outcome(plan: Plan) -> tuple[dict[int, tuple[str, float]], list[str]]:
    """What each rank told, None where it died, and what was left behind."""
    context = multiprocessing.get_context("fork")
    folder = tempfile.mkdtemp(prefix="collective-faults-")
    pipes = [context.Pipe(duplex=False) for _ in range(plan.size)]
    workers = [
        context.Process(target=run_rank, args=(plan, rank, folder, pipes[rank][1]))
        for rank in range(plan.size)
    ]
    for worker, (_, sender) in zip(workers, pipes, strict=True):
        worker.start()
        sender.close()
    end, told = time.monotonic() + SLACK_S, {}
    missing = {receiver: rank for rank, (receiver, _) in enumerate(pipes)}
    ends_alone = plan.kind not in LATE
    while missing and time.monotonic() < end:
        for receiver in wait(list(missing), 1.0):
            rank = missing.pop(receiver)
            try:
                told[rank] = receiver.recv()
            except EOFError:
                told[rank] = None
        if not ends_alone and set(missing.values()) == {plan.bad}:
            break
    for worker in workers:
        if worker.is_alive() and not told.get(workers.index(worker)):
            worker.kill()
        worker.join()
    left = [name for name in os.listdir(folder) if not name.startswith("key-")]
    shutil.rmtree(folder)
    return told, left


def problems(plan: Plan) -> list[str]:
    """What is not as it should be after a fault."""
    told, left = outcome(plan)
    found = [f"left behind: {left}"] if left else []
    for rank in range(plan.size):
        text, seconds = told.get(rank) or ("nothing", 0.0)
        if rank == plan.bad and plan.kind not in (*ALL_SEE, "slow"):
            continue
        found += [f"rank {rank} {why}" for why in faults_of(plan, rank, text, seconds)]
    return found


def faults_of(plan: Plan, rank: int, text: str, seconds: float) -> list[str]:
    """What is wrong with what a rank told."""
    wanted = FAULTS[plan.kind]
    if wanted is None:
        return [] if text == "survived" else [f"did not survive: {text}"]
    limit = AT_ONCE_S if plan.kind not in LATE else SHORT_S + AT_ONCE_S
    late = [f"took {seconds:.1f} s"] if seconds > limit else []
    names = {"large": "all_reduce", "message": ""}
    name = names.get(plan.calls[plan.step], plan.calls[plan.step])
    parts = [
        wanted.replace("{bad}", str(plan.bad)),
        rf"{Path(__file__).name}:\d",
        f"rank {plan.bad}",
    ]
    parts += [] if plan.kind == "kill inside" else [name]
    parts += [] if plan.kind in ALL_SEE else ["waits in "]
    missing = [part for part in parts if not re.search(part, text)]
    return late + ([f"does not say {missing}: {text}"] if missing else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="those from this one on")
    parser.add_argument("--programs", action="store_true", help="Programs make the collectives")
    parser.add_argument("--kinds", nargs="*", choices=sorted(FAULTS), help="these in turn")
    options = parser.parse_args()
    bad, kinds = 0, Counter()
    for number in range(options.first, options.first + options.faults):
        kind = options.kinds[number % len(options.kinds)] if options.kinds else None
        plan = planned(options.seed * 1_000_003 + number, kind)
        plan = plan._replace(programs=options.programs)
        kinds[plan.kind] += 1
        if found := problems(plan):
            bad += 1
            print(plan, *found, sep="\n  ", flush=True)
    print(f"{options.faults - bad} of {options.faults} faults as they should be: {dict(kinds)}")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
