"""Python stacks of calls, numbered: each distinct one is kept once."""

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from glasshouse.compile.building import toolchain
from glasshouse.dispatch import bind, hooks
from glasshouse.dispatch.compose import CALL

MAX_FRAMES = 64  # of a stack that are kept, as in native/stack.c
BIND = bind.__code__.co_filename


class Stacks(dict[Any, Any]):
    """Number of each Python stack, by its key; `stacks` has them: [(code, instruction)]. A key has
    ids of code objects, which `alive` keeps: a code object's hash reads all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: list[list[tuple[Any, ...]]] = [[]]
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.alive: list[list[tuple[Any, ...]]] = []

    def __missing__(self, key: bytes) -> int:
        self.alive.append(running(2))  # without this function and the recorder's
        stack = of_caller(self.alive[-1])
        parts = tuple(x for code, at in stack for x in (id(code), at))
        number = self.numbers.setdefault(parts, len(self.stacks))
        if number == len(self.stacks):
            self.stacks.append(stack)
        return self.setdefault(key, number)


def of_caller(stack: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A stack without `bind`, and without the inside of composed functions and of rules, which run
    only where they are not replayed."""
    inside = (CALL, hooks.tape.entry.pull.__code__)
    ends = [i for i, (code, _) in enumerate(stack) if code in inside]
    if ends:
        return stack[ends[-1] + 1 :]
    first = next((i for i, (c, _) in enumerate(stack) if c.co_filename != BIND), len(stack))
    return stack[first:]


def running(skip: int) -> list[tuple[Any, ...]]:
    """(code, instruction) of the functions of this thread, the innermost first, without `skip`."""
    frame: FrameType | None = sys._getframe(1 + skip)
    frames: list[tuple[CodeType, int]] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        frames.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return frames


def stack_key(skip: int) -> tuple[Any, ...]:
    """The key of this thread's stack without the `skip` innermost functions: slow and clear."""
    return tuple(x for code, lasti in running(1 + skip) for x in (id(code), lasti))


@functools.cache
def fast_stack_key() -> Callable[..., Any]:
    """Return `stack_key` by native/stack.c where it can be compiled: 0.1 µs instead of 1."""
    try:
        return toolchain.extension(toolchain.NATIVE / "stack.c").key
    except toolchain.CompileError:
        return stack_key
