"""Lowered graphs on disk: a process reuses another's lowering of the same graph.

An entry lies beside the code of its Program (`compile.store`) and has the facts that its caller
needs. Its name is the digest of all that lowering depends on: the graph, the inputs, the options,
this package, and the identity of the target."""

from typing import Any

import torch

from glasshouse.base.flags import flags
from glasshouse.compile.building.disk_cache import digest
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.programs import store
from glasshouse.compile.programs.program import is_shown
from glasshouse.dispatch.bind import state
from glasshouse.torch.aten.table import TABLE
from glasshouse.torch.lowering.graph_source import GraphSource
from glasshouse.torch.lowering.interpreter import LoweredGraph
from glasshouse.torch.tensors.layout import turned

ABOVE = ("autograd", "nn", "tensor", "torch", "transforms")
SOURCES = (*store.COMPILER, *ABOVE)  # folders that lowering depends on
OURS = "glasshouse."


def key_of(source: GraphSource, inputs: list[torch.Tensor], *settings: Any) -> str:
    """The key of a graph's entry for these inputs and settings; "" if it is not cached."""
    is_plain = flags.compile != "never" and not flags.strict and not is_shown()
    if not source.digest or not is_plain or not is_own_table():
        return ""
    try:
        target = current_target().identity()
    except (CompileError, OSError):
        target = None
    if target is None:
        return ""
    descriptions = [describe_input(x) for x in inputs]
    state_of_thread = current_target().threads, state.recompute
    parts = [source.digest, repr(descriptions), repr(settings), repr(state_of_thread), target]
    parts += [store.sources_digest(SOURCES), torch.__version__]
    return digest("\n".join(parts).encode())[:40]


def describe_input(x: torch.Tensor) -> tuple[Any, ...]:
    """The properties of an input that lowering depends on, for the key."""
    if not isinstance(x, torch.Tensor):
        return type(x).__name__, repr(x)
    return x.dtype, tuple(x.shape), x.stride(), turned(x), x.is_inference()


def is_own_table() -> bool:
    """Whether all entries of the table are this package's, whose digest is known."""
    return all(entry.compute.__module__.startswith(OURS) for entry in TABLE.values())


def load(key: str) -> LoweredGraph | None:
    """The lowered graph stored under a key; None if there is none."""
    return store.load(key)


def save(key: str, lowered: LoweredGraph, program: Any) -> None:
    """Store a lowered graph and its Program's key, unless a part cannot be serialized."""
    if not key or not program.key:
        return
    if data := store.packed(lowered.to_keep(program.key, program.structure)):
        store.save(key, data)
