"""Training that goes on when a rank dies, on the ranks that are left.

The launcher starts the script anew; the script loads the last checkpoint. A step's batch depends on
its number alone, and each rank takes its part of it, so the run learns what it would have learned
without the death, on any number of ranks. Here the last rank kills itself before step 4, once.

    glasshouse launch -n 3 --min-ranks 2 --restarts 3 examples/elastic_training.py runs/elastic 4
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn, optim
from glasshouse.base.flags import flags

STEPS, ROWS = 8, 24  # rows of a batch over all ranks


def batch_of(step):
    """This rank's rows of the batch."""
    x = np.random.default_rng(step).standard_normal((ROWS, 4)).astype(np.float32)
    own = x[dist.rank() :: dist.size()]
    return gh.asarray(own), gh.asarray(own.sum(1, keepdims=True))


def train(folder, kill_at=None):
    """The weights after STEPS steps."""
    gh.random.seed(0)
    model = dist.replicate(nn.Linear(4, 1), dist.mesh({"data": dist.size()}))
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    done = 0
    if Path(folder).exists():
        done = dist.load_checkpoint(folder, model, optimizer)["step"]
    for step in range(done + 1, STEPS + 1):
        if step == kill_at and flags.restart == 0 and dist.rank() == dist.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch_of(step)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.save_checkpoint(folder, model, optimizer, step=step).wait()
        total = dist.all_reduce(loss, "mean").item()
        if dist.rank() == 0:
            print(f"step {step} on {dist.size()} ranks: loss {total:.6f}")
    return model.weight.numpy()


if __name__ == "__main__":
    dist.init()
    weights = train(sys.argv[1], *map(int, sys.argv[2:]))
    if dist.rank() == 0:
        print("weights", *map(str, weights[0]))
