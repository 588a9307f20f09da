"""Whole training steps of PyTorch models: `gh.optimize(step)`, which has the update in its graph,
beside `torch.compile(model, backend="glasshouse")`, whose update is eager's.

Both sides train models of their own in one process, step by step in turn, after their first steps
have compiled; each model has a process of its own. The ratio is the time under torch.compile over
that under gh.optimize, median of the rounds. Aim: 1.05 with each optimizer.

First steps of gh.optimize come first: torch.compile's find the kernels that both have on disk.
"""

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

from harness import measure, parse_arguments, save, show, summarize

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
OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 1e-3}),
    "momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "AdamW": ("AdamW", {"lr": 1e-3}),
}
FIRST_STEPS = 4  # in which either side captures and compiles
ROUNDS = 9


def steps_of(name: str, kind: str, smoke: bool) -> dict:
    """A step of each side, from the same weights."""
    import torch

    from glasshouse.cli.torch_cases import CAPTURED, OUR_MODE, TorchModel

    maker, options = OPTIMIZERS[kind]
    steps = {}
    for mode in (CAPTURED, OUR_MODE):
        built = TorchModel(name, mode, "float32", smoke, False)
        built.optimizer = getattr(torch.optim, maker)(built.model.parameters(), **options)
        steps["gh.optimize" if mode == CAPTURED else "torch.compile"] = built.train
    return steps


def row_of(name: str, kind: str, smoke: bool) -> dict:
    """Times of first and of later steps of both sides."""
    row: dict = {"model": name, "optimizer": kind}
    steps = steps_of(name, kind, smoke)
    for side, step in steps.items():
        start, cpu = time.perf_counter(), time.process_time()
        row[f"{side} first loss"] = step().item()
        for _ in range(FIRST_STEPS - 1):
            step()
        row[f"{side} first_s"] = time.perf_counter() - start
        row[f"{side} first_cpu_s"] = time.process_time() - cpu
    times = measure(steps, 1 if smoke else ROUNDS)
    ours, theirs = times["gh.optimize"], times["torch.compile"]
    row["times"] = summarize(times)
    row["ratio"] = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    return row


def main() -> None:
    options = parse_arguments(__doc__, MODELS)
    if unknown := set(options.parts) - set(MODELS):
        expected = ", ".join(MODELS)
        raise SystemExit(f"torch_whole_step: expected {expected}; got {', '.join(unknown)}")
    rows, spawn = [], multiprocessing.get_context("spawn")
    path = None
    for name in options.parts or (["bert"] if options.smoke else MODELS):
        if find_spec(MODELS[name]) is None:
            print(f"{name}: {MODELS[name]} is NOT INSTALLED, so it was NOT RUN")
            continue
        for kind in OPTIMIZERS:
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                rows.append(pool.submit(row_of, name, kind, options.smoke).result())
            path = save("torch_whole_step", {"steps": rows}, options)
    if path is None:
        return
    show(
        "whole training steps",
        ["", "torch.compile", "gh.optimize", "ratio", "first steps", "first steps"],
        [
            [
                f"{r['model']} {r['optimizer']}",
                f"{1e3 * r['times']['torch.compile']['median_s']:,.1f} ms",
                f"{1e3 * r['times']['gh.optimize']['median_s']:,.1f} ms",
                f"{r['ratio']:.3f}",
                f"{r['torch.compile first_s']:.1f} s",
                f"{r['gh.optimize first_s']:.1f} s",
            ]
            for r in rows
        ],
        f"ratio: torch.compile / gh.optimize; first steps: {FIRST_STEPS}, of either side",
    )
    print(path)


if __name__ == "__main__":
    main()
