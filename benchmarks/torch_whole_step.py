"""Whole training steps of PyTorch models: `gh.optimize(step)`, which has the update in its graph,
beside `torch.compile(model, backend="glasshouse")`, whose update is eager's.

Each side has a process of its own. They step in turn: a step is timed after one that brings memory
and caches back, as in a training loop. The ratio is the time under torch.compile over that under
gh.optimize, median of the rounds. Aim: 1.05 with each optimizer.

First steps of gh.optimize come first: torch.compile's find the kernels that both have on disk.
"""

import contextlib
import statistics
import tempfile
from importlib.util import find_spec

from harness import parse_arguments, save_rows, show, summarize

from glasshouse.bench.process import BenchmarkRun, Worker
from glasshouse.bench.torch_cases import CAPTURED, OPTIMIZERS, OUR_MODE
from glasshouse.bench.torch_modes import FRAMEWORK, fresh_caches

MODELS = {
    "resnet50": "torchvision",
    "mobilenet_v3_large": "torchvision",
    "efficientnet_b0": "torchvision",
    "convnext_tiny": "torchvision",
    "swin_t": "torchvision",
    "vit_b_16": "torchvision",
    "bert": "transformers",
    "gpt2": "transformers",
    "t5": "transformers",
    "llama": "transformers",
    "whisper": "transformers",
    "lstm": "torch",
}
SIDES = {"gh.optimize": CAPTURED, "torch.compile": OUR_MODE}
FIRST_STEPS = 4  # in which either side captures and compiles
ROUNDS = 5


class WholeStep(BenchmarkRun):
    """A model with an optimizer, whose whole step or whose model alone is compiled by us."""

    def __init__(self, worker: Worker, model: str, mode: str, optimizer: str, smoke: bool):
        super().__init__(worker, model, FRAMEWORK, mode, "float32", smoke)
        self.optimizer = optimizer

    def build_options(self) -> dict:
        return {**super().build_options(), "optimizer": self.optimizer}

    def start(self) -> None:
        super().start()
        for _ in range(FIRST_STEPS - 2):
            self.worker.ask("step")


def row_of(name: str, kind: str, smoke: bool) -> dict:
    """Times of first and of later steps of both sides, and the most memory."""
    row: dict = {"model": name, "optimizer": kind}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        runs = {}
        for side, mode in SIDES.items():
            worker = stack.enter_context(Worker(side, fresh_caches(folder)))
            runs[side] = WholeStep(worker, name, mode, kind, smoke)
            runs[side].start()
        for _ in range(1 if smoke else ROUNDS):
            for run in runs.values():
                run.step()
        for side, run in runs.items():
            record = run.record()
            row[side] = {key: record[key] for key in ("first_loss", "first_step_s", "peak_bytes")}
    row["times"] = summarize({side: run.seconds for side, run in runs.items()})
    pairs = zip(runs["gh.optimize"].seconds, runs["torch.compile"].seconds, strict=True)
    row["ratio"] = statistics.median(theirs / ours for ours, theirs in pairs)
    return row


def named(parts: list, kinds: dict) -> list:
    """Those of these kinds that are named; all if none is."""
    return [part for part in parts if part in kinds] or list(kinds)


def main() -> None:
    options = parse_arguments(__doc__, [*MODELS, *OPTIMIZERS])
    if unknown := set(options.parts) - set(MODELS) - set(OPTIMIZERS):
        expected = ", ".join([*MODELS, *OPTIMIZERS])
        raise SystemExit(f"torch_whole_step: expected {expected}; got {', '.join(unknown)}")
    models = named(options.parts, {"bert": MODELS["bert"]} if options.smoke else MODELS)
    kinds = named(options.parts, OPTIMIZERS)
    rows: dict[str, dict] = {}
    for name in models:
        if find_spec(MODELS[name]) is None:
            print(f"{name}: {MODELS[name]} is NOT INSTALLED, so it was NOT RUN")
            continue
        for kind in kinds:
            rows[f"{name} {kind}"] = row_of(name, kind, options.smoke)
            order = [f"{model} {other}" for model in MODELS for other in OPTIMIZERS]
            path = save_rows("torch_whole_step", rows, order, options)
    if not rows:
        return
    show(
        "whole training steps",
        ["", "torch.compile", "gh.optimize", "ratio", "first steps", "peaks"],
        [
            [
                name,
                f"{1e3 * r['times']['torch.compile']['median_s']:,.1f} ms",
                f"{1e3 * r['times']['gh.optimize']['median_s']:,.1f} ms",
                f"{r['ratio']:.3f}",
                ", ".join(f"{r[side]['first_step_s']:.1f}" for side in reversed(SIDES)) + " s",
                ", ".join(f"{r[side]['peak_bytes'] / 2**20:,.0f}" for side in reversed(SIDES)),
            ]
            for name, r in rows.items()
        ],
        "ratio: torch.compile / gh.optimize; first steps, and peaks in MiB, in the same order",
    )
    for kind in kinds:
        ratios = [r["ratio"] for r in rows.values() if r["optimizer"] == kind]
        print(f"{kind}: geometric mean {statistics.geometric_mean(ratios):.3f}")
    print(path)


if __name__ == "__main__":
    main()
