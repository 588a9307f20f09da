"""How true predicted times of PyTorch models' training steps are, on our engine: those of
`torch.compile(model, backend="glasshouse")` with a loss and an optimizer of PyTorch's own.

Each model has a process of its own, which calibrates first: where others share the machine, memory
is now slow, now fast. Aims: the time of a step within 15 %, that of kernels within 15 % (the median
over the kernels, weighted by time).
"""

import contextlib
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

from harness import parse_arguments, save, show

MODELS = {
    "resnet50": "torchvision",
    "mobilenet_v3_large": "torchvision",
    "vit_b_16": "torchvision",
    "bert": "transformers",
    "gpt2": "transformers",
    "llama": "transformers",
}
OPTIMIZERS = {"SGD": {"lr": 1e-3, "momentum": 0.9}, "AdamW": {"lr": 1e-3}}
STEPS = 7  # that are timed
PROFILES = 3  # of a step, of which the middle one counts


def row_of(name: str, smoke: bool) -> list[dict]:
    """Predicted and measured times of a model's steps, with each optimizer."""
    import torch

    import glasshouse as gh
    from glasshouse.base.flags import flags
    from glasshouse.bench.torch_cases import TorchModel, cross_entropy

    rows, machine = [], gh.analyze.calibrate(smoke=smoke)
    for kind, options in OPTIMIZERS.items():
        built = TorchModel(name, "glasshouse", "float32", smoke, False)
        built.optimizer = getattr(torch.optim, kind)(built.model.parameters(), **options)
        loss = None if built.case.computes_loss else cross_entropy
        inputs = [built.inputs, *([] if loss is None else [built.labels])]
        with flags.override(compile="always") if smoke else contextlib.nullcontext():
            start = time.perf_counter()
            costs = gh.analyze.step(built.model, loss, built.optimizer, inputs, machine=machine)
            analysing = time.perf_counter() - start
            rows.append({"model": name, "optimizer": kind, "analysing_s": analysing})
            rows[-1] |= measured(built.train, costs, 1 if smoke else STEPS)
    return rows


def measured(train, result, steps: int) -> dict:
    """A prediction beside steps that are timed, and beside a profile of one."""
    import glasshouse as gh

    for _ in range(3):
        train()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        train()
        seconds.append(time.perf_counter() - start)
    beside = []
    for _ in range(min(steps, PROFILES)):
        with gh.profile() as prof:
            train()
        beside.append(gh.analyze.compare(result, prof))
    usual = sorted(beside, key=lambda x: x.totals[0].measured)[len(beside) // 2]
    median = statistics.median(seconds)
    return {
        "predicted_s": result.predicted_ns / 1e9,
        "of_python_s": result.host_ns / 1e9,
        "measured_s": median,
        "all_s": seconds,
        "ratio": result.predicted_ns / 1e9 / median,
        "kernels_ratio": usual.totals[0].ratio,
        "kernel_error": usual.kernel_error,
        "matched": sum(x.measured for x in usual.kernels) / sum(x.measured for x in usual.lines),
    }


def main() -> None:
    options = parse_arguments(__doc__, MODELS)
    if unknown := set(options.parts) - set(MODELS):
        raise SystemExit(f"torch_analyze: expected {', '.join(MODELS)}; got {', '.join(unknown)}")
    rows: list[dict] = []
    spawn = multiprocessing.get_context("spawn")
    for name in options.parts or list(MODELS)[: 1 if options.smoke else None]:
        if find_spec(MODELS[name]) is None:
            print(f"{name}: {MODELS[name]} is NOT INSTALLED, so it was NOT RUN")
            continue
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            rows += pool.submit(row_of, name, options.smoke).result()
        path = save("torch_analyze", {"steps": rows}, options)
    if not rows:
        return
    show(
        "time of a step",
        ["", "predicted", "measured", "ratio", "kernels", "kernel error", "matched"],
        [
            [
                f"{r['model']} {r['optimizer']}",
                f"{1e3 * r['predicted_s']:,.1f} ms",
                f"{1e3 * r['measured_s']:,.1f} ms",
                f"{r['ratio']:.3f}",
                f"{r['kernels_ratio']:.3f}",
                f"{r['kernel_error']:.3f}",
                f"{r['matched']:.1%}",
            ]
            for r in rows
        ],
        "kernels: predicted / measured; matched: the part of their time with a prediction beside",
    )
    print(path)


if __name__ == "__main__":
    main()
