"""`glasshouse train digits`: a small convolutional network learns to read handwritten digits.

Reads from top to bottom: the recipe, the network, one run with its state, the loop around it. Every
random number depends on the seed and the epoch, and the learning rate on the epoch only, so a run
that was stopped and resumed, or extended, gives the numbers of one that was not (on one machine and
number of threads: sums taken in another order are rounded differently)."""

import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import glasshouse as gh
from glasshouse import distributed, nn, optim
from glasshouse.base.errors import CheckpointError, CollectiveError, Explained, OptionError
from glasshouse.cli.curve import draw_in_terminal, save_picture
from glasshouse.data import DataLoader, digits
from glasshouse.interop import load_checkpoint, save_checkpoint
from glasshouse.metrics import Accuracy, Average

DECAY = 0.8  # of the learning rate from one epoch to the next
CHECKPOINT = "checkpoint.safetensors"
EVALUATION_BATCH = 360  # all held-out images at once


@dataclass(frozen=True)
class TrainingRecipe:
    """Options that decide the numbers of a run."""

    epochs: int = 12
    lr: float = 0.005
    batch_size: int = 64
    seed: int = 0


class Diverged(Explained, ArithmeticError):
    """The loss became infinite or NaN."""


def make_network() -> nn.Module:
    """Three convolutions, a linear layer, 15,498 parameters: (N, 1, 8, 8) -> (N, 10)."""
    parts: list[nn.Module] = []
    for channels, out, pooled in ((1, 16, False), (16, 32, True), (32, 32, True)):
        parts += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if pooled else []
    return nn.Sequential(*parts, nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 2 * 2, 10))


class TrainingRun:
    """A network in training: the objects that make up its state, and one epoch of work."""

    def __init__(self, recipe: TrainingRecipe) -> None:
        gh.random.seed(recipe.seed)
        self.recipe = recipe
        self.model: nn.Module = make_network()
        if distributed.size() > 1:
            ranks = distributed.mesh({"data": distributed.size()})
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
            distributed.replicate(self.model, ranks)
        self.optimizer: optim.AdamW = optim.AdamW(self.model.parameters(), lr=recipe.lr)
        self.schedule: optim.ExponentialLR = optim.ExponentialLR(self.optimizer, DECAY)
        batches = DataLoader(digits("train"), recipe.batch_size, True, seed=recipe.seed)
        self.batches: Any = distributed.part_of_rank(batches)
        self.held_out: DataLoader = DataLoader(digits("test"), EVALUATION_BATCH)
        self.history: list[dict[Any, Any]] = []
        self.saved_epochs: int = 0

    def epoch(self, after_batch: Any) -> dict[Any, Any]:
        start = time.perf_counter()
        number = len(self.history) + 1
        rate = self.schedule.get_last_lr()[0]
        self.batches.set_epoch(number)
        loss, accuracy = self.train(after_batch)
        self.schedule.step()
        test_loss, test_accuracy = self.evaluate()
        entry = {
            "epoch": number,
            "lr": rate,
            "train_loss": loss,
            "train_accuracy": accuracy,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "seconds": time.perf_counter() - start,
        }
        self.history.append(entry)
        return entry

    def train(self, after_batch: Any) -> tuple[float, float]:
        """One pass over the training images: (loss, accuracy), both as measured on the way."""
        losses, accuracy = Average(), Accuracy()
        self.model.train()
        for images, labels in self.batches:
            loss, scores = self.step(images, labels)
            losses.update(loss, weight=len(labels))
            accuracy.update(scores, labels)
            if not math.isfinite(losses.value()):
                got = f"{losses.value()} with --lr {self.recipe.lr:g}"
                raise Diverged("train digits", "a finite loss", got, "Lower the learning rate.")
            after_batch(losses.value())
        return of_all_ranks(losses, accuracy)

    def step(self, images: Any, labels: Any) -> Any:
        """(loss, scores) of this rank's images; the update is by those of all ranks."""
        if distributed.size() == 1:
            return self.captured_update(images, labels)
        share = distributed.share_of(len(labels))
        with share.draws():
            return self.update(images, labels, share.weight)

    def update(self, images: Any, labels: Any, weight: float = 1.0) -> Any:
        """(loss, scores), after one step by the gradient of `weight` times the loss."""
        scores = self.model(images)
        loss = nn.functional.cross_entropy(scores, labels)
        self.optimizer.zero_grad()
        (loss if weight == 1.0 else loss * weight).backward()
        self.optimizer.step()
        return loss, scores

    # Captured: after the first batch a call goes straight to its Program.
    captured_update: Any = gh.optimize(update)

    def evaluate(self) -> tuple[float, float]:
        losses, accuracy = Average(), Accuracy()
        self.model.eval()
        with gh.no_grad():
            for images, labels in distributed.part_of_rank(self.held_out):
                scores = self.model(images)
                losses.update(nn.functional.cross_entropy(scores, labels), weight=len(labels))
                accuracy.update(scores, labels)
        return of_all_ranks(losses, accuracy)

    def mistakes(self) -> list[tuple[int, int]]:
        """(true digit, digit read) for each held-out image that is read wrongly."""
        self.model.eval()
        with gh.no_grad():
            read = [(labels, self.model(images).argmax(axis=1)) for images, labels in self.held_out]
        pairs = [pair for batch in read for pair in zip(*(x.tolist() for x in batch))]
        return sorted((true, read) for true, read in pairs if true != read)

    def save(self, out: Path) -> None:
        """Write the checkpoint, on the first rank; any number of ranks reads it."""
        self.saved_epochs = len(self.history)
        if distributed.rank():
            return
        out.mkdir(parents=True, exist_ok=True)
        metrics = {"recipe": asdict(self.recipe), "history": self.history}
        epoch = len(self.history)
        save_checkpoint(out / CHECKPOINT, **self.parts(), epoch=epoch, metrics=metrics)

    def parts(self) -> dict[Any, Any]:
        """Objects that resume where they were, by their names in a checkpoint."""
        objects = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.schedule}
        return {**objects, "random_state": gh.random.default_generator()}

    @classmethod
    def restore(cls, out: Path) -> "TrainingRun":
        path = out / CHECKPOINT
        metrics = load_checkpoint(path)["metrics"]
        if not isinstance(metrics, dict) or set(metrics) != {"recipe", "history"}:
            expected = f"{path} to hold a run on the digits"
            raise CheckpointError("train digits", expected, "another one", "Choose another --out.")
        run = cls(TrainingRecipe(**metrics["recipe"]))
        load_checkpoint(path, **run.parts())
        run.history = metrics["history"]
        run.saved_epochs = len(run.history)
        return run


