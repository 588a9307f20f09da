"""Peak memory of training steps of PyTorch eager: what `gh.analyze` predicts, and what is measured.

    python tools/judges/torch_memory.py [LIBRARY | LIBRARY:NAME …] [--models N] [--out FILE]
        [--captured]

Models are small forms of others' (`torch_zoo`); without names, a draw of N small ones
from all three libraries. The step (`zero_grad`, forward, loss, `backward`, update) is made twice,
by AdamW or SGD with momentum in turn. Predicted: on tensors without contents. Measured: in
earnest, by PyTorch's `torch.distributed._tools.MemTracker`. Its hooks keep the gradients of a
module's inputs until the last one is there, which eager alone does not; so it measures twice:
without these hooks, which is what the prediction is compared with, and as it is. A line of the
table: bytes of step 1 and of both steps, predicted and measured, whether they are equal ("hooks":
also with them), and seconds. With --captured: of two steps that gh.optimize captured whole and has
compiled, as `torch_tracker.captured_peaks` measures them. The status
is 1 where fewer than nine in ten are equal."""

import argparse
import itertools
import json
import random
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from torch_models import float_tensors
from torch_tracker import captured_peaks, measured_peaks
from torch_zoo import models as zoo

import glasshouse as gh
from glasshouse.torch.ahead.eager import EagerStep

LEAST = 0.9
LARGEST = 20_000_000  # parameters of a model that is drawn


def loss_of(outputs) -> torch.Tensor:
    """A number that depends on every output."""
    return torch.stack([x.float().square().mean() for x in float_tensors(outputs)]).sum()


def optimizer_of(number: int, model) -> torch.optim.Optimizer:
    """AdamW for models of even numbers, SGD with momentum for others."""
    if number % 2:
        return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def measured(model, optimizer, inputs: list, with_hooks: bool) -> list[int]:
    """Bytes at the peak of the first step, and of both, as MemTracker counts storages."""
    model.zero_grad()
    step = EagerStep(model, loss_of, optimizer, inputs, None)
    return measured_peaks(step, optimizer, inputs, with_hooks)


def examine(number: int, library: str, name: str) -> dict:
    """One line of the table."""
    model, inputs = zoo.build(library, name)
    optimizer = optimizer_of(number, model)
    begin = time.perf_counter()
    costs = gh.analyze.step(model, loss_of, optimizer, [inputs], convention="torch")
    between = time.perf_counter()
    peaks = measured(model, optimizer, [inputs], with_hooks=False)
    end = time.perf_counter()
    hooked = None
    if all(p.requires_grad for p in model.parameters()):  # its hooks take no others
        hooked = measured(model, optimizer_of(number, model), [inputs], with_hooks=True)
    predicted = [costs.peaks[0], costs.peak_bytes]
    return {
        "predicted": predicted,
        "measured": peaks,
        "with_hooks": hooked,
        "equal": predicted == peaks,
        "equal_with_hooks": predicted == hooked,
        "analysis_s": between - begin,
        "run_s": end - between,
        "optimizer": type(optimizer).__name__,
        "kinds": costs.memory_by_kind,
    }


def examine_captured(number: int, library: str, name: str) -> dict:
    """The same of steps that gh.optimize captured."""
    model, inputs = zoo.build(library, name)
    optimizer = optimizer_of(number, model)
    begin = time.perf_counter()
    costs = gh.analyze.step(model, loss_of, optimizer, [inputs], convention="captured")
    between = time.perf_counter()
    step = EagerStep(model, loss_of, optimizer, [inputs], None)
    peaks = captured_peaks(step, optimizer, [inputs])
    end = time.perf_counter()
    return {
        "predicted": costs.peaks,
        "measured": peaks,
        "equal": costs.peaks == peaks,
        "equal_with_hooks": False,
        "analysis_s": between - begin,
        "run_s": end - between,
        "optimizer": type(optimizer).__name__,
        "kinds": costs.memory_by_kind,
        "breaks": [one._asdict() for one in costs.breaks],
    }


def line_of(name: str, result: dict) -> str:
    """A result, as a line of the table."""
    if "error" in result:
        return f"{name:44} {'NO':>5}  {result['error']}"
    marks = ["yes" if result[key] else "NO" for key in ("equal", "equal_with_hooks")]
    numbers = [f"{n:>14,}" for pair in zip(result["predicted"], result["measured"]) for n in pair]
    off = result["predicted"][1] - result["measured"][1]
    return (
        f"{name:44} {marks[0]:>5} {marks[1]:>5} {' '.join(numbers)} {off:>10,} "
        f"{result['analysis_s']:7.1f} {result['run_s']:7.1f} {result['optimizer']}"
    )


def chosen(wanted: list[str], count: int) -> Iterator[tuple[str, str]]:
    """(library, model) of what the command line names; else a draw, of each library as many."""
    every = {library: zoo.names(library) for library in zoo.LIBRARIES if zoo.installed(library)}
    for library, names in every.items():
        if wanted:
            picked = iter(n for n in names if library in wanted or f"{library}:{n}" in wanted)
        else:
            shuffled = random.Random(0).sample(names, len(names))
            small = (name for name in shuffled if is_small(library, name))
            picked = itertools.islice(small, -(-count // len(every)))
        yield from ((library, name) for name in picked)


def is_small(library: str, name: str) -> bool:
    """Whether a model has few parameters; those of transformers are all small forms."""
    if library == "transformers":
        return True
    model, _ = zoo.build(library, name)
    return sum(p.numel() for p in model.parameters()) <= LARGEST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="a library, or LIBRARY:NAME")
    parser.add_argument("--models", type=int, default=45, dest="count", help="how many are drawn")
    parser.add_argument("--out", type=Path, help="a file of results, a line of JSON each")
    parser.add_argument("--captured", action="store_true", help="steps under gh.optimize")
    options = parser.parse_args()
    examined = examine_captured if options.captured else examine
    warnings.simplefilter("ignore")
    heads = ("step 1", "measured", "both", "measured")
    columns = " ".join(f"{head:>14}" for head in heads)
    print(
        f"{'model':44} {'equal':>5} {'hooks':>5} {columns} {'off':>10} {'ahead s':>7} {'run s':>7}",
        flush=True,
    )
    results = []
    for number, (library, name) in enumerate(chosen(options.models, options.count)):
        try:
            result = examined(number, library, name)
        except Exception as error:
            result = {"equal": False, "error": f"{type(error).__name__}: {str(error)[:300]}"}
        results.append({"model": f"{library}:{name}", **result})
        print(line_of(f"{library}:{name}", result), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(map(json.dumps, results)) + "\n")
    equal = sum(result["equal"] for result in results)
    hooked = sum(result.get("equal_with_hooks", False) for result in results)
    print(f"{equal} of {len(results)} equal to the byte, {hooked} with MemTracker's hooks")
    return 1 if equal < LEAST * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
