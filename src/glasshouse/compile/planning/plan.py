"""Plans: the steps that compute a graph, and the places of values; nothing is compiled or run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glasshouse import memory
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.fuse import fuse
from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.lowering.source_map import StepInfo, step_infos
from glasshouse.compile.lowering.target import Target, current_target
from glasshouse.compile.planning.order import free_early
from glasshouse.compile.planning.overlap import overlapped
from glasshouse.compile.planning.plan_memory import (
    APART_BYTES,
    is_no_op_copy,
    place_outputs,
    plan_memory,
    reuse_inputs,
    set_apart,
)
from glasshouse.compile.steps.constant_steps import put_constant_steps_first
from glasshouse.compile.steps.emitted import CKernel
from glasshouse.compile.steps.steps import FusedKernel, LoweredStep, PlannedBuffer
from glasshouse.graph.graph import Graph, verify
from glasshouse.graph.recompute.recompute import recompute
from glasshouse.graph.simplify import PASSES as SIMPLER
from glasshouse.graph.sums_at_origin import sum_at_origin

PASSES = (*SIMPLER, ("sum_at_origin", sum_at_origin), ("recompute", recompute))
ARENA_TAG = memory.manager.ARENA_TAG
SMALL_BYTES = 1 << 12  # outputs below this are NumPy's own: a manager would cost more


class ProgramPlan:
    """Steps that compute the outputs of a graph, and the place of each value; nothing is allocated.

    `schedule` lists the steps; `arena_bytes` is the peak of the intermediate values;
    `output_buffers` are those that a run hands out, by number, then the intermediate ones that
    are set `apart`, and the `kept` ones: the first `kept_steps` steps compute them from inputs that
    do not change, and later runs reuse them."""

    kept_steps: int
    kept: list[Any]
    owns: list[bool]

    apart: list[PlannedBuffer] = []
    sources: dict[int, CKernel] = {}  # the C of each fused kernel, once it is emitted …
    sizes: dict[int, dict[str, int]] = {}  # … and the sizes that it takes as arguments

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.target: Target = current_target()
        self.lowering: Lowering = Lowering(graph, self.target).run()
        self.schedule: list[FusedKernel | LoweredStep] = [
            step for step in fuse(self.lowering) if not step.is_empty()
        ]
        self.schedule, self.kept_steps, self.kept = put_constant_steps_first(
            self.schedule, self.lowering, self.target.stable_inputs
        )
        self.arena_bytes: int = self.place_buffers()
        pairs = zip(self.lowering.outputs, graph.outputs, strict=True)
        self.outputs: list[tuple[Any, Any]] = [(view.base, node.spec) for view, node in pairs]
        numbered = {b.at: b for b, _ in self.outputs if b.place == "output"}
        buffers = [numbered[i] for i in range(len(numbered))]
        self.output_buffers: list[Any] = [*buffers, *self.apart, *self.kept]
        places = [buffer.at for buffer, _ in self.outputs]
        self.owns = [places.count(at) == 1 for at in places]  # whose memory no other output shares
        self.infos: list[StepInfo] | None = None

    def place_buffers(self) -> int:
        """Place all values in memory, in an order of steps that suits it; returns the bytes of the
        values in between."""
        outputs = place_outputs(self.lowering, self.kept)
        made_first, others = self.schedule[: self.kept_steps], self.schedule[self.kept_steps :]
        if self.target.lends_outputs:
            others = free_early(others)
        self.schedule = [*made_first, *overlapped(others)]
        leaves = {self.lowering.outputs[i].base: leaf for i, leaf in self.target.written_leaves}
        reuse_inputs(self.schedule, leaves)
        if self.target.sets_apart and not self.kept:
            self.apart = set_apart(self.schedule, len(outputs))
            outputs = [x for x in outputs if x.spec.nbytes < APART_BYTES]  # others come late
        nbytes = plan_memory(self.schedule, outputs, self.target.lends_outputs)
        others = [x for x in self.schedule[self.kept_steps :] if not is_no_op_copy(x)]
        self.schedule = [*self.schedule[: self.kept_steps], *others]
        return nbytes

    def step_infos(self) -> list[StepInfo]:
        if self.infos is None:
            self.infos = step_infos(self)
        return self.infos

    def source_of(self, buffer: PlannedBuffer, donated: list[int]) -> int | None:
        """Number of the input whose memory an output takes, if a run donates it."""
        source = buffer.source
        return source.at if source is not None and source.at in donated else None


def tag_of(buffer: PlannedBuffer) -> memory.Tag:
    return memory.Tag(buffer.node.op, *buffer.node.origin[:2]) if buffer.node else memory.Tag()


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside, cyclic garbage waits: a large graph is millions of objects, all of them in use, and
    looking through them again and again takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def passes_of(target: Target) -> list[Any]:
    """(name, pass) of the compiler, then of the user."""
    return [*PASSES, *((rewrite.__name__, rewrite) for rewrite in target.passes)]


def rewritten(graph: Graph) -> Graph:
    """Run all passes over the graph, each checked and printed if wanted."""
    show("recorded", graph)
    for name, rewrite in passes_of(current_target()):
        graph = rewrite(graph)
        if flags.verify:
            verify(graph)
        show(name, graph)
    return graph


def show(name: str, what: Any) -> None:
    if flags.debug >= 3:
        print(f"# -- {name}\n{what}\n")


def describe_steps(plan: ProgramPlan) -> str:
    """Describe each step in a line: its computation, its buffers, and their places."""
    lines = [f"# arena: {plan.arena_bytes:,} bytes"]
    for i, step in enumerate(plan.schedule):
        what = step.lowerer.describe(step).text
        reads = " ".join(map(place_of, sorted(step.reads(), key=lambda b: b.number)))
        writes = " ".join(map(place_of, sorted(step.writes(), key=lambda b: b.number)))
        lines.append(f"{i:4} {what.strip()}: {reads} -> {writes}")
    return "\n".join(lines)


def place_of(buffer: PlannedBuffer) -> str:
    where = buffer.host or buffer
    return f"b{buffer.number}@{where.place}:{where.at}"


def describe_c(sources: dict[int, CKernel], sizes: dict[int, dict[str, int]]) -> str:
    """The C of every kernel by its step, equal ones once, with the sizes of the steps."""
    kernels: dict[CKernel, dict[str, list[int]]] = {}
    for i, kernel in sources.items():
        size_text = ", ".join(f"{name} = {n}" for name, n in sizes[i].items())
        kernels.setdefault(kernel, {}).setdefault(size_text, []).append(i)
    shown = []
    for kernel, steps in kernels.items():
        for size_text, numbers in steps.items():
            named = f"steps {', '.join(map(str, numbers))}"
            shown.append(f"/* {named}{f': {size_text}' if size_text else ''} */\n")
        shown.append(kernel.named(f"kernel{min(map(min, steps.values()))}") + "\n")
    return "".join(shown).rstrip("\n") + "\n"
