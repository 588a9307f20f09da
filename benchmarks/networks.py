"""Inference of four networks: a batch of 1 and of 8, in float32, bfloat16 and int8.

Glasshouse runs its own networks, captured. onnxruntime and OpenVINO run the files that
`gh.onnx.export` writes of them, PyTorch the networks of torchvision and transformers with the same
sizes, eager and under torch.compile with its weights frozen, where that compiles soon enough.
bfloat16 is the dtype of weights and inputs here and in PyTorch, a hint in OpenVINO.

int8 is what a user of each has: `gh.quantize(..., "int8_static")`; of the float file onnxruntime's
`quantize_static`, or `quantize_dynamic` for transformers, as its manual says; OpenVINO's `nncf`, or
without it the file of `quantize_static`; PyTorch's eager modules for x86, of transformers the
Linear layers alone. Each side is a process of its own with two threads and, while it is timed,
real-time priority; they compute in turn. The ratio is the best other side's time over ours.

A side runs in the first Python that has its package: this one, or those that `--peer` names.
"""

import argparse
import functools
import math
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
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
TRANSFORMERS = ("ViT-B/16", "BERT")
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
COMPILE_SECONDS = 150


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


def quantized_torch_network(network: str, x: Any) -> Any:
    """PyTorch's network with int8 kernels for x86."""
    import torch
    from torch.ao import quantization

    from glasshouse.bench.torch_cases import import_torchvision

    torch.backends.quantized.engine = "x86"
    if network in TRANSFORMERS:
        model = torch_network(network).eval()
        return quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    make = getattr(import_torchvision().models.quantization, NETWORKS[network])
    model = make(weights=None, quantize=False).eval()
    model.fuse_model(is_qat=False)
    model.qconfig = quantization.get_default_qconfig("x86")
    model = quantization.prepare(model)
    with torch.no_grad():
        model(torch.from_numpy(x))
    return quantization.convert(model)


def file_of(folder: str, network: str, batch: int, kind: str) -> Path:
    """The file of a kind: float, static or dynamic."""
    return Path(folder) / f"{network.replace('/', '_')}_{batch}_{kind}.onnx"


def export(folder: str, network: str, batch: int, dtype: str, smoke: bool) -> None:
    """Write the network's file, and for int8 those that onnxruntime quantises."""
    import glasshouse as gh

    model, x = our_network(network, smoke), inputs_of(network, batch)
    paths = [file_of(folder, network, batch, kind) for kind in ("float", "static", "dynamic")]
    gh.onnx.export(model, gh.asarray(x), paths[0])
    if dtype != "int8" or not has(sys.executable, "onnxruntime"):
        return
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class OneBatch(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            session = onnxruntime.InferenceSession(paths[0])
            self.batches = iter([{session.get_inputs()[0].name: x}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    ready = file_of(folder, network, batch, "ready")
    quant_pre_process(paths[0], ready, skip_symbolic_shape=True)
    quantization.quantize_static(ready, paths[1], OneBatch(), per_channel=True)
    if network in TRANSFORMERS:
        quantization.quantize_dynamic(ready, paths[2], per_channel=True)


def make_call(
    side: str, folder: str, network: str, batch: int, dtype: str, smoke: bool
) -> Callable[[], Any] | None:
    """The call of a case, or None where the side does not have it."""
    x, is_int8 = inputs_of(network, batch), dtype == "int8"
    path = file_of(folder, network, batch, "float")
    if side == "glasshouse":
        return our_call(our_network(network, smoke), x, dtype)
    if side == "onnxruntime":
        kind = "dynamic" if network in TRANSFORMERS else "static"
        path = file_of(folder, network, batch, kind) if is_int8 else path
        has_case = dtype != "bfloat16" and path.exists()
        return sides.onnxruntime_file(str(path), x) if has_case else None
    if side == "OpenVINO":
        return openvino_call(path, network, x, dtype)
    if is_int8:
        is_eager = side == "PyTorch"
        return sides.torch_network(quantized_torch_network(network, x), x) if is_eager else None
    model = torch_network(network).eval()
    model = model.bfloat16() if dtype == "bfloat16" else model
    call = sides.torch_network(model, x, dtype=dtype)
    return call if side == "PyTorch" else compiled_call(model, x, dtype)


def openvino_call(path: Path, network: str, x: Any, dtype: str) -> Callable[[], Any] | None:
    precision = "bf16" if dtype == "bfloat16" else "f32"
    if dtype != "int8":
        return sides.openvino_file(str(path), x, precision)
    if not has(sys.executable, "nncf"):
        path = Path(str(path).replace("_float.", "_static."))
        return sides.openvino_file(str(path), x) if path.exists() else None

    def quantize(model: Any, x: Any) -> Any:
        import nncf

        kind = nncf.ModelType.TRANSFORMER if network in TRANSFORMERS else None
        return nncf.quantize(model, nncf.Dataset([x]), model_type=kind, subset_size=1)

    return sides.openvino_file(str(path), x, quantize=quantize)


def compiled_call(model: Any, x: Any, dtype: str) -> Callable[[], Any] | None:
    """The call of a network under torch.compile; None where that takes too long to compile."""
    import torch

    torch._inductor.config.freezing = True
    call = sides.torch_network(torch.compile(model), x, dtype=dtype)

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(COMPILE_SECONDS)
    try:
        call()
    except Exception as error:  # compilers wrap it
        print(f"torch.compile: {type(error).__name__} within {COMPILE_SECONDS} s")
        return None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return call


def our_call(network: Any, x: Any, dtype: str) -> Callable[[], Any]:
    import glasshouse as gh

    x = gh.asarray(x)
    if dtype == "int8":
        gh.quantize(network, "int8_static", calibrate=[x])
    if dtype == "bfloat16":
        network.to(dtype="bfloat16")
        x = x.to("bfloat16") if x.dtype is gh.float32 else x
    return sides.glasshouse_network(network, x)


def case_times(running: dict[str, Side], case: Sequence[Any], rounds: int) -> dict[str, float]:
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
        sides.serve(functools.partial(make_call, side, folder))
        return 0
    from harness import RESULTS, save_rows, show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}: all by default")
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    parser.add_argument("--peer", action="append", default=[], help="another Python, for packages")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="some of them, with commas")
    parser.add_argument("--sides", default=",".join(PACKAGES), help="some of them, with commas")
    options = parser.parse_args()
    if options.smoke:
        options.networks, options.dtypes = ["BERT"], "float32,int8"
    rows, lines = {}, []
    packages = {k: v for k, v in PACKAGES.items() if k in options.sides.split(",")}
    if options.smoke:
        packages = {k: v for k, v in packages.items() if v != "transformers"}
    packages = sides.with_files(packages)
    for network in options.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            running = sides.start_sides(stack, __file__, folder, packages, options.peer)
            for dtype in options.dtypes.split(","):
                for batch in BATCHES[: 1 if options.smoke else None]:
                    if {"onnxruntime", "OpenVINO"} & running.keys():
                        export(folder, network, batch, dtype, options.smoke)
                    case = network, batch, dtype, options.smoke
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
