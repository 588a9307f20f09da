"""Release of dead values in a trace: only its table of known values refers to them.

A trace computes for real, and finds known values by identity. As in plain Python a tensor must be
freed with its last reference: an activation after the backward pass, intermediate values of an
update before the next parameter, a gradient that was set to None."""

import sys
from typing import Any

import torch

from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var
from glasshouse.torch.patches.tensors import use_count

CONTAINERS = (list, tuple, dict)
COMPUTED_BYTES = 16 << 20  # after which a trace drops dead values again


def count_references(table: dict[int, Var], key: int) -> tuple[int, int]:
    """The numbers of references to a Var in a table, and to its value."""
    var = table[key]
    value = var.value
    return sys.getrefcount(var), sys.getrefcount(value)


def count_native_references() -> int:
    """The number of references that Python counts for a tensor that native code refers to: one
    since PyTorch 2.10."""
    tensor = torch.empty(1)
    before = sys.getrefcount(tensor)
    view = tensor.view(1)
    more = sys.getrefcount(tensor) - before
    del view
    return more


ALONE = count_references({0: Var(object())}, 0)  # of a Var and a value that only the table has
NATIVE_REFERENCES = count_native_references()


def drop_dead_values(tracer: Any) -> None:
    """Remove tensors and new containers from a trace's table that nothing else refers to. The
    latest come first, since they may refer to earlier ones."""
    table = tracer.heap.tracked
    for key in reversed(list(table)):
        if may_be_dropped(tracer, table[key]) and is_dead(table, key):
            del table[key]


def may_be_dropped(tracer: "CaptureTracer", var: Var) -> bool:
    """Whether the trace has no notes of a value that must outlive it."""
    if isinstance(var.value, torch.Tensor):
        if isinstance(var.origin, ValueSource):  # a gradient that was there before, and is unread
            sources = tracer.front_state.gradients.sources
            return id(var.origin) in sources and id(var) not in tracer.operands.lifted
        return var.items is None
    noted = (tracer.heap.deleted, tracer.heap.original_keys, tracer.heap.blurred)
    is_own = type(var.value) in CONTAINERS and var.is_new and var.log is None
    return is_own and not any(id(var) in table for table in noted)


def is_dead(table: dict[int, Var], key: int) -> bool:
    """Whether only the table refers to a value, native code aside."""
    var_references, references = count_references(table, key)
    value = table[key].value
    if isinstance(value, torch.Tensor) and use_count(value) > 1:
        references -= NATIVE_REFERENCES
    return (var_references, references) == ALONE
