"""Time that `gh.detect_anomaly` adds to a captured training step."""

import statistics
import time
from contextlib import nullcontext

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.text.models import GPT2Config, GPT2LMHeadModel

GPT = {"vocab_size": 256, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4}


def perceptron():
    layers = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*layers), (64, 784)


def convolutions():
    pairs = [(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
             for a, b in ((1, 16), (16, 32))]  # fmt: skip
    return nn.Sequential(*pairs[0], *pairs[1], nn.Flatten(), nn.Linear(32 * 49, 10)), (
        64,
        1,
        28,
        28,
    )


def decoder():
    return GPT2LMHeadModel(GPT2Config(**GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)), None


MODELS = {"MLP": (perceptron, 20), "CNN": (convolutions, 10), "GPT": (decoder, 3)}


def seconds_of(make):
    """A function of a number of steps, and whether they are watched: the processor time of each.
    One capture serves both, for the places of values in memory matter too."""
    gh.random.seed(0)
    rng = np.random.default_rng(0)
    model, shape = make()
    if shape is None:
        x = gh.asarray(rng.integers(0, 256, (8, 64)))
    else:
        x = gh.asarray(rng.normal(size=shape).astype(np.float32))
    labels = gh.asarray(rng.integers(0, 10, 8 * 64 if shape is None else shape[0]))
    optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)

    @gh.optimize
    def step():
        optimizer.zero_grad()
        scores = model(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels)
        loss.backward()
        optimizer.step()
        return loss

    def run(count: int, watched: bool) -> list[float]:
        times = []
        with gh.detect_anomaly() if watched else nullcontext():
            for _ in range(count):
                start = time.process_time()
                step().item()
                times.append(time.process_time() - start)
        return times

    run(6, True)
    return run


def anomalies(smoke: bool) -> dict:
    """Seconds of a step, and the part that looking for anomalies adds, by model: medians of rounds
    in turn."""
    results = {}
    for name, (make, count) in MODELS.items():
        run, times = seconds_of(make), [[], []]
        for i in range(2 if smoke else 40):
            for watched in (False, True) if i % 2 else (True, False):
                times[watched] += run(1 if smoke else count, watched)
        alone, looked_at = map(statistics.median, times)
        results[name] = {"step_s": alone, "added_part": looked_at / alone - 1}
    return results
