"""How true and how fast predictions are: memory of a step and times, against real ones.

Aims: peaks equal to the byte; FLOPs equal; time of a step within 10 %, of kernels within 15 %
(median, weighted by time); ViT's table in 0.5 s; a 70-billion-parameter step in 10 s and 1 GiB.
"""

import contextlib
import gc
import resource
import time

from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse.analyze import calibrate, compare, step, symbolic_profile, symbolic_trace
from glasshouse.cli.bench_worker import CASES, Ours
from glasshouse.nn import functional as F

LARGE = ("bert", "asr")  # these take most of the machine's memory and minutes: only when asked for


class Block(gh.nn.Module):
    """A decoder layer of a large language model."""

    def __init__(self, width: int, heads: int, ff: int):
        super().__init__()
        linear = gh.nn.Linear
        self.heads, self.width = heads, width
        self.q, self.o = (linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (linear(width, width // 8, bias=False) for _ in range(2))
        self.gate, self.up = (linear(width, ff, bias=False) for _ in range(2))
        self.down = linear(ff, width, bias=False)
        self.norms = gh.nn.ModuleList([gh.nn.RMSNorm(width) for _ in range(2)])

    def split(self, x):
        batch, tokens, width = x.shape
        size = self.width // self.heads
        return x.reshape((batch, tokens, width // size, size)).transpose(1, 2)

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = (self.split(part(y)) for part in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(gh.nn.Module):
    """Embedding, layers, norm, logits."""

    def __init__(self, width: int, heads: int, ff: int, layers: int, vocab: int):
        super().__init__()
        self.embed = gh.nn.Embedding(vocab, width)
        self.layers = gh.nn.Sequential(*(Block(width, heads, ff) for _ in range(layers)))
        self.norm, self.head = gh.nn.RMSNorm(width), gh.nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.embed(tokens))))


def real_peak(name: str, optimizer: str, dtype: str, smoke: bool) -> tuple[int, int]:
    """(peak bytes, FLOPs) of the second real step."""
    built = Ours(name, None, dtype, smoke)
    built.optimizer = getattr(gh.optim, optimizer)(built.model.parameters(), lr=1e-3)
    built.settle()
    gh.eval(*built.model.buffers())
    manager = gh.memory.current()
    for _ in range(2):
        manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
        with gh.FlopCounter() as counter:
            loss = built.train()
    del loss
    return manager.stats().peak_allocated_bytes, counter.total()


def memory_rows(names, smoke: bool) -> list[dict]:
    """Planned and measured peaks of the models."""
    rows = []
    for name in names:
        for optimizer in ("SGD", "AdamW"):
            for dtype in ("float32", "bfloat16"):
                built = Ours(name, None, dtype, smoke)
                opt = getattr(gh.optim, optimizer)(built.model.parameters(), lr=1e-3)
                inputs = [built.inputs, *built.targets]
                autocast = None if dtype == "float32" else dtype
                start = time.perf_counter()
                found = step(built.model, built.loss_of, opt, inputs, autocast=autocast)
                seconds = time.perf_counter() - start
                del built, opt, inputs
                gc.collect()
                with gh.memory.use(type(gh.memory.current())()):
                    peak, flops = real_peak(name, optimizer, dtype, smoke)
                    gc.collect()
                rows.append({
                    "model": name, "optimizer": optimizer, "dtype": dtype, "seconds": seconds,
                    "planned_bytes": found.peaks[-1], "measured_bytes": peak,
                    "flops_equal": found.counter.total() == flops,
                })  # fmt: skip
    return rows


def time_rows(names, machine, smoke: bool) -> list[dict]:
    """Predicted and measured times of a step and its kernels."""
    rows = []
    for name in names:
        built = Ours(name, None, "float32", smoke)
        inputs = [built.inputs, *built.targets]
        predicted = step(built.model, built.loss_of, built.optimizer, inputs, machine=machine)
        built.settle()
        for _ in range(3):
            built.train().item()
        best = None
        for _ in range(1 if smoke else 3):
            with gh.profile() as prof:
                loss = built.train()
            found = compare(predicted, prof)
            if best is None or found.totals[0].measured < best.totals[0].measured:
                best = found
        del loss
        rows.append({
            "model": name, "step_ratio": best.totals[0].ratio, "kernel_error": best.kernel_error
        })  # fmt: skip
    return rows


def scale(smoke: bool) -> dict[str, float]:
    """Seconds and memory of the analysis of a large language model's training step."""
    sizes = (64, 8, 128, 2, 100) if smoke else (8192, 64, 28672, 80, 128_256)
    with gh.meta():
        model = Decoder(*sizes)
    opt = gh.optim.AdamW(model.parameters())
    tokens = ((1, 16 if smoke else 2048), "int64")

    def loss(out, y):
        return F.cross_entropy(out.reshape((-1, sizes[-1])), y.reshape(-1))

    start = time.perf_counter()
    found = step(model, loss, opt, [tokens, tokens], steps=1)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(p.size for p in model.parameters())
    return {"parameters": parameters, "seconds": seconds, "rss_bytes": peak,
            "planned_bytes": found.peak_bytes}  # fmt: skip


def table_seconds(smoke: bool) -> float:
    """Seconds of tracing and profiling ViT-B/16."""
    model = gh.vision.models.vit_b_16(**({"num_layers": 1} if smoke else {}))
    spec = ((8, 3, 224, 224), "float32")
    start = time.perf_counter()
    symbolic_profile(symbolic_trace(model, [spec]), spec)
    return time.perf_counter() - start


def main() -> None:
    options = parse_arguments(__doc__)
    smoke = options.smoke
    names = [name for name in CASES if smoke or name not in LARGE]
    results: dict = {"scale": scale(smoke), "vit_table_s": table_seconds(smoke)}
    policy = gh.base.flags.flags.override(compile="always") if smoke else contextlib.nullcontext()
    with policy:
        results["memory"] = memory_rows(names, smoke)
        results["time"] = time_rows(names, calibrate(smoke=smoke), smoke)
    show("memory of a step", ["", "planned", "measured", "equal", "FLOPs", "s"], [
        [f"{r['model']} {r['optimizer']} {r['dtype']}", f"{r['planned_bytes']:,}",
         f"{r['measured_bytes']:,}", str(r["planned_bytes"] == r["measured_bytes"]),
         str(r["flops_equal"]), f"{r['seconds']:.2f}"]
        for r in results["memory"]
    ])  # fmt: skip
    show("time, predicted / measured", ["", "step", "kernel error"], [
        [r["model"], f"{r['step_ratio']:.3f}", f"{r['kernel_error']:.3f}"] for r in results["time"]
    ])  # fmt: skip
    large = results["scale"]
    show("analysis", ["", "s", "GiB"], [
        [f"{large['parameters'] / 1e9:.1f} billion parameters", f"{large['seconds']:.2f}",
         f"{large['rss_bytes'] / 2**30:.2f}"],
        ["table of ViT-B/16", f"{results['vit_table_s']:.2f}", ""],
    ])  # fmt: skip
    print(save("analyze", results, options))


if __name__ == "__main__":
    main()
