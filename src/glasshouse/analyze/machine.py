"""Machine profiles: how long kernels take here, or on a machine that is not here.

A profile has rates by size, measured by `calibrate` or taken from a data sheet. The time of a
kernel is the longer of computing and moving, at the rates for its size, plus a constant.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from glasshouse.base.errors import OptionError, suggest
from glasshouse.base.flags import flags
from glasshouse.compile.source_map import StepInfo
from glasshouse.dispatch.cost import MATRIX
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.profile.profiler import profile
from glasshouse.tensor import creation
from glasshouse.tensor.contract import matmul
from glasshouse.tensor.elementwise import exp

REFERENCE_NS, REFERENCE_NS_PER_BYTE = 3_000.0, 1.0  # of a card's reference on the host, about


@dataclass
class MachineProfile:
    """Rates by size: [(size, rate)] with sizes ascending, interpolated between them in logarithms.

    `matrix` has FLOP/s by the FLOPs of a product, for each "primitive dtype" ("matmul" stands in
    for what is missing); `bandwidth` bytes/s by the bytes that a kernel moves;
    `elementwise` FLOP/s of all else.
    """

    name: str
    matrix: dict[str, list[tuple[float, float]]]
    bandwidth: list[tuple[float, float]]
    elementwise: float
    overhead_ns: float
    reorder: float = 1.0  # how much longer than a copy a change of layout takes
    memory_bytes: int = 0
    link_bytes_per_s: float = 0.0  # to other devices, for gradients
    notes: str = field(default="")

    def ns(self, info: StepInfo) -> float:
        """The time of a step."""
        if info.kind in ("host", "reference"):
            return REFERENCE_NS + REFERENCE_NS_PER_BYTE * info.bytes
        moving = info.bytes / rate_at(self.bandwidth, info.bytes)
        computing = 0.0
        for source in info.sources:
            cost, name = source.call.cost, source.call.primitive.name
            if name in MATRIX:
                dtype = source.call.specs[0].dtype.name
                computing += cost.flops / rate_at(self.rates(name, dtype), cost.flops)
            else:
                computing += cost.flops / self.elementwise
        if not info.sources:
            moving *= self.reorder
        return 1e9 * max(moving, computing) + self.overhead_ns

    def rates(self, primitive: str, dtype: str) -> list[tuple[float, float]]:
        """The rates of a matrix primitive: its own, or those that stand in for it."""
        for key in (f"{primitive} {dtype}", f"matmul {dtype}", f"{primitive} float32"):
            if key in self.matrix:
                return self.matrix[key]
        return self.matrix["matmul float32"]

    def save(self, path) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path) -> "MachineProfile":
        """The profile in a file, or a built-in one by name ("cpu2", "h200").

        Raises:  OptionError for what is neither
        """
        if str(path) in BUILT_IN:
            return BUILT_IN[str(path)]
        if not Path(path).is_file():
            raise OptionError(
                f"machine: expected a file or one of {', '.join(BUILT_IN)}; got {str(path)!r}. "
                f"{suggest(str(path), BUILT_IN)} Write one with `glasshouse calibrate`."
            )
        return cls(**json.loads(Path(path).read_text()))


def rate_at(points: list[tuple[float, float]], size: float) -> float:
    """The rate for a size: straight lines between the points, in logarithms; flat outside."""
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
    [(1e4, 1e11), (1e7, 3e12), (1e9, 4.3e12)], 5e13, 4_000.0, 1.2, 141_000_000_000, 4.5e11,
    "NVIDIA H200 SXM data sheet: 67 TFLOP/s float32, 989 TFLOP/s bfloat16, 4.8 TB/s, NVLink",
)  # fmt: skip
CPU2 = MachineProfile(
    "cpu2",
    {
        "matmul float32": [(1e5, 2e10), (1e7, 1.5e11), (1e9, 2.9e11), (1e11, 3e11)],
        "conv float32": [(1e6, 5e10), (1e8, 2.5e11), (1e10, 3.1e11)],
        "matmul bfloat16": [(1e5, 2e10), (1e7, 2e11), (1e9, 5e11), (1e11, 6e11)],
    },
    [(1e4, 2e10), (1e6, 6e10), (3e7, 4e10), (1e8, 2.5e10)], 4e10, 2_000.0, 1.5, 24 << 30, 1e9,
    "two cores with AVX-512, as measured",
)  # fmt: skip
BUILT_IN = {"h200": H200, "cpu2": CPU2}


def measured(make, name: str = "") -> tuple[StepInfo, float]:
    """(what ran, ns) of the longest kernel of a small program, the best of some runs."""
    found: list[tuple[StepInfo, float]] = []
    with flags.override(compile="always"):
        make().numpy()
        for _ in range(4):
            y = make()
            with profile() as prof:
                y.numpy()
            rows = [r for r in prof.kernels() if name in r.name]
            if rows:
                row = max(rows, key=lambda r: r.time_ns)
                found.append((prof.trace.info(row.program, row.step), row.time_ns / row.runs))
    return min(found, key=lambda pair: pair[1])


def calibrate(name: str = "here", smoke: bool = False) -> MachineProfile:
    """A profile of this machine, from small programs that run in about ten seconds."""
    rng = np.random.default_rng(0)

    def full(*shape):
        return creation.asarray(rng.random(shape, np.float32))

    sizes = (64, 128, 256) if smoke else (64, 128, 256, 512, 1024, 2048)
    matrix: dict[str, list[tuple[float, float]]] = {}
    for dtype in ("float32", "bfloat16"):
        points = []
        for size in sizes:
            a, b = full(size, size).astype(dtype), full(size, size).astype(dtype)
            info, ns = measured(lambda a=a, b=b: matmul(a, b), "matmul")
            points.append((float(info.flops), info.flops * 1e9 / ns))
        matrix[f"matmul {dtype}"] = points
    matrix |= conv_rates(full, smoke)
    bandwidth = []
    for size in [1 << n for n in ((12, 16, 20) if smoke else (12, 16, 19, 22, 25))]:
        x, y = full(size), full(size)
        info, ns = measured(lambda x=x, y=y: x + y)
        bandwidth.append((float(info.bytes), info.bytes * 1e9 / ns))
    x = full(1 << 16)
    info, ns = measured(lambda: exp(exp(exp(exp(x)))))
    tiny = measured(lambda: full(8) + 1)[1]
    return MachineProfile(name, matrix, bandwidth, info.flops * 1e9 / ns, tiny)


def conv_rates(full, smoke: bool) -> dict[str, list[tuple[float, float]]]:
    """Rates of convolutions and their gradients, for layers like those of a ResNet."""
    layers = [(1, 16, 14, 3), (2, 64, 28, 3), (8, 64, 56, 1), (8, 128, 28, 3), (16, 256, 14, 3)]
    found: dict[str, list[tuple[float, float]]] = {}
    for batch, channels, size, kernel in layers[: 2 if smoke else None]:
        pad = (kernel // 2,) * 2
        options = {"stride": (1, 1), "padding": (pad, pad), "dilation": (1, 1), "groups": 1}
        x, w = full(batch, channels, size, size), full(channels, channels, kernel, kernel)
        for name, make in (
            ("conv", lambda x=x, w=w, o=options: conv(x, w, **o)),
            ("conv_data_grad", lambda x=x, w=w, o=options: conv_data_grad(
                x, w, shape=x.shape[2:], **o)),
            ("conv_weight_grad", lambda x=x, w=w, o=options: conv_weight_grad(
                x, x, shape=w.shape[2:], **o)),
        ):  # fmt: skip
            info, ns = measured(make, name)
            rate = info.flops * 1e9 / ns
            found.setdefault(f"{name} float32", []).append((float(info.flops), rate))
    return {name: sorted(points) for name, points in found.items()}
