"""Time of a token: a Llama of SmolLM2's sizes, random weights, beside transformers' generate.

Each writes greedily after the same short prompt, in rounds in turn; what the first tokens take,
with capture and compilation, is not counted. `limit` is the time of reading all weights once: the
least of the rounds for NumPy's products of one row by each. `batch 8` writes eight texts at once;
its ratio is that of tokens a second over those of one text. `prompt` reads 512 tokens.
`same bits` are the same under `gh.deterministic("batch")`.

    python benchmarks/generation.py [--compiled] [--gguf MODEL.gguf --llama PYTHON]

With --gguf the weights are a file's, and `first token` is the time from the start of `glasshouse
generate` until its first token, with a warm disk cache. PYTHON is an interpreter with the package
xllamacpp, which then writes and reads with the same file and as many threads, in turn with ours.
"""

import argparse
import functools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from harness import RESULTS, save, show

import glasshouse as gh
from glasshouse.text import models

SIZES = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {**SIZES, "vocab_size": 512, "num_hidden_layers": 2}
PROMPT, SKIPPED = [1, 2, 3, 4, 5], 3
SERVER = Path(__file__).parent / "twins" / "llama_server.py"
WARMUP = 3  # rounds: a chunk is captured when it comes for the third time


def token_seconds(times: list[float]) -> float:
    """The median time of a token, but for the first ones."""
    return float(np.median(np.diff(times)[SKIPPED:]))


def ours(model, count: int, rows: int = 1) -> float:
    """Seconds between tokens of ours."""
    times: list[float] = []

    def tell(row: int, token: int) -> None:
        if row == 0:
            times.append(time.perf_counter())

    model.generate([PROMPT] * rows, count, stop=[], stream=tell)
    return token_seconds(times)


def reading_prompt(model, length: int) -> float:
    """Seconds of reading a prompt."""
    writer = gh.nn.Writer(model, 1, 1024)
    start = time.perf_counter()
    writer.feed([[7] * length])
    return time.perf_counter() - start


