"""Programs: a recording compiled into steps, and the cache that finds one again by structure."""

import ctypes
import gc
import os
import threading
import warnings
from contextlib import contextmanager
from math import prod
from time import perf_counter_ns

import numpy as np

from glasshouse import memory
from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags
from glasshouse.compile import toolchain
from glasshouse.compile.emit_c import Source, emit
from glasshouse.compile.fuse import fuse
from glasshouse.compile.lower import Lowering
from glasshouse.compile.plan_memory import plan_memory
from glasshouse.compile.source_map import References, StepInfo, step_infos
from glasshouse.compile.steps import Buffer, Kernel, Opaque
from glasshouse.compile.toolchain import NATIVE, CompileError
from glasshouse.compile.view import View
from glasshouse.dispatch.backend import quiet
from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.watch import ProgramRun, tell
from glasshouse.graph.graph import Graph, graph_of, run_node, verify
from glasshouse.graph.recompute import recompute
from glasshouse.graph.record import Recording, compute
from glasshouse.graph.simplify import PASSES as SIMPLER

PASSES = (*SIMPLER, ("recompute", recompute))
ARENA, INPUT, OUTPUT, SCALAR, ERROR = range(5)  # what an argument means, as in native/runner.c
KERNEL, ONEDNN, HOST = range(3)  # what a step is, as in native/runner.c
LARGE_NODES = 100  # a recording this long is compiled when first seen
# Others are compiled once their references have taken about as long as compiling does.
COMPILE_S, NODE_S, ELEMENT_S = 0.1, 3e-6, 3e-9
ARENA_TAG = memory.Tag("arena")
SMALL_BYTES = 1 << 12  # outputs below this are NumPy's own: a manager would cost more than it tells
SHARD_KERNELS = 12  # kernels that one call of the C compiler gets at least


class Step(ctypes.Structure):
    """`Step` of native/runner.c."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("function", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )


class Runner:
    """The native runner, compiled when first needed."""

    library = None
    sees_arrays = False  # whether it can read addresses from NumPy's arrays themselves

    @classmethod
    def get(cls):
        if cls.library is None:
            library = toolchain.compile_one((NATIVE / "runner.c").read_text())
            library.gh_use_onednn.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            library.gh_run.restype = ctypes.c_int64
            library.gh_run.argtypes = (
                ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *(ctypes.c_void_p,) * 6,
            )  # fmt: skip
            cls.library = library
            cls.sees_arrays = can_see(library)
        return cls.library


def can_see(library) -> bool:
    """Whether NumPy's arrays are laid out as the runner thinks."""
    library.gh_addresses.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    samples: list[np.ndarray] = [np.zeros(3), np.zeros((4, 4), np.int8)[1:, ::2], np.zeros(0)]
    if any(type(x).__basicsize__ < 3 * ctypes.sizeof(ctypes.c_void_p) for x in samples):
        return False
    table = (ctypes.c_void_p * 3)(*map(id, samples))
    library.gh_addresses(table, 3)
    return [x or 0 for x in table] == [address(x) for x in samples]


def code_of(buffer: Buffer) -> int:
    """A buffer as a coded argument of the runner."""
    kind = {"arena": ARENA, "input": INPUT, "output": OUTPUT}[buffer.place]
    return kind << 56 | buffer.at


