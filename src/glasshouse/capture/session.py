"""From a call that no entry answers to a new entry: trace, compile, install, go on."""

import dis
import re
import sys
import types
import warnings
import weakref
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from glasshouse.base.errors import CaptureError, OptionError
from glasshouse.base.interrupts import hold, let_through, release
from glasshouse.capture.bytecode import GENERATORS, original_of, slot_names
from glasshouse.capture.config import config, counters
from glasshouse.capture.emit import END_OF_LOOP, ReplacementEmitter, handling, is_work, loop_end
from glasshouse.capture.export import ExportedTrace
from glasshouse.capture.frame import (
    CapturedGenerator,
    CapturedIterator,
    CaptureFrame,
    code_of,
    plain_value,
    resume_call,
    resume_function,
)
from glasshouse.capture.guards import (
    Guard,
    GuardCompiler,
    WeakLink,
    brief,
    linked,
    read_source,
    weakened,
)
from glasshouse.capture.native import native
from glasshouse.capture.opcodes import unknown_operation
from glasshouse.capture.reproduce import Reproduction
from glasshouse.capture.tracebacks import behind_frame, raise_as_it_is, users_part
from glasshouse.capture.tracer import HANDED_OVER, INTERRUPTED, CaptureTracer, Raised
from glasshouse.capture.values import (
    NULL,
    Break,
    CannotRebuild,
    Recipe,
    ValueSource,
    Var,
    discarded,
)
from glasshouse.compile.plan import no_collection
from glasshouse.ir.graph_module import GraphModule
from glasshouse.ir.node import IRNode
from glasshouse.profile.captured import captures


class EntryInfo:
    """What is told of an entry: its guards, graph, source, how it ended."""

    def __init__(self, name: str, guards: list[Guard], about, owner):
        self.name, self.guards, self.about, self.owner = name, guards, about, owner
        self.graph: GraphModule | None = None
        self.source = ""
        self.reason = self.where = ""  # of the break that it ends with
        self.capture_ns = self.compile_ns = 0
        self.exported: ExportedTrace | None = None  # for export


def entries_of(dispatcher) -> list:
    """The entries of a dispatcher that are alive, newest first."""
    found = (x() if type(x) is WeakLink else x for x in dispatcher.entries)
    return [x for x in found if x is not None]


class EntryRemover:
    """Takes an entry off its dispatcher's list when something dies that it cannot do without."""

    __slots__ = ("dispatcher", "entry")

    def __init__(self, dispatcher):
        self.dispatcher, self.entry = weakref.ref(dispatcher), None

    def __call__(self, link) -> None:
        dispatcher, entry = self.dispatcher(), self.entry and self.entry()
        if entry is not None:
            entry.die()
        if dispatcher is not None:
            gone = None, entry
            dispatcher.entries[:] = [x for x in dispatcher.entries if linked(x) not in gone]


class Capture:
    """One use of `optimize`: the compiler, the entries of all functions, breaks and recompiles."""

    kept: "list[Capture] | None" = None  # gets every Capture, if it is a list
    name = "captured"

    def __init__(self, compiler, front, nopython: bool = False, dynamic: bool = False):
        if Capture.kept is not None:
            Capture.kept.append(self)
        self.compiler, self.front = compiler, front
        self.nopython, self.dynamic = nopython, dynamic
        self.exporting = False
        self.resumes: dict[tuple, tuple] = {}
        self.noted: list[weakref.ref[EntryInfo]] = []
        self.breaks: list[tuple[str, str, str]] = []  # (where, reason, hint)
        self.recompiles: list[tuple[str, str, str, str]] = []
        self.varying: set[str] = set()
        self.reproductions: set[str] = set()  # names of functions of which one was written
        captures.add(self)
        self.warned = False
        self.memory_plans: list = getattr(compiler, "plans", [])  # for a memory budget

    @property
    def entries(self) -> list[EntryInfo]:
        """What is told of the entries that are alive, in the order in which they were captured."""
        return [info for ref in self.noted if (info := ref()) is not None]

    def dispatcher(self, fn: types.FunctionType):
        """A callable that answers calls of `fn` from entries, and captures what is new."""
        made = native().Dispatcher(fn, miss)
        made.capture, made.memory_plans = self, self.memory_plans
        if not self.resumes and self.name == "captured":
            self.name = fn.__qualname__
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            made.__dict__[name] = getattr(fn, name)
        made.__wrapped__ = fn
        return made

    def resumer(
        self, frame: CaptureFrame, code, offset: int, shape: list[Var], live, captured: bool
    ):
        """The resume function at an offset of a frame's code: one for all ways that lead there."""
        cells = frame.closure if frame.code.keeps_closure else ()
        nulls, own = tuple(x is NULL for x in shape), tuple(id(x.value) for x in cells)
        key = (id(code), offset, nulls, live, captured, id(frame.globals), own)
        found = self.resumes.get(key)
        if found is None:
            fn = resume_function(frame, code, offset, shape, live)
            native().set_skip(fn.__code__, True)  # a hook leaves it alone
            found = self.resumes[key] = code, self.dispatcher(fn) if captured else fn
        return found[1]


