"""How fast the models of `cases` train here, and in PyTorch where it is installed.

Each framework and mode has its own process, since two OpenMP runtimes in one would disturb
each other. Processes take steps in turn, so that a slow moment of the machine hits all alike; no
more than two models are in memory at once."""

import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import glasshouse as gh
from glasshouse.base.errors import BackendError, check_known
from glasshouse.bench.process import BenchmarkRun, Worker, show_factors, tolerant
from glasshouse.bench.worker import CASES, Ours
from glasshouse.profile import FlopCounter

CAPTURED = "captured"  # ours, under gh.optimize
MODES = ("eager", "channels_last", "compile", CAPTURED)
# Passes of a step over the parameters: read forward and backward; the gradient written and read;
# in the update read and written.
PARAMETER_PASSES = 6
OUR_COLOR = "#2a78b5"
COLORS = {"eager": "#d9622b", "channels_last": "#e8a33d", "compile": "#8c8c8c", CAPTURED: "#7fb3da"}


@dataclass(frozen=True)
class Work:
    """The minimum work of a step: FLOPs of products and convolutions, bytes of the parameters."""

    flops: int
    parameter_bytes: int

    def seconds(self, limits: dict[Any, Any]) -> float:
        moved = PARAMETER_PASSES * self.parameter_bytes
        return self.flops / limits["flops"] + moved / limits["copy"]


def count_work(model: str, smoke: bool) -> Work:
    with gh.backends.use("stub"):
        run = Ours(model, None, "float32", smoke)
        with FlopCounter() as counter:
            run.train()
        return Work(counter.total(), sum(p.spec.nbytes for p in run.model.parameters()))


def measure_limits(frameworks: Any, dtype: str, smoke: bool) -> dict[Any, Any]:
    """The machine's FLOP/s of matrix products and bytes/s of copies: the best that any reaches."""
    entries = []
    for framework in frameworks:
        with Worker(framework) as worker:
            entries.append(worker.ask("limits", framework=framework, dtype=dtype, smoke=smoke))
    return {name: max(entry[name] for entry in entries) for name in ("flops", "copy")}


def record_with_work(run: BenchmarkRun, work: Work, limits: dict[Any, Any]) -> dict[Any, Any]:
    """A run's record, with its rate of work and the machine's limits."""
    record = run.record()
    step_s = record["step_s"]
    return record | {
        "gflops_per_s": work.flops / step_s / 1e9,
        "fraction_of_limit": work.seconds(limits) / step_s,
        "matrix_gflops_per_s": limits["flops"] / 1e9,
        "copy_gb_per_s": limits["copy"] / 1e9,
    }


def measure_model(
    model: Any, dtype: Any, modes: Any, steps: Any, *, smoke: Any, limits: Any, console: Any
) -> list[dict[Any, Any]]:
    """The records of one model: ours beside each of the modes in turn; none if ours fails."""
    work, records = count_work(model, smoke), []
    with Worker("glasshouse") as worker, tolerant(console, model):
        ours = BenchmarkRun(worker, model, "glasshouse", None, dtype, smoke)
        ours.start()
        for mode in modes:
            framework = "glasshouse" if mode == CAPTURED else "pytorch"
            with Worker(f"{framework} {mode}") as other, tolerant(console, model):
                theirs = BenchmarkRun(other, model, framework, mode, dtype, smoke)
                theirs.start()
                for _ in range(steps):
                    ours.step()
                    theirs.step()
                records.append(record_with_work(theirs, work, limits))
        for _ in range(0 if ours.seconds else steps):
            ours.step()
        return [record_with_work(ours, work, limits), *records]
    return []


def our_steps(records: list[dict[Any, Any]]) -> dict[str, float]:
    return {r["model"]: r["step_s"] for r in records if is_ours(r)}


def is_ours(record: dict[Any, Any]) -> bool:
    return record["framework"] == "glasshouse" and record["mode"] != CAPTURED


