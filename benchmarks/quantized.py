"""Inference with 8 bits: time and size of two networks, of Linear layers and of convolutions, in
float32, bfloat16 and integers, beside PyTorch's int8 for x86 and onnxruntime's where they are
installed. Each library is a process of its own with two threads; they compute in turn.

Inputs and weights are random. "dynamic" measures the scale of inputs in each call, "static" has
measured it before. Of a convolution PyTorch and onnxruntime have no dynamic form."""

import functools
import importlib.util
import math
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from twins import sides
from twins.sides import THREADS

SIZE, INNER, PAIRS = 1024, 4096, 4  # of Linear layers, one after the other
CHANNELS, IMAGE, CONVS = 64, 56, 6  # of convolutions of 3 x 3
BATCHES = {"linear": (1, 8, 128), "convs": (1, 8)}
SCHEMES = ("int8_dynamic", "int8_static")
FILES = ("float32", "dynamic", "static")
# The cases of each side; the last one of ours is onnxruntime's file.
CASES = {
    "glasshouse": ("float32", "bfloat16", *SCHEMES, "the file of onnxruntime static"),
    "PyTorch": ("float32", "bfloat16", "dynamic", "static"),
    "onnxruntime": FILES,
}
PACKAGES = {"glasshouse": "glasshouse", "PyTorch": "torch", "onnxruntime": "onnxruntime"}
ROUNDS, SECONDS, WARMUP = 15, 0.03, 5


def layers_of(kind: str, smoke: bool) -> list[tuple[int, int]]:
    """(inputs, outputs): features or channels of a network's layers."""
    if kind == "linear":
        return [(SIZE, INNER), (INNER, SIZE)] * (1 if smoke else PAIRS)
    return [(CHANNELS, CHANNELS)] * (1 if smoke else CONVS)


def shape_of(kind: str, batch: int) -> tuple[int, ...]:
    return (batch, SIZE) if kind == "linear" else (batch, CHANNELS, IMAGE, IMAGE)


def inputs_of(kind: str, batch: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape_of(kind, batch)).astype("f4")


def our_network(kind: str, x: np.ndarray, how: str, smoke: bool) -> tuple[Any, Any]:
    """(a network, its inputs)."""
    import glasshouse as gh
    from glasshouse import nn

    gh.random.seed(0)
    layers: list[Any] = []
    for n_in, n_out in layers_of(kind, smoke):
        layer = nn.Linear(n_in, n_out) if kind == "linear" else nn.Conv2d(n_in, n_out, 3, padding=1)
        layers += [layer, nn.ReLU()]
    model, inputs = nn.Sequential(*layers).eval(), gh.asarray(x)
    if how == "bfloat16":
        model, inputs = model.to(dtype="bfloat16"), inputs.to("bfloat16")
    elif how in SCHEMES:
        gh.quantize(model, how, **({"calibrate": [inputs]} if how == "int8_static" else {}))
    gh.eval(inputs, *model.state_dict().values())
    return model, inputs


