"""Measurement of this machine's rates for kernels, with small programs."""

import math
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import mean, median
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from glasshouse.analyze.machine import MachineProfile, rate_at
from glasshouse.base import DType, bfloat16, float32
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import count_threads
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.lowering.target import current_target, use_target
from glasshouse.compile.steps.work import DRAWS, FLAT, RESTS
from glasshouse.dispatch import backend as backends
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.ops.window import window_scatter, window_select
from glasshouse.profile.profiler import profile
from glasshouse.tensor import exp, matmul, permute_dims, random, tanh
from glasshouse.tensor.standard import creation

REPEATS, FEWEST_REPEATS = 6, 3  # the median counts
LONG_S = 0.5  # of repeats, from which on the fewest are enough
NEW_BYTES = 64 << 20  # bytes for measuring the rate of new pages
UNCACHED_BYTES = 128 << 20  # more than caches hold
STACKED, LARGEST_OF_STACK = 32, 128  # matrices in a stack, and rows of the largest
FEWEST_COPIES, MOST_COPIES = 3, 12
ROUNDS = 3  # runs of a calibration, seconds apart; the median counts


class Measured(NamedTuple):
    """A step of a program: executed FLOPs, bytes, ns, and other measurements."""

    flops: float
    nbytes: float
    ns: float
    info: StepInfo


