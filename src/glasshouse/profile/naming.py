"""Names of fused steps: by the functions that the user called, not by the primitives in them.

Which primitives a function is composed of is found by calling it once and noting its calls; a step
that has them, one behind the other, has the function in it."""

import functools
import inspect
from collections.abc import Sequence

import numpy as np

from glasshouse.compile.source_map import NAME_OPS, StepInfo, StoredValue, label_of
from glasshouse.dispatch import Mode, as_value
from glasshouse.dispatch.backend import use_backend
from glasshouse.dispatch.call import MATRIX
from glasshouse.dispatch.compose import composed_functions
from glasshouse.dispatch.watch import unwatched
from glasshouse.graph.node import Node

FEWEST = 3  # primitives of a function that is told by them
MOST_NAMED = 1 << 12  # lists of primitives whose names are kept: layers repeat theirs
SILENT = ("create", "movement")  # kinds of primitives that are no part of a name
BITS = "random_bits"
OF_BITS = (
    "shift_right",
    "cast",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)  # make numbers of them


class NotingMode(Mode):
    """Notes the names of the primitives that are called."""

    def __init__(self):
        self.names: list[str] = []
        self.cuts = False

    def process(self, primitive, args, attrs, below):
        """Note one call, and make it."""
        self.cuts |= primitive.name == "slice"
        if primitive.kind not in SILENT:
            self.names.append(primitive.name)
        return below(primitive, args, attrs)


@functools.cache
def compositions() -> dict[tuple[str, ...], str]:
    """The names of functions of one tensor by the primitives they are composed of, the longest
    first. Those of nn.functional go before others."""
    names: dict[tuple[str, ...], str] = {}
    functions = [fn for own in composed_functions.values() for fn in own]
    for fn in sorted(functions, key=lambda fn: ".nn." not in fn.__module__):
        parts = calls_of_function(fn)
        if len(parts) >= FEWEST and not fn.__name__.startswith("_"):
            names.setdefault(parts, fn.__name__)
    return dict(sorted(names.items(), key=lambda x: -len(x[0])))


def calls_of_function(fn) -> tuple[str, ...]:
    """The primitives that a function of one tensor calls; none for other functions, and for gates:
    a half of their operand times a function of the other looks like that function and a product.
    """
    parameters = inspect.signature(fn).parameters
    named = {"dim": -1} if "dim" in parameters else {}
    needed = [p for p in parameters.values() if p.default is p.empty and p.name not in named]
    if len(needed) != 1 or needed[0].kind not in (
        needed[0].POSITIONAL_OR_KEYWORD,
        needed[0].POSITIONAL_ONLY,
    ):
        return ()
    noting = NotingMode()
    try:
        with unwatched(), use_backend("stub"), noting:  # which computes nothing
            fn(as_value(np.ones((2, 4), np.float32)), **named)
    except Exception:  # it is a function of something else
        return ()
    return () if noting.cuts else tuple(noting.names)


def name_of_step(info: StepInfo) -> str:
    """What a step computes, in the words of who wrote it: products first, then functions, then
    primitives that belong to none."""
    shown = [s for s in info.sources if is_shown(s)]
    if len(shown) < 2:
        return info.name
    names: list[str] = []
    for module in dict.fromkeys(s.origin.module for s in shown):
        parts = tuple(label_of(s) for s in shown if s.origin.module == module)
        names += named(parts)
    names = sorted(dict.fromkeys(names), key=lambda name: name not in MATRIX)
    if len(names) > NAME_OPS:
        names[NAME_OPS - 1 :] = [f"{len(names) - NAME_OPS + 1} more"]
    return " + ".join(names)


def name_of_value(info: StepInfo, value: StoredValue) -> str:
    """What a value that a step stores is: the result of a function that the user called, or what
    comes up in one, such as "exp in softmax"."""
    source = info.sources[value.source] if value.source >= 0 else None
    if source is None or not is_shown(source):
        return value.name
    module = source.origin.module
    places = [i for i, s in enumerate(info.sources) if is_shown(s) and s.origin.module == module]
    at = places.index(value.source)
    parts = tuple(label_of(info.sources[i]) for i in places)
    name, covered = next(x for x in grouped(parts) if at in x[1])
    return name if at == max(covered) or name == value.name else f"{value.name} in {name}"


def is_shown(source: Node) -> bool:
    return source.call.primitive.kind not in SILENT


def named(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Primitives with functions in place of theirs."""
    return names_of(grouped(parts))


@functools.lru_cache(MOST_NAMED)
def grouped(parts: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Functions, and primitives that belong to none, with the places of theirs among the parts."""
    groups = [(name, (i,)) for i, name in enumerate(parts)]
    if BITS in parts:
        made = tuple(i for i, name in enumerate(parts) if name in (BITS, *OF_BITS))
        groups = [x for x in groups if x[0] not in OF_BITS]
        groups = [("random numbers", made) if x[0] == BITS else x for x in groups]
    names = names_of(groups)
    for composition, name in compositions().items():
        at = place_of(composition, names)
        while at >= 0:
            end = at + len(composition)
            covered = tuple(i for _, places in groups[at:end] for i in places)
            groups[at:end] = [(name, covered)]
            names = names_of(groups)
            at = place_of(composition, names)
    return tuple(groups)


def names_of(groups: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[str, ...]:
    return tuple(name for name, _ in groups)


def place_of(composition: tuple[str, ...], parts: tuple[str, ...]) -> int:
    """Where a composition begins in a list of primitives; -1 if it is not there. Long ones may be
    there in another order, for steps have their primitives as the compiler numbered them."""
    width = len(composition)
    wanted = sorted(composition) if width > FEWEST else composition
    for i in range(len(parts) - width + 1):
        window = parts[i : i + width]
        if (sorted(window) if width > FEWEST else window) == wanted:
            return i
    return -1