def torch_calls(kind: str, sizes: Any, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """PyTorch's eager calls."""
    import torch
    from torch.ao import quantization

    torch.backends.quantized.engine = "x86"
    torch.set_num_threads(THREADS)
    inputs = torch.tensor(x)

    def network() -> Any:
        layers: list[Any] = []
        for n_in, n_out in sizes:
            linear = torch.nn.Linear(n_in, n_out) if kind == "linear" else None
            layers += [linear or torch.nn.Conv2d(n_in, n_out, 3, padding=1), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers).eval()

    def call(model: Any, inputs: Any) -> Callable[[], Any]:
        def run():
            with torch.no_grad():
                model(inputs)

        return run

    cases = {"float32": call(network(), inputs)}
    cases["bfloat16"] = call(network().bfloat16(), inputs.bfloat16())
    if kind == "linear":
        dynamic = quantization.quantize_dynamic(network(), {torch.nn.Linear}, dtype=torch.qint8)
        cases["dynamic"] = call(dynamic, inputs)
    parts = [quantization.QuantStub(), *network(), quantization.DeQuantStub()]
    static = torch.nn.Sequential(*parts).eval()
    static.qconfig = quantization.get_default_qconfig("x86")
    pairs = [[str(i), str(i + 1)] for i in range(1, 2 * len(sizes), 2)]
    static = quantization.prepare(quantization.fuse_modules(static, pairs))
    static(inputs)
    cases["static"] = call(quantization.convert(static), inputs)
    return cases


def onnx_network(kind: str, sizes: Any, batch: int) -> Any:
    """A ModelProto of such a network in float32."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, tensors, name = [], [], "x0"
    for i, (n_in, n_out) in enumerate(sizes):
        shape = (n_in, n_out) if kind == "linear" else (n_out, n_in, 3, 3)
        weight = rng.normal(size=shape).astype("f4") / np.float32(np.sqrt(n_in))
        tensors.append(numpy_helper.from_array(weight, f"w{i}"))
        op, more = ("MatMul", {}) if kind == "linear" else ("Conv", {"pads": [1, 1, 1, 1]})
        nodes.append(helper.make_node(op, [name, f"w{i}"], [f"y{i}"], name=f"n{i}", **more))
        name = f"x{i + 1}"
        nodes.append(helper.make_node("Relu", [f"y{i}"], [name], name=f"r{i}"))
    shape = list(shape_of(kind, batch))
    ends = [[helper.make_tensor_value_info(n, 1, shape)] for n in ("x0", name)]
    graph = helper.make_graph(nodes, "network", *ends, tensors)
    opsets = [helper.make_opsetid("", 21)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10)
    )


def write_files(kind: str, x: np.ndarray, smoke: bool, folder: str) -> None:
    """The network in float32, and as onnxruntime quantises it."""
    import onnx
    from onnxruntime import quantization

    class OneBatch(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x0": x}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    first, dynamic, static = (file_of(folder, kind, len(x), name) for name in FILES)
    onnx.save(onnx_network(kind, layers_of(kind, smoke), len(x)), first)
    if kind == "linear":
        quantization.quantize_dynamic(first, dynamic)
    quantization.quantize_static(first, static, OneBatch(), per_channel=True)


def file_of(folder: str, kind: str, batch: int, name: str) -> Path:
    return Path(folder) / f"{kind}_{batch}_{name}.onnx"


def make_call(
    side: str, folder: str, kind: str, batch: int, how: str, smoke: bool
) -> Callable[[], Any] | None:
    """The call of a case, or None where the side does not have it."""
    x = inputs_of(kind, batch)
    path = file_of(folder, kind, batch, how.rpartition(" ")[-1])
    if side == "PyTorch":
        with warnings.catch_warnings(action="ignore"):
            return torch_calls(kind, layers_of(kind, smoke), x).get(how)
    if side == "glasshouse" and " " not in how:
        return sides.glasshouse_network(*our_network(kind, x, how, smoke))
    if not path.exists():
        return None
    make = sides.onnxruntime_file if side == "onnxruntime" else sides.glasshouse_file
    return make(str(path), x)


def measure_cases(running: dict[str, sides.Side], kind: str, batch: int, smoke: bool) -> dict:
    """Seconds of the calls of each case, by its name."""
    counts, times = {}, {}
    for side, process in running.items():
        for how in CASES[side]:
            case = kind, batch, how, smoke
            if first := process.run(case, WARMUP):  # captured from the third call on
                count = 1 if smoke else math.ceil(SECONDS / first[-1])
                counts[side, how, case] = count
                times[f"{side} {how}"] = []
    for _ in range(1 if smoke else ROUNDS):
        for (side, how, case), count in counts.items():
            with running[side].first():
                times[f"{side} {how}"] += running[side].run(case, count)
    return times


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        side, folder = sys.argv[2:]
        sides.serve(functools.partial(make_call, side, folder))
        return
    from harness import parse_arguments, save, show, summarize

    options = parse_arguments(__doc__, tuple(BATCHES))
    results, smoke = {}, options.smoke
    has_files = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        packages = {k: v for k, v in PACKAGES.items() if has_files or k != "onnxruntime"}
        running = sides.start_sides(stack, __file__, folder, packages)
        for kind in options.parts or BATCHES:
            for batch in BATCHES[kind][: 1 if smoke else None]:
                x = inputs_of(kind, batch)
                if has_files:
                    with warnings.catch_warnings(action="ignore"):
                        write_files(kind, x, smoke, folder)
                times = summarize(measure_cases(running, kind, batch, smoke))
                rows = []
                for name, row in times.items():
                    row["ratio"] = times["glasshouse float32"]["median_s"] / row["median_s"]
                    how, size = name.removeprefix("glasshouse "), ""
                    if how in CASES["glasshouse"][:-1]:
                        model, _ = our_network(kind, x, how, smoke)
                        row["bytes"] = sum(t.nbytes for t in model.state_dict().values())
                        size = f"{row['bytes'] / 1e6:.1f}"
                    rows.append([name, size, f"{row['median_s'] * 1e3:.2f}", f"{row['ratio']:.2f}"])
                columns = ["numbers", "MB", "ms", "times float32"]
                show(f"{kind}, {batch} at a time", columns, rows, "a ratio above 1: faster")
                results[f"{kind} {batch}"] = times
    print(save("quantized", results, options))


if __name__ == "__main__":
    main()
