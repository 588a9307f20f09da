"""Reducers: the gradients of all ranks become their mean while the backward pass runs.

The backward pass reports to a reducer each parameter whose `.grad` is complete, and its own end. A
reducer's calls that are recorded between those of the backward pass can run beside them."""

import abc
import math
import zlib
from typing import Any

from glasshouse.base import DType, DTypeError
from glasshouse.distributed.groups.functions import broadcast, read_result
from glasshouse.ops import collective
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, asarray, astype, concat, reshape, zeros

__all__ = ["CoalescingReducer", "InlineReducer", "OverlappedReducer", "Reducer"]

BUCKET_BYTES = 25 << 20  # as PyTorch's
MOST_NAMES = 4  # of those that a call names
ALONE_BYTES = 1 << 20  # a tensor of so many stays in place: copying it costs more than a call


class Reducer(abc.ABC):
    """Reducer of gradients that are ready. `sent_as` is the dtype in which they travel, their own
    if None: bfloat16 halves the bytes, and each of n ranks' gradients and each of the n - 1 sums is
    rounded to 8 bits, so the mean is off by at most n · 2⁻⁸ of the mean of the |g|."""

    names: dict[Tensor, str]

    trains_along = True  # an analysis of a step leaves it unchanged
    is_ordered = True  # whether ranks know the order in which they reduce
    sums_first = True  # whether it waits for the sum of a pipeline's microbatches

    def __init__(
        self,
        parameters: list[Tensor],
        group: ProcessGroup,
        bucket_bytes: int = BUCKET_BYTES,
        sent_as: DType | None = None,
    ) -> None:
        for p in parameters:
            if sent_as is not None and not p.dtype.is_floating:
                fix = "Leave compress out."
                raise DTypeError("replicate", "real gradients to compress", p.dtype.name, fix)
        self.parameters = parameters
        self.group = group
        self.names = {p: str(i) for i, p in enumerate(parameters)}  # for ranks to compare
        self.groups: dict[
            tuple[Any, ...], ProcessGroup
        ] = {}  # by names: the group, labelled with them
        self.bucket_bytes = bucket_bytes
        self.sent_as = sent_as

    @abc.abstractmethod
    def add(self, parameter: Tensor) -> None:
        """The gradient of a parameter is ready."""

    @abc.abstractmethod
    def finish(self, used: list[Tensor]) -> None:
        """Backward has ended; `used` are the parameters that some rank has gradients of."""

    def group_for(self, parameters: list[Tensor]) -> ProcessGroup:
        """Group for a collective of the gradients of these parameters."""
        names = tuple([self.names[p] for p in parameters])
        group = self.groups.get(names)
        if group is None:
            label = f"gradients of {listed(names)}"
            group = self.groups[names] = self.group._replace(label=label)
        return group

    def reduce(self, parameters: list[Tensor]) -> None:
        """Average the gradients of these parameters over all ranks, by one collective; ranks
        without one count as 0."""
        flat = joined([zeros(p.shape, p.dtype) if p.grad is None else p.grad for p in parameters])
        dtype = flat.dtype
        flat = flat if self.sent_as is None else astype(flat, self.sent_as)
        group = self.group_for(parameters)
        total = collective.all_reduce(flat, group=group, reduce="sum", replicated=True)
        mean = astype(total, dtype) * (1 / self.group.size)
        for p, gradient in zip(parameters, split_like(mean, parameters), strict=True):
            p.grad = gradient