class Plan:
    """The steps that compute the outputs of a graph, and where each value lies; nothing is made.

    `schedule` lists the steps; `arena_bytes` is the peak of the values in between; `made` are the
    buffers that a run hands out.
    """

    sources: dict[int, Source] = {}

    def __init__(self, graph: Graph):
        self.graph = graph
        self.lowering = Lowering(graph).run()
        self.schedule = [step for step in fuse(self.lowering) if not is_empty(step)]
        self.arena_bytes = plan_memory(self.schedule, self.lowering)
        self.outputs = [(view.base, node.spec) for view, node in self.output_pairs()]
        self.made = outputs_made(self.outputs)
        places = [buffer.at for buffer, _ in self.outputs]
        self.owns = [places.count(at) == 1 for at in places]  # whose memory no other output shares
        self.infos: list[StepInfo] | None = None

    def output_pairs(self):
        return zip(self.lowering.outputs, self.graph.outputs, strict=True)

    def step_infos(self) -> list[StepInfo]:
        """What each step computes, for whom, and what it costs."""
        if self.infos is None:
            self.infos = step_infos(self)
        return self.infos

    def source_of(self, buffer: Buffer, donated) -> int | None:
        """The number of the input whose memory an output takes, if a run donates it."""
        source = buffer.source
        return source.at if source is not None and source.at in donated else None


class Program(Plan):
    """A plan whose kernels are compiled: it runs. `sources` has the C of each fused kernel, `lines`
    the user's line of the calls at some positions of the recording, where capture knows it."""

    recorded: Graph  # as it was before the passes

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.hosts: dict[int, Opaque] = {}
        self.lock = threading.Lock()
        self.keep: list = []  # what the steps point to
        self.runner = Runner.get()
        self.steps = self.make_steps()
        self.arena: np.ndarray | None = None  # while it runs
        self.lines: dict[int, str] = {}

    def make_steps(self):
        """The table that the runner reads; compiles the kernels."""
        sources = {}
        for i, step in enumerate(self.schedule):
            if isinstance(step, Kernel):
                sources[i] = emit(step)
            elif step.kind == "template":
                sources[i] = step.plan
        functions = compile_kernels(list(sources.values()))
        table = (Step * len(self.schedule))()
        for i, step in enumerate(self.schedule):
            entry = table[i]
            if i in sources:
                source = sources[i]
                self.fill(entry, KERNEL, [self.code(arg) for arg in source.args])
                entry.function = functions[source.text]
            elif isinstance(step, Opaque) and step.kind == "host":
                entry.kind = HOST
                self.hosts[i] = step
            elif isinstance(step, Opaque):
                step.plan.fill(self, entry, step)
        self.sources = sources
        return table

    def code_of_view(self, view: View) -> int:
        """The address where a view starts."""
        return self.code((view.base, view.offset))

    def code(self, arg) -> int:
        """An argument of a kernel as the runner reads it."""
        what, number = arg
        if what == "scalar":
            return SCALAR << 56 | number
        if what == "error":
            return ERROR << 56
        nbytes = number * what.dtype.itemsize
        return code_of(what) + (nbytes if what.place == "arena" else nbytes << 16)

    def fill(self, entry: Step, kind: int, codes: list[int]) -> None:
        """Set what a step is and what it works on."""
        args = (ctypes.c_int64 * max(1, len(codes)))(*codes)
        self.keep.append(args)
        entry.kind, entry.count = kind, len(codes)
        entry.args = ctypes.cast(args, ctypes.c_void_p)

    # -- running -------------------------------------------------------------------------------

    def run(self, arrays: list[np.ndarray], scalars: list[bytes], donated=(), ends_ns=None):
        """The outputs for these inputs and packed scalars, as a list of arrays.

        The memory of inputs whose numbers are in `donated` may be overwritten. `ends_ns` (an int64
        array) gets the time at which each step ended, and in the last place when the first began.
        """
        with self.lock:
            # The arena first, so that it gets the block that it had in the last run.
            self.arena = memory.current().alloc(self.arena_bytes, ARENA_TAG).numpy()
            taken = [self.source_of(buffer, donated) for buffer in self.made]
            outputs = [
                new_array(buffer) if at is None else arrays[at]
                for buffer, at in zip(self.made, taken, strict=True)
            ]
            try:
                self.execute(arrays, outputs, scalars, ends_ns)
            finally:
                self.arena = None
        return [in_shape(outputs[buffer.at], spec.shape) for buffer, spec in self.outputs]

    def execute(self, arrays, outputs, scalars, ends_ns=None) -> None:
        """Run all steps, the host's among them."""
        (arena,) = pointers([self.arena])
        inputs = pointers(arrays)
        results = pointers(outputs)
        words = ctypes.create_string_buffer(b"".join(scalars) + bytes(8))
        error = ctypes.c_int64(0)
        ends = None if ends_ns is None else ends_ns.__array_interface__["data"][0]
        run, at, end = self.runner.gh_run, 0, len(self.schedule)
        if ends_ns is not None:
            ends_ns[-1] = perf_counter_ns()
        while True:
            at = run(self.steps, at, end, arena, inputs, results, words, ctypes.byref(error), ends)
            if error.value:
                raise IndexErrorInside
            if at == end:
                return
            if at < 0:
                raise BackendError(
                    f"program: expected oneDNN to run step {-1 - at}; got a failure. "
                    "Go on with GH_BACKEND=numpy, and report it."
                )
            self.run_host(self.hosts[at], arrays, outputs)
            if ends_ns is not None:
                ends_ns[at] = perf_counter_ns()
            at += 1

    def run_host(self, step: Opaque, arrays, outputs) -> None:
        """A step that the card's reference computes."""
        operands = [self.array_of(view, arrays, outputs) for view in step.sources]
        results = quiet.run(run_node, step.node, operands, arrays, ())
        if not isinstance(results, tuple):
            results = (results,)
        for buffer, value in zip(step.results, results, strict=True):
            self.array_of(buffer.view(), arrays, outputs)[...] = value

    def array_of(self, view, arrays, outputs) -> np.ndarray:
        """A view of a buffer as a NumPy array."""
        buffer, size = view.base, view.base.dtype.itemsize
        if buffer.place == "arena":
            count = buffer.spec.size
            assert self.arena is not None
            memory = self.arena[buffer.at : buffer.at + count * size].view(buffer.dtype.np)
        else:
            memory = (arrays if buffer.place == "input" else outputs)[buffer.at]
        strides = tuple(s * size for s in view.strides)
        flat = memory.reshape(-1)[view.offset :] if prod(view.shape) else memory.reshape(-1)
        return np.lib.stride_tricks.as_strided(flat, view.shape, strides)


