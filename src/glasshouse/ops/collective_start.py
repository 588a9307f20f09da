"""Start collectives without waiting for their end; count the bytes that a rank sends in one."""

from typing import Any

import numpy as np

from glasshouse.dispatch.call import Call
from glasshouse.ops.collective_card import COLLECTIVES, method_of
from glasshouse.ops.collective_requests import CollectiveRequest, requesting
from glasshouse.ops.process import process


def asked_by(call: Any) -> CollectiveRequest:
    """The request that a call of a collective makes to its transport."""
    spec = call.specs[0]
    return COLLECTIVES[call.name].request(spec.dtype, spec.shape, call.attrs)


def start(call: Any, request: CollectiveRequest, source: np.ndarray, out: np.ndarray) -> Any:
    """Begin a call; `wait()` of the returned handle ends when the result is ready. Not for
    `collective_permute`, whose ranks meet in pairs."""
    transport, name, *args = method_of(call, source, out)
    with requesting(request):
        return transport.start(name, *args)


def complete(call: Any, request: CollectiveRequest, source: np.ndarray, out: np.ndarray) -> None:
    """Do a call, to its end."""
    transport, name, *args = method_of(call, source, out)
    with requesting(request):
        getattr(transport, name)(*args)


def sent_bytes_of(call: Call) -> int:
    """The bytes that this rank sends in a call of a card, by the formulas of its group's transport
    (`collective_bytes.py`); for a card with a body, the sum over all runs of its calls.

    Units: bytes"""
    if not call.is_collective:
        return 0
    if call.name not in COLLECTIVES:
        parts = call.primitive.parts(*call.specs, **call.attrs)
        return sum(sent_bytes_of(part) * times for part, times, _ in parts)
    group, spec = call.attrs["group"], call.specs[0]
    about = spec.nbytes, group.size, group.rank, spec.dtype.itemsize
    formulas = process.transport(group).counts_as
    return COLLECTIVES[call.name].call_bytes(call.attrs, formulas, *about) if group.size > 1 else 0
