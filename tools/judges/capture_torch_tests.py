"""PyTorch's own tests of torch.compile, with gh.optimize in its place.

    python tools/judges/capture_torch_tests.py SOURCE [NAME ...] [--whole] [--jobs N] [--out FILE]
        [--audit]

SOURCE is the folder of PyTorch's sources (its tests are in none of its wheels); a NAME is a file of
SOURCE/test/dynamo, without `test_`. Each test runs twice: with a torch.compile that gives back what
it is given, and with one that is gh.optimize, on the same compilers. It prints a table: files,
tests, those that end the same, those that ask for one graph where capture breaks it
(`fullgraph=True`), and those that end in another way, each with what it says. How many graphs or
operators TorchDynamo would make is not asked: such counts are equal to any number. Names that the
tests import and the installed PyTorch lacks are stood in for, which both runs see.

With --whole a NAME is a file of SOURCE/test, and each test runs plainly and with its own method
captured, twice, as PyTorch does with TorchDynamo for its whole suite. With --audit, what captured
code reads without a guard (`capture.guards.read_audit`) makes a test end in another way."""

import argparse
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from capture_cpython_tests import Outcomes, auditing, cases_of, told, unguarded
from capture_cpython_tests import compare as compare_method

FILES = """misc functions repros modules ctx_manager autograd_function hooks optimizers subclasses
higher_order_ops unspec global exceptions model_output sdpa subgraphs recompiles reconstruct
decorators modes nops interop view input_attr_tracking python_autograd activation_checkpointing
aot_autograd backward_higher_order_ops base_output skip_non_tensor comptime""".split()
WHOLE_FILES = ["autograd", "optim"]
WHOLE = "whole"
AUDIT = "the audit"  # where a file's ends have the counts of its audit
WITHOUT_HINTS = {"PYTORCH_PRINT_REPRO_ON_FAILURE": "0"}  # which only the first failure has
SECONDS = 60  # that a test may take
MOST_IMPORTS = 50  # names of one file that are stood in for


