"""The cache that finds the Program of a recording by its structure, and compiles it if need be."""

import ctypes
import gc
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from glasshouse.base.errors import IndexOutOfRangeError, user_line
from glasshouse.base.flags import flags
from glasshouse.base.interpreter import items_of
from glasshouse.base.interrupts import held, let_through
from glasshouse.compile.building.disk_cache import digest
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.kernels.kernel_cache import CommonSizes
from glasshouse.compile.lowering.missing_kernels import ALWAYS_WRITTEN
from glasshouse.compile.lowering.source_map import ReferenceSteps
from glasshouse.compile.lowering.target import current_target
from glasshouse.compile.planning.plan import (
    SMALL_BYTES,
    ProgramPlan,
    describe_c,
    describe_steps,
    no_collection,
    rewritten,
    show,
)
from glasshouse.compile.programs import anomalies, store
from glasshouse.compile.programs.binding import arrays_of
from glasshouse.compile.programs.code import assemble
from glasshouse.compile.programs.executable import IndexErrorInside, Program
from glasshouse.compile.programs.kernel_check import explained, find_faults
from glasshouse.compile.programs.new_sizes import NewSizes
from glasshouse.compile.steps.emitted import MissingKernel, StaleCode
from glasshouse.dispatch import hooks, quiet, state, timers, watchers
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.fallback import WHOLE, Fallback
from glasshouse.dispatch.watch import COMPILING, ProgramRun, tell
from glasshouse.graph.graph import Graph, graph_of
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording, compute

if TYPE_CHECKING:
    from glasshouse.compile.programs.recording import RecordingBackend


# Recordings shorter than `store.LARGE_NODES` are compiled once their references have taken about as
# long as compiling does.
COMPILE_S, NODE_S, ELEMENT_S = 0.1, 3e-6, 3e-9
# A large recording waits to be met again where so many of the same kinds of calls, with a backward
# pass or without, ran only once, as in a loop whose tensors grow, if its references take less.
RAN_ONCE, WAIT_S, FLOP_S, MATMUL_S = {True: 8, False: 1}, 1.0, 1e-9, 3e-11
HUGE_NODES = 1000
COMPILE_NODE_S = 5e-4  # to compile one of their nodes: 0.3 to 0.7 ms for ResNet, Llama and a loop
MOST_KINDS = 512  # sets of kinds of calls that are counted
NOT_YET = "compiling them is not yet worth it (GH_COMPILE=always does it at once)"
UNCOMPILED = {"never": "GH_COMPILE=never"}
KEY_BYTES = 40  # of a recording's key, for each of its numbers: a place in a tuple and an integer
MOST_STRUCTURES = 512  # whose common sizes are known, some 50 KB for a large model
SMALL_ENTRIES = 512  # after so many new structures their bytes are counted
# Of glibc: returns free pages to the system.
trim: Callable[..., Any] = getattr(ctypes.CDLL(None), "malloc_trim", bool)


class ProgramEntry:
    """Cache entry of a structure: about how long its references took, and its Program."""

    __slots__ = (
        "spent_s", "program", "failed", "references", "last_use", "key_bytes", "missing", "unused",
    )  # fmt: skip

    def __init__(self, key_bytes: int = 0) -> None:
        self.spent_s: float = 0.0
        self.failed: str = ""  # why it could not be compiled
        self.missing: list[tuple[Any, ...]] | None = (
            None  # calls without a kernel, once references ran
        )
        self.program: Any = None  # a Program; of the meta backend a plan
        self.references: ReferenceSteps | None = None  # made when a run without Program is watched
        self.last_use: int = 0
        self.key_bytes: int = key_bytes
        self.unused: NewSizes | None = None  # that count a large recording until it runs again

    @property
    def nbytes(self) -> int:
        """About how much memory the entry keeps."""
        return self.key_bytes + (0 if self.program is None else self.program.nbytes)


