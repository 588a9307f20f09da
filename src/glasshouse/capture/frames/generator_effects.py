"""Tests whether more of a generator's code runs when it is released."""

from collections.abc import Generator, Sequence
from typing import Any

from glasshouse.capture.frames.frame import CapturedGenerator, EnumerateIterator, ZipIterator
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Var


def ends_with_effects(generator: CapturedGenerator, visited: tuple[Any, ...] = ()) -> bool:
    """Whether code of a generator, or of one that it holds, runs when it is released."""
    acts = not generator.is_polyfill and generator.frame.code.ends_with_effects
    return acts or holds_effects(generator, visited)


def holds_effects(generator: CapturedGenerator, visited: tuple[Any, ...] = ()) -> bool:
    """Whether code of a generator that only this one may hold runs when this one ends."""
    visited = (*visited, generator)
    inner = generators_in((*generator.frame.locals, *generator.frame.stack))
    return any(x not in visited and x.is_open and ends_with_effects(x, visited) for x in inner)


def generators_in(values: Sequence[Any]) -> Generator[Any, Any, Any]:
    """The generators among Vars, and those that iterators and lists among them draw from."""
    for var in values:
        value: Any = None if var is None else var.value
        if isinstance(value, CapturedGenerator):
            yield value
        elif isinstance(value, ZipIterator):
            yield from generators_in(value.inners)
        elif isinstance(value, EnumerateIterator):
            yield from generators_in([value.inner])
        elif isinstance(value, list) and isinstance(var.items, list):
            yield from (x.value for x in var.items if is_generator(x))


def is_generator(x: Var) -> bool:
    return isinstance(x, Var) and isinstance(x.value, CapturedGenerator)