def show(
    console: Console, records: list[dict[Any, Any]], limits: dict[Any, Any], smoke: bool
) -> None:
    """Print the records; of a smoke run no ratios, for its sizes and steps say nothing of speed."""
    table = Table(box=None, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    headings = ["model", "", "step s", "/ ours", "first s", "GiB", "GFLOP/s", "of limit"]
    ratios = ("/ ours", "of limit")
    shown = [heading for heading in headings if not (smoke and heading in ratios)]
    for i, heading in enumerate(shown):
        table.add_column(heading, justify="right" if i > 1 else "left", no_wrap=True)
    ours = our_steps(records)
    for r in records:
        mine = is_ours(r)
        cells = (
            r["model"] if mine else "",
            f"{r['framework']}, {r['mode']}",
            f"{r['step_s']:.3f}",
            f"{r['step_s'] / ours[r['model']]:.2f}",
            f"{r['first_step_s']:.1f}",
            f"{r['peak_bytes'] / 2**30:.2f}",
            f"{r['gflops_per_s']:.0f}",
            f"{r['fraction_of_limit']:.0%}",
        )
        row = [cell for heading, cell in zip(headings, cells, strict=True) if heading in shown]
        table.add_row(*row, style="bold" if mine else "")
    console.print(table)
    theirs: dict[str, float] = {}
    for r in records:
        if r["framework"] == "pytorch":
            theirs[r["model"]] = min(r["step_s"], theirs.get(r["model"], math.inf))
    factors = [theirs[model] / ours[model] for model in ours if model in theirs]
    show_factors(console, factors, smoke)
    if smoke:
        return
    flops, copy = limits["flops"] / 1e9, limits["copy"] / 1e9
    console.print(
        f"[dim]limit of the machine as measured: matrix products {flops:,.0f} GFLOP/s, "
        f"copies {copy:.1f} GB/s read and written[/]"
    )
    if any(r["fraction_of_limit"] > 1 for r in records):
        console.print(
            "[dim]above 100%: FLOPs are the definition's; some convolutions take "
            "a quarter of them[/]"
        )


def save_chart(records: list[dict[Any, Any]], path: Path) -> bool:
    """Save each model's step times relative to ours as PNG; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    ours = our_steps(records)
    series = dict.fromkeys((r["framework"], r["mode"]) for r in records)
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(series), 1)
    for i, (framework, mode) in enumerate(series):
        rows = [r for r in records if (r["framework"], r["mode"]) == (framework, mode)]
        places = [list(ours).index(r["model"]) + (i + 0.5) * width - 0.4 for r in rows]
        bars = axes.bar(
            places,
            [r["step_s"] / ours[r["model"]] for r in rows],
            width * 0.92,
            color=COLORS.get(mode, OUR_COLOR),
            label=f"{framework}, {mode}",
        )
        axes.bar_label(bars, [f"{r['step_s']:.3g} s" for r in rows], fontsize=7, padding=2)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_xticks(range(len(ours)), list(ours))
    axes.set_ylabel("step time / ours")
    axes.set_title(f"one training step, {records[0]['dtype']}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=len(series), frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return True


def chosen_modes(against: str | None, dtype: str, smoke: bool) -> list[str]:
    """The modes to run beside ours; by default PyTorch's, the best for bfloat16, or a quick one."""
    best = "channels_last" if dtype == "bfloat16" else ",".join(MODES[:-1])
    against = ("eager" if smoke else best) if against is None else against
    modes = [mode for mode in against.split(",") if mode]
    for mode in modes:
        check_known("bench", "modes for --against", mode, MODES)
    has_torch = importlib.util.find_spec("torch") is not None
    return [mode for mode in modes if has_torch or mode == CAPTURED]


def modes_for(model: str, modes: list[str]) -> list[str]:
    if CASES[model].convolutions:
        return modes
    return list(dict.fromkeys("eager" if mode == "channels_last" else mode for mode in modes))


def bench_twins(
    models: tuple[str, ...],
    console: Any,
    progress: Callable[..., Any],
    *,
    dtype: str,
    against: str | None,
    steps: Any,
    json_path: Path,
    chart: Any,
    smoke: bool,
) -> None:
    """Run `glasshouse bench`: our models next to the same ones written in PyTorch. Tables go to
    `console`; the context `progress(text)` is entered for slow parts.

    Raises: BackendError where a model does not train
    """
    for model in models:
        check_known("bench", "the name of a model", model, CASES)
    modes = chosen_modes(against, dtype, smoke)
    frameworks = ["glasshouse", *["pytorch"] * any(mode != CAPTURED for mode in modes)]
    with progress("measuring the machine's limits"):
        limits = measure_limits(frameworks, dtype, smoke)
    records: list[dict[Any, Any]] = []
    names = list(dict.fromkeys(models)) or list(CASES)
    for model in names:
        console.print(f"[dim]{model} …[/]")
        records += measure_model(
            model,
            dtype,
            modes_for(model, modes),
            steps or (2 if smoke else 5),
            smoke=smoke,
            limits=limits,
            console=console,
        )
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(records, indent=1) + "\n")  # also if a later model fails
    if records:
        show(console, records, limits, smoke)
        picture = chart or json_path.with_suffix(".png")
        saved = f", {picture}" if save_chart(records, picture) else ""
        console.print(f"saved: {json_path}{saved}", soft_wrap=True)
    if len(our_steps(records)) < len(names):
        missing = ", ".join(m for m in names if m not in our_steps(records))
        raise BackendError("bench", "all models to train", f"none of {missing}", "See above.")