def new_array(buffer: Buffer) -> np.ndarray:
    """Memory for an output, from the memory manager."""
    spec = buffer.spec
    if spec.nbytes < SMALL_BYTES:
        return np.empty(spec.shape, spec.dtype.np)
    return memory.current().alloc(spec.nbytes, tag_of(buffer)).numpy(spec.dtype.np, spec.shape)


def tag_of(buffer: Buffer) -> memory.Tag:
    """What an output is for."""
    return memory.Tag(buffer.node.op, *buffer.node.origin[:2]) if buffer.node else memory.Tag()


class IndexErrorInside(Exception):
    """A gather met an index out of range; the references say which."""


def in_shape(array: np.ndarray, shape) -> np.ndarray:
    """The array itself where it has the shape: what is a view is never written to."""
    return array if array.shape == shape else array.reshape(shape)


def outputs_made(outputs) -> list[Buffer]:
    """The buffers that a run hands out, by number."""
    made = {buffer.at: buffer for buffer, _ in outputs if buffer.place == "output"}
    return [made[i] for i in range(len(made))]


def is_empty(step) -> bool:
    """Whether a step has no position to compute."""
    if isinstance(step, Kernel):
        return prod(step.domain) == 0
    return all(buffer.spec.size == 0 for buffer in step.results)


def address(array: np.ndarray) -> int:
    """Where an array's data lie."""
    return array.__array_interface__["data"][0]


def pointers(arrays):
    """A C array of the addresses."""
    count = len(arrays)
    if Runner.sees_arrays:
        table = (ctypes.c_void_p * max(1, count))(*map(id, arrays))
        Runner.get().gh_addresses(table, count)
        return table
    return (ctypes.c_void_p * max(1, count))(*map(address, arrays))