class AnyCount(int):
    """A number that is equal to each other one, and neither less nor more."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __lt__ = __gt__ = __ne__
    __le__ = __ge__ = __eq__
    __hash__ = int.__hash__

    def __add__(self, other):
        return self

    __radd__ = __sub__ = __rsub__ = __add__


class StandIn:
    """Something that a test imports and PyTorch lacks: false, and a decorator that changes
    nothing."""

    def __bool__(self):
        return False

    def __call__(self, *args, **kwargs):
        return args[0] if args else self


def uncounted(cls) -> None:
    """Have a compiler that counts say numbers that are equal to any."""
    for name in ("frame_count", "op_count"):
        setattr(cls, name, property(lambda self: AnyCount(), lambda self, value: None))


def replace_compile(captures: bool) -> None:
    """Put gh.optimize, or nothing, in the place of torch.compile."""
    import torch
    import torch._dynamo.testing as testing

    import glasshouse as gh

    for cls in (testing.CompileCounter, testing.CompileCounterWithBackend):
        uncounted(cls)
    testing.expectedFailureDynamic = StandIn()

    def made(backend, nopython, dynamic):
        if not captures:
            return lambda fn: fn
        backend = "aot_eager" if backend == "inductor" else backend
        return gh.optimize(backend, nopython=bool(nopython), dynamic=bool(dynamic))

    def compile(model=None, *, backend="inductor", fullgraph=False, disable=False, **words):
        dynamic = words.get("dynamic")
        decorator = made(backend, fullgraph, dynamic) if not disable else StandIn()
        return decorator if model is None else decorator(model)

    def optimize(backend="inductor", *, nopython=False, disable=False, dynamic=None, **_):
        return made(backend, nopython, dynamic) if not disable else StandIn()

    torch.compile, torch._dynamo.optimize = compile, optimize
    torch._dynamo.optimize_assert = partial(optimize, nopython=True)


def load(file: str):
    """The module of a test file, with stand-ins for names that it lacks."""
    for _ in range(MOST_IMPORTS):
        try:
            return importlib.import_module(f"test_{file}")
        except ImportError as error:
            wanted = str(error).split("'")[1]
            if error.name is None or isinstance(error, ModuleNotFoundError):
                raise
            setattr(sys.modules[error.name], wanted, StandIn())
    raise ImportError(f"test_{file} lacks too much")


def give_up(*_):
    raise TimeoutError("the test took too long")


def end_of(cls: type, name: str, counts: Counter) -> list[str]:
    """How a test ends, without what it prints."""
    case, result = cls(name), Outcomes()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), auditing() as findings:
        case.run(result)
    return [told(x) for x in result.kept] + unguarded(findings, counts)


def both_ends(cls: type, name: str, counts: Counter) -> list[list[str]]:
    """How a test ends plainly, and with its method captured."""
    row = compare_method(cls, name, counts)
    return [[], []] if row["same"] else [row["plain"], row["captured"]]


def work(source: str, file: str, mode: str, out: str) -> None:
    """Write how the tests of a file end."""
    sys.path[:0] = [f"{source}/test/dynamo", f"{source}/test"]
    import torch  # before what the tests import of the same names  # noqa: F401

    if mode != WHOLE:
        replace_compile(mode == "captured")
    run = both_ends if mode == WHOLE else end_of
    run_cases(cases_of(load(file)), run, partial(failed, mode), out)


def run_cases(cases: list[tuple[type, str]], run, failure, out: str) -> None:
    """Write how tests end, those that are not in the file of the ends already."""
    import glasshouse as gh

    kept = Path(out)
    ends = json.loads(kept.read_text() or "{}")
    counts = Counter(ends.pop(AUDIT, {}))
    signal.signal(signal.SIGALRM, give_up)
    for cls, name in cases:
        label = f"{cls.__qualname__}.{name}"
        if label in ends:
            continue
        ends[label] = failure("the interpreter crashed")  # unless it comes back
        kept.write_text(json.dumps({**ends, AUDIT: counts}))
        signal.alarm(SECONDS)
        try:
            cls.setUpClass()
            ends[label] = run(cls, name, counts)
            cls.tearDownClass()
            cls.doClassCleanups()
        except Exception as error:
            ends[label] = failure(f"{type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
        gh.reset()
    kept.write_text(json.dumps({**ends, AUDIT: counts}))


def failed(mode: str, how: str) -> list:
    """The ends of a test that could not be run."""
    return [[], [how]] if mode == WHOLE else [how]


def ends_of(source: str, file: str, mode: str) -> dict[str, list]:
    """How the tests of a file end."""
    return ends_apart([__file__, "--work", source, file, mode], partial(failed, mode))


def ends_apart(command: list[str], failure) -> dict[str, list]:
    """Yield what a script writes of how tests end, in processes of their own: the next goes on
    after a crash."""
    settings = {"OMP_NUM_THREADS": "1", "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}
    words = {"env": {**os.environ, **settings, **WITHOUT_HINTS}, "cwd": tempfile.gettempdir()}
    ends, count = {}, -1
    with tempfile.NamedTemporaryFile() as kept:
        while len(ends) > count:
            count = len(ends)
            whole = [sys.executable, *command, kept.name]
            done = subprocess.run(whole, capture_output=True, text=True, **words)
            ends = json.loads(Path(kept.name).read_text() or "{}")
            counts = ends.pop(AUDIT, {})
            if done.returncode == 0:
                if counts:
                    print(f"audited: {counts}", flush=True)
                return ends
    ends["the file"] = failure(f"status {done.returncode}: {done.stderr[-300:]}")
    return ends


def kind_of(plain: list[str], captured: list[str]) -> str:
    """Of which kind a test is, by its two ends."""
    if plain == captured:
        return "same"
    return "breaks" if any("CaptureError" in x and "nopython" in x for x in captured) else "other"


def compare(source: str, file: str, whole: bool = False) -> dict[str, tuple[str, list, list]]:
    """(kind, how it ends plainly, how captured) of each test of a file."""
    if whole:
        result = ends_of(source, file, WHOLE)
        return {name: (kind_of(*pair), *pair) for name, pair in result.items()}
    plain, captured = (ends_of(source, file, mode) for mode in ("plain", "captured"))
    none = ["was not run"]
    names = plain | captured
    pairs = {name: (plain.get(name, none), captured.get(name, none)) for name in names}
    return {name: (kind_of(*pair), *pair) for name, pair in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", help="the folder of PyTorch's sources")
    parser.add_argument("names", nargs="*", help="files, without test_")
    parser.add_argument("--whole", action="store_true", help="capture each test's own method")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--audit", action="store_true", help="audit what captured code reads")
    parser.add_argument("--out", type=Path, help="write how each test ends, as JSON")
    options = parser.parse_args()
    os.environ["AUDIT"] = "1" if options.audit else ""
    files = options.names or (WHOLE_FILES if options.whole else FILES)
    total, rows = Counter(), {}
    print(f"{'file':30}{'tests':>8}{'same':>8}{'breaks':>8}{'other':>8}")
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(partial(compare, options.source, whole=options.whole), files)
        for file, result in zip(files, results, strict=True):
            counts = Counter(kind for kind, *_ in result.values())
            numbers = [len(result), counts["same"], counts["breaks"], counts["other"]]
            print(f"{file:30}" + "".join(f"{n:8}" for n in numbers), flush=True)
            total += counts
            rows |= {f"{file} {name}": row for name, row in result.items()}
    numbers = [len(rows), total["same"], total["breaks"], total["other"]]
    print(f"{'all':30}" + "".join(f"{n:8}" for n in numbers))
    for name, (kind, plain, captured) in rows.items():
        if kind == "other":
            print(f"\n{name}\n    plain {plain}\n    captured {captured}")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
