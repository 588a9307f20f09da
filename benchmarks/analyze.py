"""How true and how fast predictions are: memory of a step and times, against real ones.

Aims: peaks equal to the byte, and within 2 % of the growth of the process; FLOPs equal; time of a
step within 10 %, of kernels within 15 % (median, weighted by time), of small steps, Python's part
included, within 15 %; steps ranked right (Spearman
0.95); what-ifs in 50 ms; activations cut to half for 12 % more time, to a quarter for 30 %; ViT
planned in 2 s; ViT's table in 0.5 s; a 70-billion-parameter step in 10 s and 1 GiB, one of 405 in
30 s.
"""

import contextlib
import gc
import itertools
import json
import multiprocessing
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from harness import parse_arguments, save, show
from step_models import STEPS, StepRun

import glasshouse as gh
from glasshouse.analyze import (
    calibrate,
    compare,
    plan,
    step,
    sweep,
    symbolic_profile,
    symbolic_trace,
)
from glasshouse.analyze.calibration import HostCalibration
from glasshouse.analyze.kernel_rates import measure_all
from glasshouse.analyze.planner.blocks import AppliedBlocks, RematBlock, candidates_of
from glasshouse.analyze.step import with_batch
from glasshouse.base.errors import OptionError
from glasshouse.base.flags import flags
from glasshouse.bench.worker import CASES, Ours, forget_peak, peak_bytes
from glasshouse.cli.info import read_fields
from glasshouse.nn import functional as F

PLANNED = {"resnet50": 8, "vit_b_16": 4, "bert": 2}  # planned and run with batches of
OPTIMIZERS = (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {}))
ROUNDS = 6  # in which steps with and without a plan take turns
REPEATS = 4  # steps of each kind that are timed, of which the fastest counts


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


def resident() -> int:
    """Bytes of this process that are resident now; 0 where the system does not say."""
    return int(read_fields("/proc/self/status").get("VmRSS", "0").split()[0]) * 1024


def compiled(smoke: bool):
    """Context: also small steps are compiled, as large ones are."""
    return gh.base.flags.flags.override(compile="always") if smoke else contextlib.nullcontext()


def real_peak(name: str, optimizer: str, dtype: str, smoke: bool) -> tuple[int, int, int]:
    """(peak bytes, FLOPs) of the second real step, and by how much this process grew."""
    with compiled(smoke):
        Ours(name, None, dtype, True).train().item()  # loads what running takes
        before = resident()
        built = Ours(name, None, dtype, smoke)
        built.optimizer = getattr(gh.optim, optimizer)(built.model.parameters(), lr=1e-3)
        built.compute_weights()
        gh.eval(*built.model.buffers())
        forget_peak()
        manager = gh.memory.current()
        for _ in range(2):
            manager.counts.peak_allocated_bytes = manager.stats().allocated_bytes
            with gh.FlopCounter() as counter:
                built.train()
        return manager.stats().peak_allocated_bytes, counter.total(), peak_bytes() - before