UNFINISHED = "a generator that is left unfinished inside with or try"


def miss(dispatcher, *slots):
    """A call that no entry answers. Signals wait while it is captured; `go_on` releases them, and
    gives what is to be called in the end, when nothing of the capture is kept any more."""
    hold()
    hook, code = native(), dispatcher.fn.__code__
    callback = hook.set_hook(None)
    try:
        go_on = captured(dispatcher, slots, callback)
        if go_on is None:
            hook.set_skip(code, True)  # the hook is not to bring it here again
            hook.set_hook(callback)
            go_on = partial(plainly, dispatcher.fn, slots)
    except BaseException:
        hook.set_hook(callback)
        release()
        raise
    try:
        go_on = go_on()
        fn = getattr(go_on, "func", None)
        if (
            type(fn) is types.FunctionType
            and fn is not given
            or isinstance(fn, native().Dispatcher)
        ):
            return native().tail_call(fn, *go_on.args)
        return go_on()
    finally:
        if callback is not None:
            hook.set_skip(code, False)
        hook.set_hook(callback)


def goes_on(fn) -> bool:
    """Whether a function is a resume function, captured or not."""
    code = code_of(fn) if isinstance(fn, (types.FunctionType, native().Dispatcher)) else None
    return code is not None and original_of(code)[0] is not code


def captured(dispatcher, slots, callback):
    """What goes on behind the capture of a call; None if there is none."""
    capture = dispatcher.capture
    allowed = native().get_mode() == 0 and capture.front.can_trace()
    if allowed and may_capture(dispatcher, capture, slots):
        return CaptureSession(dispatcher, capture, slots, callback).run()
    return None


def plainly(fn: types.FunctionType, slots):
    """A call of fn with what is in its slots."""
    release()
    code = fn.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    has_star = bool(code.co_flags & 4)
    rest = slots[named] if has_star else ()
    words = dict(zip(code.co_varnames[count:named], slots[count:named], strict=True))
    if code.co_flags & 8:
        words |= slots[named + has_star]
    return partial(fn, *slots[:count], *rest, **words)


def may_capture(dispatcher, capture, slots) -> bool:
    """Whether another entry may be made; tells why one is needed."""
    entries = entries_of(dispatcher)
    code = dispatcher.fn.__code__
    if code.co_flags & GENERATORS or unknown_operation(code):
        return False
    if not entries:
        return not dispatcher.__dict__.get("hopeless")
    owner = owner_of(slots)
    full = dispatcher.__dict__.setdefault("full", [])
    if any(linked(x) is owner for x in full):
        return False
    mine = [e for e in entries if linked(e.info.owner) is owner]
    for entry in mine:
        note_failure(capture, entry, slots)
    if len(mine) < config.cache_limit:
        return True
    full.append(link_to(owner))
    counters.add("limits")
    _, reason, old, new = capture.recompiles[-1] if capture.recompiles else ("", "?", "?", "?")
    warnings.warn(
        f"capture: {dispatcher.fn.__qualname__} has {len(mine)} entries, the limit; new kinds of "
        f"calls run uncaptured. The last guard that failed: {reason} (was {old}, is {new}). Raise "
        "gh.capture.config.cache_limit, or pass dynamic=True.",
        stacklevel=4,
    )
    return False


