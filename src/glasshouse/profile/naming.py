"""Names of fused steps, from the functions that the user called rather than the primitives in them.

Each call notes the composed function that recorded it (dispatch/compose.py); calls that no such
function made have the names of their primitives."""

from typing import Any

from glasshouse.compile.lowering.source_map import NAME_OPS, StepInfo, StoredValue, label_of
from glasshouse.dispatch.call import MATRIX
from glasshouse.dispatch.compose import is_public
from glasshouse.graph.node import Node

SILENT = ("create", "movement")  # kinds of primitives that are no part of a name
BITS = "random_bits"
OF_BITS = (
    "shift_right",
    "cast",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)  # make numbers of them


def name_of_step(info: StepInfo) -> str:
    """Name a step by its operators, in the words of who wrote it: products first, then functions,
    then primitives that belong to none."""
    shown = [s for s in info.sources if is_shown(s)]
    if len(shown) < 2:
        return info.name
    names = [name for name, _ in grouped(shown)]
    names = sorted(dict.fromkeys(names), key=lambda name: name not in MATRIX)
    if len(names) > NAME_OPS:
        names[NAME_OPS - 1 :] = [f"{len(names) - NAME_OPS + 1} more"]
    return " + ".join(names)


def name_of_value(info: StepInfo, value: StoredValue) -> str:
    """Name a value that a step stores: the function that the user called, if it is its result, or a
    primitive in one, such as "exp in softmax"."""
    source = info.sources[value.source] if value.source >= 0 else None
    if source is None or not is_shown(source):
        return value.name
    groups = grouped([s for s in info.sources if is_shown(s)])
    name, members = next(x for x in groups if any(s is source for s in x[1]))
    is_result = source is members[-1] or name == value.name
    return name if is_result else f"{value.name} in {name}"


def is_shown(source: Node) -> bool:
    return source.call.primitive.kind not in SILENT


def grouped(sources: list[Node]) -> list[tuple[str, list[Node]]]:
    """Group calls by the functions that made them, in one module each. A product, a call that is
    its function's only one here, and a call of a derivative's rule have their own names."""
    groups: dict[tuple[Any, ...], list[Node]] = {}
    draws = any(s.op == BITS for s in sources)
    for i, s in enumerate(sources):
        function, label = s.origin.function, label_of(s)
        if draws and (s.op == BITS or s.op in OF_BITS):
            key: tuple[Any, ...] = ("random numbers",)
        elif is_public(function) and label not in MATRIX and s.origin.phase != "backward":
            key = function, s.origin.module, s.origin.phase
        else:
            key = label, i
        groups.setdefault(key, []).append(s)
    alone = {key for key, members in groups.items() if len(members) == 1 and len(key) == 3}
    return [
        (label_of(members[0]) if key in alone else key[0], members)
        for key, members in groups.items()
    ]
