"""Random functions under capture beside plain Python: `--functions 20000 --seed 0`.

Children run them, so that a crash or an endless loop of one is a failure like others. What fails is
made small and printed with its seed.
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
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "property"), str(ROOT / "tests" / "unit" / "capture")]
MOST_SECONDS = 60  # of one function


def fail_text(text: str, calls, mode: str) -> str | None:
    """How a text fails in a child; None if it does not."""
    job = pickle.dumps((text, calls, mode))
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--one"],
            input=job,
            capture_output=True,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "endless"
    return f"crash {done.returncode}" if done.returncode else done.stdout.decode() or None


def run_one() -> None:
    """In a child: print how the text on standard input fails."""
    from differential import failure_of

    found = failure_of(*pickle.load(sys.stdin.buffer))
    os.write(1, (found or "").encode())


def run_many(first: int, count: int, mode: str, compiled: float) -> None:
    """In a child: a line for each seed as it begins, one more if it fails."""
    import differential

    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        chosen = mode or differential.pick_mode(seed, compiled)
        print(f"seed {seed} {chosen}", flush=True)
        try:
            differential.check_seed(seed, chosen)
        except Exception as error:
            print(f"failed {seed} {chosen} {differential.kind_of(error.__cause__)}", flush=True)


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
            if words[0] in ("seed", "failed"):
                yield tuple(words)


def failures(args):
    """(seed, mode, kind) of what fails; goes on behind crashes."""
    first, end = args.seed, args.seed + args.functions
    while first < end:
        child = Child([str(first), str(end - first), args.mode or "-", str(args.compiled)])
        seed, mode = first - 1, ""
        for words in child.events():
            if words[0] == "seed":
                seed, mode = int(words[1]), words[2]
            elif words[0] == "failed":
                yield int(words[1]), words[2], " ".join(words[3:])
            elif words[1] != 0:
                yield seed, mode, f"crash {words[1]}" if words[1] != "endless" else "endless"
        first = seed + 1


def show(seed: int, mode: str, kind: str, small: bool) -> None:
    """Print a failure, its function made small."""
    from differential import MODES, failure_of, make_settings, minimise
    from random_functions import RandomFunction

    print(f"\n== seed {seed}, {mode}: {kind}", flush=True)
    text, calls = RandomFunction(seed, MODES[mode][1]).text, make_settings(seed)
    fails = fail_text if kind.startswith(("crash", "endless")) else failure_of
    if small and fails(text, calls, mode):
        text, calls = minimise(text, calls, mode, fails)
    print(text)
    for call in calls:
        print("   ", vars(call))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--mode", default="", help="eager, dynamic, gradients, program, program_…")
    parser.add_argument("--compiled", type=float, default=0.01, help="part that makes Programs")
    parser.add_argument("--small", type=int, default=5, help="how many failures are made small")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--many", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    faulthandler.enable()
    if args.one:
        run_one()
        return 0
    if args.many:
        first, count, mode, compiled = args.many
        run_many(int(first), int(count), mode.strip("-"), float(compiled))
        return 0
    began, kinds = time.perf_counter(), Counter()
    for seed, mode, kind in failures(args):
        show(seed, mode, kind, sum(kinds.values()) < args.small)
        kinds[kind] += 1
    seconds, count = time.perf_counter() - began, sum(kinds.values())
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"\n{args.functions} functions from seed {args.seed} on Python {python}: {count} differ, "
    )
    print(f"{dict(kinds)}, {seconds:.0f} s")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
