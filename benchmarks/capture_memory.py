"""Peak memory of captured training steps beside the plain loop's and the analysed one's.

    python benchmarks/capture_memory.py [--calls 5] [--write]

Each row is measured in a process of its own: the most bytes that the memory manager had allocated
in the first call, in the second (which finds the optimizer's state), and in the worst later one."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import glasshouse as gh
from glasshouse import nn, optim

F = nn.functional
RESULTS = Path(__file__).parent / "results" / "capture_memory.json"


def make_mlp():
    layers = (nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(*layers), (512, 784)


def make_conv_net():
    layers = (
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16 * 16, 10),
    )
    return nn.Sequential(*layers), (32, 3, 32, 32)


MODELS = {"mlp": make_mlp, "conv": make_conv_net}
OPTIMIZERS = {
    "adamw": lambda parameters: optim.AdamW(parameters, lr=1e-3),
    "sgd momentum": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
}
WAYS = ("plain", "captured", "analysed")


def measure(model: str, optimizer: str, way: str, calls: int) -> list[int]:
    """The peak of each call."""
    gh.random.seed(0)
    net, shape = MODELS[model]()
    if way == "analysed":
        inputs = [(shape, "float32"), (shape[:1], "int64")]
        make = OPTIMIZERS[optimizer]
        return gh.analyze.step(net, F.cross_entropy, make, inputs, steps=calls).peaks
    opt = OPTIMIZERS[optimizer](net.parameters())
    rng = np.random.default_rng(0)
    x = gh.asarray(rng.normal(size=shape).astype("float32"))
    y = gh.asarray(rng.integers(0, 10, shape[0]))
    gh.eval(*net.parameters())

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss

    run = gh.optimize(step) if way == "captured" else step
    manager, peaks = gh.memory.current(), []
    for _ in range(calls):
        manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
        run(x, y).item()
        peaks.append(manager.stats().peak_allocated_bytes)
    return peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the numbers as JSON")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args.calls)))
        return
    found = {}
    print(f"{'':>22} {'first':>12} {'second':>12} {'worst later':>12}")
    for model in MODELS:
        for optimizer in OPTIMIZERS:
            for way in WAYS:
                one = ["--one", model, optimizer, way, "--calls", str(args.calls)]
                done = subprocess.run(
                    [sys.executable, __file__, *one], capture_output=True, text=True, check=True
                )
                peaks = json.loads(done.stdout)
                found[f"{model} {optimizer} {way}"] = peaks
                shown = (peaks[0], peaks[1], max(peaks[2:]))
                print(f"{model} {optimizer:>12} {way:>8}", *(f"{n:12,}" for n in shown))
    if args.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
