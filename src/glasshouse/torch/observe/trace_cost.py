"""Costs of operators in a torch.profiler trace, by their names, shapes and dtypes."""

import ast
from typing import Any

import torch

from glasshouse.dispatch.call import Cost
from glasshouse.profile.traces.read_trace import KNOWN_DTYPES
from glasshouse.torch.observe.operator_cost import Operator, finish_work, work_of
from glasshouse.torch.patches.operators import schema_of

DTYPES = {name: getattr(torch, attribute) for name, attribute in KNOWN_DTYPES.items()}


def overloads_of(name: str) -> list[Any]:
    """The overloads of an operator: "aten::addmm"."""
    namespace, _, rest = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), rest.partition(".")[0], None)
    return [getattr(packet, x) for x in packet.overloads()] if packet is not None else []


def is_composite(name: str) -> bool | None:
    """Whether an operator is composed of others; None where it is not known here."""
    overloads = overloads_of(name)
    return Operator(overloads[0]).composite if overloads else None


def cost(name: str, dims: Any, types: Any, concrete: Any) -> Cost | None:
    """The cost of a call, by the first overload that takes such arguments; None if none does."""
    for overload in overloads_of(name):
        arguments = schema_of(overload).arguments
        if len(arguments) < len(dims):
            continue
        try:
            values = [
                argument_of(argument, *parts)
                for argument, *parts in zip(arguments, dims, types, padded(concrete, len(dims)))
            ]
        except ValueError:
            continue
        work = work_of(Operator(overload), *by_position(arguments, values))
        finish_work(work, results_of(overload, values))
        return work.call.cost
    return None


def padded(concrete: Any, count: int) -> Any:
    return [*concrete, *[""] * (count - len(concrete))]


def by_position(arguments: Any, values: Any) -> Any:
    """Arguments by position, and the keyword-only ones by name."""
    pairs = list(zip(arguments, values))
    args = [x for argument, x in pairs if not argument.kwarg_only]
    return args, {argument.name: x for argument, x in pairs if argument.kwarg_only}


def argument_of(argument: Any, shape: Any, dtype: str, concrete: str) -> Any:
    """A tensor without memory, a list of them, or a number.

    Raises: ValueError for a value of another kind
    """
    kind = str(argument.type)
    if dtype in DTYPES and "Tensor" in kind and "List" not in kind:
        return torch.empty(shape, dtype=DTYPES[dtype], device="meta")
    if dtype == "TensorList" and "List[Tensor]" in kind:
        return [torch.empty(part, device="meta") for part in shape]
    if dtype == "" or concrete == "" and "Optional" in kind:
        return None
    if "Tensor" in kind:
        raise ValueError(kind)
    try:
        return ast.literal_eval(concrete)
    except (SyntaxError, ValueError):
        raise ValueError(kind) from None


def results_of(overload: Any, values: Any) -> Any:
    """The results on tensors without memory; none where PyTorch cannot say."""
    args, named = by_position(schema_of(overload).arguments, values)
    try:
        with torch.no_grad():
            return overload(*args, **named)
    except Exception:  # no shapes without contents
        return []
