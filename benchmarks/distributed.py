"""Steps of data-parallel training on two ranks of this machine, one thread a rank: ours beside
PyTorch's DDP and FSDP over gloo, in the same two processes, in turn.

Cases: `replicate` beside DDP, and `zero(stage=3)` beside FSDP (`fully_shard`), for a decoder like
GPT and ResNet-18. A step is forward, backward and AdamW; ranks meet before each. `alone` is our
step of one rank with the same batch and without communication. Beside the time, which other
processes of the machine disturb, stands the processor time of a rank with all of its threads.

Aim: at least 1.2 times as fast.
"""

import contextlib
import os
import statistics
import tempfile
import time

import numpy as np
from harness import parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.bench import torch_twins

SIZES = {
    "gpt": {"vocab": 4096, "layers": 6, "dim": 384, "heads": 6, "ff": 1536, "max_len": 128},
    "resnet18": {"batch": 8, "pixels": 64, "classes": 100},
}
SMOKE = {
    "gpt": {"vocab": 64, "layers": 1, "dim": 16, "heads": 2, "ff": 32, "max_len": 8},
    "resnet18": {"batch": 2, "pixels": 32, "classes": 10},
}
TEXTS = 4  # of a rank's batch
OURS, TORCH = ("alone", "replicate", "zero 3"), ("DDP", "FSDP")
BESIDE = {"replicate": "DDP", "zero 3": "FSDP"}


def batch_of(model: str, size: dict) -> tuple[np.ndarray, np.ndarray]:
    """A rank's input and targets."""
    rng = np.random.default_rng(dist.rank())
    if model == "gpt":
        tokens = rng.integers(0, size["vocab"], (TEXTS, size["max_len"]))
        return tokens, np.roll(tokens, -1, 1).reshape(-1)
    shape = (size["batch"], 3, size["pixels"], size["pixels"])
    return rng.standard_normal(shape, np.float32), rng.integers(0, size["classes"], size["batch"])


def our_step(model: str, size: dict, kind: str):
    """A function that trains for a step and returns the loss."""
    gh.random.seed(0)
    if model == "gpt":
        net = gh.text.models.GptLike(**size)
    else:
        net = gh.vision.models.resnet18(size["classes"])
    optimizer, mesh = gh.optim.AdamW(net.parameters(), lr=1e-4), dist.mesh({"data": dist.size()})
    if kind == "replicate":
        dist.replicate(net, mesh)
    elif kind == "zero 3":
        optimizer = dist.zero(net, optimizer, mesh, stage=3)
    x, target = map(gh.asarray, batch_of(model, size))

    def step() -> float:
        optimizer.zero_grad()
        scores = net(x)
        loss = gh.nn.functional.cross_entropy(scores.reshape((-1, scores.shape[-1])), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_step(model: str, size: dict, kind: str):
    """The same with PyTorch."""
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    if model == "gpt":
        net = torch_decoder(**size)
    else:
        net = torch_twins.resnet18(num_classes=size["classes"])
    if kind == "DDP":
        net = DistributedDataParallel(net)
    else:
        mesh = torch.distributed.init_device_mesh("cpu", (dist.size(),))
        units = (
            net.layers
            if model == "gpt"
            else [block for i in range(1, 5) for block in getattr(net, f"layer{i}")]
        )
        for unit in units:
            fully_shard(unit, mesh=mesh)
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, target = map(torch.from_numpy, batch_of(model, size))

    def step() -> float:
        optimizer.zero_grad()
        scores = net(x)
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_decoder(vocab, layers, dim, heads, ff, max_len):
    """The decoder `GptLike` of PyTorch's layers."""
    import torch
    from torch import nn

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
            options = {"dropout": 0.0, "activation": "gelu", "batch_first": True}
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(dim, heads, ff, norm_first=True, **options)
                for _ in range(layers)
            )
            self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
            for table in (self.tokens, self.positions):
                nn.init.normal_(table.weight, std=0.02)
            self.output.weight = self.tokens.weight
            mask = nn.Transformer.generate_square_subsequent_mask(max_len)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for layer in self.layers:
                x = layer(x, src_mask=self.mask, is_causal=True)
            return self.output(self.norm(x))

    return Decoder()


def time_steps(model: str, size: dict, repeats: int, folder: str) -> dict[str, list[tuple]]:
    """(seconds, seconds of the processor) of each case's steps on this rank; all ranks run it."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/{model}", rank=dist.rank(), world_size=dist.size()
    )
    steps = {kind: our_step(model, size, kind) for kind in OURS}
    steps |= {kind: torch_step(model, size, kind) for kind in TORCH}
    times: dict[str, list[tuple]] = {kind: [] for kind in steps}
    for number in range(repeats + 3):
        for kind, step in steps.items():
            dist.barrier()
            start, processor_start = time.perf_counter(), time.process_time()
            loss = step()
            if number >= 3:  # before, Programs are compiled and buckets made again
                processor = time.process_time() - processor_start
                times[kind].append((time.perf_counter() - start, processor))
            assert np.isfinite(loss)
    with contextlib.suppress(RuntimeError):
        torch.distributed.destroy_process_group()
    return times


def ratios_of(times: dict[str, list[float]]) -> dict[str, float]:
    """How many times as long PyTorch takes, the median over the rounds."""
    return {
        ours: statistics.median(b / a for a, b in zip(times[ours], times[theirs], strict=True))
        for ours, theirs in BESIDE.items()
    }


def rows_of(model: str, result: dict) -> list[list[str]]:
    rows = []
    for kind, row in result["steps"].items():
        ratios = [
            f"{result[name][kind]:.2f} × {BESIDE[kind]}" if kind in BESIDE else ""
            for name in ("times_as_fast", "times_less_processor")
        ]
        quartiles = f"{row['low_s'] * 1e3:.1f} – {row['high_s'] * 1e3:.1f}"
        processor = f"{result['processor_s'][kind] * 1e3:.1f}"
        own = [f"{model}, {kind}", f"{row['median_s'] * 1e3:.1f}", quartiles]
        rows.append([*own, ratios[0], processor, ratios[1]])
    return rows


def main() -> None:
    options = parse_arguments(__doc__, tuple(SIZES))
    sizes, repeats = (SMOKE, 2) if options.smoke else (SIZES, 4)
    results, rows = {"load_average": os.getloadavg()}, []
    for model in options.parts or sizes:
        with tempfile.TemporaryDirectory() as folder:
            by_rank = dist.spawn(time_steps, 2, model, sizes[model], repeats, folder)
        slowest = {
            kind: [tuple(map(max, zip(*pair, strict=True))) for pair in zip(*of_ranks, strict=True)]
            for kind, of_ranks in ((k, [own[k] for own in by_rank]) for k in by_rank[0])
        }
        times, processor = ({k: [x[i] for x in v] for k, v in slowest.items()} for i in (0, 1))
        results[model] = {"size": sizes[model], "steps": summarize(times)}
        results[model]["processor_s"] = {k: statistics.median(v) for k, v in processor.items()}
        results[model]["times_as_fast"] = ratios_of(times)
        results[model]["times_less_processor"] = ratios_of(processor)
        rows += rows_of(model, results[model])
    columns = ["case", "ms", "quartiles", "times as fast", "processor ms", "times less"]
    show("A step on 2 ranks, 1 thread each", columns, rows)
    print(save("distributed", results, options))


if __name__ == "__main__":
    main()
