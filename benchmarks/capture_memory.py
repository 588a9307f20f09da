"""Peak memory of captured training steps beside the plain loop's and the analysed one's.

Each row is measured in a process of its own: the most bytes that the memory manager had allocated
in the first call, in the second (which finds the optimizer's state), and in the worst later one."""

import itertools
import json
import subprocess
import sys

import numpy as np
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse import nn, optim

F = nn.functional


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
    if sys.argv[1:2] == ["--one"]:
        *which, calls = sys.argv[2:]
        print(json.dumps(measure(*which, int(calls))))
        return
    options = parse_arguments(__doc__)
    results, rows = {}, []
    models = ["mlp"] if options.smoke else MODELS
    for model, optimizer, way in itertools.product(models, OPTIMIZERS, WAYS):
        one = ["--one", model, optimizer, way, "3" if options.smoke else "5"]
        done = subprocess.run(
            [sys.executable, __file__, *one], capture_output=True, text=True, check=True
        )
        peaks = json.loads(done.stdout)
        results[f"{model} {optimizer} {way}"] = peaks
        shown = (peaks[0], peaks[1], max(peaks[2:]))
        rows.append([f"{model}, {optimizer}, {way}", *(f"{n:,}" for n in shown)])
    show("peak bytes of a training step", ["", "first", "second", "worst later"], rows)
    print(save("capture_memory", results, options))


if __name__ == "__main__":
    main()
