"""Ranks that die, hang or disagree at random moments: all others have to end in time, and say why.

    python tools/fuzzers/collective_faults.py --faults 200 --seed 0
    python tools/fuzzers/collective_faults.py --faults 200 --seed 0 --programs
    python tools/fuzzers/collective_faults.py --faults 200 --seed 0 --disagreements
    python tools/fuzzers/collective_faults.py --faults 200 --seed 0 --disagreements --transport mpi

Each fault has a sequence of collectives, and one rank that does something else at one step. With
`--programs`, compiled Programs make the collectives, each started before other steps and waited for
after them; with `--disagreements` all ranks live, and call different things. Over mpi there are no
others. Each fault has fresh processes, but for those over mpi in which nothing has moved when it is
refused: there one world goes on. Printed is each that was not survived or not reported as it should
be. The exit status is 1 where there is one."""

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
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
from glasshouse.ops.process import process

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
LIMIT_S = 30.0  # of a collective, where nothing hangs
SHORT_S = 2.0  # where something does
PLANS_OF_WORLD = 50  # over mpi
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
AT_ONCE_S = 15.0  # on a machine with much else to do
SLACK_S = 60.0  # until the script itself gives up
LARGE = 5_000_000
LONG = 4000  # beyond what other ranks have arrays for

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
    "long": rf"shape \((\d, )?{LONG},?\)",
    "shape": r"shape \((\d, )?2, 2\)",
    "axis": "axis 1",
    "mean": "mean",
    "reduce": "max",
    "root": "root 1",
    "group": "of group pair",
    "message": r"float64, (4 elements|shape \(4,\))",
}
LATE = ("stop", "hang")  # only the limit ends these
ALL_SEE = (
    *("other", "order", "skip", "dtype", "size", "long", "shape", "axis", "mean", "reduce", "root"),
    *("group", "message"),
)
ENDS_WORLD = ("group", "message")  # over mpi: ranks wait for each other, or a message is left
ASKED = ("shape", "axis", "mean")  # seen by what cards ask for alone


class Plan(NamedTuple):
    """One fault: its kind, the ranks, the rank that does it, at which of these calls."""

    kind: str
    size: int
    bad: int
    step: int
    calls: tuple[str, ...]
    seed: int
    cards: bool = False
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
        "long": rng.choice(CALLS[:5]),
        "shape": rng.choice(CALLS[:5]),
        "axis": rng.choice(CALLS[1:3]),
        "mean": "all_reduce",
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
    return Plan(kind, size, bad, step, tuple(calls), seed, kind in ASKED)


SHAPES = {"size": (8,), "long": (LONG,), "shape": (2, 2)}

# -- what a rank does ------------------------------------------------------------------------------


class Way:
    """How ranks of this process call: by cards, in Programs or not, or a transport's methods."""

    programs = cards = False


def call(name: str, shape=(4,), dtype=np.float32, **options) -> None:
    is_card = name not in ("message", "barrier") and (name != "reduce_scatter" or not options)
    if (Way.programs or Way.cards) and (is_card or "axis" in options):
        call_card(name, shape, dtype, **options)
        return
    transport = process.transport(process.world)
    x, many = np.ones(shape, dtype), np.ones((transport.size, *shape), dtype)
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


def call_card(name: str, shape, dtype, **options) -> None:
    large, many = name == "large", name in ("reduce_scatter", "all_to_all")
    shape = (LARGE,) if large else (dist.size(), *shape) if many else shape
    x, y = gh.asarray(np.ones(shape, dtype)), gh.asarray(np.ones((64, 64), np.float32))
    function = getattr(dist, "all_reduce" if large else name)
    with flags.override(compile="always" if Way.programs else "never"):
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
    """Do something else on the bad rank than the call of this step."""
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
    elif kind in SHAPES:
        call(name, SHAPES[kind])
    elif kind == "axis":
        call(name, (plan.size, plan.size), axis=1)
    elif kind == "mean":
        call(name, reduce="mean")
    elif kind == "reduce":
        call(name, reduce="max")
    elif kind == "root":
        call(name, root=1)


def make_calls(plan: Plan, rank: int, pair) -> tuple[str, float]:
    """Return the outcome of a plan on this rank, and the seconds from its step on."""
    begin, answer, Way.programs = time.monotonic(), "survived", plan.programs
    Way.cards = plan.cards
    try:
        for step, name in enumerate(plan.calls):
            begin = time.monotonic() if step <= plan.step else begin
            if (rank, step) != (plan.bad, plan.step):
                call(name, **usual(plan, step))
            elif plan.kind == "leave":
                break
            else:
                misbehave(plan, pair)
    except CollectiveError as error:
        answer = str(error)
    except MemoryError:
        dist.shutdown()
        answer = "out of memory"
    return answer, time.monotonic() - begin


def usual(plan: Plan, step: int) -> dict:
    """How the others call at the step at which one calls by another axis."""
    if plan.kind != "axis":
        return {}
    return {"shape": (plan.size, plan.size)} if step == plan.step else {}


def run_rank(plan: Plan, rank: int, folder: str, sender) -> None:
    """Tell the error, or that there was none, and after how many seconds from the step on."""
    place = {"rank": rank, "size": plan.size, "rendezvous": folder, "timeout_s": plan.timeout_s}
    dist.init("local", **place)
    sender.send(make_calls(plan, rank, dist.group((0, 1), "pair")))
    sender.close()
    dist.shutdown()