def owner_of(slots):
    """The object whose method is called: entries are counted for each."""
    first = slots[0] if slots else None
    return first if type(first).__dictoffset__ and not hasattr(type(first), "shape") else None


def link_to(value):
    """A WeakLink to a value, or the value where there can be none."""
    return WeakLink(value) if type(value).__weakrefoffset__ else value


def note_failure(capture, entry, slots) -> None:
    """Log which guard of an entry failed, and let the numbers that changed vary from now on."""
    info, failed = entry.info, entry.check(slots)
    if failed < 0:
        return
    guard = info.about[failed]
    new = value_at(guard, slots)
    old = linked(guard.value)
    if guard.kind == "kind":
        old, new = ("None", "a tensor", "other")[old[2]], new.get(old[0])
    line = (info.name, str(guard), brief(old), brief(type(new) if guard.kind == "type" else new))
    if line not in capture.recompiles:
        capture.recompiles.append(line)
        counters.add("recompiles")
        if config.print_recompiles:
            changed = f"{guard} failed; was {line[2]}, is {line[3]}"
            print(f"[capture] {info.name} is captured again: {changed}")
    for other in info.guards:
        if other.kind == "eq" and type(other.value) in (int, float):
            now = value_at(other, slots)
            if type(now) is type(other.value) and now != other.value:
                capture.varying.add(other.source.text)
        elif other.kind == "spec":
            now = value_at(other, slots)
            sizes, shape = other.value.shape, getattr(now, "shape", ())
            if len(sizes) == len(shape):
                name = other.source.text.removesuffix(".spec")
                pairs = enumerate(zip(sizes, shape, strict=True))
                capture.varying |= {f"{name}.shape[{i}]" for i, (a, b) in pairs if a != b}


def value_at(guard: Guard, slots):
    """What is now where a guard looks."""
    try:
        return read_source(guard.source, slots)
    except Exception as error:
        return error


