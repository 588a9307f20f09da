"""Builtins that call back into Python, written in Python so that the interpreter sees inside."""

import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

from glasshouse.capture.bytecode.versions import bytecode

MISSING = object()
EMPTY = bytecode.empty


def sum_of(iterable: Any, /, start: Any = 0) -> Any:
    for kind, empty in ((str, "''"), (bytes, "b''"), (bytearray, "b''")):
        if isinstance(start, kind):
            text = {str: "strings", bytes: "bytes", bytearray: "bytearray"}[kind]
            raise TypeError(f"sum() can't sum {text} [use {empty}.join(seq) instead]")
    for x in iterable:
        start = start + x
    return start


def any_of(iterable: Any, /) -> bool:
    for x in iterable:
        if x:
            return True
    return False


def all_of(iterable: Any, /) -> bool:
    for x in iterable:
        if not x:
            return False
    return True


def map_of(fn: Any, *iterables: Any) -> Iterator[Any]:
    for xs in zip(*iterables):
        yield fn(*xs)


def filter_of(fn: Any, iterable: Any, /) -> Iterator[Any]:
    for x in iterable:
        if x if fn is None else fn(x):
            yield x


def enumerate_of(iterable: Any, start: Any = 0) -> Iterator[Any]:
    number = start
    for x in iterable:
        yield number, x
        number += 1


def zip_of(*iterables: Any, strict: Any = False) -> Iterator[Any]:
    iterators = [iter(x) for x in iterables]
    while iterators:
        row = []
        for number, it in enumerate(iterators):
            x = next(it, MISSING)
            if x is MISSING:
                if strict and number:
                    raise ValueError(unequal(number, "shorter"))
                if strict:
                    for later in range(1, len(iterators)):
                        if next(iterators[later], MISSING) is not MISSING:
                            raise ValueError(unequal(later, "longer"))
                return
            row.append(x)
        yield tuple(row)


def unequal(number: Any, how: Any) -> Any:
    others = f"s 1-{number}" if number > 1 else " 1"
    return f"zip() argument {number + 1} is {how} than argument{others}"


def best(keep_new: Any, args: Any, key: Any, default: Any, name: Any) -> Any:
    if not args:
        raise TypeError(f"{name} expected at least 1 argument, got 0")
    if len(args) > 1 and default is not MISSING:
        text = f"Cannot specify a default for {name}() with multiple positional arguments"
        raise TypeError(text)
    items = args[0] if len(args) == 1 else args
    best_item = best_key = MISSING
    for x in items:
        x_key = x if key is None else key(x)
        if best_item is MISSING or keep_new(x_key, best_key):
            best_item, best_key = x, x_key
    if best_item is MISSING:
        if default is MISSING:
            raise ValueError(f"{name}() {EMPTY}")
        return default
    return best_item


def min_of(*args: Any, key: Any = None, default: Any = MISSING) -> Any:
    return best(lambda new, old: new < old, args, key, default, "min")


def max_of(*args: Any, key: Any = None, default: Any = MISSING) -> Any:
    return best(lambda new, old: new > old, args, key, default, "max")


def sorted_of(iterable: Any, /, *, key: Any = None, reverse: Any = False) -> Any:
    items = list(iterable)
    check_reverse(reverse)
    keys = [(x if key is None else key(x)) for x in items]
    return [items[i] for i in order_of(keys, bool(reverse))]


def check_reverse(reverse: bool) -> None:  # has a rule: the real one raises
    sorted((), reverse=reverse)


def order_of(keys: list[Any], reverse: bool) -> list[int]:  # has a rule: it needs known keys
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)


def reduce_of(fn: Any, iterable: Any, initial: Any = MISSING, /) -> Any:
    it = iter(iterable)
    value = next(it, MISSING) if initial is MISSING else initial
    if value is MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    for x in it:
        value = fn(value, x)
    return value


def chain_of(*iterables: Any) -> Any:
    return chained(iterables)


