"""A run of an application: from the command line's options to a checkpoint and pictures."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from glasshouse.apps.app import App
from glasshouse.apps.pictures import save_curves
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.fit import Callback, Checkpoint, CSVLog, FitRun, fit
from glasshouse.fit.run import LAST
from glasshouse.interop import load_checkpoint
from glasshouse.nn import Module
from glasshouse.tensor import random

BEST = "best.safetensors"
NOTES = "app.json"  # recipe and assets of a run, beside its checkpoints


def train_app(
    app: App, settings: dict[str, Any], data: Path, out: Path, resume: bool, console: Console
) -> dict[str, Any]:
    """Train an application, and return its final numbers.

    `settings` replace values of its recipe. Everything is written to `out`: checkpoints after each
    epoch, rows of numbers, curves, and the pictures of the application's report.

    Raises: OptionError if `out` has another run, or `settings` differ from the resumed run's;
        CheckpointError for files that cannot be read or written.
    """
    recipe = resumed_recipe(app, settings, out) if resume else new_recipe(app, settings, out)
    random.seed(recipe.seed)
    training = app.prepare(recipe, data)
    write_json(out / NOTES, {"app": app.name, "recipe": asdict(recipe), "assets": training.assets})
    size = sum(p.size for p in training.model.parameters())
    console.print(f"[bold cyan]{app.summary}[/]")
    console.print(f"  {len(training.data):,} steps an epoch, {size:,} parameters, data in {data}")
    start = time.perf_counter()
    history = fit(
        training.model,
        training.data,
        training.loss,
        training.optimizer,
        training.metrics,
        [Table(console), CSVLog(out / "history.csv"),
         Checkpoint(out, monitor=training.monitor, mode=training.mode)],
        epochs=recipe.epochs,
        validation=training.validation,
        schedule=training.schedule,
        schedule_every=training.schedule_every,
        clip_norm=training.clip_norm,
        autocast=training.autocast,
        capture=True,
        resume=out if resume else None,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if (out / BEST).exists():
        load_checkpoint(out / BEST, model=training.model)
    training.model.eval()
    numbers = app.report(recipe, training, out)
    save_curves(history, out / "curves.png")
    write_json(out / "numbers.json", {**numbers, "seconds": sum(history["seconds"])})
    console.print(f"\n[bold]{'  '.join(map(shown, numbers.items()))}[/]  after {seconds:.0f} s")
    names = ", ".join(sorted(path.name for path in out.iterdir() if not path.name.startswith(".")))
    console.print(f"  in {out}: {names}", soft_wrap=True)
    return numbers


def shown(item: tuple[str, Any]) -> str:
    """A number with its name."""
    name, value = item
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


def new_recipe(app: App, settings: dict[str, Any], out: Path) -> Any:
    """The recipe of a run that begins in an empty folder.

    Raises: OptionError where the folder has a run.
    """
    if (out / LAST).exists():
        fix = "Pass --resume to continue it, or another --out."
        raise OptionError(f"train {app.name}", "a folder without a run", out, fix)
    out.mkdir(parents=True, exist_ok=True)
    return type(app.recipe)(**{**asdict(app.recipe), **settings})


def resumed_recipe(app: App, settings: dict[str, Any], out: Path) -> Any:
    """The recipe of the run in a folder, with the number of epochs of `settings`.

    Raises: OptionError where another setting differs from the run's.
    """
    before = read_notes(app, out)["recipe"]
    for name, value in settings.items():
        if name != "epochs" and value != before[name]:
            option = name.replace("_", "-")
            expected = f"--{option} {before[name]}, as in the run in {out}"
            fix = "Leave the option out, or start a run with another --out."
            raise OptionError(f"train {app.name}", expected, value, fix)
    return type(app.recipe)(**{**before, **settings})


def read_notes(app: App, out: Path) -> dict[str, Any]:
    """The recipe and assets of the run in a folder.

    Raises: CheckpointError where there is none, or one of another application.
    """
    fix = f"Train it first: glasshouse train {app.name} --out {out}"
    try:
        notes = json.loads((out / NOTES).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(app.name, f"a run in {out}", error, fix) from None
    if notes.get("app") != app.name:
        got = f"one of {notes.get('app')!r}"
        raise CheckpointError(app.name, f"a run of {app.name} in {out}", got, fix)
    if set(notes["recipe"]) != set(asdict(app.recipe)):
        got = f"the options {', '.join(notes['recipe'])}"
        expected = f"a run of this version, with the options {', '.join(asdict(app.recipe))}"
        raise CheckpointError(app.name, f"{expected}, in {out}", got, "Train it again.")
    return notes


def load_app(app: App, out: Path) -> tuple[Any, dict[str, Any], Module]:
    """(recipe, assets, model) of the run in a folder: the best checkpoint, ready to use.

    Raises: CheckpointError where there is no run of this application.
    """
    notes = read_notes(app, out)
    recipe = type(app.recipe)(**notes["recipe"])
    model = app.make_model(recipe, notes["assets"])
    load_checkpoint(out / (BEST if (out / BEST).exists() else LAST), model=model)
    return recipe, notes["assets"], model.eval()


def write_json(path: Path, values: Any) -> None:
    """Write a file in one step.

    Raises: CheckpointError where it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(values, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        fix = "Free some space, or choose another --out."
        raise CheckpointError("train", f"to write {path}", error, fix) from None


class Table(Callback):
    """Prints a row of numbers after each epoch."""

    on_first_rank = True

    def __init__(self, console: Console) -> None:
        self.console = console
        self.has_heading: bool = False

    def on_epoch(self, run: FitRun) -> None:
        row = run.history[-1]
        widths = [max(len(name), 9) + 2 for name in row]
        if not self.has_heading:
            heading = "".join(name.rjust(width) for name, width in zip(row, widths))
            self.console.print(f"\n[dim]{heading}[/]", soft_wrap=True)
            self.has_heading = True
        cells = (f"{value:.4g}".rjust(width) for value, width in zip(row.values(), widths))
        self.console.print("".join(cells), soft_wrap=True)