def of_all_ranks(*metrics: Any) -> tuple[Any, ...]:
    """The values of metrics over the data of all ranks."""
    return tuple(metric.synced(distributed.all_gather_object).value() for metric in metrics)


def resume_run(settings: dict[Any, Any], out: Path) -> TrainingRun:
    """The run whose checkpoint lies in `out`, with the number of epochs given now."""
    run = TrainingRun.restore(out)
    planned = asdict(run.recipe)
    for name, value in settings.items():
        if name != "epochs" and value != planned[name]:
            option = name.replace("_", "-")
            expected = f"--{option} {planned[name]}, as in the run that lies in {out}"
            fix = "Leave the option out, or start a run with another --out."
            raise OptionError("train digits", expected, value, fix)
    run.recipe = TrainingRecipe(**{**planned, **settings})
    return run


def train(
    settings: dict[Any, Any], out: Path, resume: bool, backend: str, console: Console
) -> TrainingRun:
    """Train as the command line asks, and show how it goes; the finished run."""
    with gh.backends.use(backend):
        run = resume_run(settings, out) if resume else TrainingRun(TrainingRecipe(**settings))
        check_shares(run)
        if not resume:
            run.save(out)
        show_start(console, run, resume)
        try:
            train_to_end(console, run, out)
        except KeyboardInterrupt:
            saved = f"{run.saved_epochs} of {run.recipe.epochs} epochs saved"
            console.print(f"\nStopped; {saved}. To go on:", soft_wrap=True)
            console.print(f"  glasshouse train digits --resume --out {out}", soft_wrap=True)
            raise
        show_end(console, run, out)
    return run


