"""Machine profiles: times of kernels on this machine, or on another one.

A profile has rates by size, measured by `calibrate` or taken from a data sheet. The time of a
kernel is the longer of computing and moving, at the rates for its size, plus a constant; products
of two matrices do one after the other. A kind of step may tell it otherwise
(`compile/steps/work.py`)."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glasshouse.analyze.host import HostWork
from glasshouse.base import OptionError, suggest
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.steps.work import DRAWS, RESTS, StepKind
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.scope import NOWHERE
from glasshouse.profile.at_once import SingleCall

# As in HostWork.
KERNEL_COSTS = ("overhead_ns", "product_ns", "loop_ns")  # of kernels among others, beyond rates
HOST_COSTS = (
    *("call_ns", "node_ns", "program_ns", "array_ns", "check_ns", "captured_ns", "handed_ns"),
)
SWEPT_BYTES = 1 << 23  # after kernels have moved them, no data of Python's is in a cache


@dataclass
class MachineProfile:
    """Rates by size: [(size, rate)] with sizes ascending, interpolated between them in logarithms.

    `matrix` has FLOP/s by the FLOPs of a product, for each "primitive dtype" ("matmul" replaces
    a missing one), and numbers a second for "random_bits uint32"; `bandwidth` bytes/s by the
    bytes that a kernel moves; `elementwise` FLOP/s of all else."""

    name: str
    matrix: dict[str, list[tuple[float, float]]]
    bandwidth: list[tuple[float, float]]
    elementwise: float
    overhead_ns: float
    reorder: float = 1.0  # time of a change of layout, as a multiple of a copy's
    handwritten: float = 1e10  # FLOP/s of kernels written for one card: pooling, scatter
    memory_bytes: int = 0
    link_bytes_per_s: float = 0.0  # to other devices, for gradients
    notes: str = field(default="")
    host_bytes_per_s: float = 0.0  # between device memory and the host's, each way; 0: they are one
    new_bytes_per_s: float = 0.0  # rate at which the system makes memory; 0: that takes no time
    call_ns: float = 0.0  # of a call in Python between the kernels of a step
    node_ns: float = 0.0  # of recording a primitive, until its result is there
    program_ns: float = 0.0  # of running a Program, beside its kernels
    array_ns: float = 0.0  # of handing an array to a Program, or taking one from it
    check_ns: float = 0.0  # of computing a primitive at once, to check indices
    captured_ns: float = 0.0  # of running a captured Program, beside its kernels
    handed_ns: float = 0.0  # of handing an array to a captured Program, or taking one from it
    warm: float = 1.0  # Python's time while its data is in a cache, as a part of the times above
    product_ns: float = 0.0  # start of a product among other kernels: its code is in no cache
    loop_ns: float = 0.0  # of a call in the body of a compiled loop, in each turn
    # Whether results in place of operands take no time of their own: their lines are in a cache.
    writes_beside: bool = True

    def ns(self, info: StepInfo) -> float:
        """Ns of the step's kernels."""
        return self.ns_of(*info.work)

    def ns_of(self, what: tuple[Any, ...], numbers: list[int]) -> float:
        """Ns of a step's work, as `StepInfo.work` has it."""
        kind, *products = what
        return kind.estimate(products, numbers, self)

    def moving_s(self, nbytes: float, overwritten: float = 0) -> float:
        """Seconds of moving so many bytes, of which some are written where operands lay."""
        if self.writes_beside:
            nbytes -= overwritten
        return nbytes / rate_at(self.bandwidth, nbytes)

    def computing_s(self, flops: float, products: Iterable[Any]) -> float:
        """Seconds of computing: FLOPs, and those of products (name, FLOPs) beside them."""
        seconds = flops / self.elementwise
        for product, n in products:
            name, dtype = product.rsplit(" ", 1)
            seconds += time_at(self.rates(name, dtype), n)
            if name not in (DRAWS, RESTS):
                seconds += self.product_ns / 1e9
        return seconds

    def kernel_ns(self, seconds: float) -> float:
        """Ns of a kernel that works so long, with its start."""
        return 1e9 * seconds + self.overhead_ns

    def sending_ns(self, nbytes: float) -> float:
        """Ns in which a rank sends so many bytes to others; through memory where the profile has no
        link."""
        if self.link_bytes_per_s:
            return self.kernel_ns(nbytes / self.link_bytes_per_s)
        return self.kernel_ns(self.moving_s(nbytes) if nbytes else 0.0)

    def new_pages_ns(self, nbytes: int) -> float:
        """Ns in which the system makes so many bytes of memory, as they are first written."""
        return 1e9 * nbytes / self.new_bytes_per_s if self.new_bytes_per_s else 0.0

    def host_ns(self, work: HostWork, moved_bytes: float = SWEPT_BYTES) -> float:
        """Ns of Python's part of a step, whose kernels move so many bytes through the caches."""
        costs = (getattr(self, name) for name in HOST_COSTS)
        cold = min(1.0, moved_bytes / SWEPT_BYTES)
        part = self.warm + (1 - self.warm) * cold
        return part * sum(count * ns for count, ns in zip(work, costs, strict=True))

    def ns_of_call(self, call: Call, kind: StepKind | None = None) -> float:
        """Ns of a call as a separate kernel, of a kind."""
        return self.ns(SingleCall(call.name, call, NOWHERE, kind).infos[0])

    def rates(self, primitive: str, dtype: str) -> list[tuple[float, float]]:
        """Rates of a matrix primitive: its own, or else those of the most similar name, which lacks
        the fewest of its words."""
        if primitive == RESTS and f"{RESTS} {dtype}" not in self.matrix:
            return [(1.0, self.elementwise)]
        words = primitive.split()
        names = [" ".join(words[:n]) for n in range(len(words), 0, -1)]
        keys = [f"{name} {dtype}" for name in (*names, "matmul")]
        keys += [f"{name} float32" for name in names]
        return self.matrix[next((key for key in keys if key in self.matrix), "matmul float32")]

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Any) -> "MachineProfile":
        """Load a profile from a file or by a built-in name ("cpu2", "h200"), or return it as it is.

        Raises: OptionError for any other argument
        """
        if isinstance(path, cls):
            return path
        if str(path) in BUILT_IN:
            return BUILT_IN[str(path)]
        if not Path(path).is_file():
            expected, name = f"a file or one of {', '.join(BUILT_IN)}", str(path)
            fix = f"{suggest(name, BUILT_IN)} Write one with `glasshouse calibrate`."
            raise OptionError("machine", expected, repr(name), fix)
        return cls(**json.loads(Path(path).read_text()))


