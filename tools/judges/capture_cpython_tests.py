"""CPython's own regression tests under capture.

    python tools/judges/capture_cpython_tests.py [NAME ...] [--part K --of N] [--jobs N]
        [--limit SECONDS] [--audit]

Each test method of the files runs plainly and with the method itself captured (twice: the call that
is captured, and one that finds what was kept). It prints a table (file, methods, the same,
different, crashed), then what differs, with the reason if capture_cpython_differences.txt has one.
The files lie in the interpreter's own Lib/test; each is run in a process of its own, so that a
crash, or a method that hangs, loses one method. The status is 1 where one crashes the interpreter
or less than 99.5 % of the methods end the same; with --known, where one has no reason. With --audit
what the captured code reads without a guard (`capture.guards.read_audit`) is a difference."""

import argparse
import gc
import importlib
import io
import json
import os
import re
import select
import subprocess
import sys
import types
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

FILES = """list tuple dict set ordered_dict userdict deque defaultdict itertools functools operator
generators generator_stop yield_from iter with contextlib exceptions exception_group raise scope
funcattrs unpack unpack_ex patma super descr property enum dataclasses class call keywordonlyarg
extcall range slice bool int float string format fstring augassign compare contains index listcomps
dictcomps setcomps genexps named_expressions decorators types typing weakref copy abc builtin
enumerate sort global isinstance richcmp sys_settrace""".split()
LEAST = 0.995  # of the methods end the same
REASONS = Path(__file__).with_name("capture_cpython_differences.txt")
SILENCE = 60  # seconds without a word from a process before it is taken for hung


# -- in a process of its own ---------------------------------------------------------------------


def cases_of(module) -> list[tuple[type, str]]:
    """(class, method) of each test in a module; doctests have no method and are left out."""
    results: list[tuple[type, str]] = []

    def visit(suite):
        for part in suite:
            if isinstance(part, unittest.TestSuite):
                visit(part)
            elif type(part).__module__ not in ("doctest", "unittest.loader"):
                results.append((type(part), part._testMethodName))

    visit(unittest.TestLoader().loadTestsFromModule(module))
    return sorted(dict.fromkeys(results), key=lambda case: (case[0].__qualname__, case[1]))


def told(outcome) -> str:
    """Return the text of a test result, without addresses."""
    kind, result = outcome
    text = f"{type(result[1]).__name__}: {result[1]}" if result else ""
    return re.sub(r"0x[0-9a-f]+", "0x", f"{kind} {text}")[:300]


class Outcomes(unittest.TestResult):
    """How one test ended: what failed, with the exception."""

    def __init__(self):
        super().__init__()
        self.kept: list[tuple] = []

    def addError(self, test, err):
        self.kept.append(("error", err))

    def addFailure(self, test, err):
        self.kept.append(("failure", err))

    def addSkip(self, test, reason):
        self.kept.append((f"skip: {reason}", None))

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.kept.append((f"subtest {subtest.params}", err))


def outcome_of(cls: type, name: str, prepare) -> list[str]:
    """How a test method ends."""
    case, result = cls(name), Outcomes()
    prepare(case)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        case.run(result)
    return [told(x) for x in result.kept]


def captured(name: str, functions: dict):
    """Return a decorator that captures a test case's method, once for both runs."""
    import glasshouse as gh

    def prepare(case):
        method = getattr(type(case), name)
        if isinstance(method, types.FunctionType):
            fast = functions.setdefault(name, None) or gh.optimize("eager")(method)
            functions[name] = fast
            setattr(case, name, fast.__get__(case, type(case)))

    return prepare


def auditing():
    """A context that audits the entries made inside; with --audit alone."""
    if not os.environ.get("AUDIT"):
        return nullcontext()
    from glasshouse.capture.guards.read_audit import audited

    return audited()


def unguarded(findings, counts: Counter) -> list[str]:
    """Return the findings of an audit; add up what it looked at."""
    if findings is None:
        return []
    counts.update(findings.counts)
    return [f"audit: {x}" for x in findings.unguarded]


def compare(cls: type, name: str, counts: Counter) -> dict:
    """Run a method plainly and captured."""
    import glasshouse as gh

    plain = outcome_of(cls, name, lambda case: None)
    functions: dict = {}
    for run in ("captured", "again"):
        with auditing() as findings:
            got = outcome_of(cls, name, captured(name, functions))
        got += unguarded(findings, counts)
        if got != plain and got != outcome_of(cls, name, lambda case: None):
            gh.reset()
            return {"same": False, "run": run, "plain": plain, "captured": got}
    gh.reset()
    return {"same": True}


