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
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

THREADS, BUSY, SIZE, ROUNDS = 2, 4, 224, 5
PACKAGES = {
    "glasshouse": "glasshouse",
    "glasshouse before": "glasshouse",
    "onnxruntime": "onnxruntime",
    "OpenVINO": "openvino",
    "PyTorch, eager": "torchvision",
}
# oneDNN, BLAS and OpenMP read them; each side is told its threads, or counts the cores.
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ALIGNED = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
COMPILED = ("nms", "qnms", *ALIGNED, *(f"_{name}_backward" for name in ALIGNED))
BUSY_LOOP = "while True: pass"


def glasshouse_call(path: str, x: Any) -> Callable[[], Any]:
    """The network from its file, captured; its own without one."""
    import glasshouse as gh
    from glasshouse.vision import models

    network = gh.onnx.load(path) if path else models.mobilenet_v3_large().eval()
    step, inputs = gh.optimize(lambda x: network(x)), gh.asarray(x)

    def call() -> None:
        with gh.no_grad():
            gh.eval(step(inputs))

    return call


def onnxruntime_call(path: str, x: Any) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})


def openvino_call(path: str, x: Any) -> Callable[[], Any]:
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS}
    hints["PERFORMANCE_HINT"] = "LATENCY"
    compiled = openvino.Core().compile_model(path, "CPU", hints)
    return lambda: compiled([x])


def eager_call(path: str, x: Any) -> Callable[[], Any]:
    """torchvision's network of the same sizes; its file is not read."""
    import torch

    library = torch.library.Library("torchvision", "DEF")  # its compiled part may not load
    for name in COMPILED:
        library.define(f"{name}(Tensor x) -> Tensor")
    import torchvision

    torch.set_num_threads(THREADS)
    model, inputs = torchvision.models.mobilenet_v3_large().eval(), torch.from_numpy(x)

    def call() -> None:
        with torch.no_grad():
            model(inputs)

    return call


CALLS = dict(zip(PACKAGES, [glasshouse_call] * 2 + [onnxruntime_call, openvino_call, eager_call]))


def serve(side: str, path: str) -> None:
    """A side's process: for each number that it reads, so many calls, and their seconds."""
    import numpy as np

    call = CALLS[side](path, np.random.default_rng(0).random((1, 3, SIZE, SIZE), np.float32))
    for _ in range(10):
        call()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(seconds), flush=True)


@contextmanager
def child(command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process that ends with the context, whatever happens."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def has(python: str, package: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec(package) is not None
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def start_sides(stack: ExitStack, path: str, options: argparse.Namespace) -> dict[str, Any]:
    """The processes of the sides whose packages are there, ready to compute."""
    environ = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    environ["OMP_NUM_THREADS"] = str(THREADS)
    sides = {}
    for side, package in PACKAGES.items():
        python = next((p for p in (sys.executable, *options.peer) if has(p, package)), None)
        reads_file = package in ("onnxruntime", "openvino")
        if python is None or (reads_file and not path):
            continue
        if side == "glasshouse before" and not options.before:
            continue
        own = {**environ, "PYTHONPATH": str(options.before)} if "before" in side else environ
        command = [python, __file__, "--serve", side, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        sides[side] = stack.enter_context(child(command, env=own, **pipes))
        if sides[side].stdout.readline() != "ready\n":
            raise SystemExit(f"{side} does not start")
    return sides


def run_calls(side: Any, count: int) -> list[float]:
    """The seconds of so many calls of a side."""
    side.stdin.write(f"{count}\n")
    side.stdin.flush()
    return json.loads(side.stdout.readline())


def set_priority(side: Any, policy: int, priority: int) -> None:
    """Give all threads of a side a policy of scheduling, where the system allows it."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{side.pid}/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


def run_rounds(sides: dict[str, Any], rounds: int, counts: tuple[int, int]) -> dict[str, Any]:
    """Seconds of all calls of each side, alone and beside neighbours."""
    alone: dict[str, list[float]] = {name: [] for name in sides}
    beside: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            set_priority(side, os.SCHED_RR, 1)
            alone[name] += run_calls(side, counts[0])
            set_priority(side, os.SCHED_OTHER, 0)
        with ExitStack() as stack:
            for _ in range(BUSY):
                stack.enter_context(child([sys.executable, "-c", BUSY_LOOP]))
            time.sleep(0.1)
            for name, side in sides.items():
                beside[name] += run_calls(side, counts[1])
    return {name: (alone[name], beside[name]) for name in sides}


def export(path: str) -> None:
    """Write the network that all sides but PyTorch read."""
    import glasshouse as gh
    from glasshouse.vision import models

    gh.random.seed(0)
    gh.onnx.export(models.mobilenet_v3_large(), gh.zeros((1, 3, SIZE, SIZE)), path)


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:  # a side need not have what the harness imports
        serve(*sys.argv[2:])
        return 0
    from harness import RESULTS, save, show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    parser.add_argument("--peer", action="append", default=[], help="another Python, for packages")
    parser.add_argument("--before", type=Path, help="an older src of Glasshouse")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = str(Path(folder) / "network.onnx") if has(sys.executable, "onnx") else ""
        if path:
            export(path)
        sides = start_sides(stack, path, options)
        times = run_rounds(sides, *((1, (2, 2)) if options.smoke else (ROUNDS, (20, 4))))
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
