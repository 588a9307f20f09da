"""Exchange of Python objects between ranks, pickled: for settings and results, not for tensors."""

import pickle
from typing import Any

import numpy as np

from glasshouse.distributed.transports.collectives import Collectives
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor.standard.creation import eval as compute_all


def gathered_objects(transport: Collectives, x: Any) -> list[Any]:
    """Gather the x of each rank of the transport's group."""
    data = np.frombuffer(pickle.dumps(x), np.uint8)
    sizes = np.empty(transport.size, np.int64)
    transport.all_gather(np.array(data.size, np.int64), sizes)
    padded = np.zeros(sizes.max(), np.uint8)
    padded[: data.size] = data
    parts = np.empty((transport.size, padded.size), np.uint8)
    transport.all_gather(padded, parts)
    return [pickle.loads(part[:size].data) for part, size in zip(parts, sizes, strict=True)]


def all_gather_object(x: Any, group: ProcessGroup | None = None) -> list[Any]:
    """Return the `x` of each rank of the group, in their order; anything that pickle takes."""
    group = group or process.world
    if group.size == 1:
        return [pickle.loads(pickle.dumps(x))]
    compute_all()  # recorded collectives come first on every rank
    return gathered_objects(process.transport(group), x)


def broadcast_object(x: Any = None, root: int = 0, group: ProcessGroup | None = None) -> Any:
    """Return the `x` of the group's rank `root` on every rank; the others may leave it out."""
    group = group or process.world
    value = x if group.size == 1 or group.rank == root else None
    if group.size == 1:
        return pickle.loads(pickle.dumps(value))
    compute_all()
    transport = process.transport(group)
    data = np.frombuffer(pickle.dumps(value), np.uint8).copy()
    size = np.array(data.size, np.int64)
    transport.broadcast(size, root)
    buffer = data if group.rank == root else np.empty(int(size), np.uint8)
    transport.broadcast(buffer, root)
    return pickle.loads(buffer.data)
