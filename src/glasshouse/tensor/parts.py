"""Writes into a part of a part: `x[i][j] = v` writes to x, as in PyTorch and NumPy.

Tensors are values: `x[i]` is one of its own, and a write into it would be lost with it, without a
word. So a part remembers which tensors it was cut from, weakly, and a write looks at the statement:
where the part has no name, but is indexed at once, it is written back. A part with a name stays a
value of its own."""

import dis
import functools
import types
import weakref
from typing import Any

MOST_LINKS = 4  # x[a][b][c][d][e] = v
JUMPS = {*dis.hasjrel, *dis.hasjabs}
# Operations that push one result, whatever they take.
RESULTS = ("BINARY_", "BUILD_", "CALL", "COMPARE_OP", "CONTAINS_OP", "FORMAT_", "IS_OP", "LOAD_",
           "TO_BOOL", "UNARY_")  # fmt: skip


def is_basic(key: Any) -> bool:
    """Whether a key cuts out a part that PyTorch shares memory with: integers, slices, None, …"""
    keys = key if type(key) is tuple else (key,)
    return all(x is None or x is ... or type(x) in (int, slice) for x in keys)


def linked(whole: Any, key: Any, part: Any) -> Any:
    """The part, which remembers that it is whole[key], and what the whole was cut from."""
    if part is not whole and is_basic(key):
        link = (weakref.ref(whole), key)
        part.cut_from = (link, *(whole.cut_from or ())[: MOST_LINKS - 1])
    return part


def write_back(part: Any, frame: types.FrameType) -> None:
    """Write a part that has just been written to into what it was cut from, if the statement that
    runs in the frame gives it no name."""
    count = min(links_at(frame.f_code, frame.f_lasti), len(part.cut_from))
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
    whole[first] = part


@functools.lru_cache(4096)
def links_at(code: types.CodeType, offset: int) -> int:
    """How many indexings in a row make what the instruction there writes an item of: 2 of
    x[a][b][c] = v, 0 of x[c] = v and of anything that is no such statement."""
    instructions = list(dis.get_instructions(code))
    at = next((i for i, ins in enumerate(instructions) if ins.offset == offset), -1)
    count, place = 0, {"STORE_SUBSCR": 1, "STORE_SLICE": 2}.get(instructions[at].opname)
    while place is not None and at >= 0:
        at = origin(instructions, at, place)
        place = container_of(instructions[at]) if at >= 0 else None
        count += place is not None
    return count


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
        pushed = max(effect, 1 if name.startswith(RESULTS) else 0)
        if place < pushed:
            return i
        place += -effect
    return -1