programs: dict[tuple[Any, ...], ProgramEntry] = {}
uses: "count[int]" = count()  # numbers the runs
structures: dict[int | str, CommonSizes] = {}
large: dict[tuple[bool, frozenset[str]], NewSizes] = {}
stored: WeakValueDictionary[tuple[Any, ...], Program] = (
    WeakValueDictionary()
)  # by the key of their code


def run_recording(recording: Recording, backend: "RecordingBackend") -> None:
    """Compute the outputs; the nodes keep their values and drop their operands. The backend records
    the calls that run on references."""
    entry = entry_of(recording)
    program = program_for(entry, recording, backend)
    if program is None:
        tell_references(entry, recording, backend)
    if flags.detect_anomaly and (outputs := anomalies.of_references(program, recording)):
        deliver_results(recording, outputs, [])
        return
    if program is None and not timers:
        deliver_results(recording, quiet.run(compute, recording), [])
        return
    with held:  # a Program overwrites donated memory: its results have to reach their nodes
        if timers or program is None:
            outputs = run_watched(entry, program, recording)
        else:
            outputs = run_program(program, recording)
        deliver_results(recording, outputs, program.owns if program is not None else [])


def entry_of(recording: Recording) -> ProgramEntry:
    key: tuple = recording.key
    variant = current_target().variant()
    if state.recompute or variant:
        key = (key, state.recompute, variant)
    entry = programs.get(key) or add_entry(key, KEY_BYTES * len(recording.key))
    entry.last_use = next(uses)
    return entry


def add_entry(key: tuple[Any, ...], key_bytes: int) -> ProgramEntry:
    """Add an entry for a new structure; now and then others are evicted."""
    entry = programs.setdefault(key, ProgramEntry(key_bytes))
    if len(programs) % SMALL_ENTRIES == 0:
        evict_programs(entry)
    return entry


def evict_programs(kept_entry: ProgramEntry) -> None:
    """Evict the entries that were used longest ago, until all are within GH_PROGRAM_BYTES.

    A Program that runs meanwhile survives: its runner refers to it."""
    entries = items_of(programs)
    excess = sum(entry.nbytes for _, entry in entries) - flags.program_bytes
    if not flags.program_bytes or excess <= 0:
        return
    for key, entry in sorted(entries, key=lambda pair: pair[1].last_use):
        if excess <= 0:
            break
        if entry is not kept_entry and programs.pop(key, None) is not None:
            excess -= entry.nbytes


def compiled(recording: Recording) -> Program:
    """The Program of a recording, short or long.

    Raises: CompileError
    """
    entry = entry_of(recording)
    program = entry.program
    if program is None or lacks_program(entry):
        entry.program = program = make_program(recording)
        evict_programs(entry)
    return program


def compiled_graph(graph: Graph, small_bytes: int = SMALL_BYTES) -> Program:
    """The Program of a graph after all passes. Its runs ask no manager for less than `small_bytes`.

    Raises: CompileError
    """
    structure = hash(tuple((n.op, *(x.number for x in n.inputs)) for n in graph.nodes))
    common = common_sizes(structure)
    with let_through(), no_collection():
        try:
            return Program(assemble(ProgramPlan(graph)), common, small_bytes=small_bytes)
        except CompileError as error:
            if not find_faults(graph):
                raise explained(error, graph) from error
            return Program(assemble(ProgramPlan(graph)), common, small_bytes=small_bytes)


def lacks_program(entry: ProgramEntry) -> bool:
    """Whether a Program is to be made: there is none, or none that kept its plan to be shown."""
    return entry.program is None or (keeping.plans and entry.program.plan is None)


def structure_of(recording: Recording) -> str:
    """Digest of a recording's computation, whatever its sizes, the same in every process. The first
    run of a model also initialises it and its optimizer; so its backward pass defines the
    structure, or else its modules."""
    nodes = [node for node in recording.nodes if node.origin.phase == "backward"]
    nodes = nodes or [node for node in recording.nodes if node.origin.module] or recording.nodes
    places = {id(node): i for i, node in enumerate(nodes)}
    words = [(node.op, *[places.get(id(x), -1) for x in node.inputs]) for node in nodes]
    return digest(repr(words).encode())


