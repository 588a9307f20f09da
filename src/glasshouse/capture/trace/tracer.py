"""The interpreter: runs a function's bytecode on real values once, and learns how to do it again.

The first call really happens, with its effects. It yields a graph of tensor operations, guards
under which a later call takes the same path, and the values that it makes and writes. At an
operation that is not supported the graph ends (a Break). Python does that one operation, and resume
functions, one for each open frame, capture the rest."""

import operator
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from glasshouse.base.errors import CaptureError
from glasshouse.base.interrupts import came, deliver
from glasshouse.capture.bytecode.instructions import DecodedCode, original_of, slot_names
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import (
    chain_context,
    is_polyfill,
    users_part,
    with_frame,
)
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.frames.frame import (
    END,
    CapturedGenerator,
    CapturedIterator,
    CaptureFrame,
    LastInstruction,
    may_go_on,
    plain_value,
)
from glasshouse.capture.frames.generator_effects import ends_with_effects, holds_effects
from glasshouse.capture.frames.surroundings import attribute_request, tell_attribute
from glasshouse.capture.guards import read_audit
from glasshouse.capture.guards.assumptions import Assumptions
from glasshouse.capture.guards.class_reads import ReadClasses
from glasshouse.capture.guards.program import GuardSet
from glasshouse.capture.guards.read_audit import new_reads
from glasshouse.capture.rules import (
    attributes,
    calls,
    class_calls,
    class_lookups,
    constants,
    containers,
    iteration,
    objects,
    operators,
    polyfill_calls,
)
from glasshouse.capture.rules.builtins import container_methods
from glasshouse.capture.rules.builtins.cached_calls import KeptResults
from glasshouse.capture.rules.builtins.class_checks import RegisteredAnswers
from glasshouse.capture.rules.iteration import (
    OPEN_GENERATOR,
    OrElse,
    delegate_of,
    leave_to_open_generator,
    throw_here,
    throw_into,
)
from glasshouse.capture.rules.names_in_texts import rely_on_names, rely_on_names_of_error
from glasshouse.capture.rules.opcodes import HANDLERS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    NULL,
    Break,
    CannotRebuild,
    Recipe,
    UserError,
    ValueSource,
    Var,
    discarded,
    last_items,
    varying_name,
)
from glasshouse.ir.graph import IRGraph

INTERRUPTED = "an interrupt"
FAULT = "an error inside the capture"
IDLE = 100_000  # instructions without an operation of the graph: they are quicker in Python
LOOKS = {"RESUME", "JUMP"}  # instructions where Python checks for signals


def raise_error(error: BaseException, *more):
    """Raise a new exception like `error`."""
    raise type(error)(*error.args)


HANDED_OVER = object()  # result of `run` if Python continues in resume functions


class TraceFinished(Exception):
    """The outermost frame returned."""


