"""Inference of four networks: a batch of 1 and of 8, in float32, bfloat16 and int8.

Glasshouse runs its own networks, captured. onnxruntime and OpenVINO run the files that
`gh.onnx.export` writes of them, PyTorch the networks of torchvision and transformers with the same
sizes, eager and under torch.compile. bfloat16 is the dtype of weights and inputs here and in
PyTorch, a hint in OpenVINO. int8 is `gh.quantize(..., "int8_static")`, and the file with its
scales, in which codes stand around products alone. Each side is a process of its own with two
threads and, while it is timed, real-time priority; they compute in turn. The ratio is the best
other side's time over ours.

A side runs in the first Python that has its package: this one, or those that `--peer` names.
"""

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twins import sides
from twins.sides import Side, has

# name: the function of our `vision.models` and torchvision's, or none for an encoder of texts
NETWORKS = {
    "MobileNetV3": "mobilenet_v3_large",
    "ResNet-50": "resnet50",
    "ViT-B/16": "vit_b_16",
    "BERT": "",
}
IMAGE, TOKENS = (3, 224, 224), 128
SMALL: dict[str, Any] = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "vocab_size": 64,
}
BATCHES, DTYPES = (1, 8), ("float32", "bfloat16", "int8")
PACKAGES = {
    "glasshouse": "glasshouse",
    "onnxruntime": "onnxruntime",
    "OpenVINO": "openvino",
    "PyTorch": "transformers",
    "torch.compile": "transformers",
}
ROUNDS, SECONDS, WARMUP = 7, 0.15, 4


def inputs_of(network: str, batch: int) -> Any:
    """Inputs as an array: images, or texts of tokens that every vocabulary here has."""
    import numpy as np

    rng = np.random.default_rng(0)
    if NETWORKS[network]:
        return rng.random((batch, *IMAGE), np.float32)
    return rng.integers(1, 60, (batch, TOKENS))


def our_network(network: str, smoke: bool) -> Any:
    import glasshouse as gh
    from glasshouse.text.models import BertConfig, BertModel
    from glasshouse.vision import models

    gh.random.seed(0)
    if NETWORKS[network]:
        return getattr(models, NETWORKS[network])().eval()
    return BertModel(BertConfig(**(SMALL if smoke else {}))).eval()


def torch_network(network: str) -> Any:
    from glasshouse.bench.torch_cases import import_torchvision, import_transformers

    if NETWORKS[network]:
        return getattr(import_torchvision().models, NETWORKS[network])()
    transformers = import_transformers()
    return transformers.BertModel(transformers.BertConfig())


def quantized(network: Any, x: Any) -> Any:
    import glasshouse as gh

    gh.quantize(network, "int8_static", calibrate=[gh.asarray(x)])
    return network


def file_of(folder: str, network: str, batch: int, dtype: str) -> Path:
    kind = "int8" if dtype == "int8" else "float"
    return Path(folder) / f"{network.replace('/', '_')}_{batch}_{kind}.onnx"


def export(folder: str, network: str, batch: int, dtype: str, smoke: bool) -> None:
    import glasshouse as gh

    model, x = our_network(network, smoke), inputs_of(network, batch)
    if dtype == "int8":
        quantized(model, x)
    gh.onnx.export(model, gh.asarray(x), file_of(folder, network, batch, dtype))


def make_call(side: str, folder: str, case: str) -> Callable[[], Any] | None:
    """The call of a case, or None where the side does not have it."""
    network, batch, dtype, smoke = case.split("|")
    x = inputs_of(network, int(batch))
    path = str(file_of(folder, network, int(batch), dtype))
    if side == "glasshouse":
        return our_call(our_network(network, smoke == "smoke"), x, dtype)
    if side == "onnxruntime":
        return None if dtype == "bfloat16" else sides.onnxruntime_file(path, x)
    if side == "OpenVINO":
        return sides.openvino_file(path, x, "bf16" if dtype == "bfloat16" else "f32")
    if dtype == "int8":
        return None
    import torch

    model = torch_network(network).eval()
    if dtype == "bfloat16":
        model = model.bfloat16()
    if side == "torch.compile":
        model = torch.compile(model)
    return sides.torch_network(model, x, dtype=dtype)


def our_call(network: Any, x: Any, dtype: str) -> Callable[[], Any]:
    import glasshouse as gh

    if dtype == "int8":
        quantized(network, x)
    x = gh.asarray(x)
    if dtype == "bfloat16":
        network.to(dtype="bfloat16")
        x = x.to("bfloat16") if x.dtype is gh.float32 else x
    return sides.glasshouse_network(network, x)


def case_times(running: dict[str, Side], case: str, rounds: int) -> dict[str, float]:
    """The median seconds of a call of each side that has the case."""
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    for name, side in running.items():
        if first := side.run(case, WARMUP):
            counts[name] = max(1, math.ceil(SECONDS / first[-1])) if rounds > 1 else 1
            times[name] = []
    for _ in range(rounds):
        for name, count in counts.items():
            with running[name].first():
                times[name] += running[name].run(case, count)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        side, folder = sys.argv[2:]
        sides.serve(lambda case: make_call(side, folder, case))
        return 0
    from harness import RESULTS, save_rows, show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}: all by default")
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    parser.add_argument("--peer", action="append", default=[], help="another Python, for packages")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="some of them, with commas")
    parser.add_argument("--sides", default=",".join(PACKAGES), help="some of them, with commas")
    parser.add_argument("--before", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        options.networks, options.dtypes = ["BERT"], "float32,int8"
    rows, lines = {}, []
    packages = {k: v for k, v in PACKAGES.items() if k in options.sides.split(",")}
    if options.smoke:
        packages = {k: v for k, v in packages.items() if v != "transformers"}
    if not has(sys.executable, "onnx"):
        packages = {k: v for k, v in packages.items() if v not in ("onnxruntime", "openvino")}
    for network in options.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            running = sides.start_sides(stack, __file__, folder, packages, options)
            for dtype in options.dtypes.split(","):
                for batch in BATCHES[: 1 if options.smoke else None]:
                    if {"onnxruntime", "OpenVINO"} & running.keys():
                        export(folder, network, batch, dtype, options.smoke)
                    case = f"{network}|{batch}|{dtype}|{'smoke' if options.smoke else ''}"
                    times = case_times(running, case, 1 if options.smoke else ROUNDS)
                    others = [t for name, t in times.items() if name != "glasshouse"]
                    ratio = min(others) / times["glasshouse"] if others else None
                    rows[f"{network}, {batch}, {dtype}"] = {"seconds": times, "ratio": ratio}
                    cells = [f"{1e3 * times[n]:.1f}" if n in times else "" for n in PACKAGES]
                    lines.append([f"{network} {batch} {dtype}", *cells, f"{ratio or 0:.2f}"])
                    print(*lines[-1], flush=True)
    show("networks", ["ms", *PACKAGES, "ratio"], lines, f"medians, {sides.THREADS} threads")
    order = [f"{n}, {b}, {d}" for n in NETWORKS for d in DTYPES for b in BATCHES]
    print(save_rows("networks", rows, order, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