class InlineReducer(Reducer):
    """Reduces each gradient by a separate collective, as soon as it is ready."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reduced: set[Tensor] = set()

    def add(self, parameter: Any) -> None:
        self.reduce([parameter])
        self.reduced.add(parameter)

    def finish(self, used: Any) -> None:
        reduced, self.reduced = self.reduced, set()
        for p in used:
            if p not in reduced:
                self.reduce([p])


class CoalescingReducer(Reducer):
    """Reduces all gradients after the backward pass, in buckets in the order of parameters."""

    def add(self, parameter: Any) -> None:
        pass

    def finish(self, used: list[Tensor]) -> None:
        for bucket in buckets_of(used, self.bucket_bytes):
            self.reduce(bucket)


class OverlappedReducer(Reducer):
    """Reduces buckets in the order in which gradients become ready, which rank 0 sends after the
    first backward pass; each when its last gradient is ready and those before it are under way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.buckets: list[list[Tensor]] = buckets_of(self.parameters[::-1], self.bucket_bytes)
        self.is_ordered: bool = False
        self.begin()

    def begin(self) -> None:
        """Wait for a backward pass."""
        self.ready: dict[Tensor, None] = {}  # in the order in which they came
        self.under_way: int = 0
        self.late: list[Any] = []

    def add(self, parameter: Any) -> None:
        if parameter in self.ready:  # again, through a recomputed region
            self.late.append(parameter)
        self.ready[parameter] = None
        while self.under_way < len(self.buckets):
            bucket = self.buckets[self.under_way]
            if not all(p in self.ready for p in bucket):
                break
            self.reduce(bucket)
            self.under_way += 1

    def finish(self, used: list[Tensor]) -> None:
        members = set(used)
        for bucket in self.buckets[self.under_way :]:
            if present := [p for p in bucket if p in members]:
                self.reduce(present)
        for p in self.late:  # the mean of a mean and later gradients is the mean of their sum
            self.reduce([p])
        if not self.is_ordered:
            self.reorder(list(self.ready))
        self.begin()

    def reorder(self, arrived: list[Tensor]) -> None:
        """Make the buckets again, in the order in which gradients were ready on the first rank."""
        came = {p: i for i, p in enumerate(arrived)}
        order = sorted(
            range(len(self.parameters)), key=lambda i: came.get(self.parameters[i], len(came))
        )
        result = broadcast(asarray(order, dtype="int32"), 0, group=self.group)
        ordered = [self.parameters[i] for i in read_result(result, order)]
        self.buckets, self.is_ordered = buckets_of(ordered, self.bucket_bytes), True


reducers: dict[str, type[Reducer]] = {
    "inline": InlineReducer,
    "coalescing": CoalescingReducer,
    "overlapped": OverlappedReducer,
}


def buckets_of(tensors: list[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Split tensors, in their order, into lists of one dtype: large ones alone, others in lists of
    up to `bucket_bytes`; the lists in the order in which they are full."""
    buckets: list[list[Tensor]] = []
    open_buckets: dict[DType, list[Tensor]] = {}
    for x in tensors:
        if x.nbytes >= min(ALONE_BYTES, bucket_bytes):
            buckets.append([x])
            continue
        bucket = open_buckets.setdefault(x.dtype, [])
        if sum(y.nbytes for y in bucket) + x.nbytes > bucket_bytes:
            buckets.append(bucket)
            bucket = open_buckets[x.dtype] = []
        bucket.append(x)
    return buckets + [bucket for bucket in open_buckets.values() if bucket]


def listed(names: tuple[str, ...]) -> str:
    """Names in a line; of many the first, the last, and a number that identifies all."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    digest = zlib.crc32("\n".join(names).encode())
    return f"{', '.join(names[: MOST_NAMES - 1])} … {names[-1]} ({len(names)}, {digest:08x})"


def joined(tensors: list[Tensor]) -> Tensor:
    """All elements, one tensor after the other."""
    flat = [reshape(x.detach(), (x.size,)) for x in tensors]
    return flat[0] if len(flat) == 1 else concat(flat)


def split_like(flat: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """The elements as tensors of these shapes again."""
    out, at = [], 0
    for x in tensors:
        size = math.prod(x.shape)
        part = flat if len(tensors) == 1 else flat[at : at + size]
        out.append(reshape(part, x.shape))
        at += size
    return out
