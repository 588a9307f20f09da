"""The memory of a Program's runs: arena and outputs, also where the Program is planned only."""

import functools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glasshouse.compile.planning.plan import ARENA_TAG, SMALL_BYTES, ProgramPlan
from glasshouse.compile.programs.code import OutputSpec, output_specs_of, outputs_of, uses_of
from glasshouse.compile.steps.steps import FusedKernel, LoweredStep
from glasshouse.compile.steps.view import strides_of
from glasshouse.graph.node import Node
from glasshouse.memory import Tag

MOST_OUTPUTS = 1 << 12  # whose descriptions are kept for reuse
ALIGNMENT = 64  # bytes of a line of the cache
OWN_ARENA_BYTES = 1 << 16  # an arena up to this size stays with its Program


class OwnArena:
    """A small arena that stays with its Program: asking a manager would cost more."""

    def __init__(self, nbytes: int) -> None:
        self.memory: np.ndarray = np.zeros(nbytes + ALIGNMENT, np.uint8)
        begin = self.memory.ctypes.data
        self.first, self.nbytes = -begin % ALIGNMENT, nbytes
        self.address: int = begin + self.first

    def numpy(self) -> np.ndarray:
        """The bytes of the arena."""
        return self.memory[self.first : self.first + self.nbytes]


@functools.lru_cache(MOST_OUTPUTS)
def described_output(output: OutputSpec) -> tuple[Any, ...]:
    """Describe an output for a run: (donor, shape, dtype, bytes, tag). Parameters are outputs of
    Programs for many sizes: equal ones are one object, for the garbage collector looks through
    each."""
    spec = output.spec
    return output.source, spec.shape, spec.dtype.np, spec.nbytes, output.tag


def allocate(
    specs: list[tuple[Any, ...]],
    manager: Any,
    donated: Mapping[int, Any],
    small_bytes: int = SMALL_BYTES,
) -> list[Any]:
    """Memory for each output of a run: that of the donated input, by its number, whose place it
    takes, or else a manager's; None for a small one, for which a manager would cost more."""
    wanted = [x[3:] for x in specs if x[3] >= small_bytes and x[0] not in donated]
    buffers = iter(manager.alloc_all(wanted) if wanted else ())
    return [
        donated[x[0]] if x[0] in donated else next(buffers) if x[3] >= small_bytes else None
        for x in specs
    ]


def allocate_arrays(
    specs: list[tuple[Any, ...]], manager: Any, donated: Mapping[int, np.ndarray]
) -> list[np.ndarray]:
    """An array for each output of a run: that of the donated input whose place it takes, or a new
    one."""
    memory = allocate(specs, manager, donated)
    return [
        x if source in donated else np.empty(shape, dtype) if x is None else x.numpy(dtype, shape)
        for x, (source, shape, dtype, *_) in zip(memory, specs, strict=True)
    ]


class ConstantResults:
    """The arrays that the first steps of a Program fill, which read parameters alone: weights in
    the layout of a convolution, for example. They serve while the steps' inputs are the same
    payloads, whose contents do not change: an update replaces them, and while the run's numbers are
    the same, which the steps may read too. When a payload is freed, the arrays are too.

    specs  of the arrays, as a run allocates outputs
    step   the first step after those that fill the arrays"""

    def __init__(self, specs: list[tuple[Any, ...]], step: int) -> None:
        self.specs, self.step = specs, step
        self.arrays: list[np.ndarray] = []
        self.sources: tuple[weakref.ref[Node], ...] = ()
        self.scalars: list[bytes] = []

    def first_step(self, payloads: Sequence[Node], scalars: list[bytes], manager: Any) -> int:
        """The step with which a run on these payloads and numbers begins; `arrays` are there from
        now on. The contents of inputs that are no payloads are unknown: all steps run."""
        is_filled = self.arrays and payloads and len(self.sources) == len(payloads)
        is_filled = is_filled and self.scalars == scalars
        pairs = zip(self.sources, payloads)
        if is_filled and all(source() is payload for source, payload in pairs):
            return self.step
        self.sources = ()
        if not self.arrays:
            self.arrays = allocate_arrays(self.specs, manager, {})
        return 0

    def fill(self, payloads: Sequence[Node], scalars: list[bytes]) -> None:
        """Note that the arrays are results of these payloads and numbers."""
        self.scalars = list(scalars)
        self.sources = tuple([weakref.ref(payload, self.free) for payload in payloads])

    def free(self, source: Any = None) -> None:
        """Free the arrays; a run has its own references to them."""
        self.sources, self.arrays = (), []


