"""Code: all that a Program needs to run, without the graph that it was made from.

A graph and all that is derived from it are hundreds of thousands of objects: too many for the
garbage collector to look through while a model trains. Code is small, and can be stored."""

import pickle
from typing import Any, NamedTuple

from glasshouse import memory
from glasshouse.base import Spec
from glasshouse.compile.kernels.kernel_cache import sizes_of
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.planning.plan import ProgramPlan, tag_of
from glasshouse.compile.steps.emitted import CKernel, HostCall
from glasshouse.compile.steps.steps import order_of_view
from glasshouse.compile.steps.view import strides_of

# What an argument means, as in native/runner.c.
ARENA, INPUT, OUTPUT, SCALAR, ERROR, SIZE = range(6)


class OutputSpec(NamedTuple):
    """An array that a run hands out; `source` is the input whose memory it takes if donated."""

    spec: Spec
    tag: memory.Tag
    source: int | None


class StepCode(NamedTuple):
    """A step for the runner: coded `args`; `what` is a `CKernel`, `NativeCall` or `HostCall`."""

    args: list[int]
    what: Any


class ProgramCode(NamedTuple):
    """Steps in order; `outputs`: (number in `output_specs`, shape, strides in elements); `infos` is
    decoded on demand. The last `kept` of `output_specs` are results that the first `kept_steps`
    steps compute for later runs too. `input_ends` has the last step that reads each input, by
    number, `output_begins` the first step that writes to the memory of each output, and
    `output_ends` the last that reads each of those that are no results."""

    steps: list[StepCode]
    output_specs: list[OutputSpec]
    outputs: list[tuple[int, tuple[int, ...], tuple[int, ...]]]
    owns: list[bool]
    arena_bytes: int
    infos: bytes | list[StepInfo]
    kept_steps: int = 0
    kept: int = 0
    input_ends: dict[int, int] = {}
    output_begins: dict[int, int] = {}
    output_ends: dict[int, int] = {}

    @property
    def is_portable(self) -> bool:
        """Whether another process can run it: no user's function is part of it."""
        hosts = [step.what.node.host for step in self.steps if isinstance(step.what, HostCall)]
        return isinstance(self.infos, bytes) and not any(hosts)


def assemble(plan: ProgramPlan) -> ProgramCode:
    """Assemble the code of a plan, and emit the C of its kernels."""
    steps, sources, dialect = [], {}, plan.target.dialect
    for i, step in enumerate(plan.schedule):
        args, what = step.lowerer.emit(step)
        if isinstance(what, CKernel):
            sources[i] = what = dialect.adapted(what)
        steps.append(StepCode([coded(arg) for arg in args], what))
    plan.sources = sources
    plan.sizes = {i: sizes_of(kernel, steps[i].args) for i, kernel in sources.items()}
    infos = packed(plan.step_infos())
    kept_counts = plan.kept_steps, len(plan.kept)
    outputs = output_specs_of(plan), outputs_of(plan), plan.owns
    return ProgramCode(steps, *outputs, plan.arena_bytes, infos, *kept_counts, *uses_of(plan))


def uses_of(plan: ProgramPlan) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """(the last step that reads each input, the first that writes to the memory of each output, the
    last that uses each one that is set apart)."""
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    output_ends = {buffer.at: 0 for buffer in plan.apart}
    for i, step in enumerate(plan.schedule):
        for buffer in (*step.reads(), *step.writes()):
            where = buffer.host or buffer
            if where.place == "input":
                ends[where.at] = i
            elif where.place == "output":
                begins.setdefault(where.at, i)
                if where.at in output_ends:
                    output_ends[where.at] = i
    return ends, begins, output_ends


def output_specs_of(plan: ProgramPlan) -> list[OutputSpec]:
    """Arrays that a run of a plan hands out, then those that it keeps."""
    return [
        OutputSpec(b.spec, tag_of(b), b.source.at if b.source else None)
        for b in plan.output_buffers
    ]


def outputs_of(plan: ProgramPlan) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Each output of a plan: (number of the array, shape, strides in elements)."""
    return [
        (view.base.at, view.shape, strides_of(view.shape, order_of_view(view)))
        for view in plan.lowering.outputs
    ]


def coded(arg: Any) -> int:
    """Encode an argument of a kernel for the runner."""
    what, number = arg
    if what == "scalar":
        return SCALAR << 56 | number
    if what == "error":
        return ERROR << 56
    if what == "size":
        return SIZE << 56 | number & (1 << 56) - 1
    nbytes = number * what.dtype.itemsize
    what = what.host or what
    kind = {"arena": ARENA, "input": INPUT, "output": OUTPUT}[what.place]
    return (kind << 56 | what.at) + (nbytes if what.place == "arena" else nbytes << 16)


def packed(infos: list[StepInfo]) -> bytes | list[StepInfo]:
    """Pickle the infos of steps if possible: bytes cost the garbage collector nothing."""
    try:
        return pickle.dumps(infos)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):  # of objects in C++
        return infos
