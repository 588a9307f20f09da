"""Writes into a part of a tensor that has no name: `x[i][j] = v` and `x[i].fill_(v)` write to x, as
in PyTorch and NumPy.

Tensors are values: `x[i]` is one of its own, and a write into it would be lost with it, without a
word. So a part remembers which tensors it was cut from, weakly, and a write looks at the statement
that runs: where the part has no name, it is written back. A part with a name stays a value of its
own."""

import bisect
import dis
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import PACKAGE

MOST_LINKS = 4  # x[a][b][c][d][e] = v
JUMPS = {*dis.hasjrel, *dis.hasjabs}
STORES = {"STORE_SUBSCR": 1, "STORE_SLICE": 2}  # where on the stack they have what they write to
CALLS = {"CALL": 0, "CALL_KW": 1}  # how many items they have above their arguments
# Operations that push nothing; the others push one result at least, whatever they take.
SILENT = ("CACHE", "DELETE_", "EXTENDED_ARG", "KW_NAMES", "NOP", "NOT_TAKEN", "POP_TOP", "PRECALL",
          "RESUME", "STORE_")  # fmt: skip


BASIC = {int, slice, type(None), type(...)}


def is_basic(key: Any) -> bool:
    """Whether a key cuts out a part that PyTorch shares memory with: integers, slices, None, …"""
    return BASIC.issuperset(map(type, key)) if type(key) is tuple else type(key) in BASIC


def linked(whole: Any, key: Any, part: Any) -> Any:
    """The part, which remembers that it is whole[key], and what the whole was cut from."""
    if part is not whole and is_basic(key):
        # x.data is made for each read: its base is what is written to.
        make: Callable[..., Any] = type(whole)
        of_data = "base" in vars(whole)
        link = (functools.partial(make, whole.base) if of_data else weakref.ref(whole), key)
        part.cut_from = (link, *(whole.cut_from or ())[: MOST_LINKS - 1])
    return part


def write_back(part: Any) -> None:
    """Write a part that has just been written to into what it was cut from, if the user's statement
    that runs gives it no name."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    links = 0 if frame is None else links_at(frame.f_code, frame.f_lasti)
    count = min(links, len(part.cut_from))
    if count and (whole := part.cut_from[count - 1][0]()) is not None:
        keys = [key for _, key in part.cut_from[:count]]
        put_back(whole, keys[::-1], part)


def put_back(whole: Any, keys: list[Any], part: Any) -> None:
    """whole[keys[0]][keys[1]] … = part."""
    first, *rest = keys
    if rest:
        inner = whole[first]
        put_back(inner, rest, part)
        part = inner
    before, whole.cut_from = whole.cut_from, None  # what has a name is written to, and no further
    try:
        whole[first] = part
    finally:
        whole.cut_from = before


# (code, links) by the code's id and the offset: code with a slice among its constants has no hash.
known_links: dict[tuple[int, int], tuple[types.CodeType, int]] = {}
MOST_KNOWN = 4096


def links_at(code: types.CodeType, offset: int) -> int:
    """`count_links`, once for each place."""
    key = id(code), offset
    if key not in known_links:
        if len(known_links) >= MOST_KNOWN:
            known_links.clear()
        known_links[key] = code, count_links(code, offset)
    return known_links[key][1]


def count_links(code: types.CodeType, offset: int) -> int:
    """How many indexings in a row make what the instruction there writes to: 2 of x[a][b][c] = v or
    of x[a][b].fill_(v), 0 of x[c] = v, y.fill_(v) and of anything that is no such statement."""
    instructions = list(dis.get_instructions(code))
    # Inside a call the offset may be that of the instruction's cache, after it.
    at = bisect.bisect_right(instructions, offset, key=operator.attrgetter("offset")) - 1
    name = instructions[at].opname if at >= 0 else ""
    place = STORES.get(name)
    if name in CALLS:
        at, place = method_load(instructions, at, CALLS[name]), 0
    count = 0
    while place is not None and at >= 0:
        at = origin(instructions, at, place)
        place = container_of(instructions[at]) if at >= 0 else None
        count += place is not None
    return count


def method_load(instructions: list[Any], call: int, above: int) -> int:
    """The instruction that loads the method of a call, if the method writes: x.fill_; else -1."""
    place, begin = instructions[call].arg + above, call
    if instructions[call - 1].opname == "PRECALL":  # of Python 3.11, which takes the arguments
        begin = call - 1
    load = origin(instructions, begin, place)
    name = str(instructions[load].argval) if load >= 0 else ""
    is_method = load >= 0 and instructions[load].opname in ("LOAD_METHOD", "LOAD_ATTR")
    return load if is_method and name.endswith("_") and not name.endswith("__") else -1


def container_of(instruction: Any) -> int | None:
    """Where on the stack an indexing has what it indexes; None for another instruction."""
    if instruction.opname == "BINARY_SLICE":
        return 2
    is_index = instruction.opname == "BINARY_OP" and instruction.argrepr == "[]"
    return 1 if is_index or instruction.opname == "BINARY_SUBSCR" else None


def origin(instructions: list[Any], at: int, place: int) -> int:
    """The instruction that pushed what lies so deep on the stack (0: on top) before the instruction
    `at`; -1 where that depends on a jump."""
    for i in range(at - 1, -1, -1):
        name, arg = instructions[i].opname, instructions[i].arg
        if instructions[i].opcode in JUMPS or instructions[i].is_jump_target:
            return -1
        if name == "SWAP":
            place = {0: arg - 1, arg - 1: 0}.get(place, place)
            continue
        if name == "COPY":
            place = arg - 1 if place == 0 else place - 1
            continue
        effect = dis.stack_effect(instructions[i].opcode, arg, jump=False)
        is_silent = name.startswith(SILENT) and name != "STORE_FAST_LOAD_FAST"
        pushed = max(effect, 0 if is_silent else 1)
        if place < pushed:
            return i
        place += -effect
    return -1