def compile_kernels(sources: list[Source]) -> dict[str, int]:
    """Address by text of each kernel; equal kernels are compiled once."""
    texts = list(dict.fromkeys(source.text for source in sources))
    if not texts:
        return {}
    count = max(1, min(2 * (os.cpu_count() or 1), len(texts) // SHARD_KERNELS))
    shards = [texts[i::count] for i in range(count)]
    files = [
        '#include "gh_kernel.h"\n'
        + "\n".join(Source(text, []).named(f"k{i}") for i, text in enumerate(shard))
        for shard in shards
    ]
    libraries = toolchain.compile_all(files)
    return {
        text: ctypes.cast(getattr(library, f"k{i}"), ctypes.c_void_p).value or 0
        for shard, library in zip(shards, libraries, strict=True)
        for i, text in enumerate(shard)
    }


# -- the cache --------------------------------------------------------------------------------


class Entry:
    """What is known of a structure: about how long its references took, and its Program."""

    __slots__ = ("spent_s", "program", "failed", "references")

    def __init__(self):
        self.spent_s, self.program, self.failed = 0.0, None, False
        self.references: References | None = None  # made when a run without Program is watched


programs: dict[tuple, Entry] = {}


def run_recording(recording: Recording) -> None:
    """Compute the outputs; the nodes keep their values and forget their operands."""
    key = (recording.key, state.recompute) if state.recompute else recording.key
    entry = programs.get(key)
    if entry is None:
        entry = programs.setdefault(key, Entry())
    program = program_for(entry, recording)
    if watchers:
        outputs = run_watched(entry, program, recording)
    elif program is None:
        outputs = quiet.run(compute, recording)
    else:
        outputs = run_program(program, recording)
    settle(recording, outputs, program.owns if program is not None else [])


def settle(recording: Recording, outputs, owns: list[bool]) -> None:
    """Give the nodes their values; they forget their operands."""
    for place, value in enumerate(outputs):
        node = recording.nodes[recording.outputs[place]]
        node.value, node.owned = value, bool(owns) and owns[place]
    for node in recording.nodes:
        node.inputs = ()
        node.scope = None


def run_program(program: Program, recording: Recording, ends_ns=None):
    """Run a Program on the leaves of a recording."""
    arrays = []
    for leaf in recording.leaves:
        if not leaf.value.flags.c_contiguous:
            leaf.value = np.ascontiguousarray(leaf.value)
        arrays.append(leaf.value)
    try:
        return program.run(arrays, recording.scalars, recording.donated, ends_ns)
    except IndexErrorInside:
        return quiet.run(compute, recording)  # raises with the index


def run_watched(entry: Entry, program: Program | None, recording: Recording):
    """Run a recording and tell the watchers when each step ended."""
    events = [getattr(node, "event", -1) for node in recording.nodes]
    if program is not None:
        return run_timed(program, events, lambda ends_ns: run_program(program, recording, ends_ns))
    if entry.references is None:
        entry.references = References(recording)
    ends_ns: list[int] = []
    begin_ns = perf_counter_ns()
    outputs = quiet.run(compute, recording, ends_ns)
    tell("program", ProgramRun(entry.references, begin_ns, ends_ns, perf_counter_ns(), events))
    return outputs


def run_timed(program: Program, events: list[int], run):
    """The outputs of `run(ends_ns)`, one run of a Program; the watchers are told of its steps."""
    begin_ns, ends_ns = perf_counter_ns(), np.empty(len(program.schedule) + 1, np.int64)
    outputs = run(ends_ns)
    end_ns, first_ns = perf_counter_ns(), int(ends_ns[-1])
    tell("program", ProgramRun(program, begin_ns, ends_ns[:-1], end_ns, events, first_ns))
    return outputs


def program_for(entry: Entry, recording: Recording) -> Program | None:
    """The Program to run; None where the references do it."""
    if entry.program is None and not entry.failed and is_worth_compiling(entry, recording):
        try:
            entry.program = make_program(recording)
        except CompileError as error:
            entry.failed = True
            warn_once(str(error))
        except Exception as error:
            if flags.verify or flags.strict:
                raise
            entry.failed = True
            warnings.warn(
                f"glasshouse: a program is not compiled, and runs slower: the compiler met "
                f"{error!r}. Report it; GH_VERIFY=1 shows where.",
                stacklevel=2,
            )
    return entry.program


def is_worth_compiling(entry: Entry, recording: Recording) -> bool:
    """Whether this run should be a compiled one: long, or much work, also summed over all runs.

    The estimate depends on the recordings alone, so that equal programs run equally.
    """
    if flags.compile != "auto":
        return flags.compile == "always"
    if len(recording.nodes) > LARGE_NODES:
        return True
    elements = sum(n.spec.size for n in recording.nodes if not isinstance(n.spec, tuple))
    entry.spent_s += NODE_S * len(recording.nodes) + ELEMENT_S * elements
    return entry.spent_s > COMPILE_S


class Warned:
    """Whether the one warning was given."""

    yet = False


def warn_once(reason: str) -> None:
    """Say, the first time, that nothing is compiled."""
    if not Warned.yet:
        Warned.yet = True
        warnings.warn(
            f"glasshouse: programs are not compiled, and run slower ({reason}). Install gcc or "
            "clang, or set GH_CC.",
            stacklevel=2,
        )


def make_program(recording: Recording) -> Program:
    """Compile a recording: the passes over its graph, each checked and printed if wanted.

    Raises:  CompileError
    """
    begin_ns = perf_counter_ns() if watchers else 0
    with no_collection():
        recorded = graph_of(recording)
        program = Program(rewritten(recorded))
        program.recorded = recorded
    show("steps", describe_steps(program))
    show("c", describe_c(program))
    if begin_ns:
        tell("region", "compile", begin_ns)
    return program


@contextmanager
def no_collection():
    """Inside, cyclic garbage waits: a large graph is millions of objects, all of them in use, and
    looking through them again and again takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def rewritten(graph: Graph) -> Graph:
    """The graph after all passes, each checked and printed if wanted."""
    show("recorded", graph)
    for name, rewrite in PASSES:
        graph = rewrite(graph)
        if flags.verify:
            verify(graph)
        show(name, graph)
    return graph


def show(name: str, what) -> None:
    """Print the result of a pass (GH_DEBUG=3)."""
    if flags.debug >= 3:
        print(f"# -- {name}\n{what}\n")


def describe_steps(program: Program) -> str:
    """A line for each step: what it computes, from which buffers into which, and where they lie."""
    lines = [f"# arena: {program.arena_bytes:,} bytes"]
    for i, step in enumerate(program.schedule):
        if isinstance(step, Kernel):
            what = ", ".join(
                f"{root.reduce or 'map'} {root.node.op if root.node else ''}".strip()
                for root in step.roots
            )
            what = f"kernel over {step.domain}: {what}"
        else:
            what = f"{step.kind} {step.node.op} {step.plan.name if step.kind == 'onednn' else ''}"
        reads = " ".join(map(place_of, sorted(step.reads(), key=lambda b: b.number)))
        writes = " ".join(map(place_of, sorted(step.writes(), key=lambda b: b.number)))
        lines.append(f"{i:4} {what.strip()}: {reads} -> {writes}")
    return "\n".join(lines)


def place_of(buffer: Buffer) -> str:
    """A buffer with the place it lies at."""
    return f"b{buffer.number}@{buffer.place}:{buffer.at}"


def describe_c(program: Program) -> str:
    """The C of every kernel, equal ones once."""
    texts: dict[str, list[int]] = {}
    for i, source in program.sources.items():
        texts.setdefault(source.text, []).append(i)
    return "\n".join(
        f"/* steps {', '.join(map(str, steps))} */\n{Source(text, []).named(f'kernel{steps[0]}')}"
        for text, steps in texts.items()
    )
