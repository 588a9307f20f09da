"""Graphs that capture makes of small functions, against those that TorchDynamo makes of the same.

    python tools/judges/compare_graph_counts.py [NAME ...] [--all] [--least SHARE]

The functions (`tests/data/graph_cases`) are loaded once with Glasshouse and once with PyTorch in
the place of the array library. Each is called a few times, plainly and captured: results have to be
the same, and the graphs that the compiler gets in all calls are counted. One of which TorchDynamo
captures nothing (a break in a loop, an error) or gets a wrong result is no measure and counted
apart; one of which capture gets none, and TorchDynamo some, counts against capture.

It prints a line for each function whose results differ or of which capture makes more graphs than
TorchDynamo (with --all, or with names of functions or themes, for every one), and a table by theme.
The status is 1 where less than SHARE of the functions (95 %) need no more graphs, or where a result
differs."""

import argparse
import importlib
import importlib.util
import math
import random
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch._dynamo

import glasshouse as gh

CASES = Path(__file__).parents[2] / "tests" / "data" / "graph_cases"
LEAST = 0.95
FAILED = sys.maxsize  # the count of graphs where TorchDynamo raises or gives another result
SHARED = """
abs add all any arange argmax asarray bool broadcast_to ceil chunk clip concat cos cumsum divide
einsum empty equal exp expm1 eye finfo flatten flip float16 float32 float64 floor full full_like
iinfo int32 int64 is_grad_enabled isfinite isnan linspace log log1p logical_and logical_not
logsumexp matmul max maximum mean min minimum multiply nonzero ones ones_like pow prod reshape
roll round rsqrt sigmoid sign sin split sqrt square squeeze stack std sum tan tanh tensor topk
tril triu var where zeros zeros_like Tensor no_grad enable_grad set_grad_enabled nn optim
autocast result_type
""".split()


def library(name: str) -> types.ModuleType:
    """The module `xp` of a library: the names that both have, and those spelled differently."""
    base = {"glasshouse": gh, "torch": torch}[name]
    xp = types.ModuleType("xp")
    for shared in SHARED:
        if hasattr(base, shared):
            setattr(xp, shared, getattr(base, shared))
    if name == "torch":
        dynamo = torch._dynamo
        own = {
            "transpose": torch.transpose,
            "permute": torch.permute,
            "seed": torch.manual_seed,
            "randn": torch.randn,
            "rand": torch.rand,
            "graph_break": dynamo.graph_break,
            "disable": dynamo.disable,
            "allow_in_graph": dynamo.allow_in_graph,
            "assume_constant_result": dynamo.assume_constant_result,
        }
    else:
        own = {
            "transpose": gh.swapaxes,
            "permute": gh.permute_dims,
            "sigmoid": gh.nn.functional.sigmoid,
            "seed": gh.random.seed,
            "randn": gh.random.normal,
            "rand": gh.random.uniform,
            "graph_break": gh.graph_break,
            "disable": gh.disable,
            "allow_in_graph": gh.allow_in_graph,
            "assume_constant_result": gh.assume_constant_result,
        }
    xp.__dict__.update(own)
    return xp


def load(name: str, copy: str) -> list:
    """The cases over a library; a package of their own for each copy, so that none shares state."""
    package, before = f"graph_cases_{name}_{copy}", sys.modules.get("xp")
    sys.modules["xp"] = library(name)
    try:
        spec = importlib.util.spec_from_file_location(package, CASES / "__init__.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        spec.loader.exec_module(module)
        for path in sorted(CASES.glob("[a-z]*.py")):
            importlib.import_module(f"{package}.{path.stem}")
    finally:
        sys.modules["xp"] = before
        if before is None:
            del sys.modules["xp"]
    return module.cases


# -- running ---------------------------------------------------------------------------------------


class GraphCounter:
    """A compiler, of either library, that runs graphs as they are and counts those with calls."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph_module, example_inputs):
        calls = [x for x in graph_module.graph.nodes if x.op.startswith("call_")]
        self.count += bool(calls)
        return graph_module.forward


def plain(value):
    """A result as numbers and containers that can be compared."""
    if isinstance(value, torch.Tensor):
        return np.asarray(value.detach().tolist(), dtype=object)
    if isinstance(value, gh.Tensor):
        return np.asarray(value.detach().tolist(), dtype=object)
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return type(value).__name__


def same(a, b) -> bool:
    """Whether two results as `plain` gives them are equal, up to the order of sums."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        close = (same(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True))
        return a.shape == b.shape and all(close)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return [*a] == [*b] and all(map(same, a.values(), b.values()))
    if isinstance(a, float):
        return a == b or math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=1e-4)
    return a == b


