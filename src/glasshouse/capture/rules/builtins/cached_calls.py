"""Calls of functions under `functools.lru_cache`: for constants they return one object."""

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.program import FinalCheck
from glasshouse.capture.rules.constants import call_concrete, is_plain, is_same_object
from glasshouse.capture.values.plain import CACHED, MISSING, is_trusted
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Var, constant

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def call_cached(t: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any) -> Any:
    """Call a function with a cache: later calls find the same result there."""
    arguments = [*args, *kwargs.values()]
    objects = [x for x in arguments if not t.foldable(x)]
    if not all(is_same_object(t, x) for x in objects):
        return t.call(Var(fn.value.__wrapped__), args, kwargs, then)
    t.concretize(fn)
    result = call_concrete(t, fn.value, args, kwargs)
    if not t.guards.live:
        return t.give(then, result)
    if is_plain(t, result) and not has_mutable(result):
        if not is_trusted(fn.value.__module__):
            rely_on_result(t, fn.value, *values_of(args, kwargs), result)
        return t.deliver(then, constant(result))
    if any(x.origin.kind != "const" for x in objects):  # a guard would keep them alive
        reason = f"{fn.value.__name__} gives a {type(result).__name__}"
        raise Break(reason, fn, args, kwargs)
    rely_on_result(t, fn.value, *values_of(args, kwargs), result)
    source = t.guards.source("const", None, result, f"{fn.value.__name__}(…)")
    return t.deliver(then, t.heap.load(result, source))


def rely_on_result(
    t: "CaptureTracer", f: Callable[..., Any], args: list[Any], kwargs: dict[Any, Any], result: Any
) -> None:
    """Guard that a function's cache still holds a result. The guard calls the function, which
    counts as a hit, as the user's own call would. It does not call a function whose cache was
    cleared: that would run the user's code before all guards have passed."""
    results = t.guards.once.get(KeptResults)
    if results is None:
        results = t.guards.once[KeptResults] = KeptResults()
        check = FinalCheck(still_hold, results, "caches have what they gave")
        place = t.guards.source("const", None, functools.lru_cache, "lru_cache")
        t.guards.add("call", place, check)
    results.add(f, args, kwargs, result)


class KeptResults:
    """The results that a trace took from cached functions, and the entries of their caches."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []  # function, arguments, keywords, result
        self.places: list[tuple[Any, ...]] = []  # cache, key, stored value

    def add(
        self, f: Callable[..., Any], args: list[Any], kwargs: dict[Any, Any], result: Any
    ) -> None:
        self.calls.append((f, args, kwargs, result))
        cache, key = cache_of(f), key_of(f, args, kwargs)
        self.places.append((cache, key, cache.get(key, MISSING)))

    def hold(self) -> bool:
        """Whether the caches still have these results, and return them again."""
        there = all(
            stored is not MISSING and cache.get(key, MISSING) is stored
            for cache, key, stored in self.places
        )
        return there and all(
            is_same(f(*args, **kwargs), result) for f, args, kwargs, result in self.calls
        )


def cache_of(f: Callable[..., Any]) -> dict[Any, Any]:
    """The dict in which a function under `lru_cache` keeps its results. A cache that is cleared and
    filled again has other objects, or other results."""
    return next(x for x in gc.get_referents(f) if type(x) is dict and x is not f.__dict__)


def key_of(f: Callable[..., Any], args: list[Any], kwargs: dict[Any, Any]) -> Any:
    """The key of a call in the cache of a function, as Python makes it."""
    parameters: dict[str, Any] = getattr(f, "cache_parameters", dict)()
    make: Any = CACHED
    probe = make(nothing, None, parameters.get("typed", False), tuple)
    probe(*args, **kwargs)
    return next(iter(cache_of(probe)))


def nothing(*args: Any, **kwargs: Any) -> None:
    """A function to be cached for the keys of its calls."""


def still_hold(_: Any, results: KeptResults) -> bool:
    return results.hold()


def same_constant(a: Any, b: Any) -> bool:
    """Whether two values are equal constants whose identity does not matter."""
    return type(a) is type(b) and type(a) in (bool, int, str, bytes) and a == b


def values_of(args: list[Var], kwargs: dict[Any, Any]) -> tuple[list[Any], dict[Any, Any]]:
    return [x.value for x in args], {name: x.value for name, x in kwargs.items()}


def is_same(value: Any, other: Any) -> bool:
    return value is other or same_constant(value, other)


def has_mutable(value: Any) -> bool:
    """Whether a plain value contains something that can be written to."""
    if isinstance(value, (list, dict, set)):
        return True
    return isinstance(value, (tuple, frozenset)) and any(map(has_mutable, value))
