"""Checkpoints of a training run: one safetensors file that is replaced in one step.

The file holds all tensors; its header holds, as JSON, everything else (options of the optimizer,
epoch, random state, metrics) and a checksum over both. Being one file, it cannot be a mixture of an
old and a new state. Beside it lies the same JSON for people to read; it is never loaded."""

import json
import math
import numbers
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base import CheckpointError, DTypeError, tree_map, type_name
from glasshouse.dispatch.value import Value, adopt
from glasshouse.interop.safetensors import read_safetensors, serialize, write_whole
from glasshouse.ops.checks import check_path
from glasshouse.tensor.random import Generator

FORMAT, VERSION = "glasshouse.checkpoint", 1


def save_checkpoint(
    path: str | Path,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    epoch: int = 0,
    random_state: Any = None,
    metrics: Any = None,
) -> None:
    """Write the state of a run to `path`; a kill at any moment leaves the last good file there.
    model, optimizer and scheduler are objects with `state_dict()`; random_state is a generator
    (with `state()`) or a tree; metrics is any tree of numbers, strings and tensors.

    Raises: CheckpointError if the file cannot be written, DTypeError for unsupported values.
    """
    path = check_path("save_checkpoint", path)
    objects = stateful("save_checkpoint", model=model, optimizer=optimizer, scheduler=scheduler)
    parts = {name: x.state_dict() for name, x in objects.items()}
    state = random_state.state() if hasattr(random_state, "state") else random_state
    tree = {**parts, "epoch": epoch, "random_state": state, "metrics": metrics}
    tensors: dict[Any, Any] = {}
    document = {"version": VERSION, **{k: encode(v, k, tensors) for k, v in tree.items()}}
    text = json.dumps(document, allow_nan=False)
    write_whole(path, serialize(tensors, {FORMAT: text}))
    readable = {"copy_of": path.name, **document}
    write_whole(path.with_name(path.name + ".json"), json.dumps(readable, indent=1).encode())


def load_checkpoint(
    path: int | Path,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    random_state: Generator | None = None,
) -> dict[Any, Any]:
    """Load a checkpoint that `save_checkpoint` wrote into the objects that you pass.
    Returns a dict with "epoch", "metrics", "random_state", and the states of "model", "optimizer"
    and "scheduler" as far as the file has them. A generator given as `random_state` is set.

    Raises: CheckpointError if the file is missing, damaged or no checkpoint, or does not fit an
        object; then no object is changed.
    """
    arrays, metadata = read_safetensors(path, needs_checksum=True)
    if FORMAT not in metadata:
        fix = "Use load_safetensors."
        raise CheckpointError("load_checkpoint", f"{path} to be a checkpoint", "other tensors", fix)
    document = json.loads(metadata[FORMAT])
    version = document.pop("version", None)
    if version != VERSION:
        expected = f"version {VERSION}"
        fix = "Load it with the Glasshouse version that wrote it."
        raise CheckpointError("load_checkpoint", expected, f"{version!r} in {path}", fix)
    tree = {name: decode(part, arrays) for name, part in document.items()}
    objects = stateful("load_checkpoint", model=model, optimizer=optimizer, scheduler=scheduler)
    targets = {n: (x.state_dict, x.load_state_dict) for n, x in objects.items()}
    if random_state is not None:
        targets["random_state"] = (random_state.state, random_state.set_state)
    load_all(path, targets, tree)
    return tree


def stateful(where: str, **objects: Any) -> dict[Any, Any]:
    """The objects that are not None; each has a `state_dict`."""
    present = {name: x for name, x in objects.items() if x is not None}
    for name, x in present.items():
        if not hasattr(x, "state_dict"):
            fix = "Pass the object, not its state."
            raise DTypeError(where, f"{name} with a state_dict()", type_name(x), fix)
    return present


def load_all(path: Any, targets: dict[Any, Any], tree: dict[Any, Any]) -> None:
    for name in targets:
        if tree.get(name) is None:
            fix = f"Leave {name} out."
            raise CheckpointError("load_checkpoint", f"the {name} in {path}", "none", fix)
    undo_list = []
    for name, (read, write) in targets.items():
        undo_list.append((write, tree_map(detached, read())))
        try:
            write(tree[name])
        except Exception as error:
            for undo, before in reversed(undo_list):
                undo(before)
            expected = f"a {name} that fits {path}"
            fix = "Build the objects as they were when it was saved."
            raise CheckpointError("load_checkpoint", expected, f"({error})", fix) from error


def detached(leaf: Any) -> Any:
    """A new handle on a tensor, which keeps its value when the original is changed."""
    return leaf.detach() if isinstance(leaf, Value) else leaf


def encode(x: Any, name: str, tensors: dict[Any, Any]) -> Any:
    """`x` as JSON data; its tensors and arrays go into `tensors` under their path."""
    if isinstance(x, (Value, np.ndarray)):
        while name in tensors:
            name += "_"
        tensors[name] = x
        return {"$tensor" if isinstance(x, Value) else "$array": name}
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not math.isfinite(x):
        return {"$float": repr(x)}
    if x is None or isinstance(x, (bool, str, numbers.Real)):
        return x
    if isinstance(x, dict):
        pairs = [(key, encode(value, f"{name}.{key}", tensors)) for key, value in x.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [[encode(key, name, tensors), value] for key, value in pairs]}
    if isinstance(x, (list, tuple)):
        items = [encode(value, f"{name}.{i}", tensors) for i, value in enumerate(x)]
        return items if isinstance(x, list) else {"$tuple": items}
    expected = "numbers, strings, tensors, and dicts, lists and tuples of them"
    fix = "Leave it out or convert it."
    raise DTypeError("save_checkpoint", expected, f"{type_name(x)} at {name}", fix)


def decode(x: Any, arrays: dict[Any, Any]) -> Any:
    if isinstance(x, list):
        return [decode(item, arrays) for item in x]
    if not isinstance(x, dict):
        return x
    kinds = {
        "$tensor": lambda name: adopt(arrays[name]),
        "$array": arrays.__getitem__,
        "$float": float,
        "$tuple": lambda items: tuple(decode(item, arrays) for item in items),
        "$dict": lambda pairs: {decode(k, arrays): decode(v, arrays) for k, v in pairs},
    }
    kind, value = next(iter(x.items()), (None, None))
    if kind in kinds:
        return kinds[kind](value)
    return {key: decode(item, arrays) for key, item in x.items()}