class CaptureTracer:
    """One run of the interpreter, for one call of one function.

    Rules are functions of a trace. These of them are methods too: Python's protocols, by which a
    rule calls those of modules that import its own."""

    call, call_own, call_function = calls.call, calls.call_own, calls.call_function
    call_polyfill, real_call = polyfill_calls.call_polyfill, calls.real_call
    instantiate, extend = class_calls.instantiate, container_methods.extend
    get_attribute, set_attribute = attributes.get_attribute, attributes.set_attribute
    truth, number = operators.truth, operators.number
    get_iter, next_of, sequence = iteration.get_iter, iteration.next_of, containers.sequence
    iterated, entries = containers.iterated, containers.entries
    entry, store_item = containers.entry, containers.store_item
    look_up, has = class_lookups.look_up, class_lookups.has
    own_method, typed = class_lookups.own_method, constants.typed
    concretize, foldable, varies = constants.concretize, constants.foldable, constants.varies
    load, load_in, track, sub = objects.load, objects.load_in, objects.track, objects.sub
    entry_source, hand_over = objects.entry_source, objects.hand_over
    new_tuple, new_list, new_slice = objects.new_tuple, objects.new_list, objects.new_slice
    new_dict, new_set, new_cell = objects.new_dict, objects.new_set, objects.new_cell
    loaded, note_read = read_audit.loaded, read_audit.note_read
    note_global = read_audit.note_global

    dispatcher_type: type
    on_internal_error: Callable[[Exception, str, int], None]  # for errors inside the capture

    def __init__(self, front, config):
        self.front, self.config = front, config
        self.front_state = None  # result of the front end's `begin`
        self.hands_over = False  # whether Python may continue once nothing is learnt any more
        self.live = True  # whether anything is still being learnt
        self.graph = IRGraph()
        self.read_classes = ReadClasses()
        self.reads = new_reads()
        self.frames: list[CaptureFrame] = []
        self.guards = GuardSet(self.frames)
        self.tracked: dict[int, Var] = {}
        self.scopes: dict[int, Var] = {}
        self.whole: dict[int, Var] = {}
        self.deleted: dict[int, set] = {}
        self.original_keys: dict[int, tuple] = {}
        self.blurred: dict[int, list] = {}  # (key, value) of dicts, at keys that vary
        self.class_items: dict[type, dict] = {}
        self.written: list[Var] = []
        self.contexts: list[Var] = []  # contexts that are entered, outermost first
        self.inputs: list[tuple] = []  # (node, Var) of each placeholder
        self.members: dict[str, object] = {}  # members of the graph's module
        self.copies: dict[int, tuple] = {}  # (module, its copy in `members`) by the module's id
        self.dynamic: set[str] = set()  # sources of numbers and sizes that were seen to vary
        self.outcomes: set[tuple] = set()  # guarded outcomes of their expressions
        self.all_dynamic = self.scheduled = self.began_handling = False
        self.lifted: dict[int, tuple] = {}
        self.snapshots: dict[int, tuple] = {}
        self.guarded: set[int] = set()
        self.registered: RegisteredAnswers | None = None  # of abstract classes
        self.kept_results: KeptResults | None = None  # of functions under lru_cache
        self.drained: list[tuple] = []  # (instruction, iterator, attribute, value before)
        self.shared: set[int] = set()  # tensors that an operation returned unchanged
        self.functions: dict[int, Var] = {}  # functions whose attributes were written to
        self.context_nodes: dict[int, object] = {}
        self.context_changes: dict[int, list[Var]] = {}  # tokens of context variables that are set
        self.raised: Var | None = None
        self.outside = sys.exc_info()[1]  # the error being handled at the call
        self.count, self.size = 0, -1
        self.folding: set[int] = set()  # Vars in a running call of `foldable`
        self.handed_over: list[Var] = []  # generators that Python holds
        self.failed_after_return = False  # whether the failed instruction had done part of its work
        self.has_caught = False  # whether user code may catch errors of the graph
        self.has_checks = False  # whether the graph raises where Python would take another path
        self.assumptions = Assumptions(Counter())

    @classmethod
    def untraced(cls) -> "CaptureTracer":
        """An interpreter that learns nothing; for generators that outlive their trace."""
        tracer = cls(cls.default_front, cls.default_config)
        tracer.live = False
        return tracer

    # -- starting ------------------------------------------------------------------------------

    def enter(self, fn: types.FunctionType, slots) -> None:
        """Make the frame of the captured function."""
        code = fn.__code__
        names = slot_names(code)
        frame = CaptureFrame(code, fn.__globals__, len(names))
        free = len(code.co_freevars)
        count = len(slots) - free
        for i, value in enumerate(slots):
            at = i if i < count else len(names) - free + i - count
            source = self.guards.source("slot", None, i, names[at])
            frame.locals[at] = self.load(value, source)
        if original_of(code)[0] is not code and self.outside is not None:
            frame.handled = [self.handled_outside()]
            self.began_handling, self.outside = True, None
        self.frames.append(frame)
        self.module_name = fn.__globals__.get("__name__")

    def run(self):
        """Interpret until the outermost frame returns (its Var) or breaks (the Break)."""
        while True:
            f = self.frames[-1]
            ins = f.code.instructions[f.ip]
            f.at, f.saved = f.ip, f.stack[:]
            if not self.live and self.hands_over and self.can_hand_over(ins):
                return HANDED_OVER
            f.ip += 1
            depth = len(self.frames)
            problem = broke = None
            try:
                if came and ins.op in LOOKS and f.root.co_name != "__exit__":
                    self.interrupt()
                self.count += 1
                if self.count > self.config.max_instructions and self.live:
                    self.count = 0
                    raise Break("a very long computation")
                if not self.count % IDLE and self.live and self.is_idle():
                    raise Break("a long computation without tensors")
                HANDLERS[ins.op](self, f, ins)
            except TraceFinished as done:
                return done.args[0]
            except UserError as user_error:
                problem = user_error.error
            except Break as graph_break:
                self.restore(f, depth, graph_break)
                # These hold our frames.
                graph_break.__traceback__ = graph_break.__context__ = None
                if self.live:
                    return graph_break
                broke = graph_break
            except (RecursionError, CannotRebuild):
                raise
            except Exception as error:
                if self.config.raise_internal_errors:
                    raise
                self.restore(f, depth, None)
                if not self.live and (not self.hands_over or not self.can_hand_over(ins)):
                    raise
                self.on_internal_error(error, f.root.co_filename, f.line)
                return Break(f"{FAULT}: {error!r}") if self.live else HANDED_OVER
            except BaseException as error:  # from outside: later calls do not repeat it
                self.stop_learning(INTERRUPTED)
                problem = error
            if broke is not None:
                self.in_python(f, broke)
            if problem is not None:
                uncaught = unwind_all(self, problem)
                if uncaught is not None:
                    return uncaught

    def is_idle(self) -> bool:
        """Whether the graph has not grown since the last call of this."""
        before, self.size = self.size, len(self.graph.nodes)
        return before == self.size

    def can_hand_over(self, ins) -> bool:
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

    def restore(self, f: CaptureFrame, depth: int, graph_break: Break | None) -> None:
        """Restore the frames, and iterators that the instruction drained, to their state at a
        break."""
        self.refill()
        if f not in self.frames:
            raise CannotRebuild("a break after a return", None)
        del self.frames[self.frames.index(f) + 1 :]
        if graph_break is not None and graph_break.then is not None:
            graph_break.fn = None
        if graph_break is None or graph_break.fn is None:
            self.restart(f)

    def refill(self) -> None:
        """Restore the iterators that the running instruction drained."""
        while self.drained and self.drained[-1][0] == self.count:
            _, iterator, name, value = self.drained.pop()
            setattr(iterator, name, value)

    def in_python(self, f: CaptureFrame, graph_break: Break) -> None:
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
            self.nativise(var, converted)
        try:
            result, problem = (
                self.real_call(graph_break.fn, graph_break.args_, graph_break.kwargs),
                None,
            )
        except UserError as error:
            result, problem = NULL, error.error
        if problem is not None:
            self.unwind(problem)
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

    # -- results -------------------------------------------------------------------------------

    def push(self, var: Var) -> None:
        self.frames[-1].stack.append(var)

    def deliver(self, then, var: Var):
        """Pass a result to its receiver, or push it."""
        if then is None:
            self.frames[-1].stack.append(var)
            return None
        return then(self, var)

    def give(self, then, value):
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
            if not self.live and generator.is_polyfill:
                self.make_native()
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

    def deliver_after_return(self, frame: CaptureFrame, deliver) -> None:
        """Deliver; if that breaks after the return, stop learning and deliver for real."""
        try:
            return deliver()
        except UserError:
            self.failed_after_return = True
            raise
        except Break as graph_break:
            if not self.live:
                raise
            reason = graph_break.reason
        code, at = self.site()
        code.opaque.add(at)
        self.stop_learning(reason)
        return deliver()

    def stop_learning(self, reason: str) -> None:
        """Continue as a plain interpreter: nothing of this trace is kept."""
        if not self.live:
            return
        self.live = False
        self.why_stopped = reason
        self.make_native()
        for var in self.tracked.values():  # their items are read again when needed
            var.items = var.origin = var.log = None
        pairs = self.tracked.items()  # other values may be freed
        self.tracked = {k: x for k, x in pairs if isinstance(x.value, CapturedGenerator)}
        for scope in self.scopes.values():
            scope.items = {}
        self.class_items.clear()
        self.blurred.clear()
        self.front.stop(self)

    def make_native(self) -> None:
        """Put Python's own iterators in place of ours, since real code sees them from here on."""
        visited: dict[int, bool] = {}
        for var in [*self.tracked.values(), *self.scopes.values()]:
            self.nativise(var, visited)
        for f in self.frames:
            for var in (*f.locals, *f.stack, *f.saved):
                if var is not None:
                    self.nativise(var, visited)

    def nativise(self, var: Var, visited: dict[int, bool]) -> bool:
        """Put Python's own iterators in place of ours in a Var; whether it had any."""
        if id(var) not in visited:
            visited[id(var)] = False
            visited[id(var)] = self.nativise_unvisited(var, visited)
        return visited[id(var)]

    def nativise_unvisited(self, var: Var, visited: dict[int, bool]) -> bool:
        """`nativise` for a Var that is not visited yet."""
        value, items = var.value, var.items
        if isinstance(value, list) and items is None:
            return self.nativise_appended(var, visited)
        if isinstance(value, CapturedGenerator) and value.running and value.is_polyfill:
            return False  # until it is suspended
        if isinstance(value, (CapturedIterator, CapturedGenerator)):
            var.value = value.native()
            if not self.live:
                self.tracked.pop(id(value), None)  # it may end with its last reference
            return True
        if isinstance(value, (list, tuple)) and isinstance(items, list):
            for x in items:
                if isinstance(x, Var):
                    self.nativise(x, visited)
            values = [x.value if isinstance(x, Var) else x for x in items]
            base = list if isinstance(value, list) else tuple
            if all(map(operator.is_, values, base.__iter__(value))):
                return False
            if base is list:
                list.__setitem__(value, slice(None), values)
            elif type(value) is tuple:
                var.value = tuple(values)
            return True
        if isinstance(value, dict) and isinstance(items, dict):
            for key, pair in items.items():
                part = pair[1] if isinstance(pair, tuple) else pair  # as in scopes
                if isinstance(part, Var) and self.nativise(part, visited):
                    dict.__setitem__(value, key, part.value)
        elif isinstance(items, dict) and not isinstance(value, (set, frozenset)):
            for name, part in items.items():
                if isinstance(part, Var) and self.nativise(part, visited):
                    object.__setattr__(value, name, part.value)
        elif isinstance(items, Var) and self.nativise(items, visited):
            value.cell_contents = items.value
        return False

    def nativise_appended(self, var: Var, visited: dict[int, bool]) -> bool:
        """`nativise` for items that were appended to an unread list."""
        natives = {}
        for x in last_items(var):
            value = x.value
            if self.nativise(x, visited):
                natives[id(value)] = value, x.value
        now = [natives[id(x)][1] if id(x) in natives else x for x in list.__iter__(var.value)]
        list.__setitem__(var.value, slice(None), now)
        return bool(natives)

    def yield_value(self, f: CaptureFrame, var: Var) -> None:
        generator: CapturedGenerator = f.generator
        if self.live and not generator.is_kept and holds_effects(generator):
            leave_to_open_generator(self)
        self.frames.pop()
        then = generator.stop()
        if not self.live and generator.is_polyfill and self.frames:
            self.make_native()
        if generator.closing:
            self.fail(RuntimeError("generator ignored GeneratorExit"))
        if not self.frames:
            raise TraceFinished((var, None))
        self.deliver_after_return(f, lambda: then(self, var))

    def drive(self, generator: CapturedGenerator, sent: Var, error):
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

    def throw_from_outside(self, generator: CapturedGenerator, inner: list, error) -> None:
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
                self.unwind(problem)
                problem = None
            except UserError as user_error:
                problem = user_error.error

    # -- Python's own work ---------------------------------------------------------------------

    def do(self, fn, /, *args, **kwargs):
        """Call fn for the user's program: its exceptions are the user's, the handled one is set."""
        try:
            result = self.while_handling(fn, *args, **kwargs)
        except (Break, CannotRebuild):
            raise
        except BaseException as error:
            if self.live and not isinstance(error, Exception):
                raise
            rely_on_names_of_error(self, error, (fn, *args))
            raise UserError(error) from None
        if type(result) is str and self.live:
            rely_on_names(self, result, (*args, *kwargs.values()))
        return result

    def while_handling(self, fn, /, *args, **kwargs):
        """Call fn while the exception that the user's program handles is being handled."""
        handled = self.handled_now()
        if sys.exc_info()[1] is handled:
            return fn(*args, **kwargs)
        return native().call_handling(handled, fn, args, kwargs)

    def fail_here(self, error: BaseException):
        """Raise an error that Python would not raise if it ran the instruction again from here."""
        raise Break(f"raising {type(error).__name__}", Var(raise_error), [Var(error)])

    def fail(self, error: BaseException, *values):
        """Raise an exception of the user's program whose text names some values."""
        rely_on_names_of_error(self, error, values)
        raise self.raising(error)

    def raising(self, error: BaseException) -> UserError:
        """The UserError that raises an exception in the user's program, with the one that is being
        handled as its context."""
        handled = self.handled_now()
        if handled is not None:
            chain_context(error, handled)
        return UserError(error)

    def handled_in(self, k: int) -> Var | None:
        """The exception that is being handled in frame `k` or its callers."""
        inner = (f.handled[-1] for f in reversed(self.frames[: k + 1]) if f.handled)
        return next(inner, None)

    def handled_before(self) -> Var:
        """The exception that is being handled, or None. Generators and functions that they call
        handle exceptions apart from their callers."""
        for f in reversed(self.frames):
            if f.handled or f.generator is not None:
                return f.handled[-1] if f.handled else Var(None)
        if self.outside is not None:
            return self.handled_outside()
        return Var(None)

    def handled_outside(self) -> Var:
        """The exception that is being handled at the call."""
        source = self.guards.source("handled", None, None, "sys.exc_info()[1]")
        return self.load(self.outside, source)

    def handled_now(self) -> BaseException | None:
        """The exception that is being handled at the present place of the user's program."""
        var = self.handled_in(len(self.frames))
        return self.outside if var is None else var.value

    def restart(self, f: CaptureFrame) -> None:
        """Let Python run the instruction again, from the one that names its keywords."""
        before = f.at - 1
        if before >= 0 and f.code.instructions[before].op == "PRECALL":
            before -= 1
        if f.code.instructions[f.at].op == "CALL" and f.code.instructions[before].op == "KW_NAMES":
            f.at = before
        f.stack, f.ip = f.saved, f.at

    def unwind(self, error: BaseException) -> "Break | Raised | None":
        """Go to the handler of an exception, in this frame or one that called it. If there is none,
        return a Break, so that Python raises it, or a Raised, after a `finally` or the like."""
        raised, self.raised = self.raised, None
        may_restart = not self.failed_after_return
        self.failed_after_return = False
        is_raised = raised is not None and raised.value is error
        var = raised if is_raised else self.tracked.get(id(error))
        last = self.frames[-1]
        ins = last.code.instructions[last.at]
        has_frame = reraises = ins.op == "RERAISE" or ins.op == "RAISE_VARARGS" and not ins.arg
        caught = any(g.code.handler_at(g.at) or g.then or g.generator for g in self.frames)
        error.__traceback__ = users_part(error.__traceback__)
        if self.live and may_restart and not caught and not reraises:
            self.refill()
            self.restart(self.frames[-1])
            return Uncaught(error)
        if var is None:
            var = self.track(Var(error, Recipe("exception_value")))
        while self.frames:
            f = self.frames[-1]
            if not reraises:
                error.__traceback__ = with_frame(f, error.__traceback__)
            reraises = False
            handler = f.code.handler_at(f.at)
            if handler is not None:
                enter_handler(self, f, handler, var)
                return None
            self.end_generators(f.stack)
            self.frames.pop()
            self.front.leave(f)
            complete_error(f, var, error)
            if f.generator is not None:
                generator = f.generator
                then = generator.stop_failed()
                if generator.failed and isinstance(error, StopIteration) and self.frames:
                    then(self, END, Var(error.value))
                    return None
                if generator.closing and isinstance(error, (GeneratorExit, StopIteration)):
                    then(self, END)
                    return None
                if isinstance(error, StopIteration):
                    stop, error = error, RuntimeError("generator raised StopIteration")
                    error.__cause__ = error.__context__ = stop
                    error.__traceback__ = stop.__traceback__
                    var = self.track(Var(error, Recipe("exception_value")))
            elif isinstance(f.then, OrElse) and isinstance(error, f.then.kind) and self.frames:
                f.then.other(self, error)
                return None
        if not self.live:
            native().raise_again(error)
        return Raised(var, has_frame or isinstance(var.origin, Recipe))

    def let_go(self, f: CaptureFrame, depth: int) -> None:
        """Drop what lies on a frame's stack above `depth`."""
        dropped = f.stack[depth:]
        del f.stack[depth:]
        f.saved = []  # it may hold the last reference
        self.end_generators(dropped)

    def end_generators(self, dropped: list[Var]) -> None:
        """End generators of loops that are left, as Python does; stop learning if code runs."""
        for var in dropped:
            value = var.value
            if isinstance(value, CapturedGenerator) and value.is_open and ends_with_effects(value):
                value.site[0].unknown = value.site[0].unknown or OPEN_GENERATOR
                self.stop_learning(OPEN_GENERATOR)
                self.tracked.pop(id(value), None)
                self.frames[-1].saved = []
                values = (x for f in self.frames for x in (*f.locals, *f.stack))
                if not any(x is var for x in values):
                    var.value = None

    def attribute_or(self, whole: tuple, obj: Var, name: str, then, other):
        """obj.name to `then`, or other(tracer) if there is none. `whole` is the function and its
        arguments, which Python calls if this breaks."""
        frame = self.frames[-1]
        depth = len(self.frames)
        missing = False
        try:
            self.get_attribute(obj, name, then)
        except UserError as user_error:
            if not isinstance(user_error.error, AttributeError) or len(self.frames) != depth:
                raise
            missing = True
        except Break as graph_break:
            if not self.live or len(self.frames) != depth:
                raise
            raise Break(graph_break.reason, *whole) from None
        if missing:
            return other(self)
        if self.frames[-1] is not frame:
            self.frames[-1].then = OrElse(AttributeError, then, lambda t, error: other(t))
        return None

    def keep_apart(self) -> None:
        """Guard that objects that were written to are not reached by another source too."""
        apart = {}
        for var in self.written:
            if isinstance(var.origin, ValueSource):
                apart[id(var)] = var
        for var in apart.values():
            for other in list(self.tracked.values()):
                same_kind = type(other.value) is type(var.value) and other is not var
                if same_kind and isinstance(other.origin, ValueSource):
                    self.guards.add("distinct", var.origin, other.origin)

    # -- questions to the front end ------------------------------------------------------------

    def is_tensor(self, var: Var) -> bool:
        return self.front.is_tensor(var.value)

    def is_dynamic(self, source: ValueSource) -> bool:
        return self.all_dynamic or source.text in self.dynamic or self.front.varies(source)

    def varies_in_identity(self, source) -> bool:
        """Whether the object at a source, or one that holds it, is another one in each call."""
        while self.dynamic and isinstance(source, ValueSource):
            if varying_name(source) in self.dynamic:
                return True
            source = source.base
        return False

    def varying_size(self, text: str) -> bool:
        """Whether a size of a tensor may be another one in a later call."""
        return self.all_dynamic or text in self.dynamic

    def sized(self) -> bool:
        """Whether sizes of the graph's inputs may vary."""
        return self.all_dynamic or any(".shape[" in text for text in self.dynamic)

    def in_library(self) -> bool:
        """Whether code of a library runs; a polyfill counts as its caller."""
        users = (f for f in reversed(self.frames) if not is_polyfill(f.root))
        return next(users, self.frames[-1]).trusted

    def user_line(self) -> str:
        """The innermost line that is not the library's."""
        line = self.guards.line
        return f"{line[0]}:{line[1]}" if line else ""

    def site(self) -> tuple[DecodedCode, int]:
        """The site of the running instruction, which may be left to Python from now on."""
        return self.site_in(self.frames)

    def site_in(self, frames: list[CaptureFrame]) -> tuple[DecodedCode, int]:
        """The present site of the user's program; a polyfill counts as its caller."""
        users = (f for f in reversed(frames) if not is_polyfill(f.root))
        f = next(users, frames[-1])
        return f.code, f.at


