"""The cost of the lazy backend in Python: recording a node, and finding a recorded step again.

Aim: at most 3 µs to record a node beyond the cost of dispatch, at most 2 µs a node to look up.
"""

import time

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn, optim
from glasshouse.graph.record import recorder

NODES = 2000


def chain(backend: str):
    """NODES additions of small tensors."""
    with gh.backends.use(backend):
        x, y = gh.ones((10,)), gh.ones((10,))
        gh.eval(x, y)

    def run():
        with gh.backends.use(backend):
            for _ in range(NODES):
                x + y
            recorder.pending = []

    return run


def recorded_step():
    """The nodes of one training step of a transformer layer, recorded and not yet run."""
    gh.random.seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0), 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x = gh.asarray(np.ones((4, 8, 32), np.float32))
    for p in model.parameters():
        p.numpy()
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    for p in model.parameters():
        p.grad.detach() * -0.1
    return model, list(recorder.pending)


def main() -> None:
    options = parse_arguments(__doc__)
    repeats = 2 if options.smoke else 30
    times = measure({name: chain(name) for name in ("lazy", "stub")}, repeats)
    micro = {name: 1e6 * entry["median_s"] / NODES for name, entry in summarize(times).items()}
    with gh.backends.use("lazy"):
        _, nodes = recorded_step()
        looked_up = []
        for _ in range(repeats):
            recorder.pending = list(nodes)
            start = time.perf_counter()
            recording = recorder.take()
            looked_up.append((time.perf_counter() - start) / len(recording.nodes))
    results = summarize(
        {
            "record, dispatch included": [t / NODES for t in times["lazy"]],
            "dispatch alone (stub backend)": [t / NODES for t in times["stub"]],
            "look up": looked_up,
        }
    )
    rows = [[name, f"{1e6 * entry['median_s']:.2f}"] for name, entry in results.items()]
    rows.append(["record, beyond dispatch", f"{micro['lazy'] - micro['stub']:.2f}"])
    show("recording", ["", "µs a node"], rows, f"a step of {len(nodes)} nodes; aim: 3 and 2")
    print(save("recording", results, options))


if __name__ == "__main__":
    main()
