"""The capture of one call: trace, compile, install, continue."""

import re
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from glasshouse.base.errors import CaptureError, Explained, OptionError
from glasshouse.base.interrupts import let_through, release
from glasshouse.capture.bytecode.instructions import print_bytecode, slot_names
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.bytecode.tracebacks import cut_traceback, error_part
from glasshouse.capture.emit.break_continuation import BreakContinuation, real, return_later
from glasshouse.capture.emit.replacement import ReplacementEmitter, is_work
from glasshouse.capture.frames.frame import CapturedGenerator, CaptureFrame, plain_value
from glasshouse.capture.guards.assumptions import Assumptions
from glasshouse.capture.guards.program import Guard, GuardCompiler, WeakLink, weaken
from glasshouse.capture.rules.constants import is_passed
from glasshouse.capture.sessions.config import config, counters
from glasshouse.capture.sessions.entries import EntryInfo, EntryRemover, link_to, owner_of
from glasshouse.capture.sessions.export import ExportedTrace
from glasshouse.capture.sessions.reproduce import Reproduction
from glasshouse.capture.trace.native_iterators import make_native
from glasshouse.capture.trace.tracer import FAULT, HANDED_OVER, INTERRUPTED, CaptureTracer
from glasshouse.capture.trace.unwinding import Raised, in_python, unwind_once
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, CannotRebuild, Then, ValueSource, Var, discarded
from glasshouse.compile.planning.plan import no_collection
from glasshouse.ir import GraphModule, IRNode

if TYPE_CHECKING:
    from glasshouse.capture.sessions.dispatching import Capture, Resumer
    from glasshouse.capture.trace.front import FrontEnd


UNFINISHED = "a generator that is left unfinished inside with or try"