def time_at(points: list[tuple[float, float]], size: float) -> float:
    """Seconds for a size. Sizes below a curve's first point take as long as that point."""
    if len(points) > 1:
        size = max(size, points[0][0])
    return size / rate_at(points, size)


def rate_at(points: list[tuple[float, float]], size: float) -> float:
    """Rate for a size: straight lines between the points, in logarithms; flat outside."""
    if len(points) == 1 or size <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        if size <= x1:
            part = math.log(size / x0) / math.log(x1 / x0)
            return y0 * (y1 / y0) ** part
    return points[-1][1]


# A data sheet gives peaks; products reach about 0.7 of them, copies 0.9.
H200 = MachineProfile(
    "h200",
    {
        "matmul float32": [(1e6, 2e11), (1e9, 3e13), (1e11, 4.7e13)],
        "matmul bfloat16": [(1e6, 5e11), (1e9, 1e14), (1e11, 6.9e14)],
    },
    [(1e4, 1e11), (1e7, 3e12), (1e9, 4.3e12)],
    5e13,
    4_000.0,
    1.2,
    1e12,
    141_000_000_000,
    4.5e11,
    "NVIDIA H200 SXM data sheet: 67 TFLOP/s float32, 989 TFLOP/s bfloat16, 4.8 TB/s, NVLink, "
    "PCIe Gen5 with 128 GB/s for both ways",
    5.7e10,
    writes_beside=False,
)
CPU2 = MachineProfile(
    "cpu2",
    {
        "matmul float32": [(1e5, 2e10), (1e7, 1.5e11), (1e9, 2.9e11), (1e11, 3e11)],
        "conv float32": [(1e6, 5e10), (1e8, 2.5e11), (1e10, 3.1e11)],
        "matmul bfloat16": [(1e5, 2e10), (1e7, 2e11), (1e9, 5e11), (1e11, 6e11)],
        f"{DRAWS} uint32": [(1e4, 2e8)],
    },
    [(1e4, 2e10), (1e6, 6e10), (3e7, 4e10), (1e8, 2.5e10)],
    4e10,
    2_000.0,
    1.5,
    1e9,
    24 << 30,
    1e9,
    "two cores with AVX-512, as measured",
    new_bytes_per_s=4.8e9,
    call_ns=250.0,
    node_ns=2_000.0,
    program_ns=120_000.0,
    array_ns=5_000.0,
    check_ns=20_000.0,
    captured_ns=40_000.0,
    handed_ns=2_000.0,
)
BUILT_IN = {"h200": H200, "cpu2": CPU2}
