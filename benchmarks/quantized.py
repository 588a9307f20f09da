"""Inference with 8 bits: time and size of two networks, of Linear layers and of convolutions, in
float32, bfloat16 and integers, beside PyTorch's int8 for x86 and onnxruntime's where they are
installed. All of a network run in turn.

Inputs and weights are random. "dynamic" measures the scale of inputs in each call, "static" has
measured it before. Of a convolution PyTorch and onnxruntime have no dynamic form."""

import importlib.util
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn
from glasshouse.compile.building.toolchain import count_threads

SIZE, INNER, PAIRS = 1024, 4096, 4  # of Linear layers, one after the other
CHANNELS, IMAGE, CONVS = 64, 56, 6  # of convolutions of 3 x 3
BATCHES = {"linear": (1, 8, 128), "convs": (1, 8)}
SCHEMES = ("int8_dynamic", "int8_static")


def layers_of(kind: str, smoke: bool) -> list[tuple[int, int]]:
    """(taken, made) features or channels of a network's layers."""
    if kind == "linear":
        return [(SIZE, INNER), (INNER, SIZE)] * (1 if smoke else PAIRS)
    return [(CHANNELS, CHANNELS)] * (1 if smoke else CONVS)


def shape_of(kind: str, batch: int) -> tuple[int, ...]:
    return (batch, SIZE) if kind == "linear" else (batch, CHANNELS, IMAGE, IMAGE)


def ours(kind: str, sizes: Any, x: np.ndarray, how: str) -> tuple[Callable[[], Any], int]:
    """(a captured call, bytes of the model)."""
    gh.random.seed(0)
    layers: list[Any] = []
    for n_in, n_out in sizes:
        layer = nn.Linear(n_in, n_out) if kind == "linear" else nn.Conv2d(n_in, n_out, 3, padding=1)
        layers += [layer, nn.ReLU()]
    model, inputs = nn.Sequential(*layers).eval(), gh.asarray(x)
    if how == "bfloat16":
        model, inputs = model.to(dtype="bfloat16"), inputs.to("bfloat16")
    elif how in SCHEMES:
        gh.quantize(model, how, **({"calibrate": [inputs]} if how == "int8_static" else {}))
    gh.eval(inputs, *model.state_dict().values())
    step = gh.optimize(lambda x: model(x))

    def call():
        with gh.no_grad():
            gh.eval(step(inputs))

    return call, sum(t.nbytes for t in model.state_dict().values())


def theirs_of_pytorch(kind: str, sizes: Any, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """PyTorch's eager calls."""
    import torch
    from torch.ao import quantization

    torch.backends.quantized.engine = "x86"
    torch.set_num_threads(count_threads())
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

    cases = {"PyTorch float32": call(network(), inputs)}
    cases["PyTorch bfloat16"] = call(network().bfloat16(), inputs.bfloat16())
    if kind == "linear":
        dynamic = quantization.quantize_dynamic(network(), {torch.nn.Linear}, dtype=torch.qint8)
        cases["PyTorch dynamic"] = call(dynamic, inputs)
    parts = [quantization.QuantStub(), *network(), quantization.DeQuantStub()]
    static = torch.nn.Sequential(*parts).eval()
    static.qconfig = quantization.get_default_qconfig("x86")
    pairs = [[str(i), str(i + 1)] for i in range(1, 2 * len(sizes), 2)]
    static = quantization.prepare(quantization.fuse_modules(static, pairs))
    static(inputs)
    cases["PyTorch static"] = call(quantization.convert(static), inputs)
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


def theirs_of_onnxruntime(kind: str, sizes: Any, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """onnxruntime's sessions, and ours of the network that it quantised."""
    import onnx
    import onnxruntime
    from onnxruntime import quantization

    class OneBatch(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x0": x}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count_threads()
    cases: dict[str, Callable[[], Any]] = {}

    def add(name: str, path: Path) -> None:
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        cases[f"onnxruntime {name}"] = lambda: session.run(None, {"x0": x})

    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.onnx" for name in ("float32", "dynamic", "static")}
        onnx.save(onnx_network(kind, sizes, x.shape[0]), paths["float32"])
        add("float32", paths["float32"])
        if kind == "linear":
            quantization.quantize_dynamic(paths["float32"], paths["dynamic"])
            add("dynamic", paths["dynamic"])
        quantization.quantize_static(
            paths["float32"], paths["static"], OneBatch(), per_channel=True
        )
        add("static", paths["static"])
        network = gh.onnx.load(paths["static"])
        step, inputs = gh.optimize(lambda x: network(x)), gh.asarray(x)

        def call():
            with gh.no_grad():
                gh.eval(step(inputs))

        cases["ours, the file of onnxruntime static"] = call
    return cases


def main() -> None:
    options = parse_arguments(__doc__, tuple(BATCHES))
    results: dict[str, Any] = {}
    for kind in options.parts or BATCHES:
        sizes = layers_of(kind, options.smoke)
        for batch in BATCHES[kind][: 1 if options.smoke else None]:
            x = np.random.default_rng(1).normal(size=shape_of(kind, batch)).astype("f4")
            cases, nbytes = {}, {}
            for how in ("float32", "bfloat16", *SCHEMES):
                cases[how], nbytes[how] = ours(kind, sizes, x, how)
            with warnings.catch_warnings(action="ignore"):
                if importlib.util.find_spec("torch"):
                    cases |= theirs_of_pytorch(kind, sizes, x)
                if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
                    cases |= theirs_of_onnxruntime(kind, sizes, x)
            for case in cases.values():  # captured from the third call on
                for _ in range(4):
                    case()
            times = summarize(measure(cases, 1 if options.smoke else 15))
            rows = []
            for name, row in times.items():
                row["ratio"] = times["float32"]["median_s"] / row["median_s"]
                row |= {"bytes": nbytes[name]} if name in nbytes else {}
                size = f"{nbytes[name] / 1e6:.1f}" if name in nbytes else ""
                rows.append([name, size, f"{row['median_s'] * 1e3:.2f}", f"{row['ratio']:.2f}"])
            columns = ["numbers", "MB", "ms", "times float32"]
            show(f"{kind}, {batch} at a time", columns, rows, "a ratio above 1: faster")
            results[f"{kind} {batch}"] = times
    print(save("quantized", results, options))


if __name__ == "__main__":
    main()
