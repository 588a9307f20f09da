"""Callbacks of `gh.fit`: early stopping, progress, logs."""

import csv
import importlib.util
import math
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glasshouse.base.errors import CheckpointError, optional
from glasshouse.ops.checks import check_integer, check_option, check_path, check_range

if TYPE_CHECKING:
    from glasshouse.fit.run import FitRun


class Callback:
    """Called with the run by `gh.fit`; subclasses override the methods they need. Their
    `state_dict` has the state that a resumed run needs.

    Example:
        >>> class Losses(Callback):
        ...     def on_epoch(self, run):
        ...         print(run.history[-1]["loss"])
    """

    goes_last = False  # after the others, because it saves their state
    on_first_rank = False  # alone: it writes, and needs nothing of the others

    def on_start(self, run: "FitRun") -> None:
        """Before the first epoch, and after a checkpoint was loaded."""

    def on_step(self, run: "FitRun") -> None:
        """After each update of the parameters."""

    def on_epoch(self, run: "FitRun") -> None:
        """After each epoch and its validation."""

    def on_end(self, run: "FitRun") -> None:
        """At the end, also after an error."""

    def state_dict(self) -> dict[Any, Any]:
        """State to save, which a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        vars(self).update(state)


class Best:
    """The best value of a number in the rows of a run. NaN is never better."""

    def __init__(self, where: str, monitor: str | None, mode: str, min_delta: float = 0.0) -> None:
        self.monitor = monitor
        self.sign: int = {"min": -1, "max": 1}[check_option(where, "mode", mode, ("min", "max"))]
        self.min_delta: float = check_range(where, "min_delta", min_delta, 0, math.inf)
        self.value: float | None = None

    def improves(self, run: "FitRun") -> bool:
        """Whether the last row is better than all before; then its value is noted."""
        name = self.monitor or ("val_loss" if "val_loss" in run.history[-1] else "loss")
        value = float(run.number(name))
        if self.value is None:
            better = not math.isnan(value)
        else:
            better = self.sign * (value - self.value) > self.min_delta
        if better:
            self.value = value
        return better


class EarlyStopping(Callback):
    """Ends a run when `monitor` (by default the validation loss, or else the loss) has not become
    better by more than `min_delta` for `patience` epochs. `restore_best` then puts the parameters
    of the best epoch back.

    Raises: OptionError for options out of range, or a `monitor` that no row has.
    Source: Prechelt 1998, "Early stopping: but when?".
    Example:
        >>> EarlyStopping("val_accuracy", patience=5, mode="max").patience
        5
    """

    def __init__(
        self,
        monitor: str | None = None,
        patience: int = 3,
        mode: str = "min",
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        self.best: Best = Best("EarlyStopping", monitor, mode, min_delta)
        self.patience: int = check_integer("EarlyStopping", "patience", patience, 1)
        self.restore_best = restore_best
        self.waited: int = 0  # epochs since the best
        self.parameters: dict[Any, Any] | None = None

    def on_start(self, run: "FitRun") -> None:
        if not run.steps:  # nothing of an earlier run
            self.load_state_dict({"value": None, "waited": 0, "parameters": None})

    def on_epoch(self, run: "FitRun") -> None:
        if self.best.improves(run):
            self.waited = 0
            if self.restore_best:
                self.parameters = {k: x.detach() for k, x in run.model.state_dict().items()}
        else:
            self.waited += 1
        if self.waited >= self.patience:
            run.stopped = True

    def on_end(self, run: "FitRun") -> None:
        if run.stopped and self.parameters is not None:
            run.model.load_state_dict(self.parameters)

    def state_dict(self) -> dict[Any, Any]:
        return {"value": self.best.value, "waited": self.waited, "parameters": self.parameters}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.best.value, self.waited = state["value"], state["waited"]
        self.parameters = state["parameters"]


class Progress(Callback):
    """Shows how a run goes, on one line that changes (by tqdm, if it is installed) and one line an
    epoch that stays. `file` is the error stream by default; where that is no terminal, only the
    lines that stay are written.

    Example:
        >>> Progress(every_s=1.0).every_s
        1.0
    """

    on_first_rank = True

    def __init__(self, file: Any = None, every_s: float = 0.1) -> None:
        self.file = file
        self.every_s = every_s
        self.bar: Any = None
        self.written_s: float = 0.0
        self.width: int = 0

    @property
    def stream(self) -> Any:
        """Where it writes."""
        return sys.stderr if self.file is None else self.file

    def on_step(self, run: "FitRun") -> None:
        if not self.stream.isatty():
            return
        if importlib.util.find_spec("tqdm"):
            self.show_bar(run)
        elif time.monotonic() - self.written_s >= self.every_s:
            self.written_s = time.monotonic()
            self.write(f"{self.place_of(run)}  loss {run.meters.values()['loss']:.4g}")

    def show_bar(self, run: Any) -> None:
        """tqdm's bar of this epoch."""
        if self.bar is None:
            tqdm = optional("Progress", "tqdm to be installed", "tqdm", "fit")
            options = {"file": self.stream, "leave": False, "mininterval": self.every_s}
            self.bar = tqdm.tqdm(total=batches_of(run), unit="batch", **options)
        self.bar.set_postfix_str(f"loss {run.meters.values()['loss']:.4g}", refresh=False)
        self.bar.update(run.place - self.bar.n)

    def place_of(self, run: "FitRun") -> str:
        """Which batch of which epoch."""
        total = batches_of(run)
        return f"epoch {len(run.history) + 1}  {run.place}" + (f"/{total}" if total else "")

    def write(self, text: str) -> None:
        """Put `text` where the line that changes is."""
        print("\r" + text.ljust(self.width), end="", file=self.stream, flush=True)
        self.width = len(text)

    def on_epoch(self, run: "FitRun") -> None:
        self.on_end(run)
        numbers = (f"{k} {v:.4g}" for k, v in run.history[-1].items() if k != "epoch")
        print(f"epoch {len(run.history)}  {'  '.join(numbers)}", file=self.stream, flush=True)

    def on_end(self, run: "FitRun") -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        if self.width:
            self.write("")
            print("\r", end="", file=self.stream)
            self.width = 0


