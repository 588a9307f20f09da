"""Where a trace continues after an exception of the user's program, or after a break."""

from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base.errors import CaptureError
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import add_frame, cut_traceback, error_part
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.frames.frame import END, CaptureFrame, LastInstruction, may_go_on
from glasshouse.capture.frames.surroundings import attribute_request, tell_attribute
from glasshouse.capture.rules.iteration import OrElse, end_generators, let_go
from glasshouse.capture.trace.native_iterators import nativise
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import NULL, Break, CannotRebuild, Recipe, UserError, Var

if TYPE_CHECKING:
    from glasshouse.capture.bytecode.instructions import ExceptionHandler
    from glasshouse.capture.trace.tracer import CaptureTracer


class Uncaught(Break):
    """An uncaught exception: the instruction runs again in Python, and raises it there."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"raising {type(error).__name__}")


class Raised(NamedTuple):
    """An exception that leaves the captured function. `has_frame`: its traceback has the function's
    frame already, since it was made inside or is raised again."""

    var: Var
    has_frame: bool


def restore(t: "CaptureTracer", f: CaptureFrame, depth: int, graph_break: Break | None) -> None:
    """Restore the frames, and iterators that the instruction drained, to their state at a
    break."""
    refill(t)
    if f not in t.frames:
        raise CannotRebuild("a break after a return", None)
    del t.frames[t.frames.index(f) + 1 :]
    if graph_break is not None and graph_break.then is not None:
        graph_break.fn = None
    if graph_break is None or graph_break.fn is None:
        restart(t, f)


def refill(t: "CaptureTracer") -> None:
    """Restore the iterators that the running instruction drained."""
    while t.heap.drained and t.heap.drained[-1][0] == t.count:
        _, iterator, name, value = t.heap.drained.pop()
        setattr(iterator, name, value)


def restart(t: "CaptureTracer", f: CaptureFrame) -> None:
    """Let Python run the instruction again, from the one that names its keywords."""
    before = f.at - 1
    if before >= 0 and f.code.instructions[before].op == "PRECALL":
        before -= 1
    if f.code.instructions[f.at].op == "CALL" and f.code.instructions[before].op == "KW_NAMES":
        f.at = before
    f.stack, f.ip = f.saved, f.at


def in_python(t: "CaptureTracer", f: CaptureFrame, graph_break: Break) -> None:
    """Do a call that broke, and continue, once nothing is learnt any more."""
    if graph_break.loop is not None:
        graph_break.args_ = [*graph_break.args_, Var(END)]
    if graph_break.fn is None:
        got, fix = (
            f"a break in it: {graph_break.reason}",
            "Report it, and use gh.disable on the function.",
        )
        raise CaptureError(f"capture: {f.where}", "code that can go on", got, fix)
    converted: dict[int, bool] = {}
    for var in (*graph_break.args_, *graph_break.kwargs.values()):
        nativise(t, var, converted)
    try:
        result, problem = (t.real_call(graph_break.fn, graph_break.args_, graph_break.kwargs), None)
    except UserError as error:
        result, problem = NULL, error.error
    if problem is not None:
        unwind_once(t, problem)
        return
    jump = graph_break.jump
    if jump is not None:
        f.ip, drop = jump[0 if result.value else 1]
        del f.stack[len(f.stack) - drop :]
    elif graph_break.loop is not None and result.value is END:
        f.stack.append(END)
        if bytecode.pops_ended_iterator:
            del f.stack[-2:]
        f.ip = graph_break.loop
    elif not graph_break.discard:
        f.stack.append(result)


def unwind(t: "CaptureTracer", error: BaseException) -> Any:
    """Unwind for an exception, and for those that unwinding raises in the user's code."""
    while True:
        try:
            return unwind_once(t, error)
        except UserError as user_error:
            error = user_error.error


def unwind_once(t: "CaptureTracer", error: BaseException) -> "Break | Raised | None":
    """Go to the handler of an exception, in this frame or one that called it. If there is none,
    return a Break, so that Python raises it, or a Raised, after a `finally` or the like."""
    raised, t.frames.raised = t.frames.raised, None
    may_restart = not t.frames.failed_after_return
    t.frames.failed_after_return = False
    is_raised = raised is not None and raised.value is error
    var = raised if is_raised else t.heap.tracked.get(id(error))
    last = t.frames[-1]
    ins = last.code.instructions[last.at]
    has_frame = reraises = ins.op == "RERAISE" or ins.op == "RAISE_VARARGS" and not ins.arg
    caught = any(g.code.handler_at(g.at) or g.then or g.generator for g in t.frames)
    cut_traceback(error)
    if t.guards.live and may_restart and not caught and not reraises:
        refill(t)
        restart(t, t.frames[-1])
        return Uncaught(error)
    if var is None:
        var = t.heap.track(Var(error, Recipe("exception_value")))
    while t.frames:
        f = t.frames[-1]
        if not reraises:
            add_frame(f, error)
        reraises = False
        handler = f.code.handler_at(f.at)
        if handler is not None:
            enter_handler(t, f, handler, var)
            return None
        end_generators(t, f.stack)
        t.frames.pop()
        t.front.leave(f)
        complete_error(f, var, error)
        if f.generator is not None:
            generator = f.generator
            then = generator.stop_failed()
            if generator.failed and isinstance(error, StopIteration) and t.frames:
                then(t, END, Var(error.value))
                return None
            if generator.closing and isinstance(error, (GeneratorExit, StopIteration)):
                then(t, END)
                return None
            if isinstance(error, StopIteration):
                stop, error = error, RuntimeError("generator raised StopIteration")
                error.__cause__ = error.__context__ = stop
                error.__traceback__ = error_part(stop, "__traceback__")
                var = t.heap.track(Var(error, Recipe("exception_value")))
        elif isinstance(f.then, OrElse) and isinstance(error, f.then.kind) and t.frames:
            f.then.other(t, error)
            return None
    if not t.guards.live:
        native().raise_again(error)
    return Raised(var, has_frame or isinstance(var.origin, Recipe))


def enter_handler(
    t: "CaptureTracer", f: CaptureFrame, handler: "ExceptionHandler", var: Var
) -> None:
    """Continue a frame at the handler of an exception, as the interpreter does."""
    f.check_stack()
    if may_go_on(f.generator) and f.code.instructions[f.at].op != "RERAISE":
        f.generator.failed_stack = f.stack[:]
    let_go(t, f, handler.depth)
    if handler.lasti:
        f.stack.append(LastInstruction(f.code.instructions[f.at].offset // 2))
    f.stack.append(var)
    f.ip = handler.target


def complete_error(f: CaptureFrame, var: Var, error: BaseException) -> None:
    """Set object and name of an error that leaves the user's `__getattr__`."""
    attribute = attribute_request(f)
    if attribute is not None and tell_attribute(error, *(x.value for x in attribute)):
        var.items = {**(var.items or {}), "obj": attribute[0], "name": attribute[1]}
