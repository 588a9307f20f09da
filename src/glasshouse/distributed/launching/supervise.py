"""Supervisor of `glasshouse launch`: it starts a process for each rank, prints their output, ends
all when one fails, and starts them again if requested."""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags
from glasshouse.base.processes import threads_of_ranks, with_variables
from glasshouse.distributed.groups.store import FolderStore, Store
from glasshouse.distributed.launching.failure import (
    GRACE_S,
    RankFailure,
    failure_by_end,
    first_cause,
)
from glasshouse.distributed.launching.guard import ProcessGuard, kill
from glasshouse.distributed.launching.nodes import NodeLink, NodePlace
from glasshouse.distributed.launching.output import RankOutput

ENTRY = "glasshouse.distributed.launching.run_script"
LOOK_S = 0.05  # between looks whether a rank has ended
ENDING_S = 5.0  # from the signal that asks a rank to end to the one that kills it
INTERRUPTED_S = 10.0  # the same after a user's Ctrl-C
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MPIEXEC = -1  # stands for a rank where MPI starts all of them


@dataclass(frozen=True)
class LaunchPlan:
    """Launch options and program: `command` is a script, or -m and a module, with arguments."""

    command: tuple[str, ...]
    size: int
    transport: str = ""
    timeout_s: float | None = None
    restarts: int = 0
    min_ranks: int | None = None
    logs: Path | None = None
    quiet: bool = False
    node: NodePlace = NodePlace()


def launch(plan: LaunchPlan) -> int:
    """Run the plan to its end; return the exit code of the first failure, 0 without one."""
    size, least = plan.size, plan.min_ranks or plan.size
    signals: list[int] = []
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in FORWARDED:
                before = signal.signal(number, lambda number, frame: signals.append(number))
                stack.callback(signal.signal, number, before)
        for restart in range(plan.restarts + 1):
            attempt = Attempt(plan, size, restart, signals)
            attempt.run()
            if signals or not attempt.failures:
                break
            attempt.tell()
            if restart < plan.restarts:
                lost = sum(not failure.consequence for failure in attempt.failures)
                size = max(least, size - max(lost, 1))
                say(f"restart {restart + 1} of {plan.restarts}, on {size} ranks")
    if signals and attempt.codes:
        return 128 + signals[0]
    return attempt.exit_code()


def say(text: str) -> None:
    sys.stdout.flush()
    print(f"glasshouse launch: {text}", file=sys.stderr, flush=True)


