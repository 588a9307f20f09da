"""Checkpoints of a run of `gh.fit`: the last, the best, and every so many steps."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from glasshouse.fit.callbacks import Best, Callback, make_folder
from glasshouse.fit.run import LAST, FitRun
from glasshouse.interop.checkpoint import save_checkpoint
from glasshouse.ops.checks import check_integer, check_path
from glasshouse.ops.process import process

BEST = "best.safetensors"


class Checkpoint(Callback):
    """Saves the whole run to `folder`: last.safetensors after each epoch, and after every `every`
    steps, in the middle of an epoch too; best.safetensors after an epoch whose `monitor` (by
    default the validation loss, or else the loss) is the best so far. With `keep` those that are
    made every `every` steps stay, as step-00000100.safetensors.

    The state is held at once and written by a thread while the training continues, one at a time; a
    file appears when it is whole. `gh.fit(resume=folder)` continues, and
    `interop.load_checkpoint(path, model=model)` loads the model alone.

    Raises: OptionError for options out of range, or a `monitor` that no row has; CheckpointError
        from the next save, or at the end, if a file cannot be written.
    Example:
        >>> Checkpoint("runs/a", every=100).folder.name
        'a'
    """

    goes_last = True

    def __init__(
        self,
        folder: Any,
        every: int | None = None,
        monitor: str | None = None,
        mode: str = "min",
        keep: bool = False,
    ) -> None:
        self.folder: Path = check_path("Checkpoint", folder)
        self.every: int | None = (
            None if every is None else check_integer("Checkpoint", "every", every, 1)
        )
        self.best: Best = Best("Checkpoint", monitor, mode)
        self.keep = keep
        self.thread: ThreadPoolExecutor | None = None
        self.writing: Future[Any] | None = None

    def on_start(self, run: "FitRun") -> None:
        if not run.steps:  # nothing of an earlier run
            self.best.value = None

    def on_step(self, run: "FitRun") -> None:
        if self.every is not None and run.steps % self.every == 0:
            extra = [f"step-{run.steps:08d}.safetensors"] if self.keep else []
            self.save(run, [LAST, *extra])

    def on_epoch(self, run: "FitRun") -> None:
        self.save(run, [LAST, BEST] if self.best.improves(run) else [LAST])

    def save(self, run: "FitRun", names: list[str]) -> None:
        """Hold the state of the run, and have it written under these names."""
        self.finish()
        state = run.hold()  # on all ranks
        if process.rank:
            return
        make_folder("Checkpoint", self.folder)
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, thread_name_prefix="glasshouse-checkpoint")
        self.writing = self.thread.submit(self.write, state, names)

    def write(self, state: dict[Any, Any], names: list[str]) -> None:
        """Write a state; in the thread."""
        for name in names:
            save_checkpoint(self.folder / name, **state)

    def finish(self) -> None:
        """Wait for the write in progress, and raise its error."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def on_end(self, run: "FitRun") -> None:
        try:
            self.finish()
        finally:
            if self.thread is not None:
                self.thread.shutdown()
                self.thread = None

    def state_dict(self) -> dict[Any, Any]:
        return {"value": self.best.value}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.best.value = state["value"]
