"""Loops whose tensors grow by one each step, from the first step on, compilations included.

Three kinds: a small GPT that reads its whole text again for each token; the same with a cache of
keys and values that grows by concatenation; a list of results that is stacked in each step. Each
runs in a process of its own, in turn, with caches that hold nothing but the library's own C: our
programs plain and under `gh.optimize`, PyTorch's in eager mode, under torch.compile with our
backend, under `gh.optimize`, and for context under TorchDynamo alone and under inductor. Imports
(TorchDynamo's among them) are not counted. The ratio is a mode's time over eager's; `later` is
that of a second run in the same process, with a new model."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve()
MODES = {
    "torch eager": "torch",
    "gh": "gh",
    "gh.optimize": "gh",
    "torch.compile, ours": "torch",
    "torch.compile, ours, dynamic": "torch",
    "torch, gh.optimize": "torch",
    "TorchDynamo alone": "torch",
    "inductor": "torch",
}
STEPS, ROUNDS, VOCABULARY, WIDTH, HEADS, LAYERS = 300, 3, 128, 128, 4, 2


# -- the programs, the same lines for both libraries -------------------------------------------


def model_of(lib):
    """A GPT whose forward takes words, and keys and values of words before (or None)."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def heads(self, x):
            return x.reshape(1, -1, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

        def forward(self, x, past):
            mixed = self.qkv(self.before(x))
            q = self.heads(mixed[..., :WIDTH])
            k = self.heads(mixed[..., WIDTH : 2 * WIDTH])
            v = self.heads(mixed[..., 2 * WIDTH :])
            if past is not None:
                k, v = lib.concatenate((past[0], k), 2), lib.concatenate((past[1], v), 2)
            result = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
            x = x + self.out(result.permute(0, 2, 1, 3).reshape(1, -1, WIDTH))
            return x + self.narrow(F.gelu(self.wide(self.between(x)))), (k, v)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(512, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, words, places, past):
            x, caches = self.words(words) + self.places(places), []
            for i, block in enumerate(self.blocks):
                x, cache = block(x, None if past is None else past[i])
                caches.append(cache)
            return self.head(self.norm(x))[:, -1], caches

    return Model()


def whole_text(lib, wrap, steps: int) -> list:
    """Tokens that the model makes from one, reading the whole text for each."""
    model = model_of(lib)
    load(lib, model)
    run = wrap(lambda words, places: model(words, places, None)[0])
    words = lib.asarray([[1]])
    with lib.no_grad():
        for _ in range(steps):
            scores = run(words, lib.arange(words.shape[1])[None])
            words = lib.concatenate((words, lib.argmax(scores, -1, keepdims=True)), 1)
    return words[0].tolist()


def cache(lib, wrap, steps: int) -> list:
    """The same, keeping keys and values."""
    model = model_of(lib)
    load(lib, model)
    run = wrap(lambda word, place, past: model(word, place, past))
    word, past, words = lib.asarray([[1]]), None, []
    with lib.no_grad():
        for i in range(steps):
            scores, past = run(word, lib.asarray([[i]]), past)
            word = lib.argmax(scores, -1, keepdims=True)
            words.append(word.item())
    return words


def results(lib, wrap, steps: int) -> list:
    """A running mean and spread of results that are stacked in each step."""

    def summary(outcomes, x):
        rows = lib.stack(outcomes)
        return lib.tanh(x + 0.1 * rows.mean(0)), ((rows - rows.mean(0)) ** 2).mean()

    run = wrap(summary)
    x, outcomes, spreads = lib.linspace(-1.0, 1.0, 64), [], []
    for _ in range(steps):
        outcomes.append(x)
        x, spread = run(outcomes, x)
        spreads.append(spread.item())
    return [round(y, 4) for y in spreads]


RUNS = {"whole text": whole_text, "cache": cache, "list": results}


def load(lib, model) -> None:
    """Give a model the same weights in both libraries."""
    import numpy as np

    rng = np.random.default_rng(0)
    state = {
        name: lib.asarray((rng.standard_normal(tuple(x.shape)) * 0.3).astype(np.float32))
        for name, x in model.state_dict().items()
    }
    model.load_state_dict(state)


# -- one mode, in a process of its own -------------------------------------------------------------


def wrapper(mode: str):
    """A function that makes a mode's callable of a function."""
    if mode in ("torch eager", "gh"):
        return lambda fn: fn
    if mode.endswith("gh.optimize"):
        import glasshouse as gh

        return gh.optimize
    import torch

    backends = {"inductor": "inductor", "TorchDynamo alone": "eager"}
    dynamic = True if mode.endswith("dynamic") else None
    return lambda fn: torch.compile(fn, backend=backends.get(mode, "glasshouse"), dynamic=dynamic)


def work(kind: str, mode: str, steps: int) -> dict:
    """Seconds of the first run and of a second one in the same process, what they found, and how
    many Programs the first one made."""
    warnings.simplefilter("ignore")
    if MODES[mode] == "torch":
        import torch as lib

        lib.set_num_threads(1)
    else:
        import glasshouse as lib
    is_ours = mode.startswith("gh") or "ours" in mode or "gh." in mode
    if "gh.optimize" in mode and MODES[mode] == "torch":
        import glasshouse.torch.backend.entry_point
    if "compile" in mode or mode in ("inductor", "TorchDynamo alone"):
        pass
    if is_ours:
        import glasshouse.torch.front.torch_front
        from glasshouse.compile.programs import program
    seconds, compilations, results = [], 0, []
    for _ in range(2):
        begin = time.perf_counter()
        results = RUNS[kind](lib, wrapper(mode), steps)
        seconds.append(time.perf_counter() - begin)
        if is_ours and not compilations:
            compilations = sum(x.program is not None for x in program.programs.values())
    return {"seconds": seconds, "found": results, "programs": compilations}


def run_apart(kind: str, mode: str, steps: int, prepared: Path) -> dict:
    """The same in a process of its own, with a copy of the prepared cache."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(prepared, f"{folder}/gh")
        paths = {"GH_CACHE": f"{folder}/gh", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch"}
        command = [sys.executable, str(HERE), "--work", kind, mode, str(steps)]
        done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"growing_sizes: {kind}, {mode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def prepare(folder: Path) -> None:
    """Compile the library's own C into a cache: a program that has nothing to do with the loops."""
    script = (
        "import numpy, glasshouse as gh\n"
        "gh.optimize(lambda x: gh.sort(x) + 3)(gh.zeros(7))\n"
        "gh.eval(gh.cumsum(gh.ones(5), axis=0))\n"
        "import torch\n"
        "gh.optimize(lambda x: torch.sort(x)[0] * 3)(torch.zeros(7))\n"
        "torch.compile(lambda x: torch.sort(x)[0] - 3, backend='glasshouse')(torch.zeros(7))\n"
    )
    environment = {**os.environ, "GH_CACHE": str(folder), "GH_COMPILE": "always"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def rows_of(kind: str, steps: int, rounds: int, prepared: Path) -> list[dict]:
    """A row for each mode: medians of the rounds, and whether it found what eager did."""
    runs: dict[str, list[dict]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode, result in runs.items():
            result.append(run_apart(kind, mode, steps, prepared))
    rows, eager = [], runs["torch eager"]
    for mode, result in runs.items():
        first, later = (
            statistics.median(
                x["seconds"][i] / y["seconds"][i] for x, y in zip(result, eager, strict=True)
            )
            for i in range(2)
        )
        rows.append(
            {
                "mode": mode,
                "first_s": statistics.median(x["seconds"][0] for x in result),
                "first_ratio": first,
                "later_ratio": later,
                "programs": max(x["programs"] for x in result),
                "same": all(x["found"] == eager[0]["found"] for x in result),
            }
        )
    return rows


def main() -> None:
    from harness import parse_arguments, save_rows, show

    options = parse_arguments(__doc__, RUNS)
    steps, rounds = (8, 1) if options.smoke else (STEPS, ROUNDS)
    path, rows = None, {}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for kind in options.parts or (list(RUNS)[-1:] if options.smoke else RUNS):
            rows[kind] = rows_of(kind, steps, rounds, Path(folder))
            path = save_rows("growing_sizes", rows, RUNS, options)
            columns = ["", "first run", "ratio", "later", "Programs", "results"]
            table = [
                [
                    row["mode"],
                    f"{1e3 * row['first_s']:,.0f} ms",
                    f"{row['first_ratio']:.2f}",
                    f"{row['later_ratio']:.2f}",
                    str(row["programs"] or ""),
                    "same" if row["same"] else "OTHERS",
                ]
                for row in rows[kind]
            ]
            show(f"{kind}, {steps} steps", columns, table, "ratios: over eager PyTorch")
    print(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        print(json.dumps(work(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        main()