class CaptureSession(BreakContinuation):
    """One capture."""

    def __init__(
        self, dispatcher: Any, slots: tuple[Any, ...], callback: Then, resumer: "Resumer"
    ) -> None:
        self.dispatcher, self.resumer = dispatcher, resumer
        capture, front = resumer
        self.capture: Capture = capture
        self.front: FrontEnd = front
        self.slots = slots
        self.callback = callback
        self.fn: Any = dispatcher.fn
        self.final: dict[int, Any] = {}  # values of Vars after a break, where they differ
        self.tracer: CaptureTracer = CaptureTracer(front, config, capture.on_internal_error)
        self.tracer.varying.sources = capture.varying
        self.tracer.guards.assumptions = Assumptions(capture.doubts)
        self.tracer.varying.is_all = capture.dynamic or config.dynamic

    def run(self) -> Callable[..., Any] | None:
        """Capture; a callable for the result of the call."""
        tracer, front = self.tracer, self.front
        counters.add("captures")
        begin_ns = perf_counter_ns()
        tracer.front_state = front.begin(tracer)
        try:
            with no_collection():
                if not self.begin():
                    return None
                outcome = tracer.run()
            self.capture_ns: int = perf_counter_ns() - begin_ns
            if isinstance(outcome, Raised):
                return self.finish_raised(outcome)
            if tracer.guards.live:
                return self.finish(outcome)
            self.note_given_up()
            return self.continue_plainly(outcome)
        except BaseException as error:
            if isinstance(error, Exception) and not tracer.guards.live:
                self.note_given_up()
            self.leave_contexts()
            raise
        finally:
            front.end(tracer)
            self.close_generators()
            self.write_reproduction()

    def begin(self) -> bool:
        """Make the first frame; False, with a warning, if that fails."""
        try:
            self.front.ambient(self.tracer)
            self.tracer.enter(self.fn, self.slots)
        except Exception as error:
            self.note_break(self.note_fault(error), "", "")
            self.hopeful()
            return False
        return True

    def note_fault(self, error: Exception) -> str:
        """Report an error inside the capture, outside of any instruction of the user's; the reason
        for the break."""
        code = self.fn.__code__
        self.capture.on_internal_error(error, code.co_filename, code.co_firstlineno)
        return f"{FAULT}: {error!r}"

    failed: bool = False  # whether the compiler raised
    redo: Any = None  # restores the trace's writes to tensors, while the graph runs

    def write_reproduction(self) -> None:
        """Write a script that shows how the compiler fails, once for each function."""
        names = self.capture.reproductions
        if self.failed and config.repro_dir and self.fn.__qualname__ not in names:
            names.add(self.fn.__qualname__)
            name = re.sub(r"\W+", "_", self.fn.__qualname__).strip("_")
            reproduction = Reproduction(self.module, self.values, self.capture.compiler, name)
            reproduction.write(Path(config.repro_dir) / f"{name}.py")

    def close_generators(self) -> None:
        """Release suspended generators: those that nobody else holds end here, with all that they
        hold, as in Python."""
        if not self.tracer.frames:
            for var in self.tracer.heap.handed_over:
                var.value = None
        tracked = self.tracer.heap.tracked
        suspended = {key: var for key, var in tracked.items() if is_suspended(var.value)}
        held_ids = held_generators(self.tracer.frames, suspended.values())
        for key in suspended:
            del tracked[key]
        waiting = [var for var in suspended.values() if id(var.value) not in held_ids]
        del suspended
        for var in waiting:
            # In the Var, in the argument.
            if sys.getrefcount(var.value) <= 2:
                var.value = None

    def leave_contexts(self) -> None:
        """Leave contexts that the trace entered, such as no_grad, when an error ends the call."""
        if not self.is_in_python and self.tracer.guards.live:
            for context in reversed(self.tracer.effects.contexts):
                if context.is_new:
                    context.value.__exit__(None, None, None)

    is_in_python: bool = False  # whether Python continues from here

    def continue_plainly(self, outcome: Any) -> Callable[..., Any]:
        """A callable for the result where nothing was kept: it is there, or Python continues."""
        if outcome is not HANDED_OVER:
            return partial(return_later, plain_value(outcome))
        self.to_python()
        self.finalize()
        return partial(self.tail, 0, Break("nothing is learnt any more"))

    def note_given_up(self) -> None:
        """Note that a trace was not kept."""
        counters.add("fallbacks")
        self.note_break(self.tracer.why_stopped, "", "")
        if self.tracer.why_stopped != INTERRUPTED:
            self.hopeful()

    def hopeful(self) -> None:
        """Count traces without an entry, and stop trying after a few."""
        state = self.dispatcher.__dict__
        state["tries"] = state.get("tries", 0) + 1
        if state["tries"] > 8 and not self.dispatcher.entries:
            state["hopeless"] = True

    def finish(self, outcome: Any) -> Callable[..., Any] | None:
        """Install an entry; a callable for the result, or one that continues after the break."""
        try:
            return self.finish_uninterrupted(outcome)
        except Exception:
            raise
        except BaseException as error:  # a signal, while a compiler ran
            if not isinstance(outcome, Break):
                raise
            self.tracer.stop_learning(INTERRUPTED)
            unwind_once(self.tracer, error)
            return self.continue_plainly(self.tracer.run())

    def finish_uninterrupted(self, outcome: Any) -> Callable[..., Any] | None:
        """`finish` without handling of interrupts."""
        tracer, capture = self.tracer, self.capture
        broke, line = None, self.fn.__code__.co_firstlineno
        if isinstance(outcome, Break):
            broke, line, at = outcome, tracer.frames[0].line, tracer.frames[-1]
            if capture.nopython:
                raise CaptureError(explained(broke, at))
            self.note_break(broke.reason, at.where, broke.hint)
        emitter = ReplacementEmitter(tracer, self.resumer)
        lost = self.unfinished()
        try:
            if lost is None:
                graph, info = self.new_entry(emitter, outcome, broke, line)
        except CannotRebuild as failure:
            lost = failure.what, failure.site
        if lost is not None:
            return self.without_entry(outcome, *lost)
        self.run_graph(emitter, graph)
        return self.after_graph(outcome, broke, info)

    def after_graph(self, outcome: Any, broke: Any, info: EntryInfo) -> Callable[..., Any]:
        """The continuation after a graph whose results are there."""
        if broke is None:
            if self.capture.exporting and info.graph is not None:
                code = self.fn.__code__
                count = code.co_argcount + code.co_kwonlyargcount
                count += bool(code.co_flags & 4) + bool(code.co_flags & 8)
                arguments = dict(zip(slot_names(code)[:count], self.slots, strict=False))
                inputs = {
                    node: (getattr(var.origin, "text", None), value)
                    for (node, var), value in zip(
                        self.tracer.operands.inputs, self.values, strict=True
                    )
                }
                info.exported = ExportedTrace(info, inputs, arguments, outcome)
            self.finalize(outcome)
            return partial(return_later, self.value(outcome))
        self.to_python()
        self.finalize(*broke.args_, *broke.kwargs.values())
        return partial(self.tail, 0, broke)

    def to_python(self) -> None:
        """End the trace and restore the hook, since Python continues."""
        self.tracer.front.end(self.tracer)
        native().set_hook(self.callback)
        self.is_in_python = True

    def finish_raised(self, outcome: Raised) -> Callable[..., Any]:
        """Install an entry that raises; a callable that raises now."""
        error, emitter = outcome.var.value, ReplacementEmitter(self.tracer, self.resumer)
        if self.unfinished() is None:
            try:
                trace = error_part(error, "__traceback__")
                how = "raise again" if outcome.has_frame else "raise"
                line = getattr(trace, "tb_lineno", self.fn.__code__.co_firstlineno)
                graph, _ = self.new_entry(emitter, outcome.var, None, line, how)
                self.run_graph(emitter, graph)
            except CannotRebuild as failure:
                self.note_break(reason_of(failure.what, "leaves the function"), "", "")
        self.finalize(outcome.var)
        cut_traceback(error)
        self.leave_contexts()
        return partial(raise_later, error)

    def unfinished(self) -> Any:
        """An open generator inside a with or try, whose end runs code: (reason, site), or None."""
        for var in self.tracer.heap.tracked.values():
            value = var.value
            if is_suspended(value) and value.frame.code.acts_at_exit(value.frame.at):
                return UNFINISHED, value.site
        return None

    def new_entry(
        self, emitter: ReplacementEmitter, outcome: Any, broke: Any, line: int, how: str = "return"
    ) -> tuple[Any, EntryInfo]:
        """Install an entry; (compiled graph, its description).

        Raises: CannotRebuild, with a warning if the capture itself fails
        """
        try:
            graph, run = self.replacement(emitter, outcome, broke, line, how)
            return graph, self.install(run, emitter, broke)
        except CannotRebuild:
            raise
        except Exception as error:
            if self.failed or isinstance(error, Explained):  # the compiler's, or of a setting
                raise
            raise CannotRebuild(self.note_fault(error)) from None

    def replacement(
        self, emitter: ReplacementEmitter, outcome: Any, broke: Any, line: int, how: str
    ) -> tuple[Any, Callable[..., Any]]:
        """(compiled graph, replacement) of the trace."""
        tracer = self.tracer
        for context in reversed(tracer.effects.contexts):
            node = tracer.effects.context_nodes[id(context)]
            tracer.graph.call_method("__exit__", (node, None, None, None))
        if broke is not None:
            body = emitter.at_break(broke)
        else:
            body = emitter.at_end(how, outcome)
        emitter.mark_replaced()
        graph = self.compile_graph(emitter)
        links = weakref.ref(self.capture), weakref.ref(self.fn)
        uncaptured = partial(self.capture.run_again, *links)
        return graph, emitter.function(body, line, self.fn, len(self.slots), graph, uncaptured)

    def without_entry(
        self, outcome: Any, what: str, site: tuple[Any, ...] | None
    ) -> Callable[..., Any]:
        """Continue without an entry; next time the site that failed is left to Python."""
        tracer = self.tracer
        if site is not None and what == UNFINISHED:
            # Its holders decide when it ends: the whole function is left to Python.
            site[0].unknown = UNFINISHED
        elif site is not None:
            site[0].opaque.add(site[1])
        self.note_break(reason_of(what, "outlives the capture"), "", "")
        self.hopeful()
        counters.add("fallbacks")
        if isinstance(outcome, Var):
            make_native(tracer)
            result = real(outcome, {})
            tracer.stop_learning(what)
            return partial(return_later, result)
        tracer.stop_learning(what)
        waiting = any(f.then not in (None, discarded) or f.generator for f in tracer.frames)
        if outcome.fn is None and not waiting:
            return partial(self.tail, 0, outcome)
        if outcome.fn is not None:
            in_python(tracer, tracer.frames[-1], outcome)
        return self.continue_plainly(tracer.run())

    def note_break(self, reason: str, where: str, hint: str) -> None:
        counters.add("breaks")
        line = (where, reason, hint)
        if line not in self.capture.breaks:
            self.capture.breaks.append(line)

    # -- the graph -------------------------------------------------------------------------------

    def compile_graph(self, emitter: ReplacementEmitter) -> Any:
        """A callable that runs the graph; None if it has nothing to run."""
        tracer = self.tracer
        work = list(filter(is_work, tracer.graph.nodes))
        if not work:
            return None
        tracer.graph.output(tuple(emitter.outputs))
        if tracer.varying.has_sizes():
            for node, _ in tracer.operands.inputs:
                node.meta["sizes"] = True
        tracer.graph.on_error = self.capture.on_compiler_error
        self.module: GraphModule = GraphModule(tracer.operands.members, tracer.graph)
        counters.add("graphs")
        counters.add("operations", len(work))
        if config.print_graphs:
            print(f"[capture] graph of {self.fn.__qualname__}")
            tracer.graph.print_tabular()
        self.values: list[Any] = [var.value for _, var in tracer.operands.inputs]
        begin_ns = perf_counter_ns()
        try:
            with let_through():
                return self.front.compile(self.capture.compiler, self.module, self.values)
        except Exception as error:
            self.failed = True
            self.capture.on_compiler_error(error, stacklevel=8)
            return self.module.forward
        finally:
            self.compile_ns: int = perf_counter_ns() - begin_ns

    def install(
        self, run: Callable[..., Any], emitter: ReplacementEmitter, broke: Any
    ) -> EntryInfo:
        """Put the entry first."""
        tracer, gone = self.tracer, EntryRemover(self.dispatcher)
        tracer.effects.keep_apart(tracer.heap.tracked)
        guards = [weaken(x, gone) for x in tracer.guards.guards.values()]
        gone.rely_on(guards)
        unchanged = tracer.guards.classes.guard(gone)
        if unchanged is not None:
            place = tracer.guards.source("const", None, unchanged, "classes and functions")
            guards.append(Guard("call", place, unchanged))
        read = [*tracer.guards.read, *(x for x in emitter.referents if isinstance(x, ValueSource))]
        compiler = GuardCompiler(guards, read)
        name, owner = self.fn.__qualname__, link_to(owner_of(self.slots))
        info = EntryInfo(self.fn.__code__, name, guards, compiler.about, owner)
        info.graph, info.source = getattr(self, "module", None), emitter.text
        if broke is not None:
            info.reason, info.where = broke.reason, tracer.frames[-1].where
        info.capture_ns, info.compile_ns = self.capture_ns, getattr(self, "compile_ns", 0)
        self.capture.noted.append(weakref.ref(info))
        if config.print_guards:
            print(f"[capture] guards of {info.name}", *guards, sep="\n    ")
        if config.print_bytecode:
            print_bytecode(self.fn, run)
        native().set_skip(run.__code__, True)
        fetch = compiler.registers_of(emitter.fetched)
        entry = native().Entry(*compiler.program(), run, info, broke is None, fetch)
        gone.entry = weakref.ref(entry)
        tracer.guards.assumptions.remove = gone
        self.dispatcher.entries.insert(0, self.list_item(entry, gone))
        if tracer.guards.reads is not None:
            tracer.guards.reads.audit(entry, self.slots, tracer, emitter.variables)
        return info

    def list_item(self, entry: Any, gone: EntryRemover) -> Any:
        """The item for the dispatcher's list: the entry; where its graph has tensors, a WeakLink,
        and one of them keeps it, so that a model that only entries refer to is garbage."""
        tracer = self.tracer
        identities = [g for g in tracer.guards.guards.values() if g.kind == "is"]
        identities = [g for g in identities if tracer.front.is_tensor(g.value)]
        if not identities:
            return entry
        first = min(identities, key=lambda guard: not is_passed(tracer, guard.source))
        link = WeakLink(entry, gone)
        tracer.front.keep(first.value, link, entry)
        return link

    def run_graph(self, emitter: ReplacementEmitter, graph: Any) -> None:
        """Run the compiled graph, which computes the results of the trace."""
        tracer, front = self.tracer, self.front
        if graph is None or front.computes_for_real:
            return
        entered = list(tracer.effects.contexts)
        for context in reversed(entered):
            context.value.__exit__(None, None, None)
        front.end(tracer)
        self.redo = front.rollback(tracer)
        adopt = partial(self.adopt_results, emitter)
        try:
            if hasattr(graph, "run_first"):
                graph.run_first(self.values, adopt)
            else:
                adopt(graph(*self.values))
        except OptionError:  # a budget that cannot be met: the state is that before the call
            raise
        except BaseException:
            if self.redo is not None:
                self.redo()
            raise
        finally:
            self.redo = None
            for context in entered:
                self.reenter(context)

    def adopt_results(self, emitter: ReplacementEmitter, results: tuple[Any, ...]) -> None:
        """Put the graph's results into the trace's tensors, and release the old values. From now on
        the trace cannot be restored."""
        tracer, front = self.tracer, self.front
        for var, result in zip(emitter.output_vars, results, strict=True):
            owner = tracer.heap.tracked.get(id(var.value))
            if owner is not None and owner is not var and isinstance(owner.origin, ValueSource):
                continue  # an operation returned its argument
            if not front.adopt(var.value, result):
                break
            if isinstance(var.origin, IRNode) and var.origin.target is getattr:
                owner = var.origin.args[0]
                front.own_gradient(tracer, owner, var.value, result)
        self.redo = None
        tracer.operands.snapshots.clear()
        for key, var in list(tracer.heap.tracked.items()):
            source = var.origin
            if not isinstance(source, ValueSource) or emitter.is_used_after(source):
                continue
            if front.is_tensor(var.value) or source in emitter.holders:
                del tracer.heap.tracked[key]
                var.value = None

    def reenter(self, context: Var) -> None:
        """Enter a context again that was left while the graph ran; its exit is on some stack."""
        if isinstance(context.value, self.front.reentered):
            context.value.__enter__()
            return
        cls, args, kwargs = context.origin.parts
        words = {k: v.value for k, v in kwargs.items()}
        context.value = cls.value(*(x.value for x in args), **words)
        context.value.__enter__()
        for frame in self.tracer.frames:
            for var in (*frame.stack, *frame.saved):
                if var.is_made("method") and var.origin.parts[0] is context:
                    var.value = context.value.__exit__


def reason_of(what: str, happens: str) -> str:
    """The reason for no entry: something cannot be rebuilt, or the capture itself failed."""
    return what if what.startswith(FAULT) else f"{what} {happens}"


def is_suspended(value: Any) -> bool:
    """Whether a value is one of our generators, suspended at a `yield`."""
    return type(value) is CapturedGenerator and value.is_open


def held_generators(frames: Iterable[CaptureFrame], generators: Iterable[Var]) -> set[int]:
    """The ids of the generators that frames hold: open frames, and frames of generators that may
    continue."""
    holders = [*frames, *(var.value.frame for var in generators)]
    values = [var.value for f in holders for var in (*f.locals, *f.stack) if var is not None]
    return {id(value) for value in values if isinstance(value, CapturedGenerator)}


def explained(broke: Break, at: CaptureFrame) -> str:
    """The message for a break if nopython forbids one."""
    hint = broke.hint or "Take it out of the function, or leave nopython off."
    what = f"expected one graph (nopython=True); got a break: {broke.reason}"
    return f"optimize: {at.where}: {what}. {hint}"


def raise_later(error: BaseException) -> Callable[..., Any]:
    """Let signals through again; a callable that raises the exception as it is."""
    release()
    return partial(native().raise_again, error)
