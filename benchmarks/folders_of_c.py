"""Folders of C in both forms, plain and with oneDNN, beside the Program in Python: inference and a
training step of a convolutional network and of a block of a transformer. Each form runs in a
process of its own, without glasshouse, with all cores; rounds are interleaved."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from harness import parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn
from glasshouse.compile.building import toolchain
from glasshouse.standalone.folder import OPTIONS
from glasshouse.targets.cpu.onednn.library import find_library

WIDTH, HEADS, LENGTH = 256, 4, 128  # of the block
FORMS = {"plain": (), "onednn": ("-DGH_ONEDNN",)}


class ConvNet(nn.Module):
    """Four layers of 3 x 3, of which two halve the image."""

    shape = (8, 3, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2))
        layers = [(nn.Conv2d(a, b, 3, stride=s, padding=1), nn.ReLU()) for a, b, s in sizes]
        self.body = nn.Sequential(*(part for pair in layers for part in pair))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean(axis=(2, 3)))


class Block(nn.Module):
    """Attention and two Linear layers."""

    shape = (8, LENGTH, WIDTH)

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.block(x).mean(axis=1))


def steps_of(kind: Any, x: np.ndarray) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """(step, inputs) by name."""
    gh.random.seed(0)
    model, labels = kind(), np.arange(len(x)) % 10
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def predict(x: Any) -> Any:
        with gh.no_grad():
            return model(x)

    return {"predict": (predict, (x,)), "train": (train, (x, labels))}


def build(folder: Path, form: str) -> Path:
    """The library of a folder in a form."""
    onednn = find_library()
    after = (onednn, f"-Wl,-rpath,{Path(onednn).parent}") if form == "onednn" else ()
    files = [str(file) for file in folder.glob("*.c") if file.name != "example.c"]
    command = [*toolchain.find_compiler(), *OPTIONS.split(), "-march=native", "-fopenmp", "-fPIC"]
    path = folder / f"{form}.so"
    command += ["-shared", *FORMS[form], *files, *after, "-lm", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def serve(folder: Path, library: str, name: str) -> None:
    """Print the seconds of a call for each line that comes in."""
    spec = importlib.util.spec_from_file_location("example", folder / "example.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    program = example.Program(library, name)
    program.load(folder / f"{name}.safetensors")
    inputs = [np.ones(x["shape"], x["dtype"]) for x in program.manifest["inputs"]]
    for _ in sys.stdin:
        start = time.perf_counter()
        program.run(*inputs)
        print(time.perf_counter() - start, flush=True)
    program.close()


def main() -> None:
    options = parse_arguments(__doc__)
    rounds, results = (1 if options.smoke else 9), {}
    rows: list[list[str]] = []
    for kind in (ConvNet, Block):
        x = np.random.default_rng(0).normal(size=kind.shape).astype(np.float32)
        for name, (step, inputs) in steps_of(kind, x).items():
            row = times_of(name, step, inputs, rounds)
            results[f"{kind.__name__} {name}"] = row
            medians = {form: one["median_s"] for form, one in row.items()}
            words = [f"{seconds * 1e3:.2f}" for seconds in medians.values()]
            rows.append([f"{kind.__name__}, {name}", *words])
            rows[-1].append(f"{medians['plain'] / medians['onednn']:.2f}")
    show("Folders of C", ["", *row, "plain / onednn"], rows, "ms")
    print(save("folders_of_c", results, options))


def times_of(name: str, step: Any, inputs: Any, rounds: int) -> dict[str, dict[str, float]]:
    """A summary of the times of each form, and of the Program in Python."""
    captured, tensors = gh.optimize(step), [gh.asarray(x) for x in inputs]

    def call() -> None:
        gh.eval(captured(*tensors))

    with tempfile.TemporaryDirectory() as where, ExitStack() as stack:
        folder, cases = Path(where), {}
        gh.export_program(step, folder, *inputs, name=name, forms=tuple(FORMS))
        for form in FORMS:
            command = [sys.executable, __file__, "serve", where, build(folder, form), name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            child = stack.enter_context(subprocess.Popen([*map(str, command)], **pipes))
            stack.callback(child.stdin.close)
            cases[form] = child
        for _ in range(4):  # captured from the third call on
            call()
        times: dict[str, list[float]] = {form: [] for form in (*cases, "in Python")}
        for number in range(rounds + 1):
            for form, child in cases.items():
                child.stdin.write("\n")
                child.stdin.flush()
                seconds = float(child.stdout.readline())
                times[form] += [seconds] * bool(number)
            start = time.perf_counter()
            call()
            times["in Python"] += [time.perf_counter() - start] * bool(number)
    return summarize(times)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), *sys.argv[3:])
    else:
        main()