def in_new_process(fn, *args):
    """Return the result of a function called in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(fn, *args).result()


def memory_rows(name: str, smoke: bool) -> list[dict]:
    """Planned and measured peaks of a model."""
    rows = []
    kinds = list(itertools.product(("SGD", "AdamW"), ("float32", "bfloat16")))
    for optimizer, dtype in kinds[-1:] if smoke else kinds:
        built = Ours(name, None, dtype, smoke)
        opt = getattr(gh.optim, optimizer)(built.model.parameters(), lr=1e-3)
        inputs = [built.inputs, *built.targets]
        autocast = None if dtype == "float32" else dtype
        start = time.perf_counter()
        costs = step(built.model, built.loss_of, opt, inputs, autocast=autocast)
        seconds = time.perf_counter() - start
        del built, opt, inputs
        gc.collect()
        peak, flops, growth = in_new_process(real_peak, name, optimizer, dtype, smoke)
        rows.append(
            {
                "model": name,
                "optimizer": optimizer,
                "dtype": dtype,
                "seconds": seconds,
                "planned_bytes": costs.peaks[-1],
                "measured_bytes": peak,
                "resident_bytes": growth,
                "foretold_bytes": costs.resident,
                "flops_equal": costs.counter.total() == flops,
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def what_ifs(name: str, smoke: bool) -> list[dict]:
    """Milliseconds of what-ifs about optimizer and dtype after the first question, and of batches
    after a preparation; whether they are what analyses of their own say."""
    rows, built = [], Ours(name, None, "float32", smoke)
    operands = [built.inputs, *built.targets]
    size = 16 if smoke else operands[0].shape[0]

    def inputs(n):
        return with_batch(operands, n)

    arguments = built.model, built.loss_of, built.optimizer
    start = time.perf_counter()
    costs = sweep(*arguments, inputs)
    costs(size)
    first = time.perf_counter() - start
    costs.prepare((5 * size // 4, 3 * size // 2, 2 * size), (None,))
    preparing = time.perf_counter() - start
    questions = [(n, None, None) for n in (size + 1, 5 * size // 4 + 1, 2 * size - 1)]
    questions += [
        (size, getattr(gh.optim, kind)(built.model.parameters(), **options), dtype)
        for dtype in (None, "bfloat16")
        for kind, options in OPTIMIZERS
    ]
    for n, optimizer, dtype in questions:
        gc.collect()  # what the analysis before left
        start = time.perf_counter()
        estimate = costs(n, optimizer, dtype)
        seconds = time.perf_counter() - start
        predicted = step(*arguments[:2], optimizer or built.optimizer, inputs(n), autocast=dtype)
        rows.append(
            {
                "model": name,
                "batch": n,
                "optimizer": type(optimizer or built.optimizer).__name__,
                "dtype": dtype or "float32",
                "ms": 1e3 * seconds,
                "first_s": first,
                "prepare_s": preparing,
                "equal": estimate.peaks == predicted.peaks
                and estimate.flops == predicted.counter.total(),
                "peak_error": estimate.peak_bytes / predicted.peak_bytes - 1,
                "time_error": estimate.predicted_ns / predicted.device_ns - 1,
            }
        )
    return rows + (budget_rows(name, (*arguments, inputs(size))) if name in PLANNED else [])


def budget_rows(name: str, arguments) -> list[dict]:
    """Milliseconds of what-ifs about the budget: by the estimates, which come within some percent,
    and for a plan that is met in earnest, which may take an analysis."""
    rows, first = [], plan(*arguments, 1.0)
    least = first.planner.least.peak_bytes
    for budget in np.linspace(least, first.plain_bytes, 12)[1:-1].astype(int).tolist():
        start = time.perf_counter()
        estimate = first.estimate(budget)
        middle = time.perf_counter()
        result = first.at(budget)
        rows.append(
            {
                "model": name,
                "budget": budget / first.plain_bytes,
                "ms": 1e3 * (middle - start),
                "plan_ms": 1e3 * (time.perf_counter() - middle),
                "told": None if estimate is None else estimate / first.plain_ns,
                "planned": result.extra_ns / result.plain_ns,
            }
        )
    return rows


def fastest(train, repeats: int) -> float:
    """Seconds of the fastest step, after one that is not counted."""
    train().item()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        train().item()
        times.append(time.perf_counter() - start)
    return min(times)


def fewest_blocks(arguments, paths, budget: int) -> list[RematBlock]:
    """The first blocks of a model, as few as keep its peak within a budget if each is checkpointed:
    what one does by hand."""
    low, high = 0, len(paths)
    while low < high:
        middle = (low + high) // 2
        applied = AppliedBlocks(arguments[0], [RematBlock(path) for path in paths[:middle]])
        fits = step(*arguments).peak_bytes <= budget
        applied.undo()
        low, high = (low, middle) if fits else (middle + 1, high)
    return [RematBlock(path) for path in paths[:low]]


def seconds_of(train, model, choices: dict[str, list], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step with each choice of blocks, in turns; each time after a step that is not
    counted, for it maps the memory that this choice needs."""
    seconds: dict[str, list[float]] = {name: [] for name in choices}
    for _ in range(rounds):
        for name, blocks in choices.items():
            applied = AppliedBlocks(model, blocks)
            train().item()
            start = time.perf_counter()
            train().item()
            seconds[name].append(time.perf_counter() - start)
            applied.undo()
    return seconds


