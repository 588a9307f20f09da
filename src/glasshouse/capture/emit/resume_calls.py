"""Resume functions of frames: their arguments, and how they are made."""

import types
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import (
    WrongStack,
    keeps_closure,
    make_resume,
    original_of,
    resume_slots,
)
from glasshouse.capture.frames.frame import CapturedGenerator, CaptureFrame, LastInstruction
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import NULL, CannotRebuild, Var

if TYPE_CHECKING:
    from glasshouse.capture.sessions.dispatching import Resumer


def resume_call(
    frame: CaptureFrame, at: int, stack: list[Var], more: int, captured: bool, resumer: "Resumer"
) -> tuple[Any, ...]:
    """(resume function at an instruction, Vars of its slots, Vars for its stack from the top).
    On the stack come `more` values, which are not known yet. A slot that is no longer needed is
    None, or left out where Python continues."""
    frame.check_stack()
    if frame.code.instructions[at].op == "COPY_FREE_VARS":
        at += 1  # the cells are in their slots: a resume function may have no closure to copy
    root, before = original_of(frame.root)
    if frame.code.instructions[at].offset < 2 * before:  # in the prefix of a resume function
        root, before = frame.root, 0
    names = resume_slots(root)
    bound = frozenset(i for i in range(len(names)) if frame.locals[i] is not None)
    # Classes stay alive, since others list them, and generators, since their end runs code.
    needed, kinds = frame.code.live_at(at), (type, CapturedGenerator, types.GeneratorType)
    values: list[Any] = frame.locals
    live = frozenset(i for i in bound if i in needed or isinstance(values[i].value, kinds))
    slots = [frame.locals[i] if i in live else None for i in range(len(names))]
    if not captured:
        slots = [x for x in slots if x is not None]
    offset = frame.code.instructions[at].offset - 2 * before
    fn = resumer(frame, root, offset, [*stack, *[Var(None)] * more], live, captured)
    moved = (len(code_of(fn).co_code) - len(frame.root.co_code)) // 2
    items = [
        Var(x.value + moved) if isinstance(x, LastInstruction) else x
        for x in stack
        if x is not NULL
    ]
    items.reverse()
    return fn, slots, items


def code_of(fn: Any) -> types.CodeType:
    """The code of a function, or of the function that a dispatcher captures."""
    return getattr(fn, "fn", fn).__code__


def resume_function(
    frame: CaptureFrame,
    code: types.CodeType,
    offset: int,
    stack: list[Var],
    live: frozenset[int],
    captured: bool,
) -> types.FunctionType:
    """A function that resumes a frame at an offset of its original code."""
    try:
        resumed: Any = make_resume(code, offset, tuple(x is NULL for x in stack), live, captured)
    except WrongStack as error:
        raise CannotRebuild(f"a stack that does not fit ({error})") from None
    closure = None
    if keeps_closure(resumed):
        closure = tuple(x.value for x in frame.closure)
    return types.FunctionType(resumed, frame.globals, resumed.co_name, None, closure)
