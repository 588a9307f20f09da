"""Compiled code on disk: a process reuses another's code of the same recording.

An entry lies beside the libraries in the folder of `disk_cache`, private to the user, and is
checked against its digest before it is read. Its name is the digest of all that code depends on:
the recording, this package's compiler, and the identity of the target in use.
"""

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base.dtype import DType
from glasshouse.compile.building import disk_cache
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.lowering.target import current_target
from glasshouse.dispatch import primitives, state
from glasshouse.dispatch.call import Call, pseudo_primitives
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording
from glasshouse.ops import BUILT_IN
from glasshouse.ops.body import Body
from glasshouse.ops.custom import DerivativeRule

PACKAGE = Path(__file__).parents[2]
# The rooms that code depends on.
COMPILER = ("base", "dispatch", "ops", "graph", "compile", "native", "targets")
# Recordings this long are compiled at their first run, and stored; others are compiled sooner than
# their key is worked out.
LARGE_NODES = 100


class Unwritten(Exception):
    """A part of a recording is no value that can be written down."""


def key_of(recording: Recording) -> str:
    """Name of a recording's entry; "" for one that is not stored."""
    if len(recording.nodes) < LARGE_NODES:
        return ""
    try:
        text = "\n".join([*described(recording), repr(state.recompute), surroundings()])
    except (Unwritten, CompileError, OSError):
        return ""
    return disk_cache.digest(text.encode())[:40]


def described(recording: Recording) -> list[str]:
    """Describe the recording in words that mean the same in every process."""
    leaf = {id(x): -1 - i for i, x in enumerate(recording.leaves)}
    numbers: dict[Call, int] = {}
    lines, calls = [], []
    for node in recording.nodes:
        call = node.call
        number = numbers.get(call)
        if number is None:
            number = numbers[call] = len(numbers)
            if call.host is not None:
                raise Unwritten
            attrs = ", ".join(f"{k}={static_text(v)}" for k, v in call.attrs.items())
            lines.append(f"{call.name}({attrs}){written_card(node)}")
        operands = [x.number if x.value is None else leaf[id(x)] for x in node.inputs]
        origin = node.origin
        calls.append((number, operands, node.scalar is not None, origin.module, origin.phase))
    lines += [repr(x.spec) for x in recording.leaves]
    return [*lines, repr(calls), repr(recording.outputs)]


def written_card(node: Node) -> str:
    """Text of a user's card in the key of code, besides its name.

    Raises: Unwritten for a composition or a callable text
    """
    card = primitives.get(node.op)
    if card is None or card.name in BUILT_IN:
        return ""
    if card.composition is not None or card.kernel is not None and callable(card.kernel.text):
        raise Unwritten
    return f" -> {node.spec} {card.kernel} {sorted(card.traits)}"


def static_text(value: Any) -> str:
    """Text of a static argument.

    Raises: Unwritten
    """
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(static_text, value))})"
    if isinstance(value, Body):
        return written_body(value)
    if isinstance(value, DerivativeRule):
        return ""  # code computes the body that stands beside it
    if isinstance(value, (bool, int, float, complex, str, bytes, DType, np.generic, type(None))):
        return f"{type(value).__name__} {value!r}"
    raise Unwritten


def written_body(body: Body) -> str:
    """Text of the calls of a body.

    Raises: Unwritten for calls that are not the library's own
    """
    if any(call.host or call.name not in (*BUILT_IN, *pseudo_primitives) for call, _ in body.calls):
        raise Unwritten
    lines = [
        f"{call.name}({', '.join(f'{k}={static_text(v)}' for k, v in call.attrs.items())}) {places}"
        for call, places in body.calls
    ]
    return "\n".join([repr(body.inputs), *lines, repr(body.outputs)])


@functools.cache
def sources_digest(folders: tuple[str, ...]) -> str:
    """Digest of the package's own sources in these folders."""
    files = sorted(
        p
        for name in folders
        for p in (PACKAGE / name).rglob("*.*")
        if p.suffix in (".py", ".c", ".h")
    )
    return disk_cache.digest(b"\0".join(p.read_bytes() for p in files))


def surroundings() -> str:
    """Dependencies of code besides the recording.

    Raises: Unwritten where the target in use cannot say it.
    """
    target = current_target().identity()
    if target is None:
        raise Unwritten
    return "\n".join([sources_digest(COMPILER), target])


def load(key: str) -> Any:
    """Load the entry stored under a key: `ProgramCode`, or another object; None if it is gone."""
    data = disk_cache.read_entry(path_of(key)) if key else None
    try:
        return None if data is None else pickle.loads(data)
    except Exception:  # of another version of a library whose classes it needs
        return None


def packed(what: Any) -> bytes:
    """Pickle code, or another object; nothing where that fails."""
    try:
        return pickle.dumps(what)
    except (pickle.PicklingError, TypeError, AttributeError):
        return b""


def save(key: str, data: bytes) -> None:
    """Save code; a folder that cannot be written to costs only the time of compiling again."""
    path = path_of(key)
    try:
        disk_cache.write_entry(path, data)
    except OSError as error:
        if error.errno in disk_cache.FULL:
            disk_cache.warn_full(path.parent)


def path_of(key: str) -> Path:
    return disk_cache.open_cache(disk_cache.cache_folder()) / f"{key}.code"
