"""An all-reduce of one's own: of each gradient only the largest entries are sent.

What a rank does not send it keeps and adds the next time (error feedback), so that nothing is lost,
only late. One class changes the collective; `init(wrap=…)` puts it around whatever transport there
is, so all that trains over ranks uses it.

    glasshouse launch -n 2 examples/compressed_all_reduce.py
    glasshouse launch -n 2 examples/compressed_all_reduce.py plain
"""

import sys

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn, optim
from glasshouse.ops.process import process

PART = 0.05  # of the entries that are sent


class TopKAllReduce(dist.WrappedCollectives):
    """Sums of float32 arrays by their largest entries. The calls of a step have to come in the same
    order each time: `begin_step` says when a step begins."""

    smallest = 1000  # arrays below this are summed as they are

    def __init__(self, inner):
        super().__init__(inner)
        self.kept: dict[int, np.ndarray] = {}  # by the number of the call within a step
        self.calls = 0

    def begin_step(self):
        self.calls = 0

    def all_reduce(self, source, out, reduce="sum"):
        if reduce != "sum" or source.dtype != np.float32 or source.size < self.smallest:
            super().all_reduce(source, out, reduce)
            return
        wanted = source.reshape(-1) + self.kept.get(self.calls, 0)
        count = int(PART * wanted.size)
        places = np.argpartition(np.abs(wanted), -count)[-count:].astype(np.int32)
        all_places = np.empty((self.size, count), np.int32)
        all_values = np.empty((self.size, count), np.float32)
        self.inner.all_gather(places, all_places)
        self.inner.all_gather(wanted[places], all_values)
        total = np.zeros_like(wanted)
        for rank in range(self.size):
            total[all_places[rank]] += all_values[rank]
        out[...] = total.reshape(out.shape)
        wanted[places] = 0
        self.kept[self.calls] = wanted
        self.calls += 1


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 128), nn.Linear(128, 1)

    def forward(self, x):
        return self.outer(nn.functional.relu(self.inner(x)))


def train(steps=60, batch=64):
    """The first and the last loss over all ranks of learning sin(x · w), and the bytes sent."""
    rng = np.random.default_rng(dist.rank())
    weights = np.random.default_rng(99).standard_normal(16).astype(np.float32)
    gh.random.seed(0)
    model = dist.replicate(Network(), dist.mesh({"data": dist.size()}), reducer="coalescing")
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    transport = process.transport(dist.world())
    sent_before, losses = transport.sent_bytes, []
    for _ in range(steps):
        if isinstance(transport, TopKAllReduce):
            transport.begin_step()
        x = rng.standard_normal((batch, 16)).astype(np.float32)
        y = np.sin(x @ weights / 4)
        loss = nn.functional.mse_loss(model(gh.asarray(x))[:, 0], gh.asarray(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    sent = transport.sent_bytes - sent_before
    return *(dist.all_reduce(losses[i], "mean").item() for i in (0, -1)), sent


if __name__ == "__main__":
    dist.init(wrap=None if "plain" in sys.argv else TopKAllReduce)
    first, last, sent = train()
    if dist.rank() == 0:
        print(f"loss {first:.4f} -> {last:.4f}, {sent:,} bytes sent by rank 0")