class RunMemory:
    """The memory of a Program's runs: its `arena` while one runs, and arrays for its outputs. A
    small arena stays here. A run without users' functions and collectives, whose outputs all have
    fewer than `small_bytes`, asks a manager for none: cards' references have NumPy's memory."""

    def __init__(self, program: Any, small_bytes: int) -> None:
        self.arena_bytes = arena_bytes = program.arena_bytes
        count = len(program.output_specs) - program.kept
        self.specs = specs = program.output_specs[:count]
        self.constants: ConstantResults | None = None  # the other outputs
        if program.kept:
            self.constants = ConstantResults(program.output_specs[count:], program.kept_steps)
        self.arena: Any = None
        stays = arena_bytes <= max(OWN_ARENA_BYTES, small_bytes)
        self.nbytes: int = arena_bytes if stays else 0  # that stay
        self.own: OwnArena | None = OwnArena(arena_bytes) if stays else None
        self.has_large: bool = any(nbytes >= small_bytes for *_, nbytes, _ in specs)
        hosts = [step.node for step in program.hosts.values()]
        asks = any(node.host is not None or node.call.is_collective for node in hosts)
        self.is_small: bool = stays and not self.has_large and not asks
        self.views: list[tuple[int, Any]]
        self.views = [(at, view_of(specs[at], *how)) for at, *how in program.outputs]

    def take(self, manager: Any, arrays: list[np.ndarray], donated: Any) -> list[Any]:
        """Set the arena, and return an array for each output: the donated input's, or new memory.
        The arena comes first, so that it gets the block that it had in the last run."""
        if self.is_small and manager.counts_arena(self.arena_bytes):
            self.arena = self.own
        else:
            self.arena = manager.alloc(self.arena_bytes, ARENA_TAG)
        if not self.has_large:
            return [np.empty(shape, dtype) for _, shape, dtype, _, _ in self.specs]
        return allocate_arrays(self.specs, manager, {number: arrays[number] for number in donated})

    def results(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        """The results that lie in these outputs."""
        return [
            outputs[at] if view is None else np.ndarray(view[0], view[1], outputs[at], 0, view[2])
            for at, view in self.views
        ]


def view_of(spec: tuple[Any, ...], shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """(shape, dtype, strides in bytes) of an output as a view of the array in its place; None
    where it is that array, of the same shape and row by row: nobody writes to a view."""
    _, whole, dtype, *_ = spec
    if shape == whole and strides == strides_of(shape):
        return None
    return shape, dtype, tuple([n * dtype.itemsize for n in strides])


class PlannedRun(NamedTuple):
    """A run of a Program that is planned only: its plan, the bytes in use then, and by which
    address; how often references would have run in its place, before compiling is worth it."""

    plan: Any  # ProgramPlan, or the ReferenceSteps of a recording
    allocated_bytes: int = 0
    live: dict[int, tuple[int, Tag]] = {}
    donated: tuple[int, ...] = ()  # numbers of the inputs whose memory results may take
    reference_runs: int = 0

    @property
    def takes_arena(self) -> bool:
        """Whether a Program of PyTorch's takes its arena from a manager."""
        return self.plan.arena_bytes > OWN_ARENA_BYTES


class PlannedProgram:
    """The plan of a Program that is not built, with a Program's attributes."""

    def __init__(self, plan: ProgramPlan) -> None:
        self.plan = plan
        self.outputs: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = outputs_of(plan)
        self.output_specs: list[tuple[Any, ...]] = list(
            map(described_output, output_specs_of(plan))
        )
        self.kept: int = len(plan.kept)
        self.kept_steps: int = plan.kept_steps
        self.arena_bytes: int = plan.arena_bytes
        self.count: int = len(plan.schedule)
        self.owns: list[bool] = plan.owns
        self.lines: dict[int, str] = {}
        self.input_ends: dict[int, int]
        self.output_begins: dict[int, int]
        self.output_ends: dict[int, int]
        self.input_ends, self.output_begins, self.output_ends = uses_of(plan)
        self.hosts: list[FusedKernel | LoweredStep] = [
            step for step in plan.schedule if step.lowerer.is_host
        ]
