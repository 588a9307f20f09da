"""Programs that run: compiled kernels and native calls in the table of the native runner."""

import ctypes
import pickle
import struct
import threading
from collections.abc import Callable, Sequence
from math import prod
from time import perf_counter_ns
from typing import Any

import numpy as np

from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.building.toolchain import NATIVE, CompileError
from glasshouse.compile.kernels.kernel_cache import CommonSizes, is_general, sizes_of
from glasshouse.compile.lowering.source_map import StepInfo, label_of
from glasshouse.compile.lowering.target import Target, current_target
from glasshouse.compile.planning.plan import SMALL_BYTES, ProgramPlan
from glasshouse.compile.programs import anomalies
from glasshouse.compile.programs.between_ranks import CollectiveSteps
from glasshouse.compile.programs.code import ProgramCode, StepCode
from glasshouse.compile.programs.replay import load_replay
from glasshouse.compile.programs.run_memory import RunMemory, described_output
from glasshouse.compile.steps.emitted import (
    BufferPlace,
    CKernel,
    CollectiveStep,
    HostCall,
    NativeCall,
)
from glasshouse.dispatch.backend import TensorBackend, current, quiet
from glasshouse.dispatch.fallback import Fallback
from glasshouse.graph.graph import Graph, run_node
from glasshouse.graph.node import Node

STEP_BYTES, INFO_BYTES = 1 << 11, 1 << 10  # about, of a Program
SPECIALISE_NS = 600_000_000  # of runs for each general kernel: compiling one takes a 20th of that


class RunnerStep(ctypes.Structure):
    """`Step` of native/runner.c."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


class NativeRunner:
    """The native runner, compiled when first needed."""

    library: Any = None
    sees_arrays: bool = False  # whether it can read addresses from NumPy's arrays themselves

    @classmethod
    def get(cls) -> Any:
        if cls.library is None:
            library = toolchain.compile_one((NATIVE / "runner.c").read_text())
            place, number = ctypes.c_void_p, ctypes.c_int64
            library.gh_run.restype = library.gh_run_watched.restype = number
            library.gh_run.argtypes = (place, number, number, *(place,) * 6)
            library.gh_run_watched.argtypes = (*library.gh_run.argtypes, place)
            cls.library = library
            cls.sees_arrays = can_see(library)
            load_replay()
        return cls.library


def can_see(library: Any) -> bool:
    library.gh_addresses.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    samples: list[np.ndarray] = [np.zeros(3), np.zeros((4, 4), np.int8)[1:, ::2], np.zeros(0)]
    if any(type(x).__basicsize__ < 3 * ctypes.sizeof(ctypes.c_void_p) for x in samples):
        return False
    table = (ctypes.c_void_p * 3)(*map(id, samples))
    library.gh_addresses(table, 3)
    return [x or 0 for x in table] == [address(x) for x in samples]


class RunTable:
    """Table of a run's memory for the runner: the arena, inputs, outputs, scalars, the error flag.
    A Program has one, because it runs once at a time."""

    def __init__(self, inputs: int, outputs: int, scalars: int) -> None:
        self.count: int = 1 + inputs + outputs
        self.table: ctypes.Array[ctypes.c_int64] = (ctypes.c_int64 * (self.count + scalars + 1))()
        self.pack: Callable[..., None] = struct.Struct(f"={self.count}Q{8 * scalars}sq").pack_into
        begin = ctypes.addressof(self.table)
        self.places: list[int]
        self.places = [begin + 8 * at for at in (1, 1 + inputs, self.count, self.count + scalars)]
        self.library: Any = NativeRunner.get() if NativeRunner.sees_arrays else None

    def filled(
        self, arena: int, arrays: list[np.ndarray], outputs: list[np.ndarray], scalars: list[bytes]
    ) -> list[int]:
        """Fill in addresses, and return the runner's arguments; `arena` is one of the addresses."""
        place_of, words = id if self.library else address, b"".join(scalars)
        self.pack(self.table, 0, arena, *map(place_of, arrays), *map(place_of, outputs), words, 0)
        if self.library:
            self.library.gh_addresses(self.places[0], self.count - 1)
        return [arena, *self.places]

    def set_scalars(self, scalars: list[bytes]) -> None:
        """Set the scalars of all runs, for callers that write the addresses themselves."""
        self.pack(self.table, 0, *(0,) * self.count, b"".join(scalars), 0)

    @property
    def failed(self) -> bool:
        return self.table[-1] != 0


