"""Reading a checkpoint of several ranks, on any number of ranks: each reads only its parts."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, suggest
from glasshouse.dispatch.value import adopt
from glasshouse.distributed.checkpoints.boxes import Box, assemble, boxes_of
from glasshouse.distributed.checkpoints.checkpoint import (
    FORMAT,
    INDEX,
    VERSION,
    check_of,
    file_of,
    steps_in,
)
from glasshouse.distributed.checkpoints.named_state import (
    model_state,
    parameter_names,
    state_dict_of,
)
from glasshouse.distributed.groups.objects import all_gather_object, broadcast_object
from glasshouse.distributed.groups.placement import Sharding, sharding_of
from glasshouse.interop.checkpoint import decode, load_all
from glasshouse.interop.shards import MappedTensors
from glasshouse.nn import Module
from glasshouse.ops.checks import check_path
from glasshouse.ops.process import process
from glasshouse.tensor import Tensor

WHERE = "load_checkpoint"


def load_checkpoint(
    folder: str | Path,
    model: Module | None = None,
    optimizer: Any = None,
    *,
    step: int | None = None,
    **more: Any,
) -> dict[Any, Any]:
    """Load the newest checkpoint in `folder` (or that of `step`) into a model, its optimizer, and
    the objects in `more`. Call it on all ranks; their number may change. The result has the "step",
    and the objects saved as `more`: those of the rank of this number, or else of the first.

    Raises: CheckpointError for one that is missing, damaged, incomplete, mixed with another, of
        another version, or does not fit an object; then nothing is changed
    Example:
        >>> import tempfile
        >>> folder, model = tempfile.mkdtemp(), gh.nn.Linear(2, 1)
        >>> _ = gh.distributed.save_checkpoint(folder, model, step=3, lesson=[1, 2]).wait()
        >>> gh.distributed.load_checkpoint(folder, model)
        {'step': 3, 'lesson': [1, 2]}
    """
    folder = check_path(WHERE, folder)
    path = broadcast_object(chosen(folder, step) if process.rank == 0 else None)
    if isinstance(path, CheckpointError):
        raise path
    reading = Reading(path)
    targets, tree = {}, {}
    if model is not None:
        targets["model"] = model.state_dict, model.load_state_dict
        tree["model"] = reading.model_state(model)
    if optimizer is not None:
        targets["optimizer"] = optimizer.state_dict, optimizer.load_state_dict
        tree["optimizer"] = reading.optimizer_state(optimizer, model)
    extra = reading.more()
    for name, x in more.items():
        if name not in extra:
            raise CheckpointError(WHERE, f"{name!r} in {path}", "none", suggest(name, extra))
        plain = hasattr(x, "load_state_dict")
        targets[name] = (x.state_dict, x.load_state_dict) if plain else (x.state, x.set_state)
    load_all(path, targets, {**extra, **tree})
    return {"step": reading.index["step"], **extra}


def chosen(folder: Path, step: int | None) -> Path | CheckpointError:
    """The checkpoint of a step, or the newest; an error is raised on all ranks."""
    steps = steps_in(folder)
    by_number = {int(path.name.partition("-")[2]): path for path in steps}
    number = max(by_number, default=None) if step is None else step
    if number in by_number:
        return by_number[number]
    expected = f"a whole checkpoint in {folder}" if step is None else f"step {step} in {folder}"
    fix = "Check the folder; what a killed run left half-written does not count."
    return CheckpointError(WHERE, expected, f"steps {list(by_number)}", fix)


class Reading:
    """A checkpoint whose files are mapped when they are used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index: dict[Any, Any] = index_of(path / INDEX)
        self.saved: dict[str, list[Box]] = {}
        self.file_of: dict[Box, str] = {}
        for file, boxes in self.index["files"].items():
            for key, offset, shape, whole, dtype in boxes:
                box = Box(key, tuple(offset), tuple(shape), tuple(whole), dtype)
                self.saved.setdefault(key, []).append(box)
                self.file_of[box] = file
        self.files: dict[str, tuple[MappedTensors, dict[Any, Any]]] = {}
        self.checked: set[tuple[str, str]] = set()

    def file(self, name: str) -> tuple[MappedTensors, dict[Any, Any]]:
        """Open a rank's file; return it with its header.

        Raises: CheckpointError for one that is missing, damaged, or of another checkpoint
        """
        if name not in self.files:
            file = MappedTensors(self.path / name)
            try:
                header = json.loads(file.metadata[FORMAT])
            except (KeyError, ValueError):
                header = {}
            if header.get("token") != self.index["token"]:
                fix = "Put the file back that was written with it."
                expected = f"{self.path / name} to be of this checkpoint"
                raise CheckpointError(WHERE, expected, "one of another", fix)
            self.files[name] = file, header
        return self.files[name]

    def read(self, box: Box) -> np.ndarray:
        """The contents of a saved box, which lie in the file's memory."""
        return self.read_from(self.file_of[box], box.name)

    def read_from(self, file_name: str, name: str) -> np.ndarray:
        """Read the array of that name in a rank's file.

        Raises: CheckpointError where it is missing or damaged
        """
        file, header = self.file(file_name)
        if name not in file.places:
            raise self.damaged(file_name, name, "none")
        array = file.read(name)
        if (file_name, name) not in self.checked:
            if header["crc32"].get(name) != check_of(array):
                raise self.damaged(file_name, name)
            self.checked.add((file_name, name))
        return array

    def damaged(self, file_name: str, name: str, got: str = "another checksum") -> CheckpointError:
        others = ", ".join(path.name for path in steps_in(self.path.parent) if path != self.path)
        expected = f"{name} whole in {self.path / file_name}"
        return CheckpointError(WHERE, expected, got, f"Load another step: {others or 'none'}.")

    def tensor(self, key: str, sharding: Sharding, shape: tuple[int, ...], dtype: str) -> Tensor:
        """This rank's part of a saved tensor."""
        saved = self.saved.get(key, [])
        whole = saved[0].whole if saved else None
        if whole != tuple(sharding.shape):
            expected = f"{key} of shape {tuple(sharding.shape)}"
            got = "none" if whole is None else f"shape {whole}"
            raise CheckpointError(WHERE, f"{expected} in {self.path}", got, "Build the same model.")
        boxes = boxes_of(key, dtype, sharding)
        # In the saved dtype: the object that takes it casts.
        return adopt(assemble(boxes, shape, self.read(saved[0]).dtype, saved, self.read))

    def model_state(self, model: Module) -> dict[Any, Any]:
        """Return the argument of `model.load_state_dict`."""
        state = model_state(model)
        self.check_names("model.", {*state.values, *state.rest})
        loaded = {}
        for key, x in state.values.items():
            loaded[key] = self.tensor(key, state.shardings[key], x.shape, x.dtype.name)
        loaded |= {k: decode(self.index["rest"].get(k), {}) for k in state.rest}
        return {key.removeprefix("model."): x for key, x in loaded.items()}

    def check_names(self, kind: str, names: set[str]) -> None:
        """Refuse tensors that no rank's model has."""
        everywhere = set().union(*all_gather_object(names))
        saved = {k for k in (*self.saved, *self.index["rest"]) if k.startswith(kind)}
        if strangers := sorted(saved - everywhere):
            fix = "Build the model that was saved."
            raise CheckpointError(WHERE, f"the tensors of {self.path}", f"no {strangers[0]}", fix)

    def optimizer_state(self, optimizer: Any, model: Any) -> dict[Any, Any]:
        """Return the argument of `optimizer.load_state_dict`."""
        placed = getattr(optimizer, "state_sharding", sharding_of)
        parameters = dict(
            zip(parameter_names(optimizer, model), optimizer.parameters(), strict=True)
        )
        values = {}
        for key, saved in self.saved.items():
            name, _, _ = key.removeprefix("optimizer.").rpartition(".")
            if key.startswith("optimizer.") and name in parameters:
                sharding = placed(parameters[name])
                if saved[0].whole != tuple(sharding.shape):
                    sharding = Sharding(saved[0].whole, {})
                values[key] = self.tensor(key, sharding, sharding.local_shape(), saved[0].dtype)
        rest = {k: x for k, x in self.index["rest"].items() if not k.startswith("model.")}
        return state_dict_of(optimizer, model, values, rest)

    def more(self) -> dict[Any, Any]:
        """Values saved beside model and optimizer, by the rank of this number or the first."""
        name = file_of(process.rank)
        name = name if name in self.index["files"] else file_of(0)
        file, header = self.file(name)
        if header["crc32"].get("more") != zlib.crc32(file.metadata["more"].encode()):
            raise self.damaged(name, "what was saved as more")
        paths = [path for path in file.places if path.startswith("more.")]
        arrays = {path: np.array(self.read_from(name, path)) for path in paths}
        return decode(json.loads(file.metadata["more"]), arrays)


def index_of(path: Path) -> dict[Any, Any]:
    """The index of a checkpoint.

    Raises: CheckpointError
    """
    try:
        document = json.loads(path.read_bytes())
        text = document["index"]
        index = json.loads(text) if zlib.crc32(text.encode()) == document["crc32"] else None
    except OSError as error:
        raise CheckpointError(WHERE, f"a readable {path}", error, "Check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        index = None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        fix = "Load another step."
        raise CheckpointError(WHERE, f"{path} to be a whole index", "a damaged one", fix)
    if index["version"] != VERSION:
        fix = "Load it with the Glasshouse version that wrote it."
        raise CheckpointError(WHERE, f"version {VERSION}", f"{index['version']} in {path}", fix)
    return index
