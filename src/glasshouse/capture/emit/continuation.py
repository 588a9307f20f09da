"""The end of a replacement: it returns or raises, or has Python run the step that broke the graph
and calls resume functions, one for each open frame."""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.base.interrupts import release
from glasshouse.capture.bytecode.instructions import is_super_of_nothing, original_of
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import add_inlined, inside, is_polyfill
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.emit.expressions import LITERALS, ValueEmitter
from glasshouse.capture.emit.resume_calls import code_of, resume_call
from glasshouse.capture.frames.frame import CaptureFrame
from glasshouse.capture.frames.surroundings import surroundings
from glasshouse.capture.trace.frame_stack import site_in
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import CannotRebuild, ValueSource, Var, discarded

if TYPE_CHECKING:
    from glasshouse.capture.values.var import Break


def entry_of(frame: CaptureFrame) -> tuple[Any, ...] | None:
    """The entry of a frame in an error's traceback; None for a polyfill of a builtin."""
    return None if is_polyfill(frame.root) else (frame.root, frame.line, frame.globals)


class ContinuationEmitter(ValueEmitter):
    """Writes the statements after the graph of a replacement."""

    resumer: Any
    holds: bool  # whether signals wait until the graph and Python have written
    inlined: tuple[Any, ...] = ()  # traceback entries of the open frames inside the outermost

    def at_end(self, how: str, var: Var) -> tuple[list[str], list[str]]:
        """The statements that end a trace without a break: `how` is return or raise, or
        "raise again" for an exception whose traceback has the function's frame."""
        work = self.write_effects()
        end = f"{how} {self.name(var)}"
        if how == "raise again":
            tail_call, raise_again = native().tail_call, native().raise_again
            end = f"return {self.pool(tail_call)}({self.pool(raise_again)}, {self.name(var)})"
        return [*work, *self.made_after()], [*self.releasing(), end]

    def at_break(self, graph_break: Any) -> tuple[list[str], list[str]]:
        """The statements that continue after a break."""
        tracer = self.tracer
        frames = tracer.frames
        for k, frame in enumerate(frames[1:], 1):
            if frame.then not in (None, discarded):
                what = "a call in the middle of an operation"
                raise CannotRebuild(what, site_in(frames[:k]))
        for frame in frames:
            if frame.generator is not None:
                raise CannotRebuild("a generator that is running", frame.generator.site)
        captured = graph_break.fn is not None
        for k, frame in enumerate(frames):  # a captured continuation has arguments
            if captured and is_super_of_nothing(original_of(frame.root)[0]):
                what = "super() in a function without arguments"
                raise CannotRebuild(what, site_in(frames[: k + 1]))
        called = frames[1:] if captured else frames[1:-1]
        self.inlined = tuple(map(entry_of, called))
        begin = [f"depth = {len(called)}"] if called else []
        work = self.write_effects()
        tail = self.tail(0, graph_break, captured)
        return [*work, *self.made_after()], [*begin, *tail, "return r"]

    def write_effects(self) -> list[str]:
        """The statements that repeat the writes of the trace and enter its contexts. Values made
        from here on are made after these."""
        work = [*self.effects(), *self.enter_contexts()]
        self.after_effects: list[str] = []
        return work

    def made_after(self) -> list[str]:
        """The statements that make values after the effects."""
        assert self.after_effects is not None
        return self.after_effects

    def enter_contexts(self) -> list[str]:
        """The statements that enter the contexts that the trace entered and did not leave."""
        entered = [var for var in self.tracer.effects.contexts if var.is_new]
        return [f"{self.name(var)}.__enter__()" for var in entered]

    def releasing(self) -> list[str]:
        """The statement that lets signals through again."""
        return [f"{self.pool(release)}()"] if self.holds else []

    def tail(self, k: int, graph_break: Any, captured: bool) -> list[str]:
        """Statements that set r to the result of frame `k`."""
        frames = self.tracer.frames
        frame = frames[k]
        if k + 1 < len(frames):
            steps, init = self.tail(k + 1, graph_break, captured), frames[k + 1].init
            around = surroundings(frames[k + 1])
            if around is not None:
                context, words = around
                head = f"with {self.pool(context)}({', '.join(map(self.name, words))}):"
                steps = [head, *(f"    {x}" for x in steps)]
            result = "r" if init is None else self.name(init)
            result = None if frames[k + 1].then is discarded else result
        elif captured:
            call, result = call_of_break(self, k, graph_break), "r"
            steps = [*self.releasing(), f"r = {call}"]
        else:
            steps = self.releasing()
        if k + 1 < len(frames) or captured:
            then = self.after(
                frame, graph_break if k + 1 == len(frames) else None, result, captured
            )
        else:
            then = [f"r = {self.resume(frame, frame.at, frame.stack, None, False)}"]
        open_in = [] if k == 0 else [f"depth = {k - 1}"]  # the number of open frames from here on
        handler = frame.code.handler_at(frame.at)
        if handler is None or not steps:
            return [*(self.seen_from_inlined(steps) if k == 0 else steps), *open_in, *then]
        stack = frame.stack_for(handler)
        caught = self.resume(frame, handler.target, stack, "e", captured)
        return [
            "e = None",
            "try:",
            *(f"    {x}" for x in steps),
            "except BaseException as raised:",
            *(f"    {x}" for x in self.inlined_entries(max(k, 1))),
            f"    e = {self.pool(inside)}(raised)" if k else "    e = raised",
            *open_in,
            "if e is not None:",
            f"    r, e = {caught}, None",  # its traceback has this frame
            "else:",
            *(f"    {x}" for x in then),
        ]

    def seen_from_inlined(self, steps: list[str]) -> list[str]:
        """Steps of the outermost frame; their errors get entries of inlined frames."""
        add_entries = self.inlined_entries(1)
        if not add_entries:
            return steps
        body, handler = ([f"    {x}" for x in lines] for lines in (steps, add_entries))
        return ["try:", *body, "except BaseException as raised:", *handler, "    raise"]

    def inlined_entries(self, first: int) -> list[str]:
        """The statement that gives an error the entries of the inlined frames from `first` to
        `depth`, those that are open."""
        if len(self.inlined) < first:
            return []
        return [f"{self.pool(add_inlined)}(raised, {self.pool(self.inlined)}, {first}, depth)"]

    def callee(self, fn: Var) -> str:
        """An expression for a function; a name for a constant one, even if it is a number."""
        if fn.origin is not None or type(fn.value) not in LITERALS:
            return self.name(fn)
        self.names["called"] = fn.value
        return "called"

    def after(
        self, frame: CaptureFrame, graph_break: "Break | None", result: str | None, captured: bool
    ) -> list[str]:
        """The statements after the opaque step in its frame."""
        if graph_break is not None and graph_break.jump is not None:
            ways = []
            for at, drop in graph_break.jump:
                stack = frame.stack[: len(frame.stack) - drop]
                ways.append(self.resume(frame, at, stack, None, captured))
            return ["if r:", f"    r = {ways[0]}", "else:", f"    r = {ways[1]}"]
        if graph_break is not None and graph_break.loop is not None:
            end = self.resume(
                frame, loop_end(frame, graph_break.loop), frame.stack[:-1], None, captured
            )
            more = self.resume(frame, frame.ip, frame.stack, "r", captured)
            test = f"if r is {self.pool(END_OF_LOOP)}:"
            return [test, f"    r = {end}", "else:", f"    r = {more}"]
        extra = None if graph_break is not None and graph_break.discard else result
        return [f"r = {self.resume(frame, frame.ip, frame.stack, extra, captured)}"]

    def resume(
        self, frame: CaptureFrame, at: int, stack: list[Var], extra: str | None, captured: bool
    ) -> str:
        """A call of the resume function at an instruction; `extra` is pushed onto the stack."""
        fn, slots, pushed = resume_call(frame, at, stack, bool(extra), captured, self.resumer)
        items = [*filter(None, [extra]), *map(self.name, pushed)]
        words = [self.name(x) if x is not None else "None" for x in slots]
        if captured:
            words = words or ["None"]
            words[0] = f"({', '.join([words[0], *items])},)"
        else:
            words = [f"[{', '.join([*words, *items])}]"]
        called = self.pool(fn) if self.is_fixed(frame) else self.make_resume(frame, fn)
        handled = self.tracer.frames.handled_in(self.tracer.frames.index(frame))
        if handled is not None or self.tracer.frames.began_handling:
            error = self.name(handled) if handled is not None else "None"
            words = [error, called, f"({', '.join(words)},)", "{}"]
            called = self.pool(native().call_handling)
        if frame is self.tracer.frames[0]:  # called when the replacement is gone
            return f"{self.pool(native().tail_call)}({called}, {', '.join(words)})"
        return f"{called}({', '.join(words)})"

    def is_fixed(self, frame: CaptureFrame) -> bool:
        """Whether a resume function of a frame has the same closure, if any, in each call."""
        origins = [cell.origin for cell in frame.closure] if frame.code.keeps_closure else []
        return all(isinstance(x, ValueSource) and x.kind in ("const", "slot") for x in origins)

    def make_resume(self, frame: CaptureFrame, fn: Any) -> str:
        """A resume function with the cells of the call."""
        code, names = code_of(fn), frame.globals
        text = f"{self.pool(types.FunctionType)}({self.pool(code)}, {self.pool(names)}, "
        return f"{text}{code.co_name!r}, None, ({self.listed(frame.closure)}))"


def call_of_break(emitter: Any, k: int, graph_break: "Break") -> str:
    """The call, in frame `k`, that broke the graph."""
    words = [emitter.name(x) for x in graph_break.args_]
    words += [f"{n}={emitter.name(v)}" for n, v in graph_break.kwargs.items()]
    if graph_break.loop is not None:
        words.append(emitter.pool(END_OF_LOOP))
    call = f"{emitter.callee(graph_break.fn)}({', '.join(words)})"
    handled = emitter.tracer.frames.handled_in(k)
    if handled is None and not emitter.tracer.frames.began_handling:
        return call
    error = emitter.name(handled) if handled is not None else "None"
    words = [error, emitter.callee(graph_break.fn), *words]
    return f"{emitter.pool(handling)}({', '.join(words)})"


class END_OF_LOOP:
    """The end of a loop: `next` returns this class as its default."""


def loop_end(frame: CaptureFrame, target: int) -> int:
    """The instruction after a loop whose iterator is finished and off the stack."""
    return target + len(bytecode.loop_end)


def handling(
    error: BaseException | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[float] | None:
    """fn(*args) while an exception (or none) is being handled."""
    return native().call_handling(error, fn, args, kwargs)