class CaptureSession:
    """One capture."""

    def __init__(self, dispatcher, capture: Capture, slots, callback):
        self.dispatcher, self.capture = dispatcher, capture
        self.slots, self.callback = slots, callback
        self.fn = dispatcher.fn
        self.final: dict[int, Any] = {}  # values of Vars behind a break, where they differ
        self.tracer = CaptureTracer(capture.front, config)
        self.tracer.hands_over = True
        self.tracer.dynamic = capture.varying
        self.tracer.dispatcher_type = native().Dispatcher
        self.tracer.all_dynamic = capture.dynamic or config.dynamic

    def run(self):
        """Capture; what then gives the result of the call."""
        tracer, front = self.tracer, self.capture.front
        counters.add("captures")
        begin_ns = perf_counter_ns()
        front.begin(tracer)
        try:
            with no_collection():
                front.ambient(tracer)
                tracer.enter(self.fn, self.slots)
                outcome = tracer.run()
            self.capture_ns = perf_counter_ns() - begin_ns
            if isinstance(outcome, Raised):
                return self.raised(outcome.var)
            if tracer.live:
                return self.finish(outcome)
            self.note_given_up()
            return self.went_on(outcome)
        except BaseException:
            self.leave_contexts()
            raise
        finally:
            front.end(tracer)
            self.close_generators()
            self.write_reproduction()

    failed = False  # whether the compiler raised
    redo: Any = None  # brings back what the trace did to tensors, while the graph runs

    def write_reproduction(self) -> None:
        """Write a script that shows how the compiler fails, once for each function."""
        names = self.capture.reproductions
        if self.failed and config.repro_dir and self.fn.__qualname__ not in names:
            names.add(self.fn.__qualname__)
            name = re.sub(r"\W+", "_", self.fn.__qualname__).strip("_")
            made = Reproduction(self.module, self.values, self.capture.compiler, name)
            made.write(Path(config.repro_dir) / f"{name}.py")

    def close_generators(self) -> None:
        """What nobody else holds ends here, as it would with the last reference to it."""
        for var in self.tracer.tracked.values():
            made = var.value
            open_still = isinstance(made, CapturedGenerator) and made.started and not made.finished
            # In the Var, in `made`, in its frame, in the argument.
            if open_still and not made.running and sys.getrefcount(made) <= 4:
                made.close()

    def leave_contexts(self) -> None:
        """An error ends the call: no_grad and the like that the trace entered end as well."""
        if not self.behind and self.tracer.live:
            for context in reversed(self.tracer.contexts):
                context.value.__exit__(None, None, None)

    behind = False  # whether Python goes on from here

    def went_on(self, outcome):
        """What gives the result where nothing was kept: it is there, or Python goes on."""
        if outcome is not HANDED_OVER:
            return partial(returned, plain_value(outcome))
        rest = Break("nothing is learnt any more")
        self.to_python()
        self.finalize(rest)
        return partial(self.tail, 0, rest)

    def note_given_up(self) -> None:
        """The trace could not be kept."""
        counters.add("fallbacks")
        self.note_break(self.tracer.why_stopped, "", "")
        if self.tracer.why_stopped != INTERRUPTED:
            self.hopeful()

    def hopeful(self) -> None:
        """Count traces without an entry; after a few, stop trying."""
        own = self.dispatcher.__dict__
        own["tries"] = own.get("tries", 0) + 1
        if own["tries"] > 8 and not self.dispatcher.entries:
            own["hopeless"] = True

    def finish(self, outcome):
        """Install an entry; what gives the result, or goes on behind the break."""
        try:
            return self.kept(outcome)
        except Exception:
            raise
        except BaseException as error:  # a signal, while a compiler ran
            if not isinstance(outcome, Break):
                raise
            self.tracer.stop_learning(INTERRUPTED)
            self.tracer.unwind(error)
            return self.went_on(self.tracer.run())

    def kept(self, outcome):
        """`finish`, if nothing interrupts it."""
        tracer, capture = self.tracer, self.capture
        broke = outcome if isinstance(outcome, Break) else None
        at = tracer.frames[-1] if broke else None
        line = tracer.frames[0].line if broke else self.fn.__code__.co_firstlineno
        if broke is not None:
            if capture.nopython:
                raise CaptureError(explained(broke, at))
            self.note_break(broke.reason, at.where, broke.hint)
        emitter = ReplacementEmitter(tracer, capture.resumer)
        lost = self.unfinished()
        try:
            if lost is None:
                graph, run = self.replacement(emitter, outcome, broke, line)
        except CannotRebuild as found:
            lost = found.what, found.site
        if lost is not None:
            return self.without_entry(outcome, *lost)
        info = self.install(run, emitter, broke, at)
        self.settle(emitter, graph)
        return self.behind_graph(outcome, broke, info)

    def behind_graph(self, outcome, broke, info):
        """What goes on behind a graph whose results are there."""
        if broke is None:
            if self.capture.exporting and info.graph is not None:
                code = self.fn.__code__
                count = code.co_argcount + code.co_kwonlyargcount
                count += bool(code.co_flags & 4) + bool(code.co_flags & 8)
                arguments = dict(zip(slot_names(code)[:count], self.slots, strict=False))
                inputs = {
                    node: (getattr(var.origin, "text", None), value)
                    for (node, var), value in zip(self.tracer.inputs, self.values, strict=True)
                }
                info.exported = ExportedTrace(info, inputs, arguments, outcome)
            return partial(returned, real(outcome))
        self.to_python()
        self.finalize(broke)
        return partial(self.tail, 0, broke)

    def to_python(self) -> None:
        """Python goes on: what it calls is seen again."""
        self.tracer.front.end(self.tracer)
        native().set_hook(self.callback)
        self.behind = True

    def raised(self, var: Var):
        """Install an entry that raises; raise."""
        error = var.value
        trace, emitter = error.__traceback__, ReplacementEmitter(self.tracer, self.capture.resumer)
        if self.unfinished() is None:
            try:
                graph, run = self.replacement(emitter, var, None, trace.tb_lineno, raising=True)
                self.install(run, emitter, None, None)
                self.settle(emitter, graph)
            except CannotRebuild as found:
                self.note_break(f"{found.what} leaves the function", "", "")
        raise_as_it_is(error)

    def unfinished(self):
        """A generator that stands inside a with or try: when it goes, more of it runs."""
        for var in self.tracer.tracked.values():
            made = var.value
            if (
                isinstance(made, CapturedGenerator)
                and made.started
                and not (made.finished or made.running)
            ):
                frame = made.frame.code
                handler = frame.handler_at(made.frame.at)
                # Since 3.12 all of a generator lies in a handler for StopIteration.
                if handler and frame.instructions[handler.target].op != "CALL_INTRINSIC_1":
                    return UNFINISHED, made.site
        return None

    def replacement(
        self, emitter: ReplacementEmitter, outcome, broke, line: int, raising: bool = False
    ):
        """(compiled graph, replacement) of the trace."""
        tracer = self.tracer
        for context in reversed(tracer.contexts):
            node = tracer.context_nodes[id(context)]
            tracer.graph.call_method("__exit__", (node, None, None, None))
        if broke is not None:
            body = emitter.at_break(broke)
        else:
            body = emitter.at_end("raise" if raising else "return", outcome)
        emitter.mark_replaced()
        graph = self.compiled(emitter)
        return graph, emitter.function(body, line, self.fn.__code__, len(self.slots), graph)

    def without_entry(self, outcome, what: str, site):
        """Go on, keeping nothing; what could not be made again is left to Python next time."""
        tracer = self.tracer
        if site is not None and what == UNFINISHED:
            # Who holds it decides when it ends: the whole function is left to Python.
            site[0].unknown = UNFINISHED
        elif site is not None:
            site[0].opaque.add(site[1])
        self.note_break(f"{what} lives on behind the capture", "", "")
        self.hopeful()
        counters.add("fallbacks")
        if isinstance(outcome, Var):
            result = real(outcome)
            tracer.stop_learning(what)
            return partial(returned, result)
        tracer.stop_learning(what)
        waiting = any(f.then not in (None, discarded) or f.generator for f in tracer.frames)
        if outcome.fn is None and not waiting:
            return partial(self.tail, 0, outcome)
        if outcome.fn is not None:
            tracer.in_python(tracer.frames[-1], outcome)
        return self.went_on(tracer.run())

    def note_break(self, reason: str, where: str, hint: str) -> None:
        counters.add("breaks")
        line = (where, reason, hint)
        if line not in self.capture.breaks:
            self.capture.breaks.append(line)

    # -- the graph -------------------------------------------------------------------------------

    def compiled(self, emitter: ReplacementEmitter):
        """What runs the graph; None if it has nothing to run."""
        tracer = self.tracer
        work = list(filter(is_work, tracer.graph.nodes))
        if not work:
            return None
        tracer.graph.output(tuple(emitter.outputs))
        if tracer.sized():
            for node, _ in tracer.inputs:
                node.meta["sizes"] = True
        self.module = GraphModule(tracer.members, tracer.graph)
        counters.add("graphs")
        counters.add("operations", len(work))
        if config.print_graphs:
            print(f"[capture] graph of {self.fn.__qualname__}")
            tracer.graph.print_tabular()
        self.values = [var.value for _, var in tracer.inputs]
        begin_ns = perf_counter_ns()
        try:
            with let_through():
                return self.capture.compiler(self.module, self.values)
        except Exception as error:
            self.failed = True
            if config.raise_compiler_errors:
                raise
            if not self.capture.warned:
                self.capture.warned = True
                warnings.warn(
                    f"capture: the compiler raised {error!r}; graphs run as they are. Set "
                    "gh.capture.config.raise_compiler_errors to see where.",
                    stacklevel=7,
                )
            return self.module.forward
        finally:
            self.compile_ns = perf_counter_ns() - begin_ns

    def install(self, run, emitter: ReplacementEmitter, broke, at) -> EntryInfo:
        """Put the entry first."""
        tracer, gone = self.tracer, EntryRemover(self.dispatcher)
        tracer.keep_apart()
        guards = [weakened(x, gone) for x in tracer.guards.guards.values()]
        read = [*tracer.guards.read, *(x for x in emitter.kept if isinstance(x, ValueSource))]
        compiler = GuardCompiler(guards, read)
        info = EntryInfo(
            self.fn.__qualname__, guards, compiler.about, link_to(owner_of(self.slots))
        )
        info.graph, info.source = getattr(self, "module", None), emitter.text
        if broke is not None:
            info.reason, info.where = broke.reason, at.where
        info.capture_ns, info.compile_ns = self.capture_ns, getattr(self, "compile_ns", 0)
        self.capture.noted.append(weakref.ref(info))
        if config.print_guards:
            print(f"[capture] guards of {info.name}", *guards, sep="\n    ")
        if config.print_bytecode:
            print_bytecode(self.fn, run)
        native().set_skip(run.__code__, True)
        entry = native().Entry(*compiler.program(), run, info, broke is None)
        gone.entry = weakref.ref(entry)
        self.dispatcher.entries.insert(0, self.held(entry, gone))
        return info

    def held(self, entry, gone):
        """What goes on the list: the entry; where its graph has tensors, a WeakLink, and one of
        them keeps it, so that a model that only entries refer to is garbage."""
        tracer = self.tracer
        held = [g for g in tracer.guards.guards.values() if g.kind == "is"]
        held = [g for g in held if tracer.front.is_tensor(g.value)]
        if not held:
            return entry
        first = min(held, key=lambda guard: not tracer.is_passed(guard.source))
        link = WeakLink(entry, gone)
        tracer.front.keep(first.value, link, entry)
        return link

    def settle(self, emitter: ReplacementEmitter, graph) -> None:
        """Have the compiled graph compute what the trace recorded."""
        tracer, front = self.tracer, self.capture.front
        if graph is None:
            return
        entered = list(tracer.contexts)
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
        except OptionError:  # a budget that cannot be met: all is as before the call
            raise
        except BaseException:
            if self.redo is not None:
                self.redo()
            raise
        finally:
            self.redo = None
            for context in entered:
                self.enter_again(context)

    def adopt_results(self, emitter: ReplacementEmitter, results) -> None:
        """Have the trace's tensors show the graph's results, and let go of what was there before:
        from now on the trace cannot be brought back."""
        tracer, front = self.tracer, self.capture.front
        for var, result in zip(emitter.output_vars, results, strict=True):
            owner = tracer.tracked.get(id(var.value))
            if owner is not None and owner is not var and isinstance(owner.origin, ValueSource):
                continue  # an operation gave its argument back
            if not front.adopt(var.value, result):
                break
            if isinstance(var.origin, IRNode) and var.origin.target is getattr:
                owner = var.origin.args[0]
                front.own_gradient(tracer, owner, var.value, result)
        self.redo = None
        tracer.snapshots.clear()
        for key, var in list(tracer.tracked.items()):
            source = var.origin
            if not isinstance(source, ValueSource) or emitter.is_used_behind(source):
                continue
            if front.is_tensor(var.value) or source in emitter.holders:
                del tracer.tracked[key]
                var.value = None

    def enter_again(self, context: Var) -> None:
        """Enter a context that was left while the graph ran; what leaves it is on some stack."""
        if isinstance(context.value, self.capture.front.reentered):
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

    # -- behind a break --------------------------------------------------------------------------

    def tail(self, k: int, broke: Break):
        """What gives the result of frame `k`, from the break on."""
        frames = self.tracer.frames
        frame = frames[k]
        last = k + 1 == len(frames)
        captured = broke.fn is not None
        handler, caught = frame.code.handler_at(frame.at), None
        try:  # an interrupt that comes in here comes to the user's instruction
            if not last:
                _, context, var = frames[k + 1].scope or (None, nullcontext, Var(None))
                with context(self.value(var)):
                    result = self.tail(k + 1, broke)()
                go_on = self.behind_step(k, broke, result)
            elif captured:
                release()
                go_on = self.behind_step(k, broke, self.opaque(broke))
            else:
                go_on = self.resumption(frame, frame.at, frame.stack, (), False)
                release()
        except BaseException as error:
            error.__traceback__ = behind_frame(frame, users_part(error.__traceback__))
            if handler is None:
                raise
            caught = error
        if caught is not None:  # outside of `except`: the handler is the user's
            stack = frame.stack_for(handler)
            go_on = self.resumption(frame, handler.target, stack, (caught,), captured)
        return go_on

    def behind_step(self, k: int, broke: Break, result):
        """What goes on in frame `k` behind the step that Python did."""
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

    def opaque(self, broke: Break):
        """What broke the graph, done by Python."""
        args = [self.value(x) for x in broke.args_]
        if broke.loop is not None:
            args.append(END_OF_LOOP)
        words = {k: self.value(v) for k, v in broke.kwargs.items()}
        handled = self.tracer.frames[-1].handled
        if handled or self.tracer.began_handling:
            error = handled[-1].value if handled else None
            return handling(error, self.value(broke.fn), *args, **words)
        return self.value(broke.fn)(*args, **words)

    def value(self, var: Var):
        """A Var as Python sees it from here on."""
        return self.final[id(var)] if id(var) in self.final else plain_value(var)

    def finalize(self, broke: Break) -> None:
        """Put Python's own iterators where ours are, before anything else sees them."""
        tracked = self.tracer.tracked.values()
        if not any(isinstance(var.value, (CapturedIterator, CapturedGenerator)) for var in tracked):
            return
        frames = self.tracer.frames
        seen = [x for f in frames for x in (*f.locals, *f.stack, *f.saved) if x is not None]
        for var in (*seen, *broke.args_, *broke.kwargs.values()):
            if id(var) not in self.final:
                self.final[id(var)] = real(var)

    def resumption(
        self, frame: CaptureFrame, at: int, stack: list[Var], more: tuple, captured: bool
    ):
        """What goes on at an instruction: a call without any Python before it."""
        fn, slots, items = resume_call(frame, at, stack, len(more), captured, self.capture.resumer)
        words = [None if x is None else self.value(x) for x in slots] or [None]
        words[0] = (words[0], *more, *map(self.value, items))
        raising = more and isinstance(more[0], BaseException)
        if (frame.handled or self.tracer.began_handling) and not raising:
            error = frame.handled[-1].value if frame.handled else None
            return partial(native().call_handling, error, fn, tuple(words), {})
        return partial(fn, *words)


