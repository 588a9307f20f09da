"""Limits of the machine, measured once and stored: products, copies and sums."""

import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.flags import flags
from glasshouse.base.processes import count_cores
from glasshouse.dispatch.value import as_value
from glasshouse.ops.contract import matmul
from glasshouse.ops.elementwise import add


class Limits(NamedTuple):
    """Matrix products in FLOP/s (float32), copies and sums in bytes/s, read plus written."""

    flops_per_s: float
    bytes_per_s: float


def read_fields(path: str) -> dict[str, str]:
    """The first `name : value` lines of a file of /proc; empty where there is no such file."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in reversed(lines) if ":" in line]
    return {name.strip(): value.strip() for name, _, value in pairs}


def processor_name() -> str:
    """Return the processor's name for itself."""
    named = read_fields("/proc/cpuinfo").get("model name")
    return named or platform.processor() or platform.machine()


def seconds_of(fn: Callable[..., Any], repeats: int = 5) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure_matrix_flops(multiplication: Callable[..., Any], smoke: bool = False) -> float:
    """FLOP/s of `multiplication(size)()`, in the largest size that takes no more than a moment."""
    size, most = 256, 256 if smoke else 2048
    while True:
        multiply = multiplication(size)
        with flags.override(compile="always"):  # not by the references of short Programs
            multiply()
            seconds = seconds_of(multiply)
        if size >= most or 8 * seconds > 0.5:
            return 2 * size**3 / seconds
        size *= 2


def measure_copy(smoke: bool = False) -> float:
    source = np.ones(2**20 if smoke else 2**25, np.float32)
    parts = list(zip(*(np.array_split(a, count_cores()) for a in (source, np.zeros_like(source)))))
    with ThreadPoolExecutor(len(parts)) as pool:
        seconds = seconds_of(lambda: list(pool.map(lambda p: np.copyto(p[1], p[0]), parts)))
    return 2 * source.nbytes / seconds


def our_multiplication(size: int) -> Callable[..., Any]:
    a = as_value(np.random.default_rng(0).random((size, size), np.float32))
    return lambda: matmul(a, a).numpy()


def measure_sum() -> float:
    array = np.ones(2**24, np.float32)
    x, y = as_value(array), as_value(array.copy())
    for _ in range(4):  # it is compiled when it has cost enough
        add(x, y).numpy()
    return 3 * array.nbytes / seconds_of(lambda: add(x, y).numpy())


@cache
def limits() -> Limits:
    """The limits of this machine with these threads, measured in about a second, once a process."""
    return Limits(measure_matrix_flops(our_multiplication), max(measure_copy(), measure_sum()))
