"""PyTorch's own tests of inductor, with our backend in its place.

    python tools/judges/inductor_torch_tests.py SOURCE [PATTERN ...] [--jobs N] [--out FILE]

SOURCE is the folder of PyTorch's sources (its tests are in none of its wheels). Each test for the
processor in SOURCE/test/inductor/test_torchinductor.py runs twice: with eager, and with our
backend, for which every name of inductor's compiler then stands. A PATTERN says which, as a
shell's does (`test_add*`). It prints how many pass, need a GPU, are skipped, look at inductor's
own code (these fail with eager in its place, too), and end in another way, each with the reason
that the table REASONS has. Names that the tests import and the installed PyTorch lacks are stood
in for."""

import argparse
import importlib
import json
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from capture_cpython_tests import cases_of
from capture_torch_tests import end_of, ends_apart, load, run_cases

FILE = "torchinductor"
SUITES = ("CpuTests", "SweepInputsCpuTest")  # those of CommonTemplate, and sums of all layouts
MODES = ("eager", "glasshouse")
GPU = re.compile("cuda|gpu|xpu|triton|sm80|device", re.IGNORECASE)  # of what skips a test
KINDS = ("passes", "needs a GPU", "skipped", "looks at inductor", "other")
ORDER = "sums in another order: the last bits of long ones are others"
DRAWS = "random numbers come from keys of our own, which PyTorch's seed decides"
REASONS = {  # of a test that passes with eager alone
    "test_cat_extern_kernel_cpu": ORDER,
    "test_conv2d_backward_channels_last_cpu": ORDER,
    "test_split_cumsum_cpu": "eager adds a running sum up in float64, our kernels in float32",
    "test_data_type_propogation_cpu": "it compiles with inductor itself",
    "test_like_rands_cpu": DRAWS,
    "test_randn_with_dtype_and_device_cpu": DRAWS,
}


def replace_inductor(mode: str) -> None:
    """Have every name of inductor's compiler stand for eager, or for our backend."""
    compiling = importlib.import_module("torch._inductor.compile_fx")
    machine = importlib.import_module("torch.testing._internal.inductor_utils")
    from glasshouse.torch.backend.entry_point import glasshouse

    def compile_graph(module, inputs, *_, **__):
        return module.forward if mode == "eager" else glasshouse(module, inputs)

    compiling.compile_fx = compile_graph
    machine.HAS_CPU = True  # whatever compiler of C++ is here


def cases(patterns: list[str]) -> list[tuple[type, str]]:
    """(class, method) of the tests that patterns name."""
    results = [case for case in cases_of(load(FILE)) if case[0].__qualname__ in SUITES]
    return [x for x in results if any(fnmatch(x[1], p) for p in patterns)]


def work(source: str, mode: str, part: str, *rest: str) -> None:
    """Write how one part of the tests ends."""
    *patterns, out = rest
    sys.path[:0] = [f"{source}/test/inductor", f"{source}/test"]
    import torch  # before what the tests import of the same names  # noqa: F401

    replace_inductor(mode)
    number, count = map(int, part.split("/"))
    run_cases(cases(patterns)[number::count], end_of, failed, out)


def failed(how: str) -> list[str]:
    """The ends of a test that could not be run."""
    return [how]


def ends_of(source: str, patterns: list[str], part: tuple[str, str]) -> dict[str, list]:
    """How a part of the tests ends in one mode."""
    return ends_apart([__file__, "--work", source, *part, *patterns], failed)


def kind_of(eager: list[str], ours: list[str]) -> str:
    """Of which kind a test is, by its two ends."""
    if not ours:
        return "passes"
    if ours == eager and all(x.startswith("skip:") for x in ours):
        return "needs a GPU" if any(map(GPU.search, ours)) else "skipped"
    return "looks at inductor" if eager else "other"


def compare(source: str, patterns: list[str], jobs: int) -> dict[str, tuple[str, list, list]]:
    """(kind, how it ends with eager, with our backend) of each test."""
    parts = [(mode, f"{i}/{jobs}") for mode in MODES for i in range(jobs)]
    ends: dict[str, dict[str, list]] = {mode: {} for mode in MODES}
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(partial(ends_of, source, patterns), parts)
        for (mode, _), part in zip(parts, results, strict=True):
            ends[mode] |= part
    eager, ours = (ends[mode] for mode in MODES)
    none = ["was not run"]
    pairs = {x: (eager.get(x, none), ours.get(x, none)) for x in eager | ours}
    return {name: (kind_of(*pair), *pair) for name, pair in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", help="the folder of PyTorch's sources")
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of tests")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="write how each test ends, as JSON")
    options = parser.parse_args()
    rows = compare(options.source, options.patterns, options.jobs)
    counts = Counter(kind for kind, *_ in rows.values())
    for kind in KINDS:
        print(f"{kind:20}{counts[kind]:6}")
    applies = counts["passes"] + counts["other"]
    print(
        f"{len(rows)} tests; {applies} apply, {100 * counts['passes'] / max(applies, 1):.1f} % pass"
    )
    for name, (kind, eager, ours) in rows.items():
        if kind == "other":
            reason = REASONS.get(name.partition(".")[2], "no reason is known")
            print(f"\n{name}: {reason}\n    {ours}")
        elif kind == "looks at inductor" and eager != ours:
            print(f"\n{name}: fails with eager too\n    eager {eager}\n    ours {ours}")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
