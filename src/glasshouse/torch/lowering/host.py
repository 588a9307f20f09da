"""Steps that PyTorch computes: operators without an entry, on the same memory.

Such a call has its own card, so that it is recorded, counted, named and refused under strict like
any other step of the host."""

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch

from glasshouse.base import BackendError, Spec, uint8
from glasshouse.dispatch.primitive import Primitive, define
from glasshouse.dispatch.value import Value
from glasshouse.ops.movement import inverse_permutation, permute
from glasshouse.torch.patches.modes import BelowAutograd, without_modes
from glasshouse.torch.patches.trees import tree_flatten, tree_leaves, tree_unflatten
from glasshouse.torch.scopes.passes import place
from glasshouse.torch.tensors.dtypes import FROM_TORCH, from_array, to_array
from glasshouse.torch.tensors.layout import layout_of
from glasshouse.torch.tensors.sizes import SizeValues

draws: Any = count()
DONE = Spec((1,), uint8)  # the result of an operator without one


class Operand(NamedTuple):
    """A placeholder of an operand among an operator's arguments: its number, and the order of its
    axes in eager's memory. The step gets the operand in that order, which is row-major."""

    number: int
    order: tuple[int, ...]


def run_in_torch(
    *arrays: Any, operator: str, arguments: Any, outs: Any, orders: Any, draw: Any
) -> Any:
    """The results of a PyTorch operator for arrays and constant arguments, each with its axes in
    the order that `orders` has for it."""
    with without_modes() if place.looking else nullcontext():  # memory of NumPy or of a Program
        tensors = [from_array(readable(x)) for x in arrays]
    if place.looking:
        place.mode.pass_over(tensors)
    results = results_in_torch(operator, arguments, orders, tensors)
    arrays_out = [to_array(x) for x in results]
    if not arrays_out:  # an operator for its effect, such as a check
        return np.zeros(DONE.shape, DONE.dtype.np)
    specs = outs if isinstance(outs, tuple) else (outs,)
    if [x.shape for x in arrays_out] != [spec.shape for spec in specs]:
        raise OtherSizesError(operator)
    return one_or_several(arrays_out)


def results_in_torch(
    operator: str, arguments: Any, orders: Any, tensors: list[Any], note: Any = None
) -> list[torch.Tensor]:
    """The results of PyTorch's operator for tensors and constant arguments, each row-major with its
    axes in the given order; `note` gets the results before they are permuted."""
    flat, spec = arguments
    operands = [as_eager_has(x, tensors) if isinstance(x, Operand) else x for x in flat]
    args, named = tree_unflatten(operands, spec)
    with torch.no_grad():
        results = find_operator(operator)(*args, **named)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    results = [x for x in results if isinstance(x, torch.Tensor)]
    if note is not None:
        note(results)
    if [x.ndim for x in results] != list(map(len, orders)):
        raise OtherSizesError(operator)
    return [x.permute(order).contiguous() for x, order in zip(results, orders, strict=True)]


def as_eager_has(operand: Operand, tensors: list[torch.Tensor]) -> torch.Tensor:
    """An operand with its axes in order again, over the same memory."""
    return tensors[operand.number].permute(inverse_permutation(operand.order))


class OtherSizesError(Exception):
    """A PyTorch operator returned other sizes than the graph was traced with."""


def readable(array: Any) -> np.ndarray:
    """An array that PyTorch takes: no NumPy scalar, writable, and row-major, as some of PyTorch's
    kernels expect without a check."""
    array = np.asarray(array)
    forward = min(array.strides, default=0) >= 0  # NumPy does not look at those of axes of size 1
    fits = array.flags.writeable and array.flags.c_contiguous and forward
    return array if fits else array.copy(order="C")


def array_at(address: int, shape: Any, dtype: Any) -> np.ndarray:
    """The array that lies at an address."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(address) if nbytes else bytearray(0)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


@cache
def find_operator(name: str) -> Any:
    """The overload with a full name, such as "aten.sort.stable", or the higher-order operator with
    a plain one, such as "cond"."""
    namespace, _, rest = name.partition(".")
    if not rest:
        return below_autograd(getattr(torch.ops.higher_order, name))
    packet, _, overload = rest.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def below_autograd(operator: Any) -> Any:
    """A higher-order operator as a function that records no gradients, which have their own
    graphs."""

    def call(*args, **named):
        with BelowAutograd():
            return operator(*args, **named)

    return call


def infer(*specs: Spec, operator: Any, arguments: Any, outs: Any, orders: Any, draw: Any) -> Any:
    return outs


def refuse_batch(*_: Any, **__: Any) -> Any:
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


class HashableArguments(tuple[Any, ...]):
    """(leaves, tree) of an operator's arguments; compared and hashed by their repr."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)


class EagerResult(NamedTuple):
    """A result of a PyTorch operator: its spec, with the axes in the order of eager's memory, and
    that order."""

    spec: Spec
    order: tuple[int, ...]


def result_of(fake: Any, sizes: SizeValues) -> EagerResult:
    """The result of an operator, from the fake tensor that eager gives.

    Raises: NotImplementedError if it is no tensor, BackendError if it does not lie by strides
    """
    if not isinstance(fake, torch.Tensor):
        raise NotImplementedError(f"a result {fake!r}")
    if fake.layout != torch.strided:
        raise BackendError(
            "torch.compile", "results that lie by strides", fake.layout, "PyTorch computes it."
        )
    layout = layout_of(sizes.concrete(fake))
    return EagerResult(Spec(layout.sizes, FROM_TORCH[fake.dtype]), layout.order)


def call_in_torch(
    target: Any, inputs: tuple[Any, ...], fakes: tuple[Any, ...], results: Sequence[EagerResult]
) -> Any:
    """The results of one of PyTorch's operators on our values, as a step of the host.

    `inputs` are its arguments by position and by name, `fakes` the same with fake tensors in place
    of values. Operands and results have their axes in the order of eager's memory.
    """
    flat, tree = tree_flatten(inputs)
    operands, places = list[Any](), list[Any]()
    for x, eager in zip(flat, tree_leaves(fakes), strict=True):
        place = x
        if isinstance(x, Value):
            place = Operand(len(operands), layout_of(eager).order)
            operands.append(permute(x, axes=place.order))
        places.append(place)
    call = partial(
        host_card(max(len(results), 1)),
        operator=str(target),
        arguments=HashableArguments((tuple(places), tree)),
        outs=one_or_several([x.spec for x in results] or [DONE]),
        orders=tuple(x.order for x in results),
        draw=next(draws) if may_draw(target) else 0,
    )
    values = call(*operands)
    values = values if isinstance(values, tuple) else (values,)
    if not results:
        return values
    return tuple(
        permute(value, axes=inverse_permutation(x.order))
        for value, x in zip(values, results, strict=True)
    )


def may_draw(target: Any) -> bool:
    """Whether two calls of an operator with the same operands may differ."""
    tags = getattr(target, "tags", None)
    return tags is None or torch.Tag.nondeterministic_seeded in tags


def one_or_several(results: list[Any]) -> Any:
    """Results as a card returns them: the only one, or a tuple of several."""
    return results[0] if len(results) == 1 else tuple(results)