def plan_rows(name: str, smoke: bool) -> list[dict]:
    """Compare plans that cut activations to a half and a quarter, predicted and measured, with
    checkpoints around whole blocks for the same peak."""
    built, rows = Ours(name, None, "float32", smoke), []
    if not smoke:
        built.inputs, *built.targets = (x[: PLANNED[name]] for x in (built.inputs, *built.targets))
    arguments = built.model, built.loss_of, built.optimizer, [built.inputs, *built.targets]
    plain = step(*arguments)
    activations = plain.memory_by_kind.get("activations", 0)
    built.compute_weights()
    for part in (0.5, 0.25):
        budget = plain.peak_bytes - int((1 - part) * activations)
        start = time.perf_counter()
        try:
            choice = plan(*arguments, budget)
        except OptionError as error:
            rows.append({"model": name, "part": part, "refused": str(error)})
            continue
        planning = time.perf_counter() - start
        paths = candidates_of(built.model)
        choices = {"plain": [], "plan": choice.blocks}
        choices["blocks"] = fewest_blocks(arguments, paths, choice.peak_bytes)
        seconds = seconds_of(built.train, built.model, choices, 1 if smoke else ROUNDS)
        ratio = {k: float(np.median(np.divide(seconds[k], seconds["plain"]))) - 1 for k in seconds}
        rows.append(
            {
                "model": name,
                "batch": built.inputs.shape[0],
                "part": part,
                "plan_s": planning,
                "blocks": len(choice.blocks),
                "peak_bytes": choice.peak_bytes,
                "plain_bytes": plain.peak_bytes,
                "predicted": choice.extra_ns / choice.plain_ns,
                "measured": ratio["plan"],
                "uniform": ratio["blocks"],
                "uniform_blocks": len(choices["blocks"]),
                "seconds": seconds,
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def ranks(values) -> np.ndarray:
    """The place of each value in their order."""
    return np.argsort(np.argsort(values))


def ranking(machine, smoke: bool) -> dict:
    """Spearman's correlation of predicted and measured times, over steps of an encoder that differ
    in batch, length, dtype and recomputation."""
    sizes = {"vocab": 2000, "layers": 4, "dim": 256, "heads": 4, "ff": 1024}
    if smoke:
        sizes = {"vocab": 50, "layers": 2, "dim": 16, "heads": 2, "ff": 32}
    rng = np.random.default_rng(0)
    lengths = (32,) if smoke else (32, 96, 256)
    pairs = []
    for batch, length, dtype, part in itertools.product(
        (2, 8), lengths, (None, "bfloat16"), (1.0, 0.5)
    ):
        gh.random.seed(0)
        model = gh.text.models.BertLike(**sizes)
        opt = gh.optim.SGD(model.parameters(), lr=1e-3)
        tokens, targets = map(gh.asarray, rng.integers(0, sizes["vocab"], (2, batch, length)))
        arguments = model, CASES["bert"].loss, opt, [tokens, targets]
        options = {"autocast": dtype, "machine": machine}
        plain = step(*arguments, **options)
        cut = int((1 - part) * plain.memory_by_kind.get("activations", 0))
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OptionError):  # too small to be cut: as it is
                stack.enter_context(plan(*arguments, plain.peak_bytes - cut, **options))
            predicted = step(*arguments, **options).predicted_ns

            def train(model=model, opt=opt, tokens=tokens, targets=targets, dtype=dtype):
                opt.zero_grad()
                with gh.autocast(dtype) if dtype else contextlib.nullcontext():
                    loss = CASES["bert"].loss(model(tokens), targets)
                loss.backward()
                opt.step()
                return loss

            train().item()
            pairs.append((predicted / 1e9, fastest(train, 1 if smoke else 2 * REPEATS)))
    predicted, measured = zip(*pairs, strict=True)
    result = float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])
    return {"variants": len(pairs), "spearman": result, "pairs_s": pairs}