def outcomes(fn, calls) -> list:
    """Return the result of each call, or the error that it raises, and its arguments after it."""
    results = []
    for args in calls:
        try:
            result = plain(fn(*args))
        except Exception as error:
            if isinstance(error, torch._dynamo.exc.TorchDynamoException):
                raise
            result = f"{type(error).__name__}: {error}"
        results.append([result, plain(list(args))])
    return results


def seeded() -> None:
    random.seed(0)
    gh.random.seed(0)
    torch.manual_seed(0)


class Count(NamedTuple):
    """The graphs of one function, and the first difference of results if there is one."""

    theme: str
    name: str
    ours: int
    theirs: int
    difference: str = ""

    @property
    def left(self) -> bool:
        """Whether TorchDynamo captures nothing of the function, or fails, and capture does not."""
        return self.ours > 0 and self.theirs in (0, FAILED)

    @property
    def more(self) -> bool:
        """Whether capture does worse: with more graphs, or none where TorchDynamo has some."""
        return not self.left and (self.ours > self.theirs or self.theirs > self.ours == 0)


def count_ours(case, reference) -> tuple[int, str]:
    """(graphs, difference from plain Python) under gh.optimize."""
    seeded()
    fn, calls = reference.make()
    wanted = outcomes(fn, calls)
    seeded()
    counter = GraphCounter()
    fn, calls = case.make()
    with gh.capture.config.override(raise_compiler_errors=True):
        got = outcomes(gh.optimize(counter)(fn), calls)
    for number, (want, have) in enumerate(zip(wanted, got, strict=True), 1):
        if not same(want, have):
            return counter.count, f"call {number}: plain {want}, captured {have}"
    return counter.count, ""


def count_theirs(case, reference) -> int:
    """Graphs under torch.compile; of a function that it refuses or gets wrong any number."""
    torch._dynamo.reset()
    seeded()
    fn, calls = reference.make()
    wanted = outcomes(fn, calls)
    seeded()
    counter = GraphCounter()
    fn, calls = case.make()
    try:
        got = outcomes(torch.compile(fn, backend=counter), calls)
    except torch._dynamo.exc.TorchDynamoException:
        return FAILED
    return counter.count if same(wanted, got) else FAILED


def compare(wanted: list[str]) -> list[Count]:
    """Every case, or those of these names or themes."""
    copies = [(library, copy) for library in ("glasshouse", "torch") for copy in ("fast", "plain")]
    loaded = [{(x.theme, x.name): x for x in load(*which)} for which in copies]
    ours, references, theirs, their_references = loaded
    results = []
    for key, case in ours.items():
        if wanted and not {*key} & {*wanted}:
            continue
        try:
            count, difference = count_ours(case, references[key])
        except Exception as error:
            count, difference = 0, "".join(traceback.format_exception_only(error)).strip()
        results.append(
            Count(*key, count, count_theirs(theirs[key], their_references[key]), difference)
        )
    return results


# -- telling ---------------------------------------------------------------------------------------


def table(result: list[Count]) -> None:
    """By theme: functions, graphs of both, how many need no more, how many fewer, and how many
    TorchDynamo leaves to Python."""
    rows = [("theme", "functions", "graphs", "TorchDynamo", "no more", "fewer", "left by it")]
    themes: dict[str, list[Count]] = {}
    for x in result:
        themes.setdefault(x.theme, []).append(x)
    for theme, counts in [*themes.items(), ("all", result)]:
        both = [x for x in counts if not x.left]
        graphs = sum(x.ours for x in both), sum(x.theirs for x in both)
        fewer = sum(0 < x.ours < x.theirs for x in both)
        no_more = sum(not x.more for x in counts)
        rows.append((theme, len(counts), *graphs, no_more, fewer, len(counts) - len(both)))
    for first, *numbers in rows:
        print(f"{first:14}" + "".join(f"{x:>12}" for x in numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="functions or themes; all by default")
    parser.add_argument("--all", action="store_true", help="a line for every function")
    parser.add_argument("--least", type=float, default=LEAST, help="the share that has to hold")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    result = compare(options.names)
    for x in result:
        if x.difference or x.more or options.all or options.names:
            mark = "DIFFERS" if x.difference else "MORE" if x.more else ""
            theirs = "-" if x.theirs == FAILED else x.theirs
            print(
                f"{x.theme + '.' + x.name:54} {x.ours:4} {theirs:>4}  {mark} {x.difference[:300]}"
            )
    table(result)
    share = sum(not x.more for x in result) / max(1, len(result))
    print(f"{share:.1%} of {len(result)} functions need no more graphs than TorchDynamo's")
    return int(share < options.least or any(x.difference for x in result))


if __name__ == "__main__":
    sys.exit(main())