def train_on_ranks(
    ranks: int, settings: dict[Any, Any], out: Path, resume: bool, backend: str, console: Console
) -> None:
    """Train on so many processes of this machine; the first one shows how it goes and saves."""
    try:
        distributed.spawn(train_on_rank, ranks, settings, out, resume, backend, console.width)
    except CollectiveError as error:
        if isinstance(error.__cause__, Explained):
            raise error.__cause__ from None
        raise
    except KeyboardInterrupt:
        console.print("\nStopped. To go on with the last epoch that was saved:", soft_wrap=True)
        console.print(
            f"  glasshouse train digits --resume --ranks {ranks} --out {out}", soft_wrap=True
        )
        raise


def train_on_rank(
    settings: dict[Any, Any], out: Path, resume: bool, backend: str, width: int
) -> None:
    """Train in one of the processes; only the first one prints."""
    shown = Console(highlight=False, width=width, quiet=distributed.rank() > 0)
    train(settings, out, resume, backend, shown)


def check_shares(run: TrainingRun) -> None:
    """Refuse batches of fewer images than there are ranks."""
    ranks, size = distributed.size(), run.recipe.batch_size
    rest = len(run.batches.dataset) % size
    if size < ranks or 0 < rest < ranks:
        expected = f"batches of at least {ranks} images, the last included, for {ranks} ranks"
        fix = "Change --batch-size, or start fewer --ranks."
        raise OptionError("train digits", expected, f"{size}, the last {rest or size}", fix)


def train_to_end(console: Console, run: TrainingRun, out: Path) -> None:
    epochs, steps = run.recipe.epochs, len(run.batches)
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal or console.quiet
    ) as bar:
        finished = len(run.history)
        task = bar.add_task("steps", total=epochs * steps, completed=finished * steps, loss=0.0)
        for _ in range(finished, epochs):
            entry = run.epoch(lambda loss: bar.update(task, advance=1, loss=loss))
            run.save(out)
            bar.console.print(row(entry))


COLUMNS = (("epoch", 7, "{epoch}"), ("rate", 10, "{lr:.3g}"),
           ("train loss", 13, "{train_loss:.4f}"), ("accuracy", 11, "{train_accuracy:.2%}"),
           ("held-out loss", 16, "{test_loss:.4f}"), ("accuracy", 11, "{test_accuracy:.2%}"),
           ("time", 9, "{seconds:.1f} s"))  # fmt: skip


def row(entry: dict[Any, Any]) -> str:
    return "".join(number.format(**entry).rjust(width) for _, width, number in COLUMNS)


def show_start(console: Console, run: TrainingRun, resume: bool) -> None:
    recipe, backend = run.recipe, gh.backends.current()
    size = sum(p.size for p in run.model.parameters())
    console.print("[bold cyan]Handwritten digits[/]")
    console.print(
        f"  {len(run.batches.dataset):,} images to train on, {len(run.held_out.dataset)} held out; "
        f"{size:,} parameters\n  AdamW, lr {recipe.lr:g} x {DECAY}/epoch, batches of "
        f"{recipe.batch_size}, seed {recipe.seed}, backend {backend.name} on {backend.device}"
        + (f", {distributed.size()} ranks" if distributed.size() > 1 else "")
    )
    if resume:
        console.print(f"  resumed after epoch {len(run.history)}")
    heading = "".join(name.rjust(width) for name, width, _ in COLUMNS)
    console.print(f"\n[dim]{heading}[/]")
    for entry in run.history:
        console.print(f"[dim]{row(entry)}[/]")


def show_end(console: Console, run: TrainingRun, out: Path) -> None:
    if distributed.rank():
        return
    history, total = run.history, len(run.held_out.dataset)
    wrong = run.mistakes()
    console.print()
    console.print(draw_in_terminal(history, console.width))
    seconds = sum(entry["seconds"] for entry in history)
    console.print(
        f"\n[bold]Held-out accuracy {history[-1]['test_accuracy']:.2%}[/] "
        f"({total - len(wrong)} of {total}) after {seconds:.1f} s"
    )
    if wrong:
        kinds = Counter(f"{true} as {read}" for true, read in wrong).most_common(8)
        shown = ", ".join(f"{kind} ({n}x)" if n > 1 else kind for kind, n in kinds)
        console.print(f"  read wrongly: {shown}", soft_wrap=True)
    numbers = {"recipe": asdict(run.recipe), "history": history, "mistakes": wrong}
    (out / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
    saved = ["numbers.json", CHECKPOINT]
    if save_picture(history, out / "curve.png"):
        saved.insert(0, "curve.png")
    console.print(f"  saved in {out}: {', '.join(saved)}")