def common_sizes(structure: int | str) -> CommonSizes:
    """The sizes that the Programs of a structure have in common."""
    if structure not in structures and len(structures) >= MOST_STRUCTURES:
        structures.clear()
    return structures.setdefault(structure, CommonSizes())


def deliver_results(recording: Recording, outputs: Any, owns: list[bool]) -> None:
    for place, value in enumerate(outputs):
        node = recording.nodes[recording.outputs[place]]
        node.value, node.owned = value, bool(owns) and owns[place]
    hooks.release(recording.nodes)


def run_program(program: Program, recording: Recording, ends_ns: Any = None) -> list[np.ndarray]:
    arrays = arrays_of(recording.leaves)
    try:
        return program.run(arrays, recording.scalars, recording.donated, ends_ns)
    except IndexErrorInside:
        if any(node.call.is_collective for node in recording.nodes):  # which are done already
            fix = "GH_BACKEND=numpy says which."
            raise IndexOutOfRangeError("gather", "indices in range", "another", fix) from None
        return quiet.run(compute, recording)  # raises with the index


def run_watched(
    entry: ProgramEntry, program: Program | None, recording: Recording
) -> list[np.ndarray]:
    """Run a recording and tell the watchers when each step ended."""
    events = [getattr(node, "event", -1) for node in recording.nodes]
    if program is not None:
        return run_timed(program, events, lambda ends_ns: run_program(program, recording, ends_ns))
    if entry.references is None:
        entry.references = ReferenceSteps(recording)
    ends_ns: list[int] = []
    begin_ns = perf_counter_ns()
    outputs = quiet.run(compute, recording, ends_ns)
    tell("program", ProgramRun(entry.references, begin_ns, ends_ns, perf_counter_ns(), events))
    return outputs


def run_timed(program: Program, events: list[int], run: Callable[..., Any]) -> list[np.ndarray]:
    """Run a Program once by `run(ends_ns)`, and return its outputs; watchers see its steps."""
    begin_ns, ends_ns = perf_counter_ns(), np.full(program.count + 1, -1, np.int64)
    outputs = run(ends_ns)
    end_ns, first_ns = perf_counter_ns(), int(ends_ns[-1])
    times = begin_ns, ends_ns[:-1], end_ns
    tell("program", ProgramRun(program, *times, events, first_ns, transfers=program.transfers))
    return outputs


def program_for(
    entry: ProgramEntry, recording: Recording, backend: "RecordingBackend"
) -> Program | None:
    """Program to run; None where the references compute."""
    if flags.compile == "never":  # not one of an earlier run either: results are the references'
        return None
    if entry.unused is not None and entry.program is not None:
        entry.unused.compiled -= 1
        if entry.unused.latest is entry:  # twice in a row: a loop over one size
            large.clear()
        entry.unused = None
    if lacks_program(entry) and not entry.failed and is_worth_compiling(entry, recording):
        if not is_due(entry, recording):
            return None
        try:
            entry.program = program = make_program(recording)
            program.backend = backend
            program.lines |= lines_of(program, recording, backend)
            evict_programs(entry)
        except CompileError as error:
            entry.failed = f"it does not compile: {error}"
            warn_once(error)
        except Exception as error:
            if flags.verify or flags.strict:
                raise
            entry.failed = f"the compiler met {error!r}"
            warnings.warn(
                f"glasshouse: a program is not compiled, and runs slower: the compiler met "
                f"{error!r}. Report it; GH_VERIFY=1 shows where.",
                stacklevel=2,
            )
    return entry.program