def islice_of(iterable: Any, *args: Any) -> Any:
    check_islice(*args)
    parts = slice(*args)
    return islice_items(iter(iterable), parts.start or 0, parts.stop, parts.step or 1)


def check_islice(*args: Any) -> None:  # has a rule: the real one raises
    itertools.islice((), *args)


def islice_items(iterator: Any, target: Any, end: Any, step: Any) -> Iterator[Any]:
    count = 0
    while True:
        while count < target:
            if next(iterator, MISSING) is MISSING:
                return
            count += 1
        if end is not None and count >= end:
            return
        x = next(iterator, MISSING)
        if x is MISSING:
            return
        count += 1
        target = target + step if end is None else min(target + step, end)
        yield x


def repeat_of(object: Any, times: Any = None) -> Iterator[Any]:
    while times is None or times > 0:
        yield object
        if times is not None:
            times -= 1


def count_from(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    while True:
        yield start
        start += step


def accumulate_of(iterable: Any, fn: Any = None, *, initial: Any = None) -> Iterator[Any]:
    total = initial
    if initial is not None:
        yield total
    first = initial is None
    for x in iterable:
        total = x if first else (total + x if fn is None else fn(total, x))
        first = False
        yield total


def starmap_of(fn: Any, iterable: Any, /) -> Iterator[Any]:
    for x in iterable:
        yield fn(*x)


def product_of(*iterables: Any, repeat: Any = 1) -> Generator[Any, Any, Any]:
    pools = [tuple(x) for x in iterables] * repeat
    rows = [()]
    for pool in pools:
        rows = [(*x, y) for x in rows for y in pool]
    yield from rows


def takewhile_of(fn: Any, iterable: Any, /) -> Iterator[Any]:
    for x in iterable:
        if not fn(x):
            return
        yield x


def dropwhile_of(fn: Any, iterable: Any, /) -> Iterator[Any]:
    dropping = True
    for x in iterable:
        if dropping and fn(x):
            continue
        dropping = False
        yield x


def filterfalse_of(fn: Any, iterable: Any, /) -> Iterator[Any]:
    for x in iterable:
        if not (x if fn is None else fn(x)):
            yield x


def cycle_of(iterable: Any, /) -> Iterator[Any]:
    items, repeats = [], False
    for x in iterable:
        yield x
        items.append(x)
    repeats = True  # noqa: F841 (`left_of_cycle` reads it)
    while items:
        for x in items:
            yield x


def pairwise_of(iterable: Any, /) -> Iterator[Any]:
    before = MISSING
    for x in iterable:
        if before is not MISSING:
            yield before, x
        before = x


def zip_longest_of(*iterables: Any, fillvalue: Any = None) -> Iterator[Any]:
    iterators = [iter(x) for x in iterables]
    while True:
        row, live = [], 0
        for it in iterators:
            x = next(it, MISSING)
            live += x is not MISSING
            row.append(fillvalue if x is MISSING else x)
        if not live:
            return
        yield tuple(row)


def groupby_of(iterable: Any, key: Any = None) -> Iterator[Any]:
    iterator = iter(iterable)
    at: dict[str, Any] = {"group": None}

    def advance():
        x = at["item"] = next(iterator, MISSING)
        if x is not MISSING:
            at["key"] = x if key is None else key(x)

    def items(group):
        while at["group"] is group and at["item"] is not MISSING and at["key"] == group[0]:
            x = at["item"]
            advance()
            yield x

    advance()
    while at["item"] is not MISSING:
        group = at["group"] = [at["key"]]
        yield group[0], items(group)
        while at["item"] is not MISSING and at["key"] == group[0]:
            advance()


def compress_of(data: Any, selectors: Any) -> Iterator[Any]:
    for x, keep in zip(data, selectors):
        if keep:
            yield x


def equal_items(a: Any, b: Any) -> Any:
    if len(a) != len(b):
        return False
    number = 0
    while number < len(a) and number < len(b):
        x, y = a[number], b[number]
        if x is not y and not x == y:
            break
        number += 1
    return len(a) == len(b) and number >= len(a)  # a comparison may have changed the lengths


def unequal_items(a: Any, b: Any) -> bool:
    return not equal_items(a, b)


def total_of(*numbers: Any) -> float:
    return sum(numbers[1:], numbers[0])


def chained(iterables: Any) -> Generator[Any, Any, Any]:
    for iterable in iterables:
        yield from iterable


def contains_in(iterator: Any, element: Any) -> bool:
    for x in iterator:
        if x is element or x == element:
            return True
    return False


def list_of(iterable: Any = (), /) -> Any:
    return [*iterable]


def items_of(iterable: Any = (), /) -> Any:
    return [x for x in iterable]  # noqa: C416 (a display would ask for the length first)


def iterate(obj: Any) -> Iterator[Any]:
    number = 0
    while True:
        try:
            x = obj[number]
        except (IndexError, StopIteration):
            return
        yield x
        number += 1


def reversed_of(obj: Any) -> Iterator[Any]:
    number = len(obj)
    while number:
        number -= 1
        try:
            x = obj[number]
        except (IndexError, StopIteration):
            return
        yield x


def call_until(fn: Any, sentinel: Any) -> Iterator[Any]:
    while True:
        x = fn()
        if x == sentinel:
            return
        yield x


def update_wrapper_of(
    wrapper: Any,
    wrapped: Any,
    assigned: Any = functools.WRAPPER_ASSIGNMENTS,
    updated: Any = functools.WRAPPER_UPDATES,
) -> Callable[..., Any]:
    for name in assigned:
        value = getattr(wrapped, name, MISSING)
        if value is not MISSING:
            setattr(wrapper, name, value)
    for name in updated:
        if name == "__dict__" and not isinstance(wrapped, type):  # functions have its names
            for key, value in getattr(wrapped, name, {}).items():
                setattr(wrapper, key, value)
        else:
            getattr(wrapper, name).update(getattr(wrapped, name, {}))
    wrapper.__wrapped__ = wrapped
    return wrapper


def get_items(obj: Any, keys: Any) -> Any:
    return obj[keys[0]] if len(keys) == 1 else tuple([obj[key] for key in keys])


def get_attributes(obj: Any, names: Any) -> Any:
    values = []
    for name in names:
        x = obj
        for part in name.split("."):
            x = getattr(x, part)
        values.append(x)
    return values[0] if len(values) == 1 else tuple(values)


def call_named(obj: Any, name: Any, args: Any, kwargs: Any) -> Any:
    return getattr(obj, name)(*args, **kwargs)


POLYFILLS: dict[Any, Any] = {
    enumerate: enumerate_of,
    zip: zip_of,
    functools.update_wrapper: update_wrapper_of,
    sum: sum_of,
    any: any_of,
    all: all_of,
    map: map_of,
    filter: filter_of,
    min: min_of,
    max: max_of,
    sorted: sorted_of,
    functools.reduce: reduce_of,
    itertools.chain: chain_of,
    itertools.islice: islice_of,
    itertools.repeat: repeat_of,
    itertools.count: count_from,
    itertools.accumulate: accumulate_of,
    itertools.starmap: starmap_of,
    itertools.product: product_of,
    itertools.takewhile: takewhile_of,
    itertools.dropwhile: dropwhile_of,
    itertools.cycle: cycle_of,
    itertools.filterfalse: filterfalse_of,
    itertools.pairwise: pairwise_of,
    itertools.zip_longest: zip_longest_of,
    itertools.groupby: groupby_of,
    itertools.compress: compress_of,
    itertools.chain.from_iterable: chained,
}
NATIVES: dict[Any, Any] = {polyfill: f for f, polyfill in POLYFILLS.items()} | {
    reversed_of: reversed
}
