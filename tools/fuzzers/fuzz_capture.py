"""Random functions under capture beside plain Python: `--functions 20000 --seed 0`.

With `--world`, each in a world that changes between its calls: of tensors of ours and of PyTorch,
where that is installed. With `--audit` all entries are audited: each thing that a trace read is
changed by itself, and the guards have to refuse that (`capture.guards.read_audit`). With both,
the third call, captured, is compared with plain Python after each such change, too.
Children run them, so that a crash or an endless loop of one is a failure like others. What fails
is made small and printed with its seed.
"""

import argparse
import faulthandler
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path

from glasshouse.capture.guards.read_audit import AuditFindings, audited

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "property"), str(ROOT / "tests" / "unit" / "capture")]
MOST_SECONDS = 60  # of one function


MODULES = {
    "": "differential", "--audit": "differential", "--world": "world_differential",
    "--world-audit": "world_audit",
}  # fmt: skip


def kind_of_functions(kind: str):
    """Return the module that makes functions of a kind and compares their calls."""
    module = import_module(MODULES[kind])
    return AuditedFunctions(module) if kind.endswith("audit") else module


class UnguardedRead(AssertionError):
    """A trace read something, and no guard is on it."""


class AuditedFunctions:
    """Random functions, whose entries are audited as well; the rest is as their module has it.
    `totals` sums up the audits."""

    def __init__(self, module):
        self.module = module
        self.totals = Counter()

    def __getattr__(self, name: str):
        return getattr(self.module, name)

    def audit(self, run, *args) -> None:
        with audited() as findings:
            run(*args)
        self.totals.update(findings.counts)
        if findings.unguarded:
            raise UnguardedRead("; ".join(findings.unguarded))

    def check_seed(self, seed: int, mode: str) -> None:
        try:
            self.audit(self.module.check_seed, seed, mode)
        except UnguardedRead as error:
            raise AssertionError(f"seed {seed}, {mode}: {error}") from error

    def failure_of(self, text: str, calls, mode: str) -> str | None:
        results: list[str] = []
        try:
            self.audit(lambda: results.append(self.module.failure_of(text, calls, mode)))
        except UnguardedRead:
            return results[0] or UnguardedRead.__name__
        return results[0]

    def kind_of(self, error: BaseException) -> str:
        if isinstance(error, UnguardedRead):
            return f"UnguardedRead {error}"
        return self.module.kind_of(error)


def fail_text(kind: str, text: str, calls, mode: str) -> str | None:
    """How a text fails in a child; None if it does not."""
    job = pickle.dumps((text, calls, mode))
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--one", *filter(None, [kind])],
            input=job,
            capture_output=True,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "endless"
    return f"crash {done.returncode}" if done.returncode else done.stdout.decode() or None


def run_one(functions) -> None:
    """In a child: print how the text on standard input fails."""
    result = functions.failure_of(*pickle.load(sys.stdin.buffer))
    os.write(1, (result or "").encode())


def run_many(functions, first: int, count: int, mode: str, compiled: float) -> None:
    """In a child: a line for each seed as it begins, one more if it fails."""
    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        chosen = mode or functions.pick_mode(seed, compiled)
        print(f"seed {seed} {chosen}", flush=True)
        try:
            functions.check_seed(seed, chosen)
        except Exception as error:
            print(f"failed {seed} {chosen} {functions.kind_of(error.__cause__)}", flush=True)
    if isinstance(functions, AuditedFunctions):
        print("audited", *(functions.totals[name] for name in AuditFindings.COUNTED), flush=True)


class Child:
    """A child that runs seeds; its lines come through a queue, so that silence can be noticed."""

    def __init__(self, arguments: list[str]):
        command = [sys.executable, __file__, "--many", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(None)

    def events(self):
        """The words of each line; ("ended", code) at the end."""
        while True:
            try:
                words = self.lines.get(timeout=MOST_SECONDS)
            except queue.Empty:
                self.process.kill()
                yield "ended", "endless"
                return
            if words is None:
                yield "ended", self.process.wait()
                return
            if words[0] in ("seed", "failed", "audited"):
                yield tuple(words)


def failures(args, totals: Counter):
    """(seed, mode, kind) of what fails; goes on after crashes. Counts what is audited."""
    first, end = args.seed, args.seed + args.functions
    while first < end:
        child = Child([str(first), str(end - first), args.mode or "-", str(args.compiled),
                       *filter(None, [args.kind])])  # fmt: skip
        seed, mode = first - 1, ""
        for words in child.events():
            if words[0] == "seed":
                seed, mode = int(words[1]), words[2]
            elif words[0] == "failed":
                yield int(words[1]), words[2], " ".join(words[3:])
            elif words[0] == "audited":
                totals.update(dict(zip(AuditFindings.COUNTED, map(int, words[1:]), strict=True)))
            elif words[1] != 0:
                yield seed, mode, f"crash {words[1]}" if words[1] != "endless" else "endless"
        first = seed + 1


def show(seed: int, mode: str, kind: str, small: bool, functions_kind: str) -> None:
    """Print a failure, its function made small."""
    functions = kind_of_functions(functions_kind)
    print(f"\n== seed {seed}, {mode}: {kind}", flush=True)
    text, calls = functions.make_parts(seed, mode)
    crashes = kind.startswith(("crash", "endless"))
    fails = partial(fail_text, functions_kind) if crashes else functions.failure_of
    if small and fails(text, calls, mode):
        text, calls = functions.minimise(text, calls, mode, fails)
    print(functions.script_of(text, calls, mode), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--mode", default="", help="eager, dynamic, gradients, program, program_…; "
                        "of worlds gh-eager, gh-program, torch-eager, torch-program")  # fmt: skip
    for name, text in (
        ("--world", "change the world between calls"),
        ("--audit", "change each thing that a trace read, one at a time"),
        ("--world-audit", argparse.SUPPRESS),  # both, for children
    ):
        parser.add_argument(name, action="store_true", help=text)
    parser.add_argument("--compiled", type=float, default=0.01, help="part that makes Programs")
    parser.add_argument("--small", type=int, default=5, help="how many failures are made small")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--many", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    both = args.world_audit or args.world and args.audit
    args.kind = "--world-audit" if both else "--world" * args.world or "--audit" * args.audit
    faulthandler.enable()
    if args.one:
        run_one(kind_of_functions(args.kind))
        return 0
    if args.many:
        first, count, mode, compiled = args.many
        functions = kind_of_functions(args.kind)
        run_many(functions, int(first), int(count), mode.strip("-"), float(compiled))
        return 0
    began, kinds, totals = time.perf_counter(), Counter(), Counter()
    for seed, mode, kind in failures(args, totals):
        show(seed, mode, kind, sum(kinds.values()) < args.small, args.kind)
        kinds[kind] += 1
    seconds, count = time.perf_counter() - began, sum(kinds.values())
    python = ".".join(map(str, sys.version_info[:3]))
    what = "functions in changing worlds" if "world" in args.kind else "functions"
    print(f"\n{args.functions} {what} from seed {args.seed} on Python {python}: {count} differ, ")
    if args.kind.endswith("audit"):
        print(f"audited: {dict(totals)}")
    print(f"{dict(kinds)}, {seconds:.0f} s")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