def lines_of(program: Program, recording: Recording, backend: "RecordingBackend") -> dict[int, str]:
    """User's lines of the calls that steps of the host compute for want of a kernel."""
    lines = {}
    for step in program.missing:
        place = step.node.origin.place
        if place >= 0:
            lines[place] = missing_of(recording.nodes[place], backend)[1]
    return lines


def missing_of(node: Node, backend: "RecordingBackend") -> tuple[MissingKernel | None, str]:
    """Reason why no kernel computes a call, None if one does; and the user's line, if known."""
    if node.op in ALWAYS_WRITTEN and not (
        node.inputs[0].spec.dtype.is_complex or node.spec.dtype.is_complex
    ):
        return None, ""
    return backend.missing_of(node.call)


def tell_references(entry: ProgramEntry, recording: Recording, backend: "RecordingBackend") -> None:
    """Report to the backend that a recording runs on references: its calls without a kernel, and
    why the others are not compiled.

    Raises: BackendError where `strict` is set, unless just compiling is not yet worth it
    """
    if entry.missing is None:
        causes = ((node.op, *missing_of(node, backend)) for node in recording.nodes)
        entry.missing = [
            (Fallback(name, why.reason, line), why.fix)
            for name, why, line in causes
            if why is not None
        ]
    for fallback, fix in entry.missing:
        backend.fall_back(fallback, fix)
    if entry.failed:
        fallback = Fallback(WHOLE, entry.failed, user_line())
        backend.fall_back(fallback, "Mend what keeps it from being compiled")
    else:
        backend.fallbacks.uncompiled[UNCOMPILED.get(flags.compile, NOT_YET)] += 1


def is_worth_compiling(entry: ProgramEntry, recording: Recording) -> bool:
    """Whether this run should be compiled: it is long, or much work, also summed over all runs.

    The estimate depends on the recordings alone, so that equal programs run equally."""
    if flags.compile != "auto" or flags.deterministic:
        return flags.compile != "never"
    if len(recording.nodes) >= store.LARGE_NODES:
        return True
    entry.spent_s += recording_s(recording)
    return entry.spent_s > COMPILE_S


def is_due(entry: ProgramEntry, recording: Recording) -> bool:
    """Whether a recording that is worth compiling is compiled in this run. A large one waits to be
    met again if Programs of others with the same kinds of calls ran only once, until its references
    have taken long: with a backward pass, as long as a small one's. A huge one without (a loop that
    reads nothing) waits until they took as long as compiling. Training on many ranks does not."""
    nodes = recording.nodes
    if len(nodes) < store.LARGE_NODES or flags.compile != "auto" or flags.deterministic:
        return True
    trains = any(node.origin.phase == "backward" for node in nodes)
    if trains and any(node.call.is_collective for node in nodes):
        return True  # other ranks may have other sizes, and the same order of collectives
    is_loop = len(nodes) >= HUGE_NODES and not trains
    limit_s = COMPILE_S if trains else COMPILE_NODE_S * len(nodes) if is_loop else WAIT_S
    entry.spent_s += sum(work_s(node.call) for node in nodes)
    if is_loop or entry.spent_s > limit_s:
        return entry.spent_s > limit_s
    kinds = trains, frozenset(node.op for node in nodes)
    if len(large) >= MOST_KINDS:
        large.clear()
    counts = large.setdefault(kinds, NewSizes(RAN_ONCE[trains]))
    entry.unused = counts if counts.is_due(entry) else None
    return entry.unused is not None


def work_s(call: Call) -> float:
    """Estimated seconds of a call's reference, with its arithmetic."""
    return references_s(call) + (MATMUL_S if call.name == "matmul" else FLOP_S) * call.cost.flops


def reference_runs(recording: Recording) -> int:
    """Number of runs on references before a recording is compiled, under GH_COMPILE=auto."""
    is_long = len(recording.nodes) >= store.LARGE_NODES
    return 0 if is_long else int(COMPILE_S / recording_s(recording))


def recording_s(recording: Recording) -> float:
    """Estimated seconds of a recording's references."""
    return sum(references_s(node.call) for node in recording.nodes)


