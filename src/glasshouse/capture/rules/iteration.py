"""Iterators and generators: made, stepped, closed."""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from glasshouse.capture.bytecode.instructions import decoded
from glasshouse.capture.bytecode.tracebacks import (
    chain_context,
    error_part,
    is_polyfill,
    set_error_part,
)
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.frames.frame import (
    END,
    CapturedGenerator,
    CapturedIterator,
    CaptureFrame,
    SequenceIterator,
    error_thrown,
    plain_value,
    type_of,
)
from glasshouse.capture.frames.generator_effects import ends_with_effects
from glasshouse.capture.rules.builtins.polyfilled_methods import iterator_of
from glasshouse.capture.rules.descriptors import part_of_new
from glasshouse.capture.values.plain import has_plain_items
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import iterate
from glasshouse.capture.values.var import Break, Recipe, Then, UserError, Var, pending

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


OPEN_GENERATOR = "a generator that yields inside with or try"
SEQUENCES = (list, tuple, range, str, bytes)


def generator_method(t: "CaptureTracer", this: Var, name: str, args: Any, then: Any) -> Any:
    """Call a method of a generator that the interpreter runs."""
    if name in ("__next__", "send"):
        return t.next_of(this, None, then, args[0] if args else Var(None))
    if name == "__iter__":
        return t.deliver(then, this)
    if name == "throw":
        error = thrown_error(t, args)
        generator: CapturedGenerator = this.value
        inner = delegate_of(t, generator)
        if inner is not None:
            return throw_into(t, generator, inner, error, plain_result(t, then))
        if not generator.finished:
            enter_generator(t, generator, plain_result(t, then))
        return throw_here(t, error)
    if name == "close":
        return close_generator(t, this.value, then)
    raise Break(f"method {name} of a generator", None)


def thrown_error(t: "CaptureTracer", args: Any) -> Var:
    """The exception that `throw` raises; Python checks its arguments."""
    values = [x.value for x in args]
    errors = (x for x in values[:2] if isinstance(x, BaseException))
    traces = [error_part(x, "__traceback__") for x in errors]
    error = t.do(error_thrown, *values)
    trace = values[2] if len(values) > 2 else None
    traces = [x for x in (trace, *traces) if isinstance(x, types.TracebackType)]
    set_error_part(error, "__traceback__", next(iter(traces), None))  # without our frames
    thrown = next((x for x in args if x.value is error), None)
    if thrown is not None:
        return thrown
    arguments = [x for x in args if x.value is not None]
    if len(arguments) == 1 and isinstance(arguments[0].value, type):
        return t.heap.track(Var(error, Recipe("call", arguments[0], [], {}), {}))
    return t.heap.track(Var(error, Recipe("exception_value")))


def throw_here(t: "CaptureTracer", error: Var) -> NoReturn:
    """Raise an exception at the present place of a generator that was just entered."""
    for frame in reversed(t.frames):
        if frame.generator is None:
            break
        if frame.handled:  # also for generators that delegate to it, not for their caller
            chain_context(error.value, frame.handled[-1].value)
            break
    t.frames.raised = error
    raise UserError(error.value)


def plain_result(t: "CaptureTracer", then: Any) -> Any:
    """A callback that gives an item to `then`, and raises StopIteration where there is none."""

    def after(tracer, x, result=None):
        if x is END:
            tracer.fail(stop_error(tracer, result))
        return tracer.deliver(then, x)

    return after


def stop_error(t: "CaptureTracer", result: Var | None) -> StopIteration:
    """The StopIteration of an exhausted iterator, with a generator's return value."""
    if result is None or result.value is None:
        return StopIteration()
    error = StopIteration(plain_value(result))
    t.heap.track(Var(error, Recipe("call", Var(StopIteration), [result], {}), {}))
    return error


def delegate_of(t: "CaptureTracer", generator: CapturedGenerator) -> Var | None:
    """The iterator that a generator in a `yield from` draws from; None for other generators."""
    frame = generator.frame
    before = frame.code.instructions[frame.at - 1] if generator.started else None
    if generator.finished or generator.running or before is None or before.op != "SEND":
        return None
    return frame.stack[-1]


