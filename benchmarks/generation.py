"""Time of a token: a Llama of SmolLM2's sizes, random weights, beside transformers' generate.

Each writes greedily after the same short prompt, in rounds in turn; what the first tokens take,
with capture and compilation, is not counted. `limit` is the time of reading all weights once: the
least of the rounds for NumPy's products of one row by each. `batch 8` writes eight texts at once;
its ratio is that of tokens a second over those of one text. `prompt` reads 512 tokens.
"""

import sys
import time

import numpy as np
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse.text import models

SIZES = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {**SIZES, "vocab_size": 512, "num_hidden_layers": 2}
PROMPT, SKIPPED = [1, 2, 3, 4, 5], 3


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


def theirs_seconds(torch, model, count: int) -> float:
    """Seconds between tokens of transformers."""
    ticker = Ticker()
    with torch.no_grad():
        model.generate(
            torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, streamer=ticker,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return token_seconds(ticker.times[1:])


def limit_seconds(weights: list[np.ndarray]) -> float:
    """Seconds of reading all weights once, as a product of one row by each."""
    rows = {w.shape[1]: np.ones(w.shape[1], np.float32) for w in weights}
    start = time.perf_counter()
    for w in weights:
        w @ rows[w.shape[1]]
    return time.perf_counter() - start


def main() -> None:
    options = parse_arguments(__doc__)
    sizes, count, rounds = (SMALL, 8, 1) if options.smoke else (SIZES, 32, 5)
    gh.random.seed(0)
    model = models.LlamaForCausalLM(models.LlamaConfig(**sizes)).eval()
    weights = [p.numpy() for p in model.parameters() if p.ndim == 2]
    both = make_theirs(model, sizes)
    cases = {"ours": lambda: ours(model, count), "limit": lambda: limit_seconds(weights)}
    cases["batch 8"] = lambda: ours(model, count, rows=8)
    cases["prompt"] = lambda: reading_prompt(model, 64 if options.smoke else 512)
    if both is not None:
        cases["transformers"] = lambda: theirs_seconds(*both, count)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, measured in cases.items():
            seconds = measured()
            if number:
                times[name].append(seconds)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    limit = min(times["limit"])
    results = {
        "weight_bytes": sum(w.nbytes for w in weights),
        "seconds": medians,
        "part_of_limit": limit / medians["ours"],
        "batch_8_ratio": 8 * medians["ours"] / medians["batch 8"],
    }
    if both is not None:
        results["over_transformers"] = medians["transformers"] / medians["ours"]
    rows = [[name, f"{1e3 * seconds:,.1f} ms"] for name, seconds in medians.items()]
    show("a token (a prompt)", ["", "time"], rows)
    for name in ("part_of_limit", "over_transformers", "batch_8_ratio"):
        if name in results:
            print(f"{name.replace('_', ' ')}: {results[name]:.2f}")
    print(save("generation", results, options))


if __name__ == "__main__":
    main()
