"""Methods of containers that call back into Python, written in Python so that the interpreter sees
inside."""

from typing import Any

from glasshouse.capture.bytecode.versions import bytecode

MISSING = object()
NO_PAIR = bytecode.no_pair


def fromkeys_of(cls: Any, iterable: Any, value: Any = None, /) -> Any:
    result = cls()
    for key in iterable:
        result[key] = value
    return result


def extend_of(target: Any, iterable: Any) -> None:
    for x in iterable:
        target.append(x)


def extend_asking(target: Any, iterable: Any) -> None:
    """`list.extend` of a user's object that has a length or a hint of it."""
    iterator = iter(iterable)
    ask_length(iterable)
    for x in iterator:
        target.append(x)


def iterator_of(obj: Any) -> Any:
    """Return iter(obj), where the class of obj defines `__iter__` in Python."""
    cls = type(obj)
    iterator = cls.__iter__(obj)
    kind = type(iterator)
    if not hasattr(kind, "__next__"):
        raise TypeError(f"iter() returned non-iterator of type {kind.__name__!r}")
    return iterator


def ask_length(obj: Any) -> None:
    """Ask for a length as `operator.length_hint` does. It is only a guess at the memory needed."""
    cls = type(obj)
    if hasattr(cls, "__len__"):
        try:
            len(obj)
            return
        except TypeError:
            pass
    if not hasattr(cls, "__length_hint__"):
        return
    try:
        hint = cls.__length_hint__(obj)
    except TypeError:
        return
    if hint is NotImplemented:
        return
    if not isinstance(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")


def add_all(target: Any, iterable: Any) -> None:
    for x in iterable:
        target.add(x)


def update_of(target: Any, other: Any = (), /, **more: Any) -> None:
    if hasattr(other, "keys"):
        for key in other.keys():
            target[key] = other[key]
    else:
        number = 0
        for item in other:
            key, value = pair_of(item, number)
            target[key] = value
            number += 1
    for key, value in more.items():
        target[key] = value


def pair_of(item: Any, number: Any) -> Any:
    """The key and value that `dict.update` takes an item for."""
    pair = None
    try:
        pair = item if type(item) in (list, tuple) else [*item]
    except TypeError:
        pass  # so that the error below has no context
    where = f"dictionary update sequence element #{number}"
    if pair is None:
        raise TypeError(NO_PAIR.format(where))
    if len(pair) != 2:
        raise ValueError(f"{where} has length {len(pair)}; 2 is required")
    return pair


def update_ordered(target: Any, other: Any = (), /, **more: Any) -> None:
    """`OrderedDict.update`."""
    if hasattr(other, "keys"):
        for key in other.keys():
            target[key] = other[key]
    else:
        for item in other.items() if hasattr(other, "items") else other:
            key, value = parts_of_item(item)
            target[key] = value
    for key, value in more.items():
        target[key] = value


def parts_of_item(item: Any) -> Any:
    """The key and value that `OrderedDict.update` takes an item for."""
    iterator = iter(item)
    parts = []
    for number in range(2):
        x = next(iterator, MISSING)
        if x is MISSING:
            raise ValueError(f"need more than {number} value{'' if number else 's'} to unpack")
        parts.append(x)
    if next(iterator, MISSING) is not MISSING:
        raise ValueError("too many values to unpack (expected 2)")
    return parts


def join_of(text: Any, iterable: Any) -> Any:
    return text.join([*iterable])
