"""Values that a trace lets go of: nothing but its own table of what it has met refers to them.

A trace computes for real, and finds what it met before by identity. As in plain Python a tensor is
to go with the last reference to it: an activation when autograd is done with it, what an update
computes in between when the next parameter's turn comes, a gradient that was set to None."""

import sys

import torch

from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var
from glasshouse.torch.patches.tensors import use_count

CONTAINERS = (list, tuple, dict)
COMPUTED_BYTES = 16 << 20  # after which a trace looks again for what is dead


def count_references(table: dict[int, Var], key: int) -> tuple[int, int]:
    """How many references there are to a Var in a table, and to its value."""
    var = table[key]
    value = var.value
    return sys.getrefcount(var), sys.getrefcount(value)


def count_native_references() -> int:
    """How many references to a tensor Python counts where native code has some: PyTorch 2.10 and
    later hold one."""
    tensor = torch.empty(1)
    before = sys.getrefcount(tensor)
    view = tensor.view(1)
    more = sys.getrefcount(tensor) - before
    del view
    return more


ALONE = count_references({0: Var(object())}, 0)  # of a Var and a value that only the table has
NATIVE_REFERENCES = count_native_references()


def drop_dead_values(tracer) -> None:
    """Take out of a trace's table the tensors and new containers that nothing else refers to. What
    was made last goes first, since it may refer to what was made before."""
    table = tracer.tracked
    for key in reversed(list(table)):
        if may_be_dropped(tracer, table[key]) and is_dead(table, key):
            del table[key]


def may_be_dropped(tracer, var: Var) -> bool:
    """Whether nothing is noted of a value that would outlive it."""
    if isinstance(var.value, torch.Tensor):
        if isinstance(var.origin, ValueSource):  # a gradient that was there before, and is unread
            sources = tracer.front_state.gradients.sources
            return id(var.origin) in sources and id(var) not in tracer.lifted
        return var.items is None
    noted = (tracer.deleted, tracer.original_keys, tracer.blurred)
    is_own = type(var.value) in CONTAINERS and var.is_new and var.log is None
    return is_own and not any(id(var) in table for table in noted)


def is_dead(table: dict[int, Var], key: int) -> bool:
    """Whether only the table refers to a value, native code aside."""
    var_references, references = count_references(table, key)
    value = table[key].value
    if isinstance(value, torch.Tensor) and use_count(value) > 1:
        references -= NATIVE_REFERENCES
    return (var_references, references) == ALONE