def throw_into(
    t: "CaptureTracer", generator: CapturedGenerator, inner: Var, error: Var, then: Then
) -> Any:
    """Raise in the iterator that a generator delegates to; `then` gets its next value."""
    frame, exits = generator.frame, isinstance(error.value, GeneratorExit)
    is_ours = isinstance(inner.value, CapturedGenerator) and not inner.value.is_polyfill
    thrown = is_ours or hasattr(type_of(inner.value), "close" if exits else "throw")
    if t.guards.live and thrown and not is_ours:
        raise Break(f"an exception for a {type(inner.value).__name__} in a generator")
    enter_generator(t, generator, then)

    def here(tracer):
        return throw_here(tracer, error)

    if exits and thrown:
        if is_ours:
            return close_generator(t, inner.value, lambda t, x: here(t))
        t.do(inner.value.close)
    if exits or not thrown:
        return here(t)

    def after(tracer, x, result=None):
        if x is not END:
            return tracer.yield_value(frame, x)
        if bytecode.pops_ended_iterator:
            frame.stack.pop()
        frame.stack.append(result or Var(None))
        frame.ip = frame.code.instructions[frame.at - 1].target
        return None

    if is_ours:
        deeper = delegate_of(t, inner.value)
        if deeper is not None:
            return throw_into(t, inner.value, deeper, error, after)
        if inner.value.finished or not inner.value.started:
            inner.value.finished = True
            return here(t)
        enter_generator(t, inner.value, after)
        return here(t)
    try:
        item = t.do(inner.value.throw, error.value)
    except UserError as raised:
        if isinstance(raised.error, StopIteration):
            return after(t, END, Var(raised.error.value))
        if frame.handled:  # the delegating generator is handling another error
            chain_context(raised.error, frame.handled[-1].value)
        raise
    return after(t, Var(item))


def close_generator(
    t: "CaptureTracer", generator: CapturedGenerator, then: Callable[..., Any]
) -> Any:
    """Raise GeneratorExit at the present place of a generator."""
    if generator.finished or not generator.started:
        generator.finished = True
        return t.give(then, None)
    generator.closing = True
    inner = delegate_of(t, generator)
    if inner is not None:
        return throw_into(t, generator, inner, Var(GeneratorExit()), on_closed(then))
    enter_generator(t, generator, on_closed(then))
    return throw_here(t, Var(GeneratorExit()))


def enter_generator(t: "CaptureTracer", generator: CapturedGenerator, after: Any) -> None:
    """Run a generator's frame until it yields or ends."""
    if generator.running:
        t.fail(ValueError("generator already executing"))
    generator.running = generator.started = True
    generator.remainder = None
    generator.then = after
    generator.frame.generator = generator
    t.frames.append(generator.frame)


def is_left_open(t: "CaptureTracer", code: types.CodeType | None) -> bool:
    """Whether ending a generator may run code, at a time that the user's code decides."""
    return code is not None and not keeps(t) and decoded(code).ends_with_effects


def keeps(t: "CaptureTracer") -> bool:
    """Whether a generator that is made now is released at the right time by itself: contextlib
    holds it during a `with`, or a loop while it runs."""
    running = t.frames[-1]
    owner = next((f for f in reversed(t.frames) if not is_polyfill(f.root)), running)
    is_kept = owner.trusted or owner.globals.get("__name__") == "contextlib"
    in_loop = running is owner and owner.code.instructions[owner.at + 1].op == "GET_ITER"
    return is_kept or in_loop


def leave_generator_to_python(
    t: "CaptureTracer", fn: Var, args: Any, kwargs: Any, then: Any
) -> Any:
    """Leave the creation of a generator to Python."""
    leave_to_open_generator(t)
    return t.call(fn, args, kwargs, then)


def leave_to_open_generator(t: "CaptureTracer") -> None:
    """Stop learning, and leave the functions that hold an open generator to Python from the
    next call on: it ends with its last reference. Generators that hold it, and the functions
    that made them or draw from them, count as well."""
    for frame in reversed(t.frames):
        users, generator = not is_polyfill(frame.root), frame.generator
        if users:
            frame.code.unknown = OPEN_GENERATOR
        if generator is not None:
            generator.site[0].unknown = OPEN_GENERATOR
        elif users:
            break
    t.stop_learning(OPEN_GENERATOR)


@pending
def get_iter(t: "CaptureTracer", x: Var, then: Then = None) -> Any:
    """iter(x)."""
    value = x.value
    if isinstance(value, (CapturedIterator, CapturedGenerator)):
        return t.deliver(then, x)
    if not t.guards.live:
        return t.give(then, t.do(iter, value))
    kind, fixed = type(value), None
    if isinstance(value, SEQUENCES) and has_plain_items(kind):
        t.typed(x)
    else:
        if not t.is_tensor(x) and t.own_method(x, "__iter__") is not None:
            return t.call_function(Var(iterator_of), [x], {}, then)
        items = t.sequence(x)
        if items is None and not t.has(x, "__iter__") and t.own_method(x, "__getitem__"):
            return t.call_function(Var(iterate), [x], {}, then)
        if items is None:
            raise Break(f"iteration over a {kind.__name__}", Var(iter), [x])
        fixed = list(items)
    return t.deliver(then, t.heap.track(Var(SequenceIterator(x, fixed), Recipe("iterator"))))


