"""`glasshouse bench --torch`: models that others wrote, compiled by us, beside PyTorch's own modes.

Each mode has its own process, with empty caches of compiled code. Ours steps in turn with one
other mode; a further process of ours then starts from the disk cache that the first one filled."""

import importlib.util
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from glasshouse.base.errors import BackendError, check_known
from glasshouse.bench.process import BenchmarkRun, Worker, show_factors, tolerant
from glasshouse.bench.torch_cases import CAPTURED, OUR_MODE, PYTORCH_MODES, TORCH_CASES

FRAMEWORK = "torch model"
NEEDED = ("torch", "torchvision", "transformers")


class TorchRun(BenchmarkRun):
    """One PyTorch model in one mode: its process and its measurements."""

    def __init__(self, worker: Worker, model: str, mode: str, options: dict[Any, Any]) -> None:
        super().__init__(worker, model, FRAMEWORK, mode, options["dtype"], options["smoke"])
        self.inference: bool = options["inference"]

    def build_options(self) -> dict[Any, Any]:
        return {**super().build_options(), "inference": self.inference}

    def record(self) -> dict[Any, Any]:
        """Record of the run to save, with whether it is inference."""
        return {**super().record(), "inference": self.inference}


def fresh_caches(folder: str) -> dict[str, str]:
    """The environment of a process whose compiled code goes to a separate folder."""
    return {"GH_CACHE": f"{folder}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}


def measure_torch_model(
    model: str, modes: list[str], steps: int, options: dict[Any, Any], console: Any
) -> list[Any]:
    """The records of one model: ours beside each of the modes in turn; none if ours fails."""
    records: list[dict[Any, Any]] = []
    with tempfile.TemporaryDirectory() as folder, tolerant(console, model):
        with Worker(OUR_MODE, fresh_caches(folder)) as worker:
            ours = TorchRun(worker, model, OUR_MODE, options)
            ours.start()
            for mode in modes:
                records += measure_beside(ours, mode, steps, options, console)
            for _ in range(0 if ours.seconds else steps):
                ours.step()
            mine = ours.record()
        with Worker(OUR_MODE, fresh_caches(folder)) as worker:
            from_disk = TorchRun(worker, model, OUR_MODE, options)
            from_disk.start()
            mine["first_step_from_disk_s"] = from_disk.first_step_s
        return [mine, *records]
    return []


def measure_beside(
    ours: TorchRun, mode: str, steps: int, options: dict[Any, Any], console: Any
) -> list[dict[Any, Any]]:
    """The record of one of PyTorch's modes, whose steps are taken in turn with ours."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tolerant(console, f"{ours.model}, {mode}"),
        Worker(mode, fresh_caches(folder)) as worker,
    ):
        theirs = TorchRun(worker, ours.model, mode, options)
        theirs.start()
        for _ in range(steps):
            ours.step()
            theirs.step()
        return [theirs.record()]
    return []


def modes_of(model: str, modes: list[str]) -> list[str]:
    """The modes that differ for a model: channels last is for convolutions."""
    convolutions = TORCH_CASES[model].convolutions
    return [mode for mode in modes if convolutions or mode != "channels_last"]


def factors_of(records: list[dict[Any, Any]]) -> dict[str, float]:
    """The best PyTorch mode's step time over ours, by model."""
    ours = {r["model"]: r["step_s"] for r in records if r["mode"] == OUR_MODE}
    best: dict[str, float] = {}
    for r in records:
        if r["mode"] not in (OUR_MODE, CAPTURED):
            best[r["model"]] = min(r["step_s"], best.get(r["model"], math.inf))
    return {model: best[model] / ours[model] for model in ours if model in best}


def show_records(console: Console, records: list[dict[Any, Any]], smoke: bool) -> None:
    """Print the table; no ratios of a smoke run, whose sizes say nothing of speed."""
    table = Table(box=None, show_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    headings = ["model", "mode", "step", "/ ours", "first", "from disk", "peak"]
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place > 1 else "left", no_wrap=place < 2)
    ours = {r["model"]: r["step_s"] for r in records if r["mode"] == OUR_MODE}
    for r in records:
        mine = r["mode"] == OUR_MODE
        from_disk = r.get("first_step_from_disk_s")
        table.add_row(
            r["model"] if mine else "",
            r["mode"],
            f"{r['step_s']:.3f} s",
            "" if smoke else f"{r['step_s'] / ours[r['model']]:.2f}",
            f"{r['first_step_s']:.1f} s",
            "" if from_disk is None else f"{from_disk:.1f} s",
            f"{r['peak_bytes'] / 2**30:.2f} GiB",
            style="bold" if mine else "",
        )
    console.print(table)
    show_factors(console, list(factors_of(records).values()), smoke)


def check_installed() -> None:
    """
    Raises: BackendError where PyTorch or a library of models is missing
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendError(
            "bench --torch",
            f"{', '.join(NEEDED)} installed",
            f"no {', '.join(missing)}",
            "Install them: pip install 'glasshouse[torch]' transformers, then "
            "pip install --no-deps torchvision.",
        )


def bench_torch(
    models: Any,
    against: str | None,
    steps: int | None,
    options: dict[Any, Any],
    path: Path,
    console: Console,
) -> None:
    """Run `glasshouse bench --torch`. Tables go to `console`.

    Raises: BackendError where libraries are missing or a model does not run
    """
    for model in models:
        check_known("bench --torch", "the name of a model", model, TORCH_CASES)
    check_installed()
    smoke = options["smoke"]
    words = "eager" if smoke else ",".join(PYTORCH_MODES)
    modes = [mode for mode in (words if against is None else against).split(",") if mode]
    for mode in modes:
        check_known("bench --torch", "modes for --against", mode, (*PYTORCH_MODES, CAPTURED))
    records: list[dict[Any, Any]] = []
    names = list(dict.fromkeys(models)) or list(TORCH_CASES)
    times = steps or (2 if smoke else 5)
    for model in names:
        console.print(f"[dim]{model} …[/]")
        records += measure_torch_model(model, modes_of(model, modes), times, options, console)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(records, indent=1) + "\n")  # also if a later model fails
    if records:
        show_records(console, records, smoke)
        console.print(f"saved: {path}", soft_wrap=True)
    measured = {r["model"] for r in records}
    if len(measured) < len(names):
        missing = ", ".join(model for model in names if model not in measured)
        raise BackendError("bench --torch", "all models to run", f"none of {missing}", "See above.")