class Attempt:
    """One start of all ranks, until the last has ended."""

    first_rank: int
    total: int
    ask_at: float
    kill_at: float

    def __init__(self, plan: LaunchPlan, size: int, restart: int, signals: list[int]) -> None:
        self.plan = plan
        self.size = size
        self.restart = restart
        self.signals = signals
        self.first_rank, self.total = plan.node.number * size, plan.node.count * size
        self.link: NodeLink | None = None
        self.running: dict[int, subprocess.Popen[Any]] = {}  # by rank
        self.outputs: list[RankOutput] = []
        self.failures: list[RankFailure] = []  # in the order in which they came
        self.codes: dict[int, int] = {}  # of those that did not end well, by rank
        self.forwarded: int = 0
        self.ask_at = self.kill_at = float("inf")  # time at which the remaining ranks are to end

    def run(self) -> None:
        with ExitStack() as stack:
            self.guard: ProcessGuard = stack.enter_context(ProcessGuard())
            self.selector: Any = stack.enter_context(selectors.DefaultSelector())
            self.place: str = self.guard.folder
            self.store: Store = FolderStore(self.place)
            if self.plan.node.count > 1:
                self.link = stack.enter_context(NodeLink(self.plan.node, self.place))
                self.place, self.store = self.link.place, self.link.store
            try:
                if self.plan.transport == "mpi":
                    self.start_mpi()
                else:
                    self.start_ranks()
                self.watch()
            finally:
                for rank, process in self.running.items():  # an error of our own
                    kill(process.pid)
                    self.codes[rank] = process.wait()
                for output in self.outputs:
                    output.finish()

    def watch(self) -> None:
        while self.running:
            for key, _ in self.selector.select(LOOK_S):
                if key.data.read() == 0:
                    self.selector.unregister(key.fileobj)
            self.look_for_ends()
            if self.link is not None and not self.failures and (failure := self.link.hear()):
                self.failures.append(failure)
                self.ask_at = time.monotonic()
            self.end_others()

    # -- the start -------------------------------------------------------------------------------

    def variables(self, **settings: Any) -> dict[str, str]:
        if self.plan.timeout_s is not None:
            settings["timeout_s"] = self.plan.timeout_s
        if self.plan.transport:
            settings["transport"] = self.plan.transport
        flag_variables = flags.as_variables(rendezvous=self.place, restart=self.restart, **settings)
        return {**threads_of_ranks(self.size), "PYTHONUNBUFFERED": "1", **flag_variables}

    def start_ranks(self) -> None:
        for rank in range(self.first_rank, self.first_rank + self.size):
            settings = self.variables(rank=rank, world_size=self.total)
            process = self.start(rank, self.python(), settings)
            self.listen(process.stdout, rank, sys.stdout)
            self.listen(process.stderr, rank, sys.stderr)

    def python(self) -> list[str]:
        return [sys.executable, "-m", ENTRY, str(os.getpid()), *self.plan.command]

    def start(
        self, rank: int, command: list[str], settings: dict[str, str]
    ) -> subprocess.Popen[Any]:
        process = subprocess.Popen(
            command,
            env=with_variables(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
        )
        self.guard.add(process.pid)
        self.running[rank] = process
        return process

    def start_mpi(self) -> None:
        """Have `mpiexec` start the ranks, which print into pipes that are made here."""
        for rank in range(self.size):
            for name, screen in (("out", sys.stdout), ("err", sys.stderr)):
                path = Path(self.guard.folder, f"{name}-{rank}")
                os.mkfifo(path)
                descriptor = os.open(path, os.O_RDWR)  # so that it does not end between writers
                self.listen(os.fdopen(descriptor, "rb", 0), rank, screen)
        open_mpi = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        command = [find_mpiexec(), "-n", str(self.size), *self.python()]
        process = self.start(MPIEXEC, command, {**open_mpi, **self.variables()})
        self.listen(process.stdout, MPIEXEC, sys.stdout)
        self.listen(process.stderr, MPIEXEC, sys.stderr)

    def listen(self, file: Any, rank: int, screen: Any) -> None:
        shown = screen if rank <= 0 or not self.plan.quiet else None
        log = None
        if self.plan.logs is not None:
            self.plan.logs.mkdir(parents=True, exist_ok=True)
            log = self.plan.logs / ("mpiexec.log" if rank < 0 else f"rank-{rank}.log")
            if not self.restart and screen is sys.stdout:
                log.unlink(missing_ok=True)
        prefix = "" if rank < 0 else f"[rank {rank}] "
        output = RankOutput(file, prefix, shown, log)
        self.outputs.append(output)
        self.selector.register(file, selectors.EVENT_READ, output)

    # -- the end ---------------------------------------------------------------------------------

    def look_for_ends(self) -> None:
        for rank, process in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[rank]
            self.guard.forget(process.pid)
            if code == 0:
                continue
            self.codes[rank] = code
            if self.kill_at == float("inf"):  # else it was asked to end
                self.failures += self.reported_failures(rank) or [failure_by_end(rank, code)]
                self.ask_at = min(self.ask_at, time.monotonic() + GRACE_S)
                if self.link is not None:
                    self.link.tell(self.failures[0])

    def reported_failures(self, rank: int) -> list[RankFailure]:
        """Errors that a rank reported before it ended; of all ranks where MPI started them."""
        ranks = range(self.size) if rank == MPIEXEC else [rank]
        texts = {each: self.store.get(f"failure of rank {each}", 0) for each in ranks}
        return [RankFailure(each, **json.loads(text)) for each, text in texts.items() if text]

    def end_others(self) -> None:
        """Pass on signals that came. After a failure ask the others to end. Then kill them."""
        now = time.monotonic()
        for number in self.signals[self.forwarded :]:
            self.signal_all(number if not self.forwarded else signal.SIGKILL)
            self.forwarded += 1
            self.kill_at = now + INTERRUPTED_S
        if now > self.ask_at and self.kill_at == float("inf"):
            self.signal_all(signal.SIGTERM)
            self.kill_at = now + ENDING_S
        if now > self.kill_at:
            self.signal_all(signal.SIGKILL)

    def signal_all(self, number: int) -> None:
        for process in self.running.values():
            kill(process.pid, number)

    def exit_code(self) -> int:
        """Exit code as a shell has it: 128 and the number of the signal that ended a process."""
        if not self.failures:
            return 0
        code = self.codes.get(first_cause(self.failures).rank, self.codes.get(MPIEXEC, 1))
        return 128 - code if code < 0 else code

    def tell(self) -> None:
        """Print which rank failed first, and how."""
        first = first_cause(self.failures)
        name = "mpiexec" if first.rank == MPIEXEC else f"rank {first.rank}"
        others = [f"rank {other.rank}" for other in self.failures if other is not first]
        after = f" After it, {', '.join(others)} failed." if others else ""
        if first.traceback:
            say(f"{name} of {self.total} failed; all others were ended.{after}")
            print(first.traceback, file=sys.stderr, flush=True)
        else:
            say(f"{name} of {self.total} failed: {first.summary}. {first.fix}{after}")


def find_mpiexec() -> str:
    """The `mpiexec` beside this Python, as its packages install it, or the first on the path.

    Raises: BackendError where there is none
    """
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if beside.exists() else which("mpiexec")
    if path is None:
        fix = "Install it: pip install 'glasshouse[mpi]'."
        raise BackendError("launch", "mpiexec for the transport mpi", "none", fix)
    return path
