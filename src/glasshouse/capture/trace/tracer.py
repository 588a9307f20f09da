"""The interpreter: runs a function's bytecode on real values once, and learns how to do it again.

The first call really happens, with its effects. It yields a graph of tensor operations, guards
under which a later call takes the same path, and the values that it makes and writes. At an
operation that is not supported the graph ends (a Break). Python does that one operation, and resume
functions, one for each open frame, capture the rest."""

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from glasshouse.base.interrupts import came, deliver
from glasshouse.capture.bytecode.instructions import original_of, slot_names
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import chain_context
from glasshouse.capture.frames.frame import END, CapturedGenerator, CaptureFrame, plain_value
from glasshouse.capture.frames.generator_effects import holds_effects
from glasshouse.capture.guards.guard_set import GuardSet
from glasshouse.capture.guards.read_audit import new_reads
from glasshouse.capture.rules import (
    attributes,
    calls,
    class_calls,
    class_lookups,
    constants,
    containers,
    iteration,
    numbers,
    operators,
    polyfill_calls,
)
from glasshouse.capture.rules.builtins import container_methods
from glasshouse.capture.rules.iteration import (
    delegate_of,
    leave_to_open_generator,
    throw_here,
    throw_into,
)
from glasshouse.capture.rules.names_in_texts import rely_on_names, rely_on_names_of_error
from glasshouse.capture.rules.opcodes import HANDLERS, handled_outside
from glasshouse.capture.trace.effects import Effects
from glasshouse.capture.trace.frame_stack import FrameStack
from glasshouse.capture.trace.heap import TraceHeap
from glasshouse.capture.trace.native_iterators import make_native
from glasshouse.capture.trace.operands import GraphOperands
from glasshouse.capture.trace.unwinding import in_python, restore, unwind, unwind_once
from glasshouse.capture.trace.varying import Varying
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, CannotRebuild, Then, UserError, Var, discarded
from glasshouse.ir.graph import IRGraph

if TYPE_CHECKING:
    from glasshouse.capture.bytecode.instructions import Instruction
    from glasshouse.capture.sessions.config import CaptureConfig


INTERRUPTED = "an interrupt"
FAULT = "an error inside the capture"
IDLE = 100_000  # instructions without an operation of the graph: they are quicker in Python
LOOKS = {"RESUME", "JUMP"}  # instructions where Python checks for signals


def raise_error(error: BaseException, *more: Any) -> Any:
    """Raise a new exception like `error`."""
    raise type(error)(*error.args)


HANDED_OVER = object()  # result of `run` if Python continues in resume functions


class TraceFinished(Exception):
    """The outermost frame returned."""


