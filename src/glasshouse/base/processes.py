"""Environment variables for processes that this one starts, and how many cores there are."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any


def count_cores() -> int:
    """Cores that this process may use, which a container can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
