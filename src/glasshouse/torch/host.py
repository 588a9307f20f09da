"""Steps that PyTorch computes itself: operators without an entry, on the same memory.

Such a call is a card of its own, so that it is recorded, counted, named and refused under strict as
any other step of the host."""

import ctypes
from functools import cache, partial
from itertools import count

import numpy as np
import torch
from torch.utils import _pytree as pytree

from glasshouse.base import Spec, uint8
from glasshouse.dispatch.primitive import Primitive, define
from glasshouse.torch.dtypes import from_array, to_array

draws = count()
DONE = Spec((1,), uint8)  # the result of an operator without one


class Operand(int):
    """Stands for the operand of this number among an operator's arguments."""

    def __repr__(self):
        return f"operand {int(self)}"


def run_in_torch(*arrays, operator: str, arguments, outs, draw):
    """The arrays that PyTorch's own operator gives for arrays and constant arguments."""
    results = results_in_torch(operator, arguments, [from_array(readable(x)) for x in arrays])
    arrays_out = tuple(map(to_array, results))
    if arrays_out and [x.shape for x in arrays_out] != [spec.shape for spec in specs_of(outs)]:
        raise OtherSizesError(operator)
    if not arrays_out:  # an operator for its effect, such as a check
        return np.zeros(DONE.shape, DONE.dtype.np)
    return arrays_out if isinstance(outs, tuple) else arrays_out[0]


def results_in_torch(operator: str, arguments, tensors: list, note=None) -> list[torch.Tensor]:
    """What PyTorch's own operator gives for tensors and constant arguments, row by row; `note` is
    told of all that it gives before."""
    flat, spec = arguments
    given = [tensors[x] if isinstance(x, Operand) else x for x in flat]
    args, named = pytree.tree_unflatten(given, spec)
    with torch.no_grad():
        results = find_operator(operator)(*args, **named)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    results = [x for x in results if isinstance(x, torch.Tensor)]
    if note is not None:
        note(results)
    return [x.contiguous() for x in results]


class OtherSizesError(Exception):
    """An operator of PyTorch's gave other sizes than it had promised when the graph was made."""


def specs_of(outs) -> tuple:
    return outs if isinstance(outs, tuple) else (outs,)


def readable(array) -> np.ndarray:
    """An array that PyTorch takes: no scalar of NumPy's, writable, its elements row by row, as some
    of PyTorch's own kernels expect without a check."""
    array = np.asarray(array)
    forward = min(array.strides, default=0) >= 0  # NumPy does not look at those of axes of size 1
    fits = array.flags.writeable and array.flags.c_contiguous and forward
    return array if fits else array.copy(order="C")


def array_at(address: int, shape, dtype) -> np.ndarray:
    """The array that lies at an address."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(address) if nbytes else bytearray(0)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


@cache
def find_operator(name: str):
    """The overload of a full name, such as "aten.sort.stable"."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def infer(*specs: Spec, operator, arguments, outs, draw):
    return outs


def refuse_batch(*_, **__):
    raise NotImplementedError("a step of PyTorch's own has no batching rule")


@cache
def host_card(outputs: int) -> Primitive:
    """The card of PyTorch's operators with so many results."""
    return define(
        f"torch_{outputs}",
        "host",
        f"An operator of PyTorch's own with {outputs} results.",
        why="an operator without an entry costs speed, never the result",
        infer=infer,
        ref=run_in_torch,
        batch=refuse_batch,
        flops=lambda *_, **__: 0,
        samples=(),
        num_outputs=outputs,
    )


class HashableArguments(tuple):
    """(leaves, tree) of an operator's arguments; compared and hashed by what they print as."""

    __slots__ = ()

    def __hash__(self):
        return hash(repr(self))

    def __eq__(self, other):
        return repr(self) == repr(other)


def call_in_torch(target, args, named: dict, outs, is_value):
    """The result of one of PyTorch's operators on our values, as a step of the host. `outs` is the
    spec of its result, or a tuple of them."""
    flat, tree = pytree.tree_flatten((args, named))
    values = [x for x in flat if is_value(x)]
    numbers = iter(range(len(values)))
    flat = [Operand(next(numbers)) if is_value(x) else x for x in flat]
    attrs = {
        "operator": str(target),
        "arguments": HashableArguments((tuple(flat), tree)),
        "outs": outs,
        "draw": next(draws) if torch.Tag.nondeterministic_seeded in target.tags else 0,
    }
    number = len(outs) if isinstance(outs, tuple) else 1
    return partial(host_card(number), **attrs)(*values)