class Ticker:
    """transformers' streamer: notes when tokens come."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def make_theirs(model, sizes: dict):
    """(torch, transformers' model with the same weights), or None where it is not installed."""
    for name in ("torchvision", "torchaudio"):  # whose compiled parts may not load
        sys.modules.setdefault(name, None)
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return None
    torch.set_num_threads(gh.compile.building.toolchain.count_threads())
    theirs = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    weights = {name: torch.from_numpy(x.numpy().copy()) for name, x in model.state_dict().items()}
    theirs.load_state_dict(weights, strict=False)
    return torch, theirs


class Llama:
    """llama.cpp with a GGUF file, in another process."""

    def __init__(self, python: str, path: Path) -> None:
        threads = gh.compile.building.toolchain.count_threads()
        command = [python, str(SERVER), str(path), str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def seconds(self, length: int, count: int) -> tuple[float, float]:
        """Seconds of a prompt, and of a token."""
        print(json.dumps([length, count]), file=self.process.stdin, flush=True)
        while not (line := self.process.stdout.readline()).startswith("["):
            if not line:
                raise RuntimeError("llama.cpp has ended")
        prompt, token = json.loads(line)
        return prompt, token


def first_token(path: Path) -> float:
    """Seconds from the start of a new process until it writes a token."""
    command = [sys.executable, "-m", "glasshouse.cli", "generate", "--model", str(path)]
    command += ["--prompt", "Why is the sky blue?", "--max-tokens", "1", "--temperature", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    start = time.perf_counter()
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.read(1)
        seconds = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"glasshouse generate ended with {process.returncode}")
    return seconds


def same_bits(fn) -> float:
    with gh.deterministic("batch"):
        return fn()


def theirs_seconds(torch, model, count: int, **options) -> float:
    """Seconds between tokens of transformers."""
    ticker = Ticker()
    with torch.no_grad():
        model.generate(
            torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, streamer=ticker,
            eos_token_id=None, pad_token_id=0, **options,
        )  # fmt: skip
    return token_seconds(ticker.times[1:])


def compiled_seconds(torch, model, count: int) -> float:
    """Seconds between tokens of transformers with a static cache, which compiles its steps."""
    eager = model.forward
    model.forward = compiled_forward(torch, model)
    try:
        return theirs_seconds(torch, model, count, cache_implementation="static")
    finally:
        model.forward = eager


@functools.cache
def compiled_forward(torch, model):
    return torch.compile(model.forward)


def limit_seconds(weights: list[np.ndarray]) -> float:
    """Seconds of reading all weights once, as a product of one row by each."""
    rows = {w.shape[1]: np.ones(w.shape[1], np.float32) for w in weights}
    start = time.perf_counter()
    for w in weights:
        w @ rows[w.shape[1]]
    return time.perf_counter() - start


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    parser.add_argument("--gguf", type=Path, help="a model to take the weights of")
    parser.add_argument("--compiled", action="store_true", help="transformers compiled, too")
    parser.add_argument("--llama", help="an interpreter with xllamacpp")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    sizes, count, rounds = (SMALL, 8, 1) if options.smoke else (SIZES, 32, 5)
    length = 64 if options.smoke else 512
    gh.random.seed(0)
    if options.gguf is None:
        model = models.LlamaForCausalLM(models.LlamaConfig(**sizes)).eval()
        weights = [p.numpy() for p in model.parameters() if p.ndim == 2]
    else:
        model = gh.load(options.gguf).eval()
        weights = []
    both = make_theirs(model, sizes) if options.gguf is None else None
    cases = {"ours": lambda: ours(model, count)}
    if weights:
        cases["limit"] = lambda: limit_seconds(weights)
    cases["batch 8"] = lambda: ours(model, count, rows=8)
    cases["prompt"] = lambda: reading_prompt(model, length)
    for name in ("ours", "batch 8", "prompt"):
        cases[f"{name}, same bits"] = lambda usual=cases[name]: same_bits(usual)
    if options.gguf is not None and options.llama is not None:
        llama = Llama(options.llama, options.gguf)
        cases["llama.cpp prompt"] = lambda: llama.seconds(length, 1)[0]
        cases["llama.cpp"] = lambda: llama.seconds(len(PROMPT), count)[1]
    if both is not None:
        cases["transformers"] = lambda: theirs_seconds(*both, count)
        if options.compiled:
            cases["transformers, compiled"] = lambda: compiled_seconds(*both, count)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(-WARMUP, rounds):
        for name, measured in cases.items():
            seconds = measured()
            if number >= 0:
                times[name].append(seconds)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    if options.gguf is not None:
        starts = [first_token(options.gguf) for _ in range(rounds + 1)]
        medians["first token"] = float(np.median(starts[1:]))
    results = {
        "weight_bytes": sum(w.nbytes for w in weights),
        "seconds": medians,
        "batch_8_ratio": 8 * medians["ours"] / medians["batch 8"],
    }
    if weights:
        results["part_of_limit"] = min(times["limit"]) / medians["ours"]
    for name in ("ours", "batch 8", "prompt"):
        results[f"same_bits_cost_{name}"] = medians[f"{name}, same bits"] / medians[name]
    if "llama.cpp" in medians:
        results["over_llama"] = medians["llama.cpp"] / medians["ours"]
        results["prompt_over_llama"] = medians["llama.cpp prompt"] / medians["prompt"]
    if both is not None:
        results["over_transformers"] = medians["transformers"] / medians["ours"]
    if "transformers, compiled" in medians:
        results["over_compiled"] = medians["transformers, compiled"] / medians["ours"]
    rows = [[name, f"{1e3 * seconds:,.1f} ms"] for name, seconds in medians.items()]
    show("a token (a prompt)", ["", "time"], rows)
    for name in results:
        if name not in ("weight_bytes", "seconds"):
            print(f"{name.replace('_', ' ')}: {results[name]:.2f}")
    print(save("generation" if options.gguf is None else "generation_gguf", results, options))


if __name__ == "__main__":
    main()
