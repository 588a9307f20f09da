"""Calls of collectives: begun without waiting for their end, and what a rank sends in one."""

import numpy as np

from glasshouse.ops.collective import COLLECTIVES, partners, process
from glasshouse.ops.collective_bytes import sent_bytes


def start(call, source: np.ndarray, out: np.ndarray):
    """Begin a call of a card above but `collective_permute`, along its first axis, from packed
    memory into packed memory, which may be the same for all_reduce and broadcast; `wait()` of what
    comes back returns when the result is there."""
    name, attrs = call.name, call.attrs
    group = attrs["group"]
    transport, size = process.transport(group), group.size
    if name == "all_reduce":
        return transport.start(name, source, out, attrs["reduce"])
    if name == "all_gather":
        return transport.start(name, source, out.reshape(size, *source.shape))
    if name == "reduce_scatter":
        return transport.start(name, source.reshape(size, *out.shape), out)
    if name == "all_to_all":
        parts = (size, out.shape[0] // size, *out.shape[1:])
        return transport.start(name, source.reshape(parts), out.reshape(parts))
    out[...] = source
    return transport.start("broadcast", out, attrs["root"])


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
