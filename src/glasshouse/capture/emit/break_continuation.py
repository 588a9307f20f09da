"""The continuation after a break: Python runs the breaking step, then resume functions run."""

import types
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from glasshouse.base.interrupts import release
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import add_frame, caller_of, cut_traceback
from glasshouse.capture.emit.continuation import END_OF_LOOP, handling, loop_end
from glasshouse.capture.emit.resume_calls import resume_call
from glasshouse.capture.frames.frame import (
    CapturedGenerator,
    CapturedIterator,
    CaptureFrame,
    plain_value,
)
from glasshouse.capture.frames.surroundings import surroundings
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, Var, discarded, last_items

OWN_ITERATORS = (CapturedIterator, CapturedGenerator)


class BreakContinuation:
    """The part of a capture that continues after a break."""

    tracer: CaptureTracer
    capture: Any
    resumer: Any  # gives resume functions
    final: dict[int, Any]  # values of Vars after a break, where they differ

    def tail(self, k: int, broke: Break) -> Callable[..., Any]:
        """Run frame `k` from the break on, up to the last call, which gives its result."""
        frames = self.tracer.frames
        frame = frames[k]
        last = k + 1 == len(frames)
        handler, caught = frame.code.handler_at(frame.at), None
        try:  # an interrupt that comes in here comes to the user's instruction
            if not last:
                context, words = surroundings(frames[k + 1]) or (nullcontext, [])
                with context(*map(self.value, words)):
                    result = self.tail(k + 1, broke)()
                go_on = self.after_step(k, broke, result)
            elif broke.fn is not None:
                release()
                go_on = self.after_step(k, broke, self.opaque(broke, broke.fn))
            else:
                go_on = self.resumption(frame, frame.at, frame.stack, (), False)
                release()
        except BaseException as error:
            cut_traceback(error)
            add_frame(frame, error)
            if handler is None:
                raise
            caught = error
        if caught is not None and handler is not None:
            # Outside of `except`: the handler is the user's.
            stack = frame.stack_for(handler)
            go_on = self.resumption(frame, handler.target, stack, (caught,), broke.fn is not None)
        self.hand_over_frame(k)
        return go_on

    def hand_over_frame(self, k: int) -> None:
        """Release the values of frame `k`. The continuation holds the values that it needs, and a
        generator without other references ends."""
        frames = self.tracer.frames
        outer = {id(x) for f in frames[:k] for x in (*f.locals, *f.stack, *f.saved)}
        for key in self.final.keys() - outer:
            del self.final[key]
        if k:
            frames[k].locals, frames[k].stack, frames[k].saved = [], [], []

    def after_step(self, k: int, broke: Break, result: Any) -> Callable[..., Any]:
        """The continuation of frame `k` after the step that Python did."""
        frames = self.tracer.frames
        frame, last, captured = frames[k], k + 1 == len(frames), broke.fn is not None
        if not last and frames[k + 1].init is not None:
            result = frames[k + 1].init.value
        if last and broke.jump is not None:
            at, drop = broke.jump[0 if result else 1]
            return self.resumption(frame, at, frame.stack[: len(frame.stack) - drop], (), captured)
        if last and broke.loop is not None and result is END_OF_LOOP:
            end = loop_end(frame, broke.loop)
            return self.resumption(frame, end, frame.stack[:-1], (), captured)
        unwanted = broke.discard if last else frames[k + 1].then is discarded
        more = () if unwanted else (result,)
        return self.resumption(frame, frame.ip, frame.stack, more, captured)

    def opaque(self, broke: Break, fn: Var) -> Any:
        """Have Python make the call that broke the graph; its result."""
        args = [self.value(x) for x in broke.args_]
        if broke.loop is not None:
            args.append(END_OF_LOOP)
        words = {k: self.value(v) for k, v in broke.kwargs.items()}
        call = caller_of(self.tracer.frames[-1])
        handled = self.tracer.frames.handled_in(len(self.tracer.frames))
        if handled is not None or self.tracer.frames.began_handling:
            error = handled.value if handled is not None else None
            return handling(error, call, self.value(fn), args, words)
        return call(self.value(fn), args, words)

    def value(self, var: Var) -> Any:
        """The value of a Var as Python sees it from here on."""
        return self.final[id(var)] if id(var) in self.final else plain_value(var)

    def finalize(self, *live: Var) -> None:
        """Put Python's own iterators where ours are, before anything else sees them."""
        tracked = self.tracer.heap.tracked.values()
        if not any(isinstance(var.value, OWN_ITERATORS) for var in tracked):
            return
        frames = self.tracer.frames
        natives: dict[int, Any] = {}
        open_ = [x for f in frames for x in (*f.locals, *f.stack, *f.saved) if x is not None]
        for var in (*open_, *live):
            if id(var) not in self.final:
                self.final[id(var)] = real(var, natives)
        for var in (*tracked, *self.tracer.effects.written):
            for name, part in parts_of(var):
                value = real(part, natives) if isinstance(part, Var) else part
                if isinstance(part, Var) and value is not part.value:
                    put_part(var.value, name, value)

    def resumption(
        self, frame: CaptureFrame, at: int, stack: list[Var], more: tuple[Any, ...], captured: bool
    ) -> Callable[..., Any]:
        """The continuation at an instruction: a call without any Python before it."""
        fn, slots, items = resume_call(frame, at, stack, len(more), captured, self.resumer)
        words: list[Any] = [None if x is None else self.value(x) for x in slots]
        pushed = [*more, *map(self.value, items)]
        if captured:
            words = words or [None]
            words[0] = (words[0], *pushed)
        else:
            words = [[*words, *pushed]]
        handled = self.tracer.frames.handled_in(self.tracer.frames.index(frame))
        if handled is not None or self.tracer.frames.began_handling:
            error = handled.value if handled is not None else None
            return partial(native().call_handling, error, fn, tuple(words), {})
        return partial(fn, *words)


