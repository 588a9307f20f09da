"""Costs and gains of capture: capturing, a captured call, a training loop; PyTorch beside it.

Aims: 3-layer MLP captured in 8 ms and a 12-layer encoder in 100 ms with the `eager` compiler; a
call with everything guarded and a compiler that does nothing: 1 µs for one tensor, 4 µs for 64
Linear layers, 1.5 µs for each further break; a training step twice as fast as uncaptured and as
PyTorch's.
"""

import gc
import time

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn
from glasshouse.cli.train_digits import make_network

try:
    import torch
except ImportError:
    torch = None

WIDTH, HEADS, BATCH, STEPS = 64, 4, 64, 23


class Chain(nn.Module):
    """Linear layers one after the other."""

    def __init__(self, count: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(count)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Mlp(nn.Module):
    """Three Linear layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        x = nn.functional.relu(self.a(x))
        return self.c(nn.functional.relu(self.b(x)))


class Block(nn.Module):
    """A transformer layer written out: 26 operations."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def heads(self, x):
        b, t, d = x.shape
        return gh.permute_dims(x.reshape((b, t, HEADS, d // HEADS)), (0, 2, 1, 3))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        mixed = nn.functional.softmax(q @ k.mT * (d // HEADS) ** -0.5, -1) @ v
        mixed = gh.permute_dims(mixed, (0, 2, 1, 3)).reshape((b, t, d))
        x = self.first(x + self.drop(self.o(mixed)))
        return self.second(x + self.drop(self.narrow(nn.functional.gelu(self.wide(x)))))


class Encoder(nn.Module):
    """Blocks one after the other."""

    def __init__(self, count: int):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(count)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def first_calls(model, x, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of the first call of a captured model, and of the capture within it."""
    whole, capture = [], []
    for _ in range(repeats):
        fast = gh.optimize("eager")(model)
        gc.collect()
        start = time.perf_counter()
        fast(x)
        whole.append(time.perf_counter() - start)
        gh.eval(model(x))
        start = time.perf_counter()
        gh.eval(model(x))
        capture.append(whole[-1] - (time.perf_counter() - start))
    return whole, capture


def broken(count: int):
    """A function with `count` graph breaks."""

    def fn(x):
        for _ in range(count):
            x = gh.sin(x)
            gh.graph_break()
        return gh.cos(x)

    return fn


def calls() -> dict:
    """Captured calls with a compiler that does nothing."""
    x = gh.ones((4, 4))

    def nothing(graph_module, example_inputs):
        return lambda *inputs: outs

    outs = (x,)
    one = gh.optimize(compiler=nothing)(lambda x: gh.sin(x))
    many = gh.optimize(compiler=nothing)(Chain(64))
    breaks = [gh.optimize(compiler=nothing)(broken(n)) for n in (0, 4)]
    for fn in (one, many, *breaks):
        fn(x), fn(x)
    return {
        "1 tensor": lambda: one(x),
        "64 Linear": lambda: many(x),
        "no break": lambda: breaks[0](x),
        "4 breaks": lambda: breaks[1](x),
    }


def training(repeats: int) -> dict:
    """Seconds of a training step of the digits' network: uncaptured, captured, and PyTorch's."""
    rng = np.random.default_rng(0)
    images = rng.random((STEPS, BATCH, 1, 8, 8), np.float32)
    labels = rng.integers(0, 10, (STEPS, BATCH))

    def ours(captured: bool):
        gh.random.seed(0)
        model = make_network()
        optimizer = gh.optim.AdamW(model.parameters(), lr=0.005)
        xs, ys = [gh.asarray(x) for x in images], [gh.asarray(y) for y in labels]

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        fn = gh.optimize(step) if captured else step

        def run():
            for x, y in zip(xs, ys, strict=True):
                loss = fn(x, y)
            return loss.item()

        return run

    cases = {"uncaptured": ours(False), "captured": ours(True)}
    if torch is not None:
        cases["PyTorch eager"] = theirs(images, labels)
    for run in cases.values():
        run(), run()
    return {name: [t / STEPS for t in times] for name, times in measure(cases, repeats).items()}


def theirs(images, labels):
    """The same loop in PyTorch."""
    layers = torch.nn
    model = layers.Sequential(
        layers.Conv2d(1, 16, 3, padding=1),
        layers.BatchNorm2d(16),
        layers.ReLU(),
        layers.Conv2d(16, 32, 3, padding=1),
        layers.BatchNorm2d(32),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(32, 32, 3, padding=1),
        layers.BatchNorm2d(32),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Linear(128, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    batches = list(zip(map(torch.from_numpy, images), map(torch.from_numpy, labels), strict=True))

    def run():
        for x, y in batches:
            optimizer.zero_grad()
            loss = layers.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    return run


def main() -> None:
    options = parse_arguments(__doc__)
    repeats = 2 if options.smoke else 15
    layers = 2 if options.smoke else 12
    x = gh.ones((2, 8, WIDTH))
    results = {}
    for name, model, inputs in (
        ("MLP", Mlp(), gh.ones((2, 8))),
        (f"{layers}-layer encoder", Encoder(layers), x),
    ):
        whole, capture = first_calls(model, inputs, repeats)
        results[f"capture, {name}"] = capture
        results[f"first call, {name}"] = whole
    count = 200 if options.smoke else 5000
    results |= {f"call, {name}": t for name, t in measure(calls(), repeats, count).items()}
    results |= {f"step, {name}": t for name, t in training(repeats).items()}
    summary = summarize(results)
    rows = []
    for name, entry in summary.items():
        scale, unit = (1e6, "µs") if name.startswith("call") else (1e3, "ms")
        rows.append([name, f"{scale * entry['median_s']:.2f} {unit}"])
    median = {name: entry["median_s"] for name, entry in summary.items()}
    each = (median["call, 4 breaks"] - median["call, no break"]) / 4
    summary["each break"] = {"median_s": each}
    rows.append(["each further break", f"{1e6 * each:.2f} µs"])
    for other in ("uncaptured", "PyTorch eager"):
        if f"step, {other}" in median:
            ratio = median[f"step, {other}"] / median["step, captured"]
            summary[f"captured over {other}"] = {"ratio": ratio}
            rows.append([f"step: {other} / captured", f"{ratio:.2f}"])
    show("capture", ["", "median"], rows)
    print(save("capture", summary, options))


if __name__ == "__main__":
    main()