@pending
def step(
    t: "CaptureTracer", iterator: Var, then: Callable[..., Any], sent: Var | None = None
) -> Any:
    """The next item to `then`, or END."""
    value = iterator.value
    if isinstance(value, CapturedGenerator):
        if value.failed and t.guards.live:
            raise Break("iteration over what has raised", Var(next), [iterator])
        if value.failed:
            iterator.value = value.native()
            return step(t, iterator, then, sent)
        if value.finished:
            return then(t, END)
        if not value.started and sent is not None and t.concretize(sent) is not None:
            t.fail(TypeError("can't send non-None value to a just-started generator"))
        enter_generator(t, value, then)
        value.frame.stack.append(sent or Var(None))
        return None
    if isinstance(value, CapturedIterator):
        if sent is not None and sent.value is not None:
            t.do(getattr, value.native(), "send")  # raises: it has none
        return then(t, value.step(t))
    if not t.guards.live:
        message = None if sent is None else sent.value
        try:
            item = t.do(next, value) if message is None else t.do(value.send, message)
        except UserError as raised:
            if not isinstance(raised.error, StopIteration):
                raise
            return then(t, END, Var(raised.error.value))
        return then(t, Var(item))
    if sent is not None and sent.value is not None:
        raise Break(f"a value is sent to a {type(value).__name__}")
    frame = t.frames[-1]
    if t.call_own(iterator, "__next__", [], lambda t, v: then(t, v)):
        if t.frames[-1] is not frame:
            t.frames[-1].then = OrElse(StopIteration, then, on_stopped(then))
        return None
    if type(value) is types.GeneratorType and is_left_open(t, value.gi_code):
        leave_to_open_generator(t)
        return step(t, iterator, then, sent)
    raise Break(f"iteration over a {type(value).__name__}", Var(next), [iterator])


def drained_by(t: "CaptureTracer", f: CaptureFrame, result: Var | None) -> None:
    """Note the end value of an iterator for the generator that drew from it."""
    if f.generator is not None:
        f.generator.last = result


@pending
def next_of(
    t: "CaptureTracer", iterator: Var, default: Var | None, then: Any, sent: Any = None
) -> Any:
    """next(iterator[, default])."""

    def after(tracer, x, result=None):
        if x is not END:
            return tracer.deliver(then, x)
        drained_by(tracer, tracer.frames[-1], result)
        if default is not None:
            return tracer.deliver(then, default)
        return tracer.fail(stop_error(tracer, result))

    return step(t, iterator, after, sent)


def on_closed(then: Callable[..., Any]) -> Callable[..., Any]:
    """A callback for the end of a closed generator: from 3.13 on, `close` returns its value."""

    def after(tracer, x, result=None):
        value = result if bytecode.close_gives_value else None
        return tracer.deliver(then, Var(None) if value is None else value)

    return after


def on_stopped(then: Any) -> Any:
    """A handler of an iterator's StopIteration: `then` gets END and the value that it has."""

    def other(tracer, error):
        if error.value is None:
            return then(tracer, END)
        var = tracer.heap.tracked.get(id(error))
        if var is None or not isinstance(var.origin, Recipe):
            raise Break("an iterator that ends with a value")
        return then(tracer, END, part_of_new(tracer, var, "value", error.value))

    return other


class OrElse:
    """A callback after an inlined call; if that raises an error of a kind, other(tracer, error) is
    called instead."""

    def __init__(self, kind: type[Any], then: Then, other: Any) -> None:
        self.kind = kind
        self.then = then
        self.other = other

    def __call__(self, tracer: "CaptureTracer", var: Var) -> Any:
        return tracer.deliver(self.then, var)


def let_go(t: "CaptureTracer", f: CaptureFrame, depth: int) -> None:
    """Drop the values above `depth` on a frame's stack."""
    dropped = f.stack[depth:]
    del f.stack[depth:]
    f.saved = []  # it may hold the last reference
    end_generators(t, dropped)


def end_generators(t: "CaptureTracer", dropped: list[Var]) -> None:
    """End generators of loops that are left, as Python does; stop learning if code runs."""
    for var in dropped:
        value = var.value
        if isinstance(value, CapturedGenerator) and value.is_open and ends_with_effects(value):
            value.site[0].unknown = value.site[0].unknown or OPEN_GENERATOR
            t.stop_learning(OPEN_GENERATOR)
            t.heap.tracked.pop(id(value), None)
            t.frames[-1].saved = []
            values = (x for f in t.frames for x in (*f.locals, *f.stack))
            if not any(x is var for x in values):
                var.value = None