def complete_error(f: CaptureFrame, var: Var, error: BaseException) -> None:
    """Set object and name of an error that leaves the user's `__getattr__`."""
    attribute = attribute_request(f)
    if attribute is not None and tell_attribute(error, *(x.value for x in attribute)):
        var.items = {**(var.items or {}), "obj": attribute[0], "name": attribute[1]}


class Uncaught(Break):
    """An uncaught exception: the instruction runs again in Python, and raises it there."""

    def __init__(self, error: BaseException):
        super().__init__(f"raising {type(error).__name__}")


class Raised(NamedTuple):
    """An exception that leaves the captured function. `has_frame`: its traceback has the function's
    frame already, since it was made inside or is raised again."""

    var: Var
    has_frame: bool


def unwind_all(trace, error: BaseException):
    """Unwind for an exception, and for those that unwinding raises in the user's code."""
    while True:
        try:
            return trace.unwind(error)
        except UserError as user_error:
            error = user_error.error


def enter_handler(trace, f: CaptureFrame, handler, var: Var) -> None:
    """Continue a frame at the handler of an exception, as the interpreter does."""
    f.check_stack()
    if may_go_on(f.generator) and f.code.instructions[f.at].op != "RERAISE":
        f.generator.failed_stack = f.stack[:]
    trace.let_go(f, handler.depth)
    if handler.lasti:
        f.stack.append(LastInstruction(f.code.instructions[f.at].offset // 2))
    f.stack.append(var)
    f.ip = handler.target