def returned(value):
    """What gives the value, when signals wait no more."""
    release()
    return partial(given, value)


def given(value):
    return value


def real(var: Var):
    """A Var's value with Python's own iterators in it."""
    value = var.value
    if isinstance(value, (CapturedIterator, CapturedGenerator)):
        return value.native()
    if not isinstance(var.origin, Recipe) or var.items is None:
        return value
    kind = var.origin.kind
    if kind == "list":
        value[:] = [real(x) for x in var.items]
    elif kind == "tuple" and type(value) is tuple:
        return tuple([real(x) for x in var.items])
    elif kind == "dict":
        for key, (_, x) in var.items.items():
            if x.origin is not None:
                value[key] = real(x)
    return value


def explained(broke: Break, at: CaptureFrame) -> str:
    """The message for a break where none is allowed."""
    hint = broke.hint or "Take it out of the function, or leave nopython off."
    what = f"expected one graph (nopython=True); got a break: {broke.reason}"
    return f"optimize: {at.where}: {what}. {hint}"


def print_bytecode(fn, run) -> None:
    """Print the original and the modified bytecode."""
    for title, code in (("original", fn.__code__), ("modified", run.__code__)):
        print(f"[capture] {title} bytecode of {fn.__qualname__}")
        dis.dis(code)
