"""Loops beside PyTorch's: a training step of a deep LSTM in every mode that a user would pick, and
attention with a user's score function over long sequences beside the same attention written out;
time, and the memory that it takes. Of LSTMs over more and more steps, the time that compiling takes
in a new process without stored code, apart from that of computing."""

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse.bench.worker import peak_bytes
from glasshouse.dispatch.watch import COMPILING, Watcher
from glasshouse.nn import functional as F

LSTM = {"width": 1024, "layers": 4, "steps": 100, "batch": 32}
ATTENTION = {"batch": 1, "heads": 4, "length": 8192, "size": 64}
LONG_LSTM = {"width": 256, "layers": 2, "batch": 8}
LENGTHS, SMALL_LENGTHS = (10, 100, 500, 1000, 2000), (3, 6)
SMALL_LSTM = {"width": 8, "layers": 2, "steps": 5, "batch": 2}
SMALL_ATTENTION = {"batch": 1, "heads": 2, "length": 64, "size": 8}
REPEATS = 5


def sequence(steps: int, batch: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((steps, batch, width)).astype(np.float32)


def lstm_step(model, rows):
    """A training step of ours."""

    def step():
        output, _ = model(rows)
        (output * output).mean().backward()
        gh.eval(*(p.grad for p in model.parameters()))
        model.zero_grad()

    return step


def lstm_cases(width: int, layers: int, steps: int, batch: int) -> dict:
    x = sequence(steps, batch, width)
    theirs, ours = torch.nn.LSTM(width, width, layers), gh.nn.LSTM(width, width, layers)
    ours.load_state_dict({n: gh.tensor(p.detach().numpy()) for n, p in theirs.named_parameters()})
    same = torch.tensor(x)

    def other(model):
        def step():
            output, _ = model(same)
            (output * output).mean().backward()
            theirs.zero_grad()

        return step

    compiled = torch.compile(theirs)
    return {
        "ours": lstm_step(ours, gh.asarray(x)),
        "eager": other(theirs),
        "torch.compile": other(compiled),
    }


def inputs(batch: int, heads: int, length: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((batch, heads, length, size)).astype(np.float32) for _ in range(3)]


def scored_ours(q, k, v):
    """Scores fall with the distance, and the future is not seen."""

    def score(score, batch, head, i, j):
        return gh.where(i >= j, score - (i - j) * 0.01, -gh.inf)

    return F.flex_attention(q, k, v, score)


def scored_dense(q, k, v):
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = torch.where(i >= j, scores - (i - j) * 0.01, -torch.inf)
    return scores.softmax(-1) @ v


def attention_cases(**sizes) -> dict:
    arrays = inputs(**sizes)

    def ours():
        q, k, v = (gh.tensor(x, requires_grad=True) for x in arrays)
        scored_ours(q, k, v).sum().backward()
        gh.eval(q.grad, k.grad, v.grad)

    def dense():
        q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
        scored_dense(q, k, v).sum().backward()

    return {"ours": ours, "dense": dense}


class Compiling(Watcher):
    """How long this process compiled."""

    wants_begin, seconds = True, 0.0

    def region(self, name, begin_ns):
        if name == COMPILING:
            self.seconds += (time.perf_counter_ns() - begin_ns) / 1e9


def tell_compiling(steps: int, smoke: bool) -> None:
    sizes = SMALL_LSTM | {"steps": steps} if smoke else LONG_LSTM | {"steps": steps}
    width, layers = sizes["width"], sizes["layers"]
    model = gh.nn.LSTM(width, width, layers)
    step = lstm_step(model, gh.asarray(sequence(steps, sizes["batch"], width)))
    gh.eval(*model.parameters())
    watcher = Compiling()
    watcher.watch()
    step()
    watcher.unwatch()
    begin = time.perf_counter()
    step()
    print(json.dumps({"compile_s": watcher.seconds, "step_s": time.perf_counter() - begin}))


def compiling(steps: int, smoke: bool) -> dict[str, float]:
    """Seconds in which a new process compiles an LSTM over so many steps, and of a step after."""
    command = [sys.executable, __file__, "--steps", str(steps), *["--smoke"] * smoke]
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"GH_CACHE": cache, "GH_COMPILE": "always"}
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(ran.stdout)


def memory_bytes(side: str, smoke: bool) -> int:
    """How much the largest resident size of a process grows by one step."""
    command = [sys.executable, __file__, "--side", side, *["--smoke"] * smoke]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def tell_memory(side: str, smoke: bool) -> None:
    step = attention_cases(**(SMALL_ATTENTION if smoke else ATTENTION))[side]
    attention_cases(**SMALL_ATTENTION)[side]()  # what is loaded once
    before = peak_bytes()  # of this process: getrusage's begins with that of its parent
    step()
    print(peak_bytes() - before)


def main() -> None:
    options = parse_arguments(__doc__)
    smoke = options.smoke
    parts = {
        "LSTM": lstm_cases(**(SMALL_LSTM if smoke else LSTM)),
        "scored attention": attention_cases(**(SMALL_ATTENTION if smoke else ATTENTION)),
    }
    results, rows = {}, []
    for name, cases in parts.items():
        summary = summarize(measure(cases, 1 if smoke else REPEATS))
        results[name] = summary
        own = summary["ours"]["median_s"]
        for mode, times in summary.items():
            median = times["median_s"]
            rows.append([name, mode, f"{median * 1e3:.1f} ms", f"{median / own:.2f}"])
    memory = {side: memory_bytes(side, smoke) for side in ("ours", "dense")}
    results["memory of scored attention"] = memory
    note = ", ".join(f"{side} {n / 2**20:,.0f} MiB" for side, n in memory.items())
    lengths = SMALL_LENGTHS if smoke else LENGTHS
    results["compiling an LSTM"] = {steps: compiling(steps, smoke) for steps in lengths}
    for steps, seconds in results["compiling an LSTM"].items():
        rows.append(
            [f"LSTM of {steps} steps", "compiling", f"{seconds['compile_s'] * 1e3:.0f} ms", ""]
        )
        rows.append(["", "a step", f"{seconds['step_s'] * 1e3:.1f} ms", ""])
    show("Training steps", ["what", "mode", "time", "times ours"], rows, f"memory: {note}")
    print(save("loops", results, options))


if __name__ == "__main__":
    if "--side" in sys.argv:
        tell_memory(sys.argv[sys.argv.index("--side") + 1], "--smoke" in sys.argv)
    elif "--steps" in sys.argv:
        tell_compiling(int(sys.argv[sys.argv.index("--steps") + 1]), "--smoke" in sys.argv)
    else:
        main()
