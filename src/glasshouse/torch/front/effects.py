"""Side effects of PyTorch's functions, read from operator schemas: drawing random numbers, writing
to operands, results that depend on values.

C functions and methods have the effects of the ATen operator of the same name. A Python function of
PyTorch draws random numbers if its code names one that does."""

import functools
import types
from typing import Any

import torch

from glasshouse.capture.values.var import Var
from glasshouse.torch.front.names import NODE_MODULES, name_of
from glasshouse.torch.patches.operators import OpOverload, OpOverloadPacket, schema_of

SEEDED = torch.Tag.nondeterministic_seeded
BY_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
# Operators with these tags whose sizes are checked elsewhere, or that no graph has.
SIZES_KNOWN = {"index", "repeat_interleave", "linalg_lstsq", "_ctc_loss"}
SHARE = "dropout"  # recurrent layers without this argument draw nothing
OPERATORS = (OpOverload, OpOverloadPacket)


def key_of(target: Any) -> Any:
    """The cache key of a target's effects: an operator of torch.ops itself, otherwise a name."""
    return target if isinstance(target, OPERATORS) else name_of(target)


@functools.cache
def overloads_of(key: Any) -> tuple[Any, ...]:
    """The overloads that a call may run."""
    if isinstance(key, OpOverload):
        return (key,)
    packet = key
    if isinstance(key, str):
        packet = None if key.startswith("__") else getattr(torch.ops.aten, key, None)
    return () if packet is None else tuple(getattr(packet, x) for x in packet.overloads())


@functools.cache
def key_draws(key: Any) -> bool:
    """Whether an operator draws random numbers."""
    return any(SEEDED in op.tags for op in overloads_of(key))


@functools.cache
def code_draws(function: types.FunctionType) -> bool:
    """Whether the code of a PyTorch function names an operator that draws, or another such
    function."""
    waiting, visited = [function], {function}
    while waiting:
        fn = waiting.pop()
        for name in fn.__code__.co_names:
            if key_draws(name):
                return True
            inner: Any = fn.__globals__.get(name)
            if is_python_of_torch(inner) and inner not in visited:
                visited.add(inner)
                waiting.append(inner)
    return False


def is_python_of_torch(fn: Any) -> bool:
    """Whether a function is Python of PyTorch that becomes a node as it is."""
    return isinstance(fn, types.FunctionType) and fn.__module__ in NODE_MODULES


@functools.cache
def takes_share(key: Any) -> bool:
    """Whether an operator draws only for a dropout probability among its arguments."""
    return any(x.name == SHARE for op in overloads_of(key) for x in schema_of(op).arguments)


def draws(target: Any, args: Any = ()) -> bool:
    """Whether a call draws random numbers, or may where its arguments are not known."""
    if isinstance(target, types.FunctionType):
        return is_python_of_torch(target) and code_draws(target)
    key = key_of(target)
    if not key_draws(key):
        return False
    values = (x.value if isinstance(x, Var) else x for x in args)
    is_off = args and takes_share(key) and not any(isinstance(x, float) and x for x in values)
    return not is_off


@functools.cache
def key_by_values(key: Any) -> bool:
    """Whether an operator's result, or its size, depends on the values of tensors."""
    name = key if isinstance(key, str) else schema_of(overloads_of(key)[0]).name.partition("::")[2]
    marked = (tag in op.tags for op in overloads_of(key) for tag in BY_VALUES)
    return name not in SIZES_KNOWN and any(marked)


def depends_on_values(target: Any) -> bool:
    """Whether the result of a call, or its size, depends on the values of tensors."""
    return not isinstance(target, types.FunctionType) and key_by_values(key_of(target))


@functools.cache
def operator_writes(operator: Any) -> tuple[int, ...]:
    """The places of the arguments that an operator writes to, but for those called `out`."""
    return tuple(
        {
            place: None
            for op in overloads_of(operator)
            for place, argument in enumerate(schema_of(op).arguments)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and not argument.is_out
        }
    )


def written_places(target: Any) -> tuple[int, ...]:
    """Places of the arguments that a target writes to. Empty for functions and methods, whose names
    say whether they write in place."""
    return operator_writes(target) if isinstance(target, OPERATORS) else ()
