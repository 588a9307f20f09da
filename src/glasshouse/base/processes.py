"""Environment variables for processes that this one starts, and how many cores there are."""

import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from glasshouse.base.flags import flags

# By these a user tunes OpenMP's threads.
OPENMP_SETTINGS = (
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_SPINCOUNT",
    "GOMP_CPU_AFFINITY",
)


def count_cores() -> int:
    """Cores that this process may use, which a container can make fewer than the machine has."""
    return bound_of_cores().threads


class ThreadBound(NamedTuple):
    """A number of threads, and which bound it comes from: "cores", "affinity", "quota",
    "OMP_NUM_THREADS" or "GH_THREADS"."""

    threads: int
    by: str


def thread_bound(environ: Mapping[str, str] = os.environ) -> ThreadBound:
    """The threads that kernels use in this process, unless PyTorch says how many."""
    if flags.threads > 0:
        return ThreadBound(flags.threads, "GH_THREADS")
    name = "OMP_NUM_THREADS"
    first = environ.get(name, "").partition(",")[0].strip()  # others are of nested regions
    if first.isdecimal() and int(first) > 0:
        return ThreadBound(int(first), name)
    return bound_of_cores()


def tunes_openmp(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has settings for OpenMP's threads but their number."""
    return any(name in environ for name in OPENMP_SETTINGS)


def bound_of_cores() -> ThreadBound:
    """The cores that this process may use: the machine's, those of its affinity, or as many as a
    container's quota of processor time keeps busy."""
    bound = ThreadBound(os.cpu_count() or 1, "cores")
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < bound.threads:
        bound = ThreadBound(len(os.sched_getaffinity(0)), "affinity")
    quota = cpu_quota()
    if quota is not None and math.ceil(quota) < bound.threads:
        bound = ThreadBound(math.ceil(quota), "quota")
    return bound


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The processor seconds a second that control groups allow this process: the least of its
    group's and of those above; None for no bound.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst "CPU" and scheduler/sched-bwc.rst
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for _, controllers, place in (line.split(":", 2) for line in lines if line.count(":") > 1):
        names = controllers.split(",")
        if controllers == "":
            folders, read = ["", "unified"], quota_of_v2
        elif "cpu" in names:
            folders, read = [controllers, "cpu"], quota_of_v1
        else:
            continue
        # Inside a container the path may be the one outside: then only the root is there.
        path = PurePosixPath(place.strip("/"))
        for folder in folders:
            groups = (root / "sys/fs/cgroup" / folder / group for group in (path, *path.parents))
            quotas += filter(None, map(read, groups))
    return min(quotas, default=None)


def quota_of_v2(group: Path) -> float | None:
    """The quota of a group: `cpu.max` has microseconds of "max", and those of a period."""
    return share_of(numbers_of(group / "cpu.max"))


def quota_of_v1(group: Path) -> float | None:
    """The quota of a group; a negative one is none."""
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    return share_of([number for name in files for number in numbers_of(group / name)])


def share_of(numbers: list[int]) -> float | None:
    if len(numbers) == 2 and min(numbers) > 0:
        return numbers[0] / numbers[1]
    return None


def numbers_of(path: Path) -> list[int]:
    """The whole numbers of a file; none where it cannot be read, or says something else."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def threads_of_ranks(size: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable by which each of `size` processes computes with its part of the cores; none
    where the user has set it.

    Example:
        >>> threads_of_ranks(10_000, {})
        {'OMP_NUM_THREADS': '1'}
    """
    name = "OMP_NUM_THREADS"
    return {} if name in environ else {name: str(max(1, count_cores() // size))}


def with_variables(**values: str) -> dict[str, str]:
    """The environment of this process, with these variables."""
    return {**os.environ, **values}


class variables(AbstractContextManager[Any]):
    """The context inside which environment variables have these values, for processes that are
    started."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def __enter__(self) -> None:
        self.before: dict[str, str | None] = {name: os.environ.get(name) for name in self.values}
        os.environ.update(self.values)

    def __exit__(self, *exc_info: object) -> None:
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
