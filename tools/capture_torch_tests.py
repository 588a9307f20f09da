"""PyTorch's own tests of torch.compile, with gh.optimize in its place.

    python tools/capture_torch_tests.py SOURCE [NAME ...] [--jobs N] [--out FILE]

SOURCE is the folder of PyTorch's sources (its tests are in none of its wheels); a NAME is a file of
SOURCE/test/dynamo, without `test_`. Each test runs twice: with a torch.compile that gives back what
it is given, and with one that is gh.optimize, on the same compilers. It prints a table: files,
tests, those that end the same, those that ask for one graph where capture breaks it
(`fullgraph=True`), and those that end in another way, each with what it says. How many graphs or
operators TorchDynamo would make is not asked: such counts are equal to any number. Names that the
tests import and the installed PyTorch lacks are stood in for, which both runs see."""

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

from capture_cpython_tests import Outcomes, cases_of, told

FILES = """misc functions repros modules ctx_manager autograd_function hooks optimizers subclasses
higher_order_ops unspec global exceptions model_output sdpa subgraphs recompiles reconstruct
decorators modes nops interop view input_attr_tracking python_autograd activation_checkpointing
aot_autograd backward_higher_order_ops base_output skip_non_tensor comptime""".split()
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
    """What a test imports and PyTorch lacks: false, and a decorator that changes nothing."""

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


def end_of(cls: type, name: str) -> list[str]:
    """How a test ends, without what it prints; it is given up after a while."""
    case, result = cls(name), Outcomes()

    def give_up(*_):
        raise TimeoutError("the test took too long")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            case.run(result)
    finally:
        signal.alarm(0)
    return [told(x) for x in result.kept]


def work(source: str, file: str, mode: str, out: str) -> None:
    """Write how the tests of a file end."""
    sys.path[:0] = [f"{source}/test/dynamo", f"{source}/test"]
    replace_compile(mode == "captured")
    import glasshouse as gh

    ends, cases = {}, cases_of(load(file))
    for cls, name in cases:
        label = f"{cls.__qualname__}.{name}"
        try:
            cls.setUpClass()
            ends[label] = end_of(cls, name)
            cls.tearDownClass()
            cls.doClassCleanups()
        except Exception as error:
            ends[label] = [f"class {type(error).__name__}: {error}"]
        gh.reset()
        Path(out).write_text(json.dumps(ends))


def ends_of(source: str, file: str, mode: str) -> dict[str, list[str]]:
    """How the tests of a file end, in a process of its own."""
    with tempfile.NamedTemporaryFile() as kept:
        command = [sys.executable, __file__, "--work", source, file, mode, kept.name]
        words = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "cwd": tempfile.gettempdir()}
        done = subprocess.run(command, capture_output=True, text=True, **words)
        text = Path(kept.name).read_text()
    ends = json.loads(text) if text else {}
    if done.returncode:
        ends["the file"] = [f"{mode}: status {done.returncode}: {done.stderr[-300:]}"]
    return ends


def kind_of(plain: list[str], captured: list[str]) -> str:
    """Of which kind a test is, by its two ends."""
    if plain == captured:
        return "same"
    return "breaks" if any("CaptureError" in x and "nopython" in x for x in captured) else "other"


def compare(source: str, file: str) -> dict[str, tuple[str, list[str], list[str]]]:
    """(kind, how it ends plainly, how captured) of each test of a file."""
    plain, captured = (ends_of(source, file, mode) for mode in ("plain", "captured"))
    none = ["was not run"]
    names = plain | captured
    pairs = {name: (plain.get(name, none), captured.get(name, none)) for name in names}
    return {name: (kind_of(*pair), *pair) for name, pair in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", help="the folder of PyTorch's sources")
    parser.add_argument("names", nargs="*", help="files, without test_")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="write how each test ends, as JSON")
    options = parser.parse_args()
    files, total, rows = options.names or FILES, Counter(), {}
    print(f"{'file':30}{'tests':>8}{'same':>8}{'breaks':>8}{'other':>8}")
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(partial(compare, options.source), files)
        for file, found in zip(files, results, strict=True):
            counts = Counter(kind for kind, *_ in found.values())
            numbers = [len(found), counts["same"], counts["breaks"], counts["other"]]
            print(f"{file:30}" + "".join(f"{n:8}" for n in numbers), flush=True)
            total += counts
            rows |= {f"{file} {name}": row for name, row in found.items()}
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