def batches_of(run: "FitRun") -> int | None:
    try:
        return len(run.data)
    except TypeError:  # data that is only iterated over may have no length
        return None


def make_folder(where: str, folder: Path) -> None:
    """Make it, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(where, f"a folder {folder}", error, "Choose another.") from None


class CSVLog(Callback):
    """Writes the rows of a run to `path`, a line an epoch; the file is replaced in one step.

    Example:
        >>> CSVLog("numbers.csv").path.name
        'numbers.csv'
    """

    on_first_rank = True

    def __init__(self, path: Any) -> None:
        self.path: Path = check_path("CSVLog", path)

    def on_epoch(self, run: "FitRun") -> None:
        make_folder("CSVLog", self.path.parent)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        names = list(dict.fromkeys(name for row in run.history for name in row))
        with open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(run.history)
        os.replace(temporary, self.path)


class TensorBoard(Callback):
    """Writes event files to `folder` that TensorBoard reads: the loss so far in its epoch and the
    learning rate every `every` steps, and the numbers of each row by epoch.

    Raises: BackendError if the package tensorboard is not installed.
    Example:
        >>> TensorBoard("runs/a", every=10).every
        10
    """

    on_first_rank = True

    def __init__(self, folder: Any, every: int = 1) -> None:
        self.folder: Path = check_path("TensorBoard", folder)
        self.every: int = check_integer("TensorBoard", "every", every, 1)
        self.writer: Any = None

    def on_start(self, run: "FitRun") -> None:
        self.writer = written_by("summary.writer.event_file_writer").EventFileWriter(
            str(self.folder)
        )
        if run.steps:  # hide what a run that was killed wrote of later steps
            start = written_by("compat.proto.event_pb2").SessionLog.START
            self.write(run.steps + 1, {}, session_log={"status": start})

    def on_step(self, run: "FitRun") -> None:
        if run.steps % self.every == 0:
            loss, lr = run.meters.values()["loss"], run.optimizer.param_groups[0]["lr"]
            self.write(run.steps, {"step/loss": loss, "step/lr": lr})

    def on_epoch(self, run: "FitRun") -> None:
        numbers = {k: v for k, v in run.history[-1].items() if isinstance(v, (int, float))}
        self.write(run.steps, {f"epoch/{k}": v for k, v in numbers.items()})

    def on_end(self, run: "FitRun") -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def write(self, step: int, numbers: dict[Any, Any], **fields: Any) -> None:
        """One event with these numbers."""
        make = written_by("compat.proto.event_pb2").Event
        event = make(wall_time=time.time(), step=step, **fields)
        for name, value in numbers.items():
            event.summary.value.add(tag=name, simple_value=float(value))
        self.writer.add_event(event)


def written_by(part: str) -> ModuleType:
    """A module of the package tensorboard."""
    what = "the package tensorboard to be installed"
    return optional("TensorBoard", what, f"tensorboard.{part}", "fit")