def measured(make: Any, name: str = "") -> Measured:
    """Measure the kernels called `name` in a program by their median times; return the median one,
    without the first step: threads that have slept take a millisecond to wake."""
    times: dict[tuple[Any, ...], list[float]] = {}
    infos: dict[tuple[Any, ...], StepInfo] = {}
    with flags.override(compile="always"):
        backends.current().evaluate([y.payload for y in make()])
        begin_ns = perf_counter_ns()
        for i in range(REPEATS):
            if i >= FEWEST_REPEATS and perf_counter_ns() - begin_ns > 1e9 * LONG_S:
                break
            results = make()
            with profile() as prof:
                backends.current().evaluate([y.payload for y in results])
            trace = prof.trace
            for program, step, begin, end in zip(*trace.steps[:2], *trace.steps[3:5], strict=True):
                info = trace.info(int(program), int(step))
                if name in info.name and step:
                    work = (int(step), info.executed_flops, info.bytes)
                    times.setdefault(work, []).append(end - begin)
                    infos[work] = info
    works = sorted((median(ns), flops, nbytes, step) for (step, flops, nbytes), ns in times.items())
    ns, flops, nbytes, step = works[len(works) // 2]
    return Measured(float(flops), float(nbytes), float(ns), infos[step, flops, nbytes])


def calibrate_kernels(name: str, smoke: bool) -> MachineProfile:
    """Calibrate a profile of this machine without Python's times, with small programs."""
    rounds = [measure_all(name, smoke) for _ in range(1 if smoke else ROUNDS)]

    def usual(curves):
        return [sorted(points)[len(points) // 2] for points in zip(*curves, strict=True)]

    rates = ("elementwise", "overhead_ns", "handwritten", "reorder", "new_bytes_per_s")
    return replace(
        rounds[0],
        matrix={key: usual([x.matrix[key] for x in rounds]) for key in rounds[0].matrix},
        bandwidth=usual([x.bandwidth for x in rounds]),
        **{key: median(getattr(x, key) for x in rounds) for key in rates},
    )


def measure_all(name: str, smoke: bool) -> MachineProfile:
    rng = np.random.default_rng(0)

    def full(*shape, scale=1.0):
        return creation.asarray(scale * rng.random(shape, np.float32))

    bandwidth = []
    for size in [1 << n for n in ((12, 16, 20) if smoke else (12, 16, 19, 22, 25))]:
        pairs = [(full(size), full(size)) for _ in range(4 if size < 1 << 24 else 2)]
        sums = measured(lambda pairs=pairs: [x + y for x, y in pairs])
        bandwidth.append((sums.nbytes, 1e9 * sums.nbytes / sums.ns))
    matrix = product_rates(full, smoke, bandwidth)
    fastest = max(rate for key in matrix if dtype_of(key) == "float32" for _, rate in matrix[key])
    matrix |= conv_rates(full, smoke, bandwidth, fastest)
    matrix[f"{DRAWS} uint32"] = [draw_rate()]
    many = [full(1 << 16) for _ in range(4)]
    flops, _, ns, _ = measured(lambda: [exp(exp(exp(exp(x)))) for x in many])
    few = [full(8 + i) for i in range(6)]
    overhead = measured(lambda: [x + 1 for x in few]).ns
    elementwise = 1e9 * flops / ns
    matrix[f"{RESTS} float32"] = [rest_rate(full, elementwise)]
    rates: dict[str, Any] = {
        "handwritten": pool_rate(full),
        "reorder": reorder_rate(full, bandwidth),
        "new_bytes_per_s": new_page_rate(max(1, count_threads())),
    }
    return MachineProfile(name, matrix, bandwidth, elementwise, overhead, **rates)


def copies(nbytes: int) -> int:
    """Number of such operands of which none is in a cache at its next turn, as in a model; small
    enough that the data of small ones are still there."""
    return min(max(UNCACHED_BYTES // nbytes, FEWEST_COPIES), MOST_COPIES)


def alone(ns: float, nbytes: float, bandwidth: Any) -> float:
    """Seconds of computing, for kernels that move before."""
    return max(ns / 1e9 - nbytes / rate_at(bandwidth, nbytes), ns / 4e9)


def draw_rate() -> tuple[float, float]:
    """(count, random numbers a second)."""
    count = 1 << 17
    draws = measured(lambda: [random.uniform((count,)) for _ in range(4)], DRAWS)
    return float(count), 1e9 * count / draws.ns


def rest_rate(full: Any, elementwise: float) -> tuple[float, float]:
    """(FLOPs, FLOP/s) of elements that fill no vector, of which each of these rows has some."""
    xs = [full(1 << 11, 15) for _ in range(4)]
    rows = measured(lambda: [tanh(exp(tanh(exp(x[:, :14])))) for x in xs])
    rest = rows.flops * rows.info.rest
    seconds = max(rows.ns / 1e9 - (rows.flops - rest) / elementwise, rows.ns / 1e10)
    return rest, rest / seconds


def reorder_rate(full: Any, bandwidth: Any) -> float:
    """Time of a change of layout of a convolution's weights, and of those that its gradients need,
    as a multiple of a copy's."""
    moved = list(conv_timings(full, ConvLayer(2, 512, 7, 3, 1), step="reorder"))
    return max(1.0, mean(x.ns / 1e9 * rate_at(bandwidth, x.nbytes) / x.nbytes for x in moved))


def new_page_rate(threads: int) -> float:
    """Bytes a second of memory that the system makes for threads which write it first."""
    with ThreadPoolExecutor(threads) as pool:
        times = []
        for _ in range(REPEATS):
            pages = np.frombuffer(mmap.mmap(-1, NEW_BYTES), np.float32)
            parts = np.array_split(pages, threads)
            begin = perf_counter_ns()
            list(pool.map(fill, parts))
            first = perf_counter_ns()
            list(pool.map(fill, parts))
            times.append(2 * first - begin - perf_counter_ns())
    return 1e9 * NEW_BYTES / max(1, median(times))


def fill(part: np.ndarray) -> None:
    """Write all of it."""
    part.fill(1.0)


def pool_rate(full: Any) -> float:
    """FLOP/s of pooling and its gradient."""
    images, grads = ([full(4, n, n, 64) for _ in range(3)] for n in (57, 28))
    size: dict[str, Any] = {"size": (3, 3), "stride": (2, 2), "dilation": (1, 1)}
    size["padding"] = ((0, 0), (0, 0))

    def channels_dense(x):  # as beside convolutions
        return permute_dims(x, (0, 3, 1, 2))

    def select():
        return [window_select(channels_dense(x), channels_dense(x), **size) for x in images]

    def scatter():
        pairs = zip(grads, images, strict=True)
        return [window_scatter(channels_dense(g), channels_dense(x), **size) for g, x in pairs]

    windows = [measured(make, "window") for make in (select, scatter)]
    return 1e9 * sum(w.flops for w in windows) / sum(w.ns for w in windows)


def product_rates(full: Any, smoke: bool, bandwidth: Any) -> dict[str, list[tuple[float, float]]]:
    """Rates of products of two matrices: with their moving, and without it where that is separate.
    Each lowerer has its own: products that a fast one leaves go to the next."""
    rates: dict[str, list[tuple[float, float]]] = {}
    for dtype in (float32, bfloat16):
        for size in (32, 128, 256) if smoke else (16, 32, 64, 128, 256, 512, 1024, 2048):
            count = copies(3 * size**2 * dtype.itemsize)
            pairs = [[full(size, size).astype(dtype) for _ in range(2)] for _ in range(count)]
            for flops, nbytes, ns, key in rates_by_lowerer(pairs, f"{FLAT} {dtype.name}"):
                computing = flops / alone(ns, nbytes, bandwidth)
                rates.setdefault(key, []).append((flops, computing))
            for flops, ns, key in stack_rates(full, size, dtype):
                rates.setdefault(key, []).append((flops, 1e9 * flops / ns))
    return rates


def stack_rates(full: Any, size: int, dtype: DType) -> Iterator[tuple[float, float, str]]:
    """(FLOPs, ns, name of the rate) of products of stacks of matrices, as attention has them."""
    if size <= LARGEST_OF_STACK:
        shape = (STACKED // 4, size, 4, size)  # examples, positions, heads, features of a head
        pairs = [[full(*shape).astype(dtype) for _ in range(2)] for _ in range(4)]
        heads = partial(permute_dims, axes=(0, 2, 1, 3))
        timing = measured(lambda: [matmul(heads(a), heads(b).mT) for a, b in pairs], "matmul")
        key = timing.info.work.what[1]
        if dtype_of(key) == dtype.name:
            yield timing.flops, timing.ns, key


def rates_by_lowerer(pairs: Any, usual: str) -> Iterator[tuple[float, float, float, str]]:
    """(FLOPs, bytes, ns, name of the rate) of products of these pairs: by the lowerer with the
    first pick, then without it by the next, up to the one whose rates have the usual name. None
    where a product of another dtype is computed instead: that one has its own rates."""
    target, key = current_target(), ""
    while key != usual:
        with use_target(target):
            timing = measured(lambda: [matmul(a, b) for a, b in pairs], matmul.__name__)
        (kind, key), (nbytes, *_) = timing.info.work
        if dtype_of(key) != dtype_of(usual):
            return
        yield timing.flops, float(nbytes), timing.ns, key
        others = [lowerer for lowerer in target.lowerers if lowerer != kind]
        assert len(others) < len(target.lowerers), kind
        target = target.extension(("without", kind), lowerers=others)


def dtype_of(product: str) -> str:
    """The dtype that a product's name ends with."""
    return product.rsplit(" ", 1)[1]


class ConvLayer(NamedTuple):
    """A convolution on square images, with as many channels in as out if `outs` is 0."""

    batch: int
    channels: int
    size: int
    kernel: int
    stride: int
    outs: int = 0

    def options(self, is_depthwise: bool) -> dict[Any, Any]:
        """Attrs of its cards, beside the tensors."""
        pad = (self.kernel // 2,) * 2
        groups = self.channels if is_depthwise else 1
        return {
            "stride": (self.stride,) * 2,
            "padding": (pad, pad),
            "dilation": (1, 1),
            "groups": groups,
        }


LAYERS = [(1, 16, 4, 3, 1), (1, 16, 14, 3, 1), (2, 64, 28, 3, 1), (8, 64, 56, 1, 1),
          (16, 512, 14, 1, 1), (8, 128, 28, 3, 1), (16, 256, 14, 3, 1), (1, 16, 8, 3, 2),
          (2, 128, 28, 3, 2), (8, 128, 56, 3, 2)]  # fmt: skip
NARROW = [(1, 16, 2, 3, 1), (2, 128, 2, 3, 1), (4, 512, 2, 3, 1), (16, 512, 2, 3, 1),
          (1, 16, 4, 3, 2), (4, 256, 4, 3, 2, 512)]  # fmt: skip
FEW_CHANNELS = [(1, 2, 4, 3, 1, 4), (16, 1, 28, 3, 1, 16), (16, 6, 14, 5, 1, 16),
                (4, 3, 64, 3, 1, 32), (1, 2, 4, 3, 2, 4), (8, 3, 32, 3, 2, 16),
                (2, 3, 112, 7, 2, 64)]  # fmt: skip
DEPTHWISE = [(1, 16, 4, 3, 1), (8, 32, 14, 3, 1), (8, 512, 14, 3, 1), (8, 128, 56, 3, 1),
             (8, 512, 7, 5, 1), (8, 128, 28, 5, 1), (1, 16, 4, 3, 2), (8, 512, 14, 3, 2),
             (8, 64, 112, 3, 2), (8, 512, 14, 5, 2), (8, 96, 56, 5, 2)]  # fmt: skip


def conv_rates(
    full: Any, smoke: bool, bandwidth: Any, fastest: float
) -> dict[str, list[tuple[float, float]]]:
    """Rates of convolutions like a ResNet's and a MobileNet's, and of their gradients; without
    moving where that comes before, and at most `fastest`, the rate of products: some move while
    they compute."""
    rates: dict[str, list[tuple[float, float]]] = {}
    for sizes, is_depthwise in (
        *((x, False) for x in (LAYERS, NARROW, FEW_CHANNELS)),
        (DEPTHWISE, True),
    ):
        for layer in sizes[: 2 if smoke else None]:
            for timing in conv_timings(full, ConvLayer(*layer), is_depthwise):
                (kind, key), _ = timing.info.work
                seconds = timing.ns / 1e9
                if kind.moves_first:
                    seconds = alone(timing.ns, timing.nbytes, bandwidth)
                rate = min(timing.flops / seconds, fastest)
                rates.setdefault(key, []).append((timing.flops, rate))
    return {name: sorted(points) for name, points in rates.items()}


def conv_timings(
    full: Any, layer: ConvLayer, is_depthwise: bool = False, step: str = ""
) -> Iterator[Measured]:
    """A convolution and the gradients of its data and of its weights, or another step of each. Each
    has weights of its own, as in a model."""
    batch, channels, size, kernel, stride, outs = layer
    outs = outs or channels
    shape, of_results = (batch, channels, size, size), (batch, outs, *(size // stride,) * 2)
    count = copies(4 * (math.prod(shape) + math.prod(of_results)))
    xs = [full(*shape) for _ in range(count)]
    gs = [full(*of_results) for _ in range(count)]
    group_channels = 1 if is_depthwise else channels
    kernels, scale = (outs, group_channels, kernel, kernel), 2 / (group_channels * kernel**2)
    ws = [full(*kernels, scale=scale) for _ in range(count)]
    for card, pairs, more in (
        (conv, zip(xs, ws, strict=True), {}),
        (conv_data_grad, zip(gs, ws, strict=True), {"shape": shape[2:]}),
        (conv_weight_grad, zip(xs, gs, strict=True), {"shape": kernels[2:]}),
    ):
        call, each = partial(card, **layer.options(is_depthwise), **more), list(pairs)
        yield measured(lambda f=call, each=each: [f(*p) for p in each], step or card.name)