class Program:
    """Compiled code that runs. `sources` has the C of each kernel by its step, `lines` the user's
    line of the calls at some positions of the recording, where capture knows it. `common` are the
    sizes that Programs of the same structure have in common."""

    backend: TensorBackend | None = None  # that counts fallbacks; None: the current one
    plan: ProgramPlan | None = None  # its plan, kept to be shown
    recorded: Graph | None = None  # the graph before the passes, kept to be shown
    key = structure = ""  # the key of its stored code; the recording's structure

    def __init__(
        self,
        code: ProgramCode,
        common: CommonSizes | None = None,
        target: Target | None = None,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        self.target: Target = target or current_target()
        self.count: int = len(code.steps)
        self.arena_bytes: int = code.arena_bytes
        self.owns: list[bool] = code.owns
        self.outputs: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = code.outputs
        self.infos: Any = code.infos
        self.kept_steps: int = code.kept_steps
        self.kept: int = code.kept
        self.input_ends: dict[int, int] = code.input_ends
        self.output_begins: dict[int, int] = code.output_begins
        self.output_ends: dict[int, int] = code.output_ends
        self.output_specs: list[tuple[Any, ...]]
        self.output_specs = [described_output(output) for output in code.output_specs]
        whats = list(enumerate(step.what for step in code.steps))
        self.hosts: dict[int, HostCall | CollectiveStep]
        self.hosts = {i: x for i, x in whats if isinstance(x, (HostCall, CollectiveStep))}
        hosts = [host for host in self.hosts.values() if isinstance(host, HostCall)]
        self.missing: list[HostCall] = [host for host in hosts if host.missing is not None]
        between = {i: x for i, x in whats if isinstance(x, CollectiveStep)}
        self.collectives: CollectiveSteps | None = CollectiveSteps(between) if between else None
        self.sources: dict[int, CKernel]
        self.sources = {i: what for i, what in whats if isinstance(what, CKernel)}
        self.native_calls: dict[int, NativeCall]
        self.native_calls = {i: what for i, what in whats if isinstance(what, NativeCall)}
        self.lock: threading.Lock = threading.Lock()
        self.keep: list[Any] = []  # objects that the steps point to
        self.args: list[Any] = []  # the coded arguments of each
        self.runner: Any = NativeRunner.get()
        self.general: dict[int, CKernel] = {}  # of steps that run for sizes of others too
        self.general_ns: int = 0  # for how long runs take them, before they are made for its sizes
        self.steps: Any = self.make_steps(code.steps, common or CommonSizes())
        self.memory: RunMemory = RunMemory(self, small_bytes)
        self.run_table: RunTable | None = None
        self.lines: dict[int, str] = {}
        self.nbytes: int = bytes_of(code) + self.memory.nbytes

    def make_steps(self, steps: list[StepCode], common: CommonSizes) -> Any:
        """Build the table that the runner reads; compiles the kernels. A step without a function is
        the host's.

        Raises: CompileError; StaleCode where the code no longer fits this process.
        """
        pairs = [(kernel, steps[i].args) for i, kernel in self.sources.items()]
        built = self.target.build(pairs, common)
        kernels = dict(zip(self.sources, built, strict=True))
        self.general = {
            i: kernel
            for (i, kernel), compiled in zip(self.sources.items(), built, strict=True)
            if is_general(compiled, kernel, steps[i].args)
        }
        self.general_ns = SPECIALISE_NS * len(set(self.general.values()))
        self.sources = {i: compiled.kernel for i, compiled in kernels.items()}
        self.keep.extend(set(built))
        table = (RunnerStep * len(steps))()
        for i, (entry, step) in enumerate(zip(table, steps, strict=True)):
            args = (ctypes.c_int64 * max(1, len(step.args)))(*step.args)
            self.args.append(args)
            entry.count, entry.args = len(step.args), ctypes.addressof(args)
            if isinstance(step.what, CKernel):
                entry.function = kernels[i].address
            elif isinstance(step.what, NativeCall):
                loaded = step.what.load()
                self.keep.append(loaded)
                entry.function, entry.extra = loaded.function, loaded.extra
        return table

    def specialise(self) -> None:
        """Compile kernels for its own sizes in place of those that serve other sizes too. The
        results stay the same, bit for bit."""
        general, self.general = self.general, {}
        pairs = [(kernel, list(self.args[i])) for i, kernel in general.items()]
        try:
            built = self.target.build(pairs, CommonSizes())
        except CompileError:
            return  # its kernels still work
        for i, compiled in zip(general, built, strict=True):
            self.keep.append(compiled)
            self.sources[i] = compiled.kernel
            self.steps[i].function = compiled.address

    def note_time(self, ns: int) -> None:
        """Count the time of a run with general kernels. Once compiling special ones is a small part
        of it, the Program gets kernels for its sizes."""
        self.general_ns -= ns
        if self.general_ns <= 0:
            self.specialise()

    @property
    def sizes(self) -> dict[int, dict[str, int]]:
        """Sizes that kernels take as arguments, by step."""
        return {i: sizes_of(text, self.args[i]) for i, text in self.sources.items()}

    def step_infos(self) -> list[StepInfo]:
        """Describe each step: its calls, their origins, and its costs."""
        infos = self.infos
        if isinstance(infos, bytes):
            infos = self.infos = pickle.loads(infos)
        return infos

    # -- running -------------------------------------------------------------------------------

    def run(
        self,
        arrays: list[np.ndarray],
        scalars: list[bytes],
        donated: Any = (),
        ends_ns: np.ndarray | None = None,
        parameters: Sequence[Node] = (),
    ) -> list[np.ndarray]:
        """Run on these inputs and packed scalars; returns the outputs as a list of arrays.

        The memory of inputs whose numbers are in `donated` may be overwritten. `ends_ns` (an int64
        array) gets the time at which each step ended, and in the last place when the first began.
        Results of `parameters` alone stay for the next run; without these, all steps run.

        Raises: BackendError before the first step for one without a kernel, where `strict` is set
        """
        for step in self.missing:
            self.fall_back(step)
        with self.lock:
            looks = None
            if flags.detect_anomaly:
                looks = anomalies.looks_of(self).begin(scalars, donated)
                donated = looks.donors
            if self.collectives is not None:
                self.collectives.bind(self.steps)
            try:
                manager, constants, begin = self.target.memory(), self.memory.constants, 0
                outputs = self.memory.take(manager, arrays, donated)
                if constants is not None:
                    begin = constants.first_step(() if looks else parameters, scalars, manager)
                    outputs += constants.arrays
                self.execute(arrays, outputs, scalars, ends_ns, looks, begin)
                if constants is not None and not begin:
                    constants.fill(parameters, scalars)
            except BaseException:
                if self.collectives is not None:
                    self.collectives.end_failed()
                raise
            finally:
                self.memory.arena = None
        return self.memory.results(outputs)

    def execute(
        self,
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        scalars: list[bytes],
        ends_ns: np.ndarray | None = None,
        looks: anomalies.Looks | None = None,
        begin: int = 0,
    ) -> None:
        """Run the steps from `begin` on, the host's among them; `looks` are at their results."""
        table, places = self.filled(arrays, outputs, scalars)
        self.run_steps(table, places, arrays, outputs, ends_ns, begin=begin, looks=looks)

    def run_steps(
        self,
        table: RunTable,
        places: list[int],
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        ends_ns: np.ndarray | None = None,
        *,
        begin: int = 0,
        end: int | None = None,
        looks: anomalies.Looks | None = None,
    ) -> None:
        """Run the steps from `begin` to `end` on a filled table, or all with `looks` at results;
        the host's steps need arrays by their numbers. `ends_ns` has -1 in the last place while no
        step has begun."""
        ends = None if ends_ns is None else ends_ns.__array_interface__["data"][0]
        run, at, end = self.runner.gh_run, begin, self.count if end is None else end
        more: tuple[int, ...] = ()
        if looks is not None:
            run, more = self.runner.gh_run_watched, (looks.address,)
        begin_ns = perf_counter_ns() if self.general else 0
        if ends_ns is not None and ends_ns[-1] < 0:
            ends_ns[:begin] = ends_ns[-1] = self.target.now_ns()
        while True:
            at = run(self.steps, at, end, *places, ends, *more)
            if table.failed:
                raise IndexErrorInside
            if looks is not None and looks.watch.bad >= 0:
                looks.explain(self, arrays)
                run, more, looks = self.runner.gh_run, (), None
                continue
            if at == end:
                if begin_ns:
                    self.note_time(perf_counter_ns() - begin_ns)
                return
            if at < 0:
                info = self.step_infos()[-1 - at]
                raise BackendError(
                    f"program: expected {info.kind} to run step {-1 - at}, {info.name}; got a "
                    "failure. Go on with GH_BACKEND=numpy, and report it."
                )
            self.run_host(at, arrays, outputs)
            if ends_ns is not None:
                ends_ns[at] = self.target.now_ns()
            at += 1

    def filled(
        self, arrays: list[np.ndarray], outputs: list[np.ndarray], scalars: list[bytes]
    ) -> tuple[RunTable, list[int]]:
        """Fill the run's table, which is made at the first run; returns the runner's arguments."""
        if self.run_table is None:
            self.run_table = RunTable(len(arrays), len(outputs), len(scalars))
        arena = self.memory.arena.address
        return self.run_table, self.run_table.filled(arena, arrays, outputs, scalars)

    def fall_back(self, step: HostCall) -> None:
        """Report to the backend that the step's card runs on its reference.

        Raises: BackendError where `strict` is set
        """
        reason, fix = step.missing or ("", "")
        line = self.lines.get(step.node.origin.place, "")
        backend = self.backend or current()
        backend.fall_back(Fallback(label_of(step.node), reason, line), fix)

    def run_host(self, at: int, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        step = self.hosts[at]
        if isinstance(step, CollectiveStep):
            assert self.collectives is not None
            self.collectives.run(at, lambda place: self.packed_array(place, arrays, outputs))
            return
        memories = {"arena": (self.memory.arena.numpy(),), "input": arrays, "output": outputs}
        operands = [array_of(place, memories) for place in step.sources]
        results = quiet.run(run_node, step.node, operands, arrays, ())
        if not isinstance(results, tuple):
            results = (results,)
        for place, value in zip(step.results, results, strict=True):
            array_of(place, memories)[...] = value

    @property
    def transfers(self) -> list[tuple[int, int, int]]:
        """Transfers of the last run: (the step that waited, its begin in the transport, its
        end)."""
        return [] if self.collectives is None else self.collectives.all_transfers()

    def packed_array(self, place: BufferPlace, arrays: Any, outputs: Any) -> np.ndarray:
        """A whole buffer whose elements lie row by row, in the shape of the place."""
        end = place.offset + prod(place.shape)
        return self.memory_of(place, arrays, outputs)[place.offset : end].reshape(place.shape)

    def memory_of(
        self, place: BufferPlace, arrays: list[np.ndarray], outputs: list[np.ndarray]
    ) -> np.ndarray:
        """Elements of the buffer around a place, in memory order."""
        if place.kind != "arena":
            return (arrays if place.kind == "input" else outputs)[place.at].reshape(-1)
        end = place.at + place.buffer.nbytes
        return self.memory.arena.numpy()[place.at : end].view(place.buffer.dtype.np)


def array_of(place: BufferPlace, memories: dict[str, Any]) -> np.ndarray:
    """The elements at a place, as an array made in one call: a host's step has several."""
    if 0 in place.shape:
        return np.empty(place.shape, place.buffer.dtype.np)
    in_arena = place.kind == "arena"
    memory, begin = memories[place.kind][0 if in_arena else place.at], place.at if in_arena else 0
    memory = memory if memory.flags.c_contiguous else memory.reshape(-1)
    size = place.buffer.dtype.itemsize
    strides = tuple([s * size for s in place.strides])
    begin += place.offset * size
    return np.ndarray(place.shape, place.buffer.dtype.np, memory, begin, strides)


def bytes_of(code: ProgramCode) -> int:
    """Estimate the bytes that a Program keeps: shared memory of native calls counts once."""
    calls = [step.what for step in code.steps if isinstance(step.what, NativeCall)]
    native = sum({call.shares: call.nbytes for call in calls}.values())
    infos = len(code.infos) if isinstance(code.infos, bytes) else INFO_BYTES * len(code.infos)
    return native + STEP_BYTES * len(code.steps) + infos


class IndexErrorInside(Exception):
    """A gather met an index out of range; the references report which."""


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
