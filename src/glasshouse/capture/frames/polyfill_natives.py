"""Python's own iterators for the rest of a polyfill's generator that the interpreter began."""

import itertools
from functools import partial
from operator import length_hint
from types import CodeType
from typing import TYPE_CHECKING, Any

from glasshouse.capture.values import polyfills
from glasshouse.capture.values.polyfills import NATIVES, POLYFILLS

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import NativeLocals


def left_of_accumulate(at: Any, loop: Any) -> Any:
    items = loop[0] if loop else at["iterable"]
    rest = itertools.chain([at["total"]], items)  # None is no initial value
    return advance(1, itertools.accumulate(rest, *filter(None, [at["fn"]])))


def left_of_chain(at: Any, loop: Any) -> Any:
    outer, *inner = loop
    return itertools.chain.from_iterable(itertools.chain(inner, outer))


def left_of_cycle(at: Any, loop: Any) -> Any:
    items = at["items"]
    if at["repeats"]:
        return advance(len(items) - loop[0].__length_hint__(), itertools.cycle([*items]))
    first_round = [*items, at["x"]]
    return advance(len(first_round), itertools.cycle(itertools.chain(first_round, loop[0])))


def left_of_dropwhile(at: Any, loop: Any) -> Any:
    return advance(1, itertools.dropwhile(bool, itertools.chain([False], loop[0])))


def advance(count: int, iterator: Any) -> Any:
    """Skip so many items of an iterator, and return it."""
    for _ in range(count):
        next(iterator)
    return iterator


def left_of_sequence(at: Any, loop: Any) -> Any:
    iterator = iter(at["obj"])
    iterator.__setstate__(at["number"] + 1)
    return iterator


def left_of_product(at: Any, loop: Any) -> Any:
    rest = itertools.product(*at["pools"])
    for _ in range(len(at["rows"]) - length_hint(loop[0])):
        next(rest)
    return rest


def left_of_repeat(at: Any, loop: Any) -> Any:
    times = [] if at["times"] is None else [at["times"] - 1]
    return itertools.repeat(at["object"], *times)


def left_of_islice(at: "NativeLocals", loop: list[Any]) -> Any:
    end = at["end"] if at["end"] is None else at["end"] - at["count"]
    return itertools.islice(at["iterator"], at["target"] - at["count"], end, at["step"])


# Rules by polyfill: the rest as Python's own iterator, from the values of its locals and the
# iterators of its loops, outermost first.
LEFT: dict[Any, Any] = {
    polyfills.map_of: lambda at, loop: map(at["fn"], *loop[0]),
    polyfills.compress_of: lambda at, loop: itertools.compress(*loop[0]),
    polyfills.filter_of: lambda at, loop: filter(at["fn"], loop[0]),
    polyfills.filterfalse_of: lambda at, loop: itertools.filterfalse(at["fn"], loop[0]),
    polyfills.takewhile_of: lambda at, loop: itertools.takewhile(at["fn"], loop[0]),
    polyfills.starmap_of: lambda at, loop: itertools.starmap(at["fn"], loop[0]),
    polyfills.enumerate_of: lambda at, loop: enumerate(loop[0], at["number"] + 1),
    polyfills.zip_of: lambda at, loop: zip(*at["iterators"], strict=at["strict"]),
    polyfills.zip_longest_of: lambda at, loop: itertools.zip_longest(
        *at["iterators"], fillvalue=at["fillvalue"]
    ),
    polyfills.pairwise_of: lambda at, loop: itertools.pairwise(itertools.chain([at["x"]], loop[0])),
    polyfills.count_from: lambda at, loop: itertools.count(at["start"] + at["step"], at["step"]),
    polyfills.call_until: lambda at, loop: iter(at["fn"], at["sentinel"]),
    polyfills.accumulate_of: left_of_accumulate,
    polyfills.chained: left_of_chain,
    polyfills.cycle_of: left_of_cycle,
    polyfills.dropwhile_of: left_of_dropwhile,
    polyfills.iterate: left_of_sequence,
    polyfills.product_of: left_of_product,
    polyfills.repeat_of: left_of_repeat,
    polyfills.islice_items: left_of_islice,
}
RULES: dict[Any, Any] = {fn.__code__: rule for fn, rule in LEFT.items()}


class EmptySequence:
    """A sequence without items that has nothing but `__getitem__`."""

    def __getitem__(self, number: Any) -> Any:
        raise IndexError


NATIVES |= {
    polyfills.islice_items: itertools.islice,
    polyfills.call_until: iter,
    polyfills.iterate: iter,
}
# The types of these iterators in plain Python.
KINDS = {fn: native for fn, native in NATIVES.items() if isinstance(native, type)}
KINDS |= {
    polyfills.chained: itertools.chain,
    polyfills.call_until: type(iter(int, 0)),
    polyfills.iterate: type(iter(EmptySequence())),
}
# How each of them ends: a native one that has ended.
ENDED = {
    polyfills.iterate: lambda: iter(EmptySequence()),
    polyfills.call_until: lambda: iter(int, 0),
    polyfills.chained: itertools.chain,
    polyfills.repeat_of: lambda: itertools.repeat(None, 0),
    polyfills.compress_of: lambda: itertools.compress((), ()),
    polyfills.islice_items: lambda: itertools.islice((), 0),
}
OF_ONE = (enumerate, zip, itertools.accumulate, itertools.cycle, itertools.groupby)
OF_ONE += (itertools.pairwise, itertools.product, itertools.zip_longest)
OF_FUNCTION = (filter, map, itertools.dropwhile, itertools.filterfalse)
OF_FUNCTION += (itertools.starmap, itertools.takewhile)
ENDED |= {POLYFILLS[kind]: partial(kind, ()) for kind in OF_ONE}
ENDED |= {POLYFILLS[kind]: partial(kind, len, ()) for kind in OF_FUNCTION}
ENDS: dict[Any, Any] = {fn.__code__: make for fn, make in ENDED.items()}


# Iterators that pass on the end value of the iterator that they draw from: their C code does not
# touch its StopIteration, and a `yield from` sees it.
PASSING = (enumerate, filter, map, zip, itertools.accumulate, itertools.compress)
PASSING += (itertools.dropwhile, itertools.filterfalse, itertools.pairwise, itertools.starmap)
PASSING += (itertools.takewhile,)
PASSES_ON: set[Any] = {POLYFILLS[kind].__code__ for kind in PASSING} | {
    polyfills.islice_items.__code__
}


def native_of(code: CodeType, at: "NativeLocals", loop: list[Any]) -> Any:
    """Python's own iterator for the rest of a polyfill's generator, or None."""
    rule = RULES.get(code)
    try:
        return None if rule is None else rule(at, loop)
    except (IndexError, KeyError, TypeError, StopIteration):  # it has no next item
        return None


def ended_native(code: CodeType) -> Any:
    """An iterator of plain Python's type that has ended; None if there is none."""
    make = ENDS.get(code)
    if make is None:
        return None
    iterator = make()
    next(iterator, None)
    return iterator