def parts_of(var: Var) -> list[tuple[Any, ...]]:
    """(place, Var) of the items of a list or dict, of a cell, or of an object's attributes."""
    items, value = var.items, var.value
    kind = type(value)
    if issubclass(kind, types.CellType):
        return [("cell_contents", items)]
    if issubclass(kind, list) and isinstance(items, (list, type(None))):
        items = last_items(var)
        return list(enumerate(items, len(value) - len(items)))
    if not isinstance(items, dict) or issubclass(kind, (tuple, set, frozenset, type)):
        return []
    if issubclass(kind, dict):
        pairs = ((k, x[1] if isinstance(x, tuple) else x) for k, x in items.items())
        return [(k, part) for k, part in pairs if part is not None]
    return list(items.items())


def put_part(value: Any, place: Any, part: Any) -> None:
    """Put something at a place of a list, dict or object, without methods of its class."""
    if isinstance(value, list):
        list.__setitem__(value, place, part)
    elif isinstance(value, dict):
        dict.__setitem__(value, place, part)
    else:
        object.__setattr__(value, place, part)


def return_later(value: Any) -> Callable[..., Any]:
    """Let signals through again; a callable that gives the value."""
    release()
    return partial(identity, value)


def identity(value: Any) -> Any:
    return value


def real(var: Var, natives: dict[Any, Any]) -> Any:
    """A Var's value with Python's own iterators in it. `natives` has those already made, and
    visited containers, which may contain themselves."""
    value = var.value
    if id(value) in natives:
        return natives[id(value)]
    if isinstance(value, OWN_ITERATORS):
        iterator = natives[id(value)] = value.native()
        return iterator
    if not isinstance(var.origin, Recipe) or var.items is None:
        return value
    kind = var.origin.kind
    if kind == "tuple" and type(value) is tuple:
        return tuple([real(x, natives) for x in var.items])
    if kind in ("list", "dict", "attributes"):
        natives[id(value)] = value
    if kind == "list":
        value[:] = [real(x, natives) for x in var.items]
    elif kind in ("dict", "attributes"):
        for key, (_, x) in var.items.items():
            if x.origin is not None:
                value[key] = real(x, natives)
    return value
