"""Data parallel: each rank has the whole model and its own part of the batch."""

import zlib
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.autograd.tape import AT_END
from glasshouse.base import OptionError, as_dtype, check_known
from glasshouse.distributed.groups.functions import all_gather, all_reduce, broadcast, read_result
from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.distributed.groups.objects import all_gather_object
from glasshouse.distributed.replicas.reducers import (
    BUCKET_BYTES,
    Reducer,
    buckets_of,
    joined,
    reducers,
    split_like,
)
from glasshouse.nn.module import Module
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, asarray
from glasshouse.tensor.handle import add_hook

ATTRIBUTE = "_replica"  # of a module, its Replica


class Replica:
    """One rank's copy of a model, and the reducer of its gradients."""

    trains_along = True

    def __init__(self, reducer: Reducer, find_unused: bool = False) -> None:
        self.reducer = reducer
        self.find_unused = find_unused
        self.syncs = True
        for p in reducer.parameters:
            p.register_post_accumulate_grad_hook(self.add)
        is_free = reducer.is_ordered and not find_unused
        self.ends: list[Any] = self.to_call_at_end(
            self.finish if is_free else self.finish_in_python
        )

    def to_call_at_end(self, method: Callable[..., Any]) -> list[Any]:
        """Call a method at the end of each backward pass; returns handles."""
        return [add_hook(p, AT_END, method) for p in self.reducer.parameters]

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a model belongs to one process

    def add(self, parameter: Tensor) -> None:
        """Report to the reducer that a parameter's gradient is complete."""
        if self.syncs:
            with no_grad():
                self.reducer.add(parameter)

    def finish(self) -> None:
        """Finish the reduction after a backward pass, or after all that are reduced together."""
        if self.syncs:
            with no_grad():
                self.reducer.finish(self.used_parameters())

    def finish_in_python(self) -> None:
        """Run `finish` where ranks exchange something."""
        self.finish()
        if self.reducer.is_ordered and not self.find_unused:
            for handle in self.ends:
                handle.remove()
            self.ends = self.to_call_at_end(self.finish)

    finish_in_python.__gh_disabled__ = (  # type: ignore[attr-defined]  # read by capture
        "ranks ask each other which gradients there are"
    )

    def used_parameters(self) -> list[Tensor]:
        """Parameters that have a gradient here, or on any rank where `find_unused` is set."""
        parameters = self.reducer.parameters
        has = [p.grad is not None for p in parameters]
        if self.find_unused:
            has = read_result(all_reduce(asarray(has), "max", group=self.reducer.group), has)
        return [p for p, is_used in zip(parameters, has, strict=True) if is_used]


def replicate(
    module: Module,
    mesh: DeviceMesh,
    axis: str | tuple[str, ...] = "data",
    *,
    reducer: str | type[Reducer] = "overlapped",
    bucket_bytes: int = BUCKET_BYTES,
    compress: str | None = None,
    find_unused: bool = False,
) -> Module:
    """`module`, with the parameters and buffers of the first rank along `axis` (or several axes),
    whose gradients become the mean over these ranks during each backward pass.

    `reducer` is "overlapped" (buckets beside the rest of the backward pass), "coalescing" (at its
    end), "inline" (one by one) or a class of yours. `compress="bfloat16"` halves the messages; the
    mean over n ranks is then off by at most n · 2⁻⁸ of the mean of the |g|. With `find_unused`,
    ranks may use different parameters: they ask each other at the end of each backward pass.

    Raises: OptionError for a model that differs between ranks, or an unknown reducer or axis
    Source: Li et al. 2020, arXiv:2006.15704
    Example:
        >>> model = gh.distributed.replicate(gh.nn.Linear(2, 1), gh.distributed.mesh({"data": 1}))
        >>> model
        Linear(in_features=2, out_features=1, bias=True)
    """
    group = mesh.group(*((axis,) if isinstance(axis, str) else axis))
    kind = (
        reducer
        if isinstance(reducer, type)
        else reducers[check_known("replicate", "a reducer", reducer, reducers)]
    )
    if module.__dict__.get(ATTRIBUTE) is not None:
        raise OptionError("replicate", "a model once", "one that is replicated", "Leave it out.")
    if group.size == 1:
        return module
    check_same(module, group)
    share(module, group)
    names = {p: name for name, p in module.named_parameters() if p.requires_grad}
    sent_as = None if compress is None else as_dtype(compress)
    new_reducer = kind(list(names), group, bucket_bytes=bucket_bytes, sent_as=sent_as)
    new_reducer.names = names
    module.__dict__[ATTRIBUTE] = Replica(new_reducer, find_unused)
    return module


def is_replicated(module: Module) -> bool:
    """Whether its gradients are means over ranks already."""
    return module.__dict__.get(ATTRIBUTE) is not None


class no_sync:
    """Context: inside, backward adds to the gradients of this rank alone; the first backward pass
    outside sends their sum. For accumulation over several batches. In stage 3 of `zero` whole
    gradients are kept until then, and parameters are gathered as ever.

    Example:
        >>> with gh.distributed.no_sync(gh.nn.Linear(2, 1)):
        ...     pass
    """

    def __init__(self, module: Module) -> None:
        replicas = [m.__dict__.get(ATTRIBUTE) for m in module.modules()]
        self.replicas: list[Any] = [replica for replica in replicas if replica is not None]
        self.before: list[list[bool]] = []

    def __enter__(self) -> None:
        self.before.append([replica.syncs for replica in self.replicas])
        for replica in self.replicas:
            replica.syncs = False

    def __exit__(self, *exc_info: object) -> None:
        for replica, syncs in zip(self.replicas, self.before.pop(), strict=True):
            replica.syncs = syncs


def check_same(module: Module, group: ProcessGroup) -> None:
    """Refuse a model whose names, shapes, dtypes or order differ on some rank, or of which other
    parameters are trained."""
    frozen = {name for name, p in module.named_parameters() if not p.requires_grad}
    state = module.state_dict().items()
    lines = [f"{name} {x.spec}{', frozen' * (name in frozen)}" for name, x in state]
    digest = zlib.crc32("\n".join(lines).encode())
    digests = all_gather(asarray([digest], dtype="int64"), group=group)
    digests = read_result(digests, [digest] * group.size)
    if all(other == digests[0] for other in digests):
        return
    all_lines = all_gather_object(lines, group)
    rows = list(zip_longest(*all_lines, fillvalue="none"))
    at = next(i for i, row in enumerate(rows) if len({*row}) > 1)
    shown = (f"rank {rank}: {x}" for rank, x in zip(group.ranks, rows[at], strict=True))
    expected = f"the parameters and buffers of rank {group.ranks[0]} on each rank"
    got = f"as number {at} of {[len(rank_lines) for rank_lines in all_lines]}: {'; '.join(shown)}"
    raise OptionError("replicate", expected, got, "Build the same model on every rank.")


def share(module: Module, group: ProcessGroup) -> None:
    """Give the module the parameters and buffers of the first rank of the group."""
    members = [*module.parameters(), *module.buffers()]
    with no_grad():
        for bucket in buckets_of(members, BUCKET_BYTES):
            flat = broadcast(joined(bucket), 0, group=group)
            for x, value in zip(bucket, split_like(flat, bucket), strict=True):
                x.rebind(value)