def references_s(call: Call) -> float:
    """Estimated seconds of a call's reference; for a loop, of all its steps."""
    if call.primitive.parts is None:
        return NODE_S + ELEMENT_S * sum(spec.size for spec in call.outs)
    parts = call.primitive.parts(*call.specs, **call.attrs)
    return sum(references_s(part) * times for part, times, _ in parts)


warned: set[type[Any]] = set()  # kinds of errors that were reported


def warn_once(error: Exception, what: str = "programs are not compiled, and run slower") -> None:
    """Warn, the first time for each kind of reason, that something is not compiled."""
    if type(error) not in warned:
        warned.add(type(error))
        fix = getattr(error, "fix", CompileError.fix)
        warnings.warn(f"glasshouse: {what} ({error}). {fix}", stacklevel=2)


def make_program(recording: Recording) -> Program:
    """Compile a recording: the passes over its graph, each checked and printed if wanted.

    Raises: CompileError
    """
    begin_ns = perf_counter_ns() if watchers else 0
    key = "" if is_shown() else store.key_of(recording)
    structure = structure_of(recording)
    common = common_sizes(structure)
    program = load_program(key, structure)
    if program is None:
        with let_through(), no_collection():
            try:
                program = compile_and_store(recording, key, common)
            except CompileError as error:
                graph = rewritten(graph_of(recording))
                if not find_faults(graph):
                    raise explained(error, graph) from error
                program = compile_and_store(recording, key, common)  # without the texts at fault
        if program.key:
            note_stored(program, key, structure)
    if program.collectives is not None:
        program.collectives.note_recorded([node.call for node in recording.nodes])
    if begin_ns:
        tell("region", COMPILING, begin_ns)
    return program


def compile_and_store(recording: Recording, key: str, common: CommonSizes) -> Program:
    """Compile a recording, and store its code under the key if it has one. Such code is then read
    back as by another process, and the graph's memory returns to the system: code made beside the
    graph would hold on to most of its pages."""
    recorded = graph_of(recording)
    plan = ProgramPlan(rewritten(recorded))
    code = assemble(plan)
    if flags.debug >= 3:
        show("steps", describe_steps(plan))
        show("c", describe_c(plan.sources, plan.sizes))
    if not (data := store.packed(code) if key and code.is_portable else b""):
        program = Program(code, common)
        if keeping.plans:
            program.plan, program.recorded = plan, recorded
        return program
    del recorded, plan, code
    gc.collect(0)  # all of it is young, for collection was off
    program = Program(pickle.loads(data), common)
    program.key = key
    store.save(key, data)
    trim(0)
    return program


def load_program(key: str, structure: str) -> Program | None:
    """Load the Program that a process stored, if it still fits this process."""
    code = store.load(key)
    try:
        program = None if code is None else Program(code, common_sizes(structure))
    except StaleCode:
        return None
    if program is not None:
        note_stored(program, key, structure)
    return program


def note_stored(program: Program, key: str, structure: str) -> None:
    """Index the Program by the key of its code, as long as somebody refers to it."""
    program.key, program.structure = key, structure
    stored[key, current_target().variant()] = program


def find_stored(key: str, structure: str) -> Program | None:
    """The Program whose code is stored under a key."""
    return stored.get((key, current_target().variant())) or load_program(key, structure)


def is_shown() -> bool:
    """Whether Programs are compiled again, to be shown or checked on the way."""
    return keeping.plans or flags.debug >= 3 or bool(flags.verify)


class PlanKeeping(threading.local):
    """Whether Programs keep their graphs and plans for display."""

    plans = False


keeping: PlanKeeping = PlanKeeping()


@contextmanager
def plans_kept() -> Iterator[None]:
    """Inside, Programs are compiled again and keep their plans and recorded graphs."""
    before, keeping.plans = keeping.plans, True
    try:
        yield
    finally:
        keeping.plans = before
