"""The numbers of arguments and the keywords of builtin functions and methods.

A call with others raises before it does anything, so Python makes it and raises its error."""

import functools
import inspect
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from glasshouse.capture.values.polyfills import POLYFILLS
from glasshouse.capture.values.var import Break, Kwargs, Var

ANY = 1 << 30
KINDS = (dict, OrderedDict, defaultdict, list, set, frozenset, deque, str, bytes)
# (least, most) arguments of methods without a signature to inspect and without keywords.
OF_METHODS: dict[Any, Any] = {
    **dict.fromkeys(
        ("clear", "copy", "keys", "items", "values", "__reversed__", "reverse"), (0, 0)
    ),
    **dict.fromkeys(("__contains__", "__getitem__", "add", "discard", "remove"), (1, 1)),
    **dict.fromkeys(("isdisjoint", "issubset", "issuperset"), (1, 1)),
    **dict.fromkeys(("symmetric_difference", "symmetric_difference_update"), (1, 1)),
    **dict.fromkeys(("append", "appendleft", "extend", "extendleft"), (1, 1)),
    **dict.fromkeys(("union", "intersection", "difference", "update"), (0, ANY)),
    **dict.fromkeys(("intersection_update", "difference_update"), (0, ANY)),
    **dict.fromkeys(("count", "find", "index", "rfind", "rindex"), (1, 3)),
    **dict.fromkeys(("startswith", "endswith"), (1, 3)),
}
WITHOUT_KEYWORDS: dict[Any, Any] = {
    **{
        method: OF_METHODS[name]
        for kind in KINDS
        for name, method in vars(kind).items()
        if name in OF_METHODS
    },
    **dict.fromkeys((bool, frozenset, set), (0, 1)),
    **dict.fromkeys((set.__init__, list.__init__), (0, 1)),
    **dict.fromkeys((set.pop, deque.pop, deque.popleft), (0, 0)),
    **dict.fromkeys((filter, hasattr), (2, 2)),
    **dict.fromkeys((iter, next, dict.pop), (1, 2)),
    **dict.fromkeys((range, slice), (1, 3)),
    getattr: (2, 3),
    list.count: (1, 1),
    deque.count: (1, 1),
}
WITH_KEYWORDS: dict[Any, Any] = {
    **dict.fromkeys((dict, OrderedDict, dict.update, OrderedDict.update), (0, 1)),
    **dict.fromkeys((dict.__init__, OrderedDict.__init__), (0, 1)),
}


@functools.cache
def read_signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    for x in filter(None, (fn, POLYFILLS.get(fn))):
        try:
            return inspect.signature(x)
        except (TypeError, ValueError):
            continue
    return None


@functools.cache
def takes(fn: Callable[..., Any], count: int, keywords: tuple[str, ...]) -> bool:
    """Whether a builtin function, class or unbound method takes this number of positional
    arguments, self included, with these keywords; True if unknown."""
    for table in (WITH_KEYWORDS, WITHOUT_KEYWORDS):
        if fn in table:
            least, most = table[fn]
            fits = least <= count - hasattr(fn, "__objclass__") <= most
            return fits and not (keywords and table is WITHOUT_KEYWORDS)
    signature = read_signature(fn)
    if signature is None:
        return True
    try:
        signature.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def check_arguments(fn: Var, args: list[Any], kwargs: Kwargs) -> None:
    """Leave a call with wrong arguments for a builtin to Python, which raises.

    Raises: Break
    """
    if not takes(fn.value, len(args), tuple(kwargs)):
        raise Break(f"call of {fn.value.__name__} with other arguments", fn, args, kwargs)
