"""Calls of collectives: begun without waiting for their end, and what a rank sends in one."""

import numpy as np

from glasshouse.ops.asked import Asked, asked_of, asking
from glasshouse.ops.collective import COLLECTIVES, partners, process
from glasshouse.ops.collective_bytes import sent_bytes


def asked_of_transport(call, source: np.ndarray, out: np.ndarray) -> tuple:
    """(the transport, its method's name, arguments) for a call of a card, along its first axis,
    from packed memory into packed memory, which may be the same for all_reduce and broadcast."""
    name, attrs = call.name, call.attrs
    group = attrs["group"]
    transport, size = process.transport(group), group.size
    if name == "all_reduce":
        return transport, name, source, out, attrs["reduce"]
    if name == "all_gather":
        return transport, name, source, out.reshape(size, *source.shape)
    if name == "reduce_scatter":
        return transport, name, source.reshape(size, *out.shape), out
    if name == "all_to_all":
        parts = (size, out.shape[0] // size, *out.shape[1:])
        return transport, name, source.reshape(parts), out.reshape(parts)
    if name == "broadcast":
        out[...] = source
        return transport, name, out, attrs["root"]
    to, origin = partners(attrs["pairs"], group.rank)
    if origin is None:
        out[...] = 0
    return transport, "send_receive", source, to, out, origin


def asked_by(call) -> Asked:
    """The request that a call of a collective makes to its transport."""
    return asked_of(call.name, call.specs[0].dtype, call.specs[0].shape, call.attrs)


def start(call, request: Asked, source: np.ndarray, out: np.ndarray):
    """Begin a call; `wait()` of what comes back returns when the result is there. Not for
    `collective_permute`, whose ranks meet two by two."""
    transport, name, *args = asked_of_transport(call, source, out)
    with asking(request):
        return transport.start(name, *args)


def complete(call, request: Asked, source: np.ndarray, out: np.ndarray) -> None:
    """Do a call, to its end."""
    transport, name, *args = asked_of_transport(call, source, out)
    with asking(request):
        getattr(transport, name)(*args)


def sent_bytes_of(call) -> int:
    """The bytes that this rank sends in a call of a card, by the formulas of its group's transport
    (`collective_bytes.py`); what the calls of a body send, each as often as it is made.

    Units: bytes"""
    if not call.is_collective:
        return 0
    if call.name not in COLLECTIVES:
        parts = call.primitive.parts(*call.specs, **call.attrs)
        return sum(sent_bytes_of(part) * times for part, times, _ in parts)
    group, spec, attrs = call.attrs["group"], call.specs[0], call.attrs
    name, root = call.name, attrs.get("root", 0)
    if name == "collective_permute":
        to, _ = partners(attrs["pairs"], group.rank)
        if to is None or to == group.rank:
            return 0
        name = "send"
    formulas = process.transport(group).counts_as
    about = {"root": root, "itemsize": spec.dtype.itemsize, "transport": formulas}
    return sent_bytes(name, spec.nbytes, group.size, group.rank, **about)