# -- what is looked at -----------------------------------------------------------------------------


def outcome(plan: Plan) -> tuple[dict[int, tuple[str, float]], list[str]]:
    """Return what each rank told, None where it died, and what was left over."""
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
    end, reports = time.monotonic() + SLACK_S, {}
    missing = {receiver: rank for rank, (receiver, _) in enumerate(pipes)}
    ends_alone = plan.kind not in LATE
    while missing and time.monotonic() < end:
        for receiver in wait(list(missing), 1.0):
            rank = missing.pop(receiver)
            try:
                reports[rank] = receiver.recv()
            except EOFError:
                reports[rank] = None
        if not ends_alone and set(missing.values()) == {plan.bad}:
            break
    for worker in workers:
        if worker.is_alive() and not reports.get(workers.index(worker)):
            worker.kill()
        worker.join()
    left = [name for name in os.listdir(folder) if not name.startswith("key-")]
    shutil.rmtree(folder)
    return reports, left


def outcomes_over_mpi(plans: list[Plan]) -> list[dict[int, tuple[str, float]]]:
    """Return what each rank told of plans of one size, in one world."""
    command = [shutil.which("mpiexec", path=PATH), "-n", str(plans[0].size), sys.executable]
    options = [json.dumps(plan) for plan in plans]
    done = subprocess.run(
        [*command, __file__, "--as-rank", *options], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    if len(lines) < len(plans) * plans[0].size:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
    reports: list[dict] = [{} for _ in plans]
    for line in lines:
        (number, rank), answer = json.loads(line)
        reports[number][rank] = answer
    return reports


def run_over_mpi(plans: list[str]) -> None:
    """A rank of mpiexec: print [[plan, rank], [text, seconds]] of each plan."""
    rank = dist.init("mpi", timeout_s=LIMIT_S).rank
    pair = dist.group((0, 1), "pair") if dist.size() > 2 else dist.world()
    for transport in process.transports.values() if len(plans) == 1 else ():
        transport.timeout_s = SHORT_S
    for number, text in enumerate(plans):
        plan = Plan(*json.loads(text))
        line = json.dumps([[number, rank], make_calls(plan, rank, pair)])
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    if plan.kind in ENDS_WORLD:
        time.sleep(SHORT_S)  # until mpiexec has passed on what all ranks printed
        os._exit(0)


def found_over_mpi(plans: list[Plan]) -> list[list[str]]:
    """Return the problems after each of these faults."""
    worlds: dict = {}
    for number, plan in enumerate(plans):
        key = number if plan.kind in ENDS_WORLD else (plan.size, number // PLANS_OF_WORLD)
        worlds.setdefault(key, []).append(number)
    results: list[list[str]] = [[] for _ in plans]
    for numbers in worlds.values():
        reports = outcomes_over_mpi([plans[i] for i in numbers])
        for i, own in zip(numbers, reports, strict=True):
            results[i] = faults_of_ranks(plans[i], own)
    return results


def problems(plan: Plan) -> list[str]:
    """Return the problems after a fault."""
    reports, left = outcome(plan)
    return ([f"left behind: {left}"] if left else []) + faults_of_ranks(plan, reports)


def faults_of_ranks(plan: Plan, reports: dict) -> list[str]:
    """Return the problems in what the ranks told."""
    results = []
    for rank in range(plan.size):
        text, seconds = reports.get(rank) or ("nothing", 0.0)
        if rank == plan.bad and plan.kind not in (*ALL_SEE, "slow"):
            continue
        results += [f"rank {rank} {why}" for why in faults_of(plan, rank, text, seconds)]
    return results


def faults_of(plan: Plan, rank: int, text: str, seconds: float) -> list[str]:
    """Return the problems in what a rank told."""
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


def planned_by(options) -> list[Plan]:
    """The plans that the command line asks for."""
    all_agree = not options.disagreements and options.transport != "mpi"
    kinds = options.kinds or (None if all_agree else ALL_SEE)
    plans = []
    for number in range(options.first, options.first + options.faults):
        kind = kinds[number % len(kinds)] if kinds else None
        plan = planned(options.seed * 1_000_003 + number, kind)
        if options.transport == "mpi" and kind != "group":  # few starts, and no crowd of ranks
            plan = plan._replace(size=2, bad=plan.bad % 2)
        plans.append(plan._replace(programs=options.programs))
    return plans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="those from this one on")
    parser.add_argument("--programs", action="store_true", help="Programs make the collectives")
    parser.add_argument("--kinds", nargs="*", choices=sorted(FAULTS), help="these in turn")
    parser.add_argument("--disagreements", action="store_true", help="no other kinds")
    parser.add_argument("--transport", choices=("local", "mpi"), default="local")
    parser.add_argument("--as-rank", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        run_over_mpi(options.as_rank)
        return
    bad, plans = 0, planned_by(options)
    over_mpi = options.transport == "mpi"
    result = found_over_mpi(plans) if over_mpi else map(problems, plans)
    for plan, own in zip(plans, result, strict=True):
        if own:
            bad += 1
            print(plan, *own, sep="\n  ", flush=True)
    kinds = dict(Counter(plan.kind for plan in plans))
    print(f"{options.faults - bad} of {options.faults} faults as they should be: {kinds}")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
