"""Checkpoints of several ranks: each writes its own part, and any number of ranks reads them.

A checkpoint is a folder with a safetensors file for each rank, whose metadata say where in the
whole each tensor lies, and an index. Tensors that several ranks hold are written once. The folder
is written under a name that no reader looks for, the index last, and renamed when all has reached
the disk: a folder under its final name is whole."""

import json
import os
import shutil
import threading
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base import CheckpointError, flatten, tree_map
from glasshouse.dispatch.value import Value
from glasshouse.distributed.checkpoints.boxes import writers_of
from glasshouse.distributed.checkpoints.named_state import Tensors, model_state, optimizer_state
from glasshouse.distributed.groups.objects import all_gather_object
from glasshouse.interop.checkpoint import detached, encode
from glasshouse.interop.safetensors import save_safetensors, sync_folder, to_array, write_whole
from glasshouse.nn import Module
from glasshouse.ops.checks import check_integer, check_path
from glasshouse.ops.process import process
from glasshouse.optim import SGD
from glasshouse.tensor import eval

if TYPE_CHECKING:
    from threading import Thread

    from glasshouse.distributed.checkpoints.boxes import Box


INDEX, FORMAT, VERSION = "index.json", "glasshouse.ranks", 1
WAIT_S = 120.0  # that ranks wait for each other's files
POLL_S = 0.005
WHERE = "save_checkpoint"

under_way: dict[Path, "Saving"] = {}  # the last of each folder


class Saving:
    """A checkpoint that a thread writes. `wait()` returns its folder when it is whole, on every
    rank, or raises the error of the write."""

    def __init__(self, work: Callable[[], Path]) -> None:
        self.work = work
        self.folder: Any = None
        self.error: Any = None
        self.thread: Thread = threading.Thread(target=self.run, name="glasshouse-checkpoint")
        self.thread.start()

    def run(self) -> None:
        try:
            self.folder = self.work()
        except BaseException as error:  # raised in wait()
            self.error = error

    def is_done(self) -> bool:
        """Whether it is written, or has failed."""
        return not self.thread.is_alive()

    def wait(self) -> Path:
        """The folder, when it is whole.

        Raises: CheckpointError
        """
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.folder


def save_checkpoint(
    folder: str | Path,
    model: Module | None = None,
    optimizer: Any = None,
    *,
    step: int | None = None,
    keep: int = 3,
    **more: Any,
) -> Saving:
    """Begin to write the state of a run, on all ranks, to `folder`/step-00000010: it is copied at
    once, and a thread writes it while training continues. A save waits for the one before it.

    `more` are objects with a `state_dict` (schedules, data loaders), generators, or trees of
    numbers, strings and tensors; each rank's own are saved. `step` is by default the next number.
    The newest `keep` checkpoints stay. Ranks see the same folder.

    Raises: CheckpointError if the ranks' steps differ, DTypeError for objects that cannot be
        stored; from `wait()`, or the next save, CheckpointError for a failed write
    Example:
        >>> import tempfile
        >>> saving = gh.distributed.save_checkpoint(tempfile.mkdtemp(), gh.nn.Linear(2, 1), step=3)
        >>> saving.wait().name
        'step-00000003'
    """
    folder = check_path(WHERE, folder)
    check_integer(WHERE, "keep", keep, 1)
    if folder in under_way:
        under_way.pop(folder).wait()
    state, extra = snapshot(model, optimizer, more)
    steps = step, next_step(folder) if step is None else check_integer(WHERE, "step", step, 0)
    rank_states = all_gather_object((steps, uuid.uuid4().hex, list(state.boxes()), state.rest))
    if len({number for (number, _), *_ in rank_states}) > 1:
        numbers = [number for (number, _), *_ in rank_states]
        raise CheckpointError(WHERE, "one step on all ranks", numbers, "Call it at the same place.")
    writing = Writing(folder, rank_states)
    saving = under_way[folder] = Saving(lambda: writing.write(state, extra, keep))
    return saving


def snapshot(
    model: Module | None, optimizer: SGD | None, more: dict[Any, Any]
) -> tuple[Tensors, dict[Any, Any]]:
    """State as it is now; training later does not change it."""
    state = Tensors({}, {}, {})
    parts = [model_state(model)] if model is not None else []
    parts += [optimizer_state(optimizer, model)] if optimizer is not None else []
    for part in parts:
        for ours, added in zip(state, part, strict=True):
            ours.update(added)
    extra = {name: state_of(x) for name, x in more.items()}
    values, extra = tree_map(detached, (state.values, extra))
    eval(*(x for x in flatten((values, extra))[0] if isinstance(x, Value)))
    return Tensors(values, state.shardings, state.rest), extra


