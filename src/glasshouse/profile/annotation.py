"""Annotations: regions that the user names, almost free while nothing records."""

import copy
import functools
from collections.abc import Callable
from inspect import isgeneratorfunction
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any, Self

from glasshouse.compile.building import toolchain
from glasshouse.dispatch import tell, watchers

lock: Any = Lock()  # one annotation may be entered by several threads, and within itself


class Annotation:
    """Slow clear twin of native/annotation.c: `begun` has (thread, time) of each entry that a
    watcher saw."""

    __slots__ = ("name", "begun")

    def __init__(self, name: str) -> None:
        self.name: str = str(name)
        self.begun: tuple[tuple[int, int], ...] = ()

    def __enter__(self) -> Self:
        if watchers:
            with lock:
                self.begun += ((get_ident(), perf_counter_ns()),)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if watchers or self.begun:
            tell("annotation", self.name, self.take_begin_ns())

    def take_begin_ns(self) -> int:
        """Return the begin of the region that ends now, if recorded: the last of this thread's."""
        with lock:
            entries = [entry for entry in self.begun if entry[0] == get_ident()] or self.begun
            self.begun = tuple(entry for entry in self.begun if entry is not entries[-1])
        return entries[-1][1] if entries else perf_counter_ns()

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function with each of its calls annotated, or each run of its generators."""

        @functools.wraps(fn)
        def annotated(*args, **kwargs):
            with self:
                return fn(*args, **kwargs)

        @functools.wraps(fn)
        def generator(*args, **kwargs):
            with copy.copy(self):  # others of this function may run meanwhile
                return (yield from fn(*args, **kwargs))

        return generator if isgeneratorfunction(fn) else annotated

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class record_function(Annotation):
    """Context and decorator: a named region in the trace; almost free while nothing records.

    Example:
        >>> with record_function("load batch"):
        ...     pass
    """

    __slots__ = ()

    def __enter__(self) -> "record_function":  # the first time
        quicken()
        return Annotation.__enter__(self)


def quicken() -> None:
    """Use C for plain annotations where it can be compiled: 0.06 µs instead of 0.2."""
    twin = Annotation
    try:
        quicken = toolchain.extension(toolchain.NATIVE / "annotation.c").quicken
        slots = vars(twin)["name"], vars(twin)["begun"]
        quicken(record_function, watchers, twin.__enter__, twin.__exit__, *slots, ())
    except toolchain.CompileError:
        with lock:  # another thread may have come first
            if "__enter__" in vars(record_function):
                del record_function.__enter__
