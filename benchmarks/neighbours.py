"""Inference beside busy processes: how much slower does a network become?

MobileNetV3 (batch 1, float32) by Glasshouse, onnxruntime, OpenVINO and eager PyTorch, with two
threads each, alone and beside busy processes that never wait. Each side is a process of its own;
they compute in turn, in short rounds, and rounds alone and beside neighbours alternate. A slowdown
is the median beside the neighbours by the median alone. Aim: at most 1.5 times OpenVINO's.

Alone means with real-time priority, where the system allows that: other processes of the machine
wait for that moment.

Without the package onnx only Glasshouse and PyTorch are measured, by networks of their own. A side
runs in the first Python that has its package: this one, or those that `--peer` names.
`--before FOLDER` measures an older `src` of Glasshouse, too.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twins import sides
from twins.sides import THREADS, Side, child, has

BUSY, SIZE, ROUNDS = 4, 224, 5
PACKAGES = {
    "glasshouse": "glasshouse",
    "glasshouse before": "glasshouse",
    "onnxruntime": "onnxruntime",
    "OpenVINO": "openvino",
    "PyTorch, eager": "torchvision",
}
BUSY_LOOP = "while True: pass"


def glasshouse_call(path: str, x: Any) -> Callable[[], Any]:
    """The network from its file, captured; our own without one."""
    from glasshouse.vision import models

    if Path(path).exists():
        return sides.glasshouse_file(path, x)
    return sides.glasshouse_network(models.mobilenet_v3_large().eval(), x)


def eager_call(path: str, x: Any) -> Callable[[], Any]:
    """torchvision's network of the same sizes; the file is not read."""
    from glasshouse.bench.torch_cases import import_torchvision

    return sides.torch_network(import_torchvision().models.mobilenet_v3_large(), x)


FILES = (sides.onnxruntime_file, sides.openvino_file)
CALLS = dict(zip(PACKAGES, (glasshouse_call, glasshouse_call, *FILES, eager_call)))


def serve_side(name: str, folder: str) -> None:
    import numpy as np

    x = np.random.default_rng(0).random((1, 3, SIZE, SIZE), np.float32)
    call = CALLS[name](str(Path(folder) / "network.onnx"), x)
    for _ in range(10):
        call()
    sides.serve(lambda: call)


def run_rounds(running: dict[str, Side], rounds: int, counts: tuple[int, int]) -> dict[str, Any]:
    """Seconds of all calls of each side, alone and beside neighbours."""
    alone: dict[str, list[float]] = {name: [] for name in running}
    beside: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(rounds):
        for name, side in running.items():
            with side.first():
                alone[name] += side.run((), counts[0])
        with ExitStack() as stack:
            for _ in range(BUSY):
                stack.enter_context(child([sys.executable, "-c", BUSY_LOOP]))
            time.sleep(0.1)
            for name, side in running.items():
                beside[name] += side.run((), counts[1])
    return {name: (alone[name], beside[name]) for name in running}


def export(path: Path) -> None:
    """Write the network that all sides but PyTorch read."""
    import glasshouse as gh
    from glasshouse.vision import models

    gh.random.seed(0)
    gh.onnx.export(models.mobilenet_v3_large(), gh.zeros((1, 3, SIZE, SIZE)), path)


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve_side(*sys.argv[2:])
        return 0
    from harness import RESULTS, save, show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    parser.add_argument("--peer", action="append", default=[], help="another Python, for packages")
    parser.add_argument("--before", type=Path, help="an older src of Glasshouse")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        packages = {k: v for k, v in PACKAGES.items() if "before" not in k or options.before}
        if has(sys.executable, "onnx"):
            export(Path(folder) / "network.onnx")
        packages = sides.with_files(packages)
        running = sides.start_sides(stack, __file__, folder, packages, options.peer, options.before)
        times = run_rounds(running, *((1, (2, 2)) if options.smoke else (ROUNDS, (20, 4))))
    rows, results = [], {}
    for name, both in times.items():
        alone, beside = map(statistics.median, both)
        ratio = beside / alone
        worst = statistics.quantiles(both[1], n=10)[-1]
        results[name] = {
            "alone_s": alone,
            "beside_s": beside,
            "slowdown": ratio,
            "slowest_tenth_s": worst,
        }
    theirs = results.get("OpenVINO", {}).get("slowdown")
    for name, result in results.items():
        if theirs:
            result["ratio"] = result["slowdown"] / theirs
        cells = [
            f"{1e3 * result[key]:.1f} ms" for key in ("alone_s", "beside_s", "slowest_tenth_s")
        ]
        more = [f"{result[key]:.2f}" if key in result else "" for key in ("slowdown", "ratio")]
        rows.append([name, *cells, *more])
    columns = ["", "alone", f"beside {BUSY}", "slowest tenth", "slowdown", "/ OpenVINO's"]
    show("neighbours", columns, rows, f"medians, {THREADS} threads")
    print(save("neighbours", results, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