def state_of(x: Any) -> Any:
    """Return the state of an object to save, or x itself if it is a tree."""
    for name in ("state_dict", "state"):
        if callable(getattr(x, name, None)):
            return getattr(x, name)()
    return x


class Writing:
    """One checkpoint as all ranks agreed on it: `rank_states` has the state of each."""

    step: Any
    token: Any
    rank: int
    size: int

    def __init__(self, folder: Path, rank_states: list[Any]) -> None:
        self.folder = folder
        (_, self.step), self.token, *_ = rank_states[0]
        self.shares: list[list[Box]] = writers_of([boxes for *_, boxes, _ in rank_states])
        self.rest: dict[Any, Any] = {
            key: x for *_, rest in reversed(rank_states) for key, x in rest.items()
        }
        self.rank, self.size = process.rank, process.size
        self.temporary: Path = folder / f".{name_of(self.step)}.{self.token}"

    def write(self, state: Tensors, extra: dict[Any, Any], keep: int) -> Path:
        """Write this rank's file; the first rank then completes the checkpoint."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        places = state.boxes()
        arrays = {}
        for box in self.shares[self.rank]:
            key, local = places[box]
            arrays[box.name] = np.ascontiguousarray(state.values[key].numpy()[local])
        more = json.dumps(encode(extra, "more", arrays), allow_nan=False)
        checks = {name: check_of(to_array(name, x)) for name, x in arrays.items()}
        checks["more"] = zlib.crc32(more.encode())
        header = {"token": self.token, "boxes": self.shares[self.rank], "crc32": checks}
        metadata = {FORMAT: json.dumps(header), "more": more}
        save_safetensors(self.temporary / file_of(self.rank), arrays, metadata)
        if self.rank == 0:
            self.complete(keep)
        self.wait_for(self.is_whole, "the first rank", "its index")
        return self.folder / name_of(self.step)

    def complete(self, keep: int) -> None:
        """Write the index when all ranks' files are there, and give the folder its name."""
        for rank in range(self.size):
            path = self.temporary / file_of(rank)
            self.wait_for(path.exists, f"rank {rank}", "its file")
        files = {
            file_of(rank): [list(box) for box in boxes] for rank, boxes in enumerate(self.shares)
        }
        index = {"format": FORMAT, "version": VERSION, "token": self.token, "step": self.step}
        text = json.dumps({**index, "files": files, "rest": self.rest}, allow_nan=False)
        write_whole(self.temporary / INDEX, with_check(text))
        whole = self.folder / name_of(self.step)
        if whole.exists():
            os.replace(whole, self.folder / f".{name_of(self.step)}.{self.token}.old")
        os.replace(self.temporary, whole)
        sync_folder(self.folder)
        for old in [*self.folder.glob(".step-*"), *steps_in(self.folder)[:-keep]]:
            shutil.rmtree(old, ignore_errors=True)

    def is_whole(self) -> bool:
        """Whether the checkpoint has its name."""
        return not self.temporary.exists()

    def wait_for(self, is_there: Callable[[], bool], who: str, what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not is_there():
            if time.monotonic() > end:
                expected = f"{what} from {who} within {WAIT_S:g} s"
                fix = "See whether it still runs, and that all ranks see one folder."
                raise CheckpointError(WHERE, expected, f"none in {self.temporary}", fix)
            time.sleep(POLL_S)


def check_of(array: np.ndarray) -> int:
    """Checksum of an array's contents."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def name_of(step: int) -> str:
    return f"step-{step:08d}"


def file_of(rank: int) -> str:
    return f"rank-{rank:05d}.safetensors"


def steps_in(folder: Path) -> list[Path]:
    """The whole checkpoints in a folder, from the oldest."""
    return sorted(path.parent for path in folder.glob(f"step-*/{INDEX}"))


def next_step(folder: Path) -> int:
    """Number of the newest checkpoint, plus one."""
    steps = steps_in(folder)
    return int(steps[-1].name.partition("-")[2]) + 1 if steps else 0


def with_check(text: str) -> bytes:
    """JSON of a text and its checksum."""
    return json.dumps({"crc32": zlib.crc32(text.encode()), "index": text}).encode()