def work(file: str, start: int, pipe: int) -> None:
    """Run the tests of a file from number `start` on; tell of each before and after."""

    def tell(**words):
        os.write(pipe, (json.dumps(words) + "\n").encode())

    import glasshouse as gh

    gh.capture.config.raise_internal_errors = bool(os.environ.get("STRICT"))
    module = importlib.import_module(f"test.test_{file}")
    cases = cases_of(module)
    only = os.environ.get("ONLY")
    tell(count=len(cases))
    gc.freeze()  # tests that collect garbage do so hundreds of times
    if hasattr(module, "setUpModule"):
        module.setUpModule()
    ready = None
    for number, (cls, name) in enumerate(cases[start:], start):
        label = f"{cls.__qualname__}.{name}"
        if only and only not in label:
            tell(number=number, name=label)
            tell(done=number, same=True)
            continue
        if cls is not ready:
            if ready is not None:
                ready.tearDownClass()
                ready.doClassCleanups()
            ready = cls
            try:
                cls.setUpClass()
            except Exception:  # SkipTest, or what plain Python meets as well
                cls.__unittest_skip__ = True
        tell(number=number, name=label)
        counts: Counter = Counter()
        tell(done=number, **compare(cls, name, counts), audit=counts)


# -- all of them ---------------------------------------------------------------------------------


def lines_of(process, pipe: int, limit: float):
    """Yield the output of a process, line by line; end with it, or when it is silent for too
    long."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], limit)[0]:
            process.kill()
            return
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def run_file(file: str, limit: float) -> dict:
    """The counts of a file, and its differences."""
    results: dict = {"methods": 0, "same": 0, "different": [], "crashed": [], "audit": Counter()}
    start, count = 0, 1
    while start < count:
        read, write = os.pipe()
        command = [sys.executable, __file__, "--work", file, str(start), str(write)]
        process = subprocess.Popen(
            command, pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        os.close(write)
        running, count = None, start
        for line in lines_of(process, read, limit):
            if "count" in line:
                count = line["count"]
            elif "name" in line:
                running = line
            else:
                results["audit"].update(line.get("audit", {}))
                if line["same"]:
                    results["same"] += 1
                else:
                    results["different"].append((running["name"], line))
                start, running = line["done"] + 1, None
        os.close(read)
        said = process.communicate()[1].decode(errors="replace")
        if running is not None:
            how = {-9: "hung"}.get(process.returncode, f"status {process.returncode}")
            results["crashed"].append((running["name"], f"{how}: {said[-300:]}"))
            start = running["number"] + 1
        elif start < count:
            results["crashed"].append((f"number {start}", said[-600:]))
            break
        elif not count:
            if process.returncode and "ModuleNotFoundError" not in said:
                results["crashed"].append(("the file", said[-600:]))
            break
    results["methods"] = count
    return results


def read_reasons() -> dict[str, str]:
    """Why a method differs, by "file Class.method": the heading above it in the list."""
    reasons, reason = {}, ""
    for line in REASONS.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            reasons[line.strip()] = reason
    return reasons


def tell_notes(notes, reasons: dict[str, str]) -> None:
    """Print what differs, and how or why."""
    for file, name, how in notes:
        print(f"\n{file} {name}")
        if f"{file} {name}" in reasons:
            print(f"    {reasons[f'{file} {name}']}")
        elif isinstance(how, str):
            print(f"    crashed: {how}")
        else:
            print(f"    plain {how['plain']}\n    {how['run']} {how['captured']}", flush=True)


def run_files(files, options) -> tuple[int, int, int, list]:
    """(methods, those that end the same, crashes, what differs) of all files; prints the table."""
    total = same = crashed = 0
    notes, audit = [], Counter()
    print(f"{'file':22}{'methods':>8}{'same':>8}{'different':>10}{'crashed':>8}")
    with ThreadPoolExecutor(options.jobs) as pool:  # each has a process that does the work
        results = pool.map(partial(run_file, limit=options.limit), files)
        for file, result in zip(files, results, strict=True):
            counts = [result["methods"], result["same"]]
            counts += [len(result["different"]), len(result["crashed"])]
            print(f"{file:22}{counts[0]:8}{counts[1]:8}{counts[2]:10}{counts[3]:8}", flush=True)
            total, same, crashed = total + counts[0], same + counts[1], crashed + counts[3]
            own = [(file, *note) for note in (*result["different"], *result["crashed"])]
            notes += own
            audit += result["audit"]
            if options.early:
                tell_notes(own, {})
    if options.audit:
        print(f"audited: {dict(audit)}")
    return total, same, crashed, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="files, without test_")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=float, default=SILENCE)
    parser.add_argument("--early", action="store_true", help="tell differences behind each file")
    parser.add_argument(
        "--known", action="store_true", help="fail on a difference without a reason"
    )
    parser.add_argument("--audit", action="store_true", help="audit what captured code reads")
    parser.add_argument("--list", action="store_true", help="only name the files")
    options = parser.parse_args()
    files = (options.names or FILES)[options.part :: options.of]
    if options.list:
        print(*files)
        return 0
    os.environ["AUDIT"] = "1" if options.audit else ""
    total, same, crashed, notes = run_files(files, options)
    reasons = read_reasons()
    share = same / max(total, 1)
    print(f"{'all':22}{total:8}{same:8}{len(notes) - crashed:10}{crashed:8}   {share:.2%} the same")
    if not options.early:
        tell_notes(notes, reasons)
    new = [note for note in notes if f"{note[0]} {note[1]}" not in reasons]
    print(f"\n{len(new)} of {len(notes)} differences have no reason yet")
    return int(crashed > 0 or (bool(new) if options.known else share < LEAST))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