def time_row(name: str, smoke: bool) -> dict:
    """Predicted and measured times of a step and its kernels. The machine is calibrated again, for
    where others share it memory is now slow, now fast."""
    machine = calibrate(smoke=smoke)
    built = Ours(name, None, "float32", smoke)
    inputs = [built.inputs, *built.targets]
    predicted = step(built.model, built.loss_of, built.optimizer, inputs, machine=machine)
    built.compute_weights()
    for _ in range(3):
        built.train().item()
    results = []
    for _ in range(1 if smoke else 5):
        with gh.profile() as prof:
            loss = built.train()
        results.append(compare(predicted, prof))
    usual = sorted(results, key=lambda x: x.totals[0].measured)[len(results) // 2]
    del loss
    return {"model": name, "step_ratio": usual.totals[0].ratio, "kernel_error": usual.kernel_error}


def step_rows(smoke: bool) -> list[dict]:
    """Predicted and measured times of small steps, kernels and Python apart: medians of processor
    time, which other processes disturb least. Steps take turns with those that Python's costs are
    found on."""
    kernels = measure_all("here", smoke)
    with flags.override(compile="always"):
        runs, host = [StepRun(name) for name in few(STEPS, smoke)], HostCalibration(smoke)
        for _ in range(host.rounds):
            host.measure()
            for run in runs:
                run.measure()
    machine = host.complete(kernels)
    rows = []
    for run in runs:
        options = {"machine": machine, "convention": run.case.convention}
        predicted = step(run.model, run.loss, run.optimizer, run.inputs, **options)
        measured_ns, kernel_ns = (statistics.median(x) for x in (run.times, run.kernel_times))
        rows.append(
            {
                "model": run.name,
                "predicted_kernels_ns": predicted.kernel_ns,
                "predicted_python_ns": predicted.host_ns,
                "measured_kernels_ns": kernel_ns,
                "measured_python_ns": measured_ns - kernel_ns,
                "ratio": predicted.predicted_ns / measured_ns,
                "counts": predicted.host_work._asdict(),
            }
        )
    return rows


LLAMAS = {"70B": (8192, 64, 28672, 80, 128_256), "405B": (16384, 128, 53248, 126, 128_256)}


def scale(name: str, smoke: bool) -> dict[str, float]:
    """Seconds and memory of the analysis of a large language model's training step."""
    sizes = (64, 8, 128, 2, 100) if smoke else LLAMAS[name]
    with gh.meta():
        model = Decoder(*sizes)
    opt = gh.optim.AdamW(model.parameters())
    tokens = ((1, 16 if smoke else 2048), "int64")

    def loss(out, y):
        return F.cross_entropy(out.reshape((-1, sizes[-1])), y.reshape(-1))

    start = time.perf_counter()
    costs = step(model, loss, opt, [tokens, tokens], steps=1)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(p.size for p in model.parameters())
    return {
        "parameters": parameters,
        "seconds": seconds,
        "rss_bytes": peak,
        "planned_bytes": costs.peak_bytes,
    }


def table_seconds(smoke: bool) -> float:
    """Seconds of tracing and profiling ViT-B/16."""
    model = gh.vision.models.vit_b_16(**({"num_layers": 1} if smoke else {}))
    spec = ((8, 3, 224, 224), "float32")
    start = time.perf_counter()
    symbolic_profile(symbolic_trace(model, [spec]), spec)
    return time.perf_counter() - start


def analysis(smoke: bool) -> dict:
    """Time analyses of a large model and of every node of ViT."""
    large = {name: in_new_process(scale, name, smoke) for name in few(LLAMAS, smoke)}
    return {**large, "vit_table_s": table_seconds(smoke)}


def few(names, smoke: bool) -> list[str]:
    """The names, of which a smoke run tries the last."""
    return [*names][-1:] if smoke else [*names]


def measure_parts(smoke: bool) -> dict:
    """By name, what measures a part."""
    cases, planned = few(CASES, smoke), few(PLANNED, smoke)
    return {
        "analysis": lambda: analysis(smoke),
        **{f"what_if_{name}": lambda name=name: what_ifs(name, smoke) for name in cases},
        **{f"memory_{name}": lambda name=name: memory_rows(name, smoke) for name in cases},
        "ranking": lambda: ranking(calibrate(smoke=smoke), smoke),
        "time": lambda: [time_row(name, smoke) for name in cases],
        "steps": lambda: step_rows(smoke),
        **{f"plans_{name}": lambda name=name: plan_rows(name, smoke) for name in planned},
    }


def parts_of(results: dict, part: str) -> list[dict]:
    """The rows of all models."""
    return [row for name in CASES for row in results.get(f"{part}_{name}", ())]


def show_parts(results: dict) -> None:
    """Print what was measured."""
    show(
        "memory of a step",
        ["", "planned", "measured", "equal", "resident", "FLOPs", "s"],
        [
            [
                f"{r['model']} {r['optimizer']} {r['dtype']}",
                f"{r['planned_bytes']:,}",
                f"{r['measured_bytes']:,}",
                str(r["planned_bytes"] == r["measured_bytes"]),
                f"{sum(r['foretold_bytes'].values()) / max(1, r['resident_bytes']):.3f}",
                str(r["flops_equal"]),
                f"{r['seconds']:.2f}",
            ]
            for r in parts_of(results, "memory")
        ],
        "resident: foretold / real growth of the process",
    )
    show(
        "what if batch, optimizer and dtype were …",
        ["", "ms", "equal", "peak", "time"],
        [
            [
                f"{r['model']} {r['batch']} {r['optimizer']} {r['dtype']}",
                f"{r['ms']:.1f}",
                str(r["equal"]),
                f"{r['peak_error']:.2%}",
                f"{r['time_error']:.2%}",
            ]
            for r in parts_of(results, "what_if")
            if "batch" in r
        ],
        "equal: peaks and FLOPs to those of an analysis; peak, time: the error",
    )
    show(
        "what if the budget were …",
        ["", "ms", "told", "planned", "planning, ms"],
        [
            [
                f"{r['model']} {r['budget']:.0%}",
                f"{r['ms']:.1f}",
                "" if r["told"] is None else f"{r['told']:+.1%}",
                f"{r['planned']:+.1%}",
                f"{r['plan_ms']:.0f}",
            ]
            for r in parts_of(results, "what_if")
            if "budget" in r
        ],
    )
    show(
        "activations cut to",
        ["", "predicted", "measured", "whole blocks", "planning, s"],
        [
            [
                f"{r['model']} {r['part']:.0%}",
                *(
                    ["refused", "", "", ""]
                    if "refused" in r
                    else [
                        f"{r['predicted']:+.1%}",
                        f"{r['measured']:+.1%}",
                        f"{r['uniform']:+.1%}",
                        f"{r['plan_s']:.1f}",
                    ]
                ),
            ]
            for name in PLANNED
            for r in results.get(f"plans_{name}", ())
        ],
        "whole blocks: what checkpointing as many as the same peak needs takes",
    )
    show(
        "time, predicted / measured",
        ["", "step", "kernel error"],
        [
            [r["model"], f"{r['step_ratio']:.3f}", f"{r['kernel_error']:.3f}"]
            for r in results.get("time", ())
        ],
    )
    show(
        "time of small steps, predicted / measured, ms",
        ["", "kernels", "Python", "ratio"],
        [
            [
                r["model"],
                *(
                    f"{r[f'predicted_{part}_ns'] / 1e6:.3f} / {r[f'measured_{part}_ns'] / 1e6:.3f}"
                    for part in ("kernels", "python")
                ),
                f"{r['ratio']:.3f}",
            ]
            for r in results.get("steps", ())
        ],
        "medians of processor time; aim: all ratios within 15 %",
    )
    if "ranking" in results:
        result = results["ranking"]
        print(f"\nSpearman over {result['variants']} steps: {result['spearman']:.3f}")
    if "analysis" in results:
        large = results["analysis"]
        show(
            "analysis",
            ["", "s", "GiB"],
            [
                *(
                    [
                        f"{large[name]['parameters'] / 1e9:.1f} billion parameters",
                        f"{large[name]['seconds']:.2f}",
                        f"{large[name]['rss_bytes'] / 2**30:.2f}",
                    ]
                    for name in LLAMAS
                    if name in large
                ),
                ["table of ViT-B/16", f"{large['vit_table_s']:.2f}", ""],
            ],
        )


def main() -> None:
    parts = measure_parts(smoke=False)
    options = parse_arguments(__doc__, parts)
    parts = measure_parts(options.smoke)
    if unknown := set(options.parts) - set(parts):
        raise SystemExit(f"analyze: expected parts of {', '.join(parts)}; got {', '.join(unknown)}")
    path = options.out / "analyze.json"
    results: dict = {}
    if options.parts and path.is_file():  # the others stay as they were
        before = json.loads(path.read_text())["results"]
        results = {name: rows for name, rows in before.items() if name in (*parts, "when")}
    with compiled(options.smoke):
        for name in options.parts or parts:
            results[name] = parts[name]()
            results.setdefault("when", {})[name] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            save("analyze", results, options)
    show_parts(results)
    print(path)


if __name__ == "__main__":
    main()