class CaptureTracer:
    """One run of the interpreter, for one call of one function.

    Rules are functions of a trace. These of them are methods too: Python's protocols, by which a
    rule calls those of modules that import its own."""

    hands_over: bool
    count: int
    size: int

    call: Any = calls.call
    call_own: Callable[..., bool] = calls.call_own
    call_function: Callable[..., Any] = calls.call_function
    call_polyfill: Callable[..., Any] = polyfill_calls.call_polyfill
    real_call: Callable[..., Var] = calls.real_call
    default_front: Any  # both are set by decorator.py
    default_config: Any
    instantiate: Callable[..., Any] = class_calls.instantiate
    extend: Callable[..., Any] = container_methods.extend
    get_attribute: Any = attributes.get_attribute
    set_attribute: Any = attributes.set_attribute
    truth: Any = operators.truth
    number: Callable[..., Var] = numbers.number
    get_iter: Any = iteration.get_iter
    next_of: Any = iteration.next_of
    sequence: Callable[..., Any] = containers.sequence
    iterated: Callable[..., Any] = containers.iterated
    entries: Callable[..., list[tuple[Var, Var]]] = containers.entries
    entry: Callable[..., Any] = containers.entry
    store_item: Callable[..., None] = containers.store_item
    look_up: Callable[..., Any] = class_lookups.look_up
    has: Callable[..., bool] = class_lookups.has
    own_method: Callable[..., Any] = class_lookups.own_method
    typed: Callable[..., Any] = constants.typed
    concretize: Callable[..., Any] = constants.concretize
    foldable: Callable[..., bool] = constants.foldable
    varies: Callable[..., bool] = constants.varies

    def __init__(
        self,
        front: Any,
        config: "CaptureConfig",
        on_internal_error: Callable[..., Any] | None = None,
    ) -> None:
        self.front = front
        self.config = config
        self.front_state: Any = None  # result of the front end's `begin`
        self.on_internal_error: Any = on_internal_error  # called with errors inside the capture
        self.hands_over = on_internal_error is not None  # whether Python may continue, see `run`
        self.graph: IRGraph = IRGraph()
        self.operands: GraphOperands = GraphOperands()
        self.frames: FrameStack = FrameStack()
        self.guards: GuardSet = GuardSet(self.frames, new_reads())
        self.heap: TraceHeap = TraceHeap(self.guards)
        self.effects: Effects = Effects(self.guards)
        self.varying: Varying = Varying(front)
        self.count, self.size = 0, -1  # of instructions, and of the graph's nodes when last seen

    @classmethod
    def untraced(cls) -> "CaptureTracer":
        """An interpreter that learns nothing; for generators that outlive their trace."""
        tracer = cls(cls.default_front, cls.default_config)
        tracer.guards.live = False
        return tracer

    # -- starting ------------------------------------------------------------------------------

    def enter(self, fn: types.FunctionType, slots: tuple[Any, ...]) -> None:
        """Make the frame of the captured function."""
        code = fn.__code__
        names = slot_names(code)
        frame = CaptureFrame(code, fn.__globals__, len(names))
        free = len(code.co_freevars)
        count = len(slots) - free
        for i, value in enumerate(slots):
            at = i if i < count else len(names) - free + i - count
            source = self.guards.source("slot", None, i, names[at])
            frame.locals[at] = self.heap.load(value, source)
        if original_of(code)[0] is not code and self.frames.outside is not None:
            frame.handled = [handled_outside(self)]
            self.frames.began_handling, self.frames.outside = True, None
        self.frames.append(frame)

    def run(self) -> Any:
        """Interpret until the outermost frame returns (its Var) or breaks (the Break)."""
        while True:
            f = self.frames[-1]
            ins = f.code.instructions[f.ip]
            f.at, f.saved = f.ip, f.stack[:]
            if not self.guards.live and self.hands_over and self.can_hand_over(ins):
                return HANDED_OVER
            f.ip += 1
            depth = len(self.frames)
            problem = broke = None
            try:
                if came and ins.op in LOOKS and f.root.co_name != "__exit__":
                    self.interrupt()
                self.count += 1
                if self.count > self.config.max_instructions and self.guards.live:
                    self.count = 0
                    raise Break("a very long computation")
                if not self.count % IDLE and self.guards.live and self.is_idle():
                    raise Break("a long computation without tensors")
                HANDLERS[ins.op](self, f, ins)
            except TraceFinished as done:
                return done.args[0]
            except UserError as user_error:
                problem = user_error.error
            except Break as graph_break:
                restore(self, f, depth, graph_break)
                # These hold our frames.
                graph_break.__traceback__ = graph_break.__context__ = None
                if self.guards.live:
                    return graph_break
                broke = graph_break
            except (RecursionError, CannotRebuild):
                raise
            except Exception as error:
                if self.config.raise_internal_errors:
                    raise
                restore(self, f, depth, None)
                if not self.guards.live and (not self.hands_over or not self.can_hand_over(ins)):
                    raise
                self.on_internal_error(error, f.root.co_filename, f.line)
                return Break(f"{FAULT}: {error!r}") if self.guards.live else HANDED_OVER
            except BaseException as error:  # from outside: later calls do not repeat it
                self.stop_learning(INTERRUPTED)
                problem = error
            if broke is not None:
                in_python(self, f, broke)
            if problem is not None:
                uncaught = unwind(self, problem)
                if uncaught is not None:
                    return uncaught

    def is_idle(self) -> bool:
        """Whether the graph has not grown since the last call of this."""
        before, self.size = self.size, len(self.graph.nodes)
        return before == self.size

    def can_hand_over(self, ins: "Instruction") -> bool:
        """Whether Python can continue here in all frames, once nothing is learnt any more."""
        if ins.op == "CALL" or self.frames[-1].kw_names:
            return False
        more = 0
        for f in reversed(self.frames):
            plain = f.generator is None and f.then in (None, discarded)
            if not plain or f.code.depth_at(f.ip) != len(f.stack) + more:
                return False
            more = int(f.then is not discarded)
        return True

    def interrupt(self) -> None:
        """Run the handlers of signals that waited for the end of an instruction."""
        try:
            deliver()
        except BaseException as error:
            self.stop_learning(INTERRUPTED)
            raise UserError(error) from None

    # -- results -------------------------------------------------------------------------------

    def push(self, var: Var) -> None:
        self.frames[-1].stack.append(var)

    def deliver(self, then: Any, var: Var) -> Any:
        """Pass a result to its receiver, or push it."""
        if then is None:
            self.frames[-1].stack.append(var)
            return None
        return then(self, var)

    def give(self, then: Then, value: Any) -> Any:
        """Deliver a constant."""
        return self.deliver(then, Var(value))

    def leave(self, var: Var) -> None:
        """Return from the running frame."""
        frame = self.frames.pop()
        self.front.leave(frame)
        generator = frame.generator
        if generator is not None:
            then, var = generator.stop(finished=True), generator.result(var)
            if not self.frames:
                raise TraceFinished((END, var))
            if not self.guards.live and generator.is_polyfill:
                make_native(self)
            self.deliver_after_return(frame, lambda: then(self, END, var))
            return
        if frame.init is not None:
            if var.value is not None:
                self.fail(
                    TypeError(f"__init__() should return None, not '{type(var.value).__name__}'")
                )
            var = frame.init
        if not self.frames:
            raise TraceFinished(var)
        self.deliver_after_return(frame, lambda: self.deliver(frame.then, var))

    def deliver_after_return(self, frame: CaptureFrame, deliver: Callable[..., Any]) -> None:
        """Deliver; if that breaks after the return, stop learning and deliver for real."""
        try:
            return deliver()
        except UserError:
            self.frames.failed_after_return = True
            raise
        except Break as graph_break:
            if not self.guards.live:
                raise
            reason = graph_break.reason
        code, at = self.frames.site()
        code.opaque.add(at)
        self.stop_learning(reason)
        return deliver()

    def stop_learning(self, reason: str) -> None:
        """Continue as a plain interpreter: nothing of this trace is kept."""
        if not self.guards.live:
            return
        self.guards.live = False
        self.why_stopped = reason
        make_native(self)
        self.heap.forget()
        self.effects.sections = [[]]
        self.front.stop(self)

    def yield_value(self, f: CaptureFrame, var: Var) -> None:
        generator: CapturedGenerator = f.generator
        if self.guards.live and not generator.is_kept and holds_effects(generator):
            leave_to_open_generator(self)
        self.frames.pop()
        then = generator.stop()
        if not self.guards.live and generator.is_polyfill and self.frames:
            make_native(self)
        if generator.closing:
            self.fail(RuntimeError("generator ignored GeneratorExit"))
        if not self.frames:
            raise TraceFinished((var, None))
        self.deliver_after_return(f, lambda: then(self, var))

    def drive(self, generator: CapturedGenerator, sent: Var, error: Any) -> Any:
        """Run a generator until its next value, as Python would."""
        if generator.finished:
            if error is not None:
                raise error
            raise StopIteration
        if generator.running:
            raise ValueError("generator already executing")
        if not generator.started and sent.value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        inner = [delegate_of(self, generator)]
        generator.running = generator.started = True
        generator.frame.generator = generator
        self.frames.append(generator.frame)
        if error is None:
            generator.frame.stack.append(sent)
        try:
            if error is not None:
                self.throw_from_outside(generator, inner, error)
            value, result = self.run()
        except TraceFinished as done:  # the iterator that it delegates to gave a value
            value, result = done.args[0]
        except BaseException:
            generator.finished = True
            raise
        if value is END:
            raise StopIteration if result.value is None else StopIteration(result.value)
        return plain_value(value)

    def throw_from_outside(
        self, generator: CapturedGenerator, inner: list[Any], error: Any
    ) -> None:
        """Raise in a generator that was just entered, or in the iterator that it delegates to,
        which is taken out of `inner`, since it may end with its last reference."""
        problem = error
        try:
            if inner[0] is None:
                throw_here(self, Var(error))
            self.frames.pop()
            generator.stop()
            throw_into(self, generator, inner.pop(), Var(error), None)
        except UserError as user_error:
            problem = user_error.error
        else:
            return
        while problem is not None:
            try:
                unwind_once(self, problem)
                problem = None
            except UserError as user_error:
                problem = user_error.error

    # -- Python's own work ---------------------------------------------------------------------

    def do(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call fn for the user's program: its exceptions are the user's, the handled one is set."""
        try:
            result = self.while_handling(fn, *args, **kwargs)
        except (Break, CannotRebuild):
            raise
        except BaseException as error:
            if self.guards.live and not isinstance(error, Exception):
                raise
            rely_on_names_of_error(self, error, (fn, *args))
            raise UserError(error) from None
        if type(result) is str and self.guards.live:
            rely_on_names(self, result, (*args, *kwargs.values()))
        return result

    def while_handling(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call fn while the exception that the user's program handles is being handled."""
        handled = self.frames.handled_now()
        if sys.exc_info()[1] is handled:
            return fn(*args, **kwargs)
        return native().call_handling(handled, fn, args, kwargs)

    def fail_here(self, error: BaseException) -> Any:
        """Raise an error that Python would not raise if it ran the instruction again from here."""
        raise Break(f"raising {type(error).__name__}", Var(raise_error), [Var(error)])

    def fail(self, error: BaseException, *values: Any) -> NoReturn:
        """Raise an exception of the user's program whose text names some values."""
        rely_on_names_of_error(self, error, values)
        raise self.raising(error)

    def raising(self, error: BaseException) -> UserError:
        """The UserError that raises an exception in the user's program, with the one that is being
        handled as its context."""
        handled = self.frames.handled_now()
        if handled is not None:
            chain_context(error, handled)
        return UserError(error)

    # -- questions to the front end ------------------------------------------------------------

    def is_tensor(self, var: Var) -> bool:
        return self.front.is_tensor(var.value)
