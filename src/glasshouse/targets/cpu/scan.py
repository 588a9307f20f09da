"""Loops: the body is a separate Program, whose steps the runner repeats.

Steps that depend on constants alone, such as the reorder of a weight for a product, run once
before the loop. Carried values lie in two places in turn, or where they are stacked; a value that
is only added to stays in one. Where nothing is carried, cores take whole steps, and wait for each
other once, at the end of the loop."""

import ctypes
import functools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from glasshouse.base import Spec, having, uint8
from glasshouse.compile.building import toolchain
from glasshouse.compile.kernels.kernel_cache import CommonSizes
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.lowering.missing_kernels import is_empty, missing_kernel
from glasshouse.compile.lowering.target import Target, current_target
from glasshouse.compile.planning.plan import ProgramPlan, rewritten
from glasshouse.compile.planning.plan_memory import ALIGNMENT
from glasshouse.compile.programs.code import ProgramCode, assemble
from glasshouse.compile.programs.executable import NativeRunner, RunnerStep, bytes_of
from glasshouse.compile.steps.emitted import (
    CKernel,
    EmittedStep,
    LoadedCall,
    MissingKernel,
    NativeCall,
    StaleCode,
)
from glasshouse.compile.steps.work import StepWork
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import input_call
from glasshouse.graph.graph import Node, graph_of_body
from glasshouse.ops.body import DETACH, Body
from glasshouse.ops.linearise import ENDLESS

MOST_BODIES = 1 << 10  # of which is kept whether kernels compute them
MOST_LANE_BYTES = 1 << 24  # of scratch memory, of which each lane has its own
LEAST_BUSY = 0.85  # of the lanes' time, where they share out the steps of a loop
NONE = -1


class LoopInput(ctypes.Structure):
    """`LoopInput` of native/runner.c."""

    _fields_ = (("carried", ctypes.c_int64), ("arg", ctypes.c_int64), ("step", ctypes.c_int64))


class LoopOutput(ctypes.Structure):
    """`LoopOutput` of native/runner.c."""

    _fields_ = (
        ("stack", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("arg", ctypes.c_int64),
        ("place", ctypes.c_int64),
        ("spare", ctypes.c_int64),
    )


class LoopCopy(ctypes.Structure):
    """`LoopCopy` of native/runner.c."""

    _fields_ = (
        ("output", ctypes.c_int64),
        ("carried", ctypes.c_int64),
        ("arg", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    )


class LoopRun(ctypes.Structure):
    """`Loop` of native/runner.c."""

    _fields_ = (
        ("steps", ctypes.c_void_p),
        ("once", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("reverse", ctypes.c_int64),
        ("lanes", ctypes.c_int64),
        ("lane_bytes", ctypes.c_int64),
        ("gate", ctypes.c_int64),
        ("input_count", ctypes.c_int64),
        ("output_count", ctypes.c_int64),
        ("carry_count", ctypes.c_int64),
        ("copy_count", ctypes.c_int64),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("carried", ctypes.c_void_p),
        ("copies", ctypes.c_void_p),
    )


class LoopLayout(NamedTuple):
    """Where a loop finds and leaves its values, as native/runner.c reads it; `carried` has the
    output of the body that carries each value on. Lanes share the steps out, with so many bytes of
    scratch memory each; 0 bytes where they could not, whatever the number of threads. `gate`: the
    carried value that says whether the loop goes on."""

    length: int
    reverse: bool
    lanes: int
    lane_bytes: int
    gate: int
    inputs: tuple[tuple[int, int, int], ...]
    outputs: tuple[tuple[int, int, int, int, int], ...]
    carried: tuple[int, ...]
    copies: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class LoopCall(NativeCall):
    """A step that repeats the steps of a body."""

    code: ProgramCode
    layout: LoopLayout

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return bytes_of(self.code)

    def __reduce__(self) -> Any:
        return stored_loop, (pickle.dumps(self.code), self.layout)

    def load(self) -> LoadedCall:
        """Load the steps of the body and the places of their operands.

        Raises: StaleCode, CompileError
        """
        layout, steps = self.layout, self.code.steps
        if layout.lane_bytes and layout.lanes != lanes_of(layout.length):
            raise StaleCode(f"a loop was made for {layout.lanes} lanes")
        kernels = [(step.what, step.args) for step in steps if isinstance(step.what, CKernel)]
        built = current_target().build(kernels, CommonSizes())
        table = (RunnerStep * max(1, layout.lanes * len(steps)))()
        keep: list[Any] = [built]
        with lane_threads(layout.lanes):
            for lane in range(layout.lanes):
                addresses = iter(kernel.address for kernel in built)
                entries = table[lane * len(steps) : (lane + 1) * len(steps)]
                for entry, step in zip(entries, steps, strict=True):
                    keep.append(fill_entry(entry, step, addresses))
        parts = [
            array_of(LoopInput, layout.inputs),
            array_of(LoopOutput, layout.outputs),
            array_of(ctypes.c_int64, layout.carried),
            array_of(LoopCopy, layout.copies),
        ]
        run = LoopRun(
            ctypes.addressof(table),
            self.code.kept_steps,
            len(steps),
            layout.length,
            int(layout.reverse),
            layout.lanes,
            layout.lane_bytes,
            layout.gate,
            *map(len, (layout.inputs, layout.outputs, layout.carried, layout.copies)),
            *map(ctypes.addressof, parts),
        )
        function = ctypes.cast(NativeRunner.get().gh_run_loop, ctypes.c_void_p).value or 0
        return LoadedCall(function, ctypes.addressof(run), (run, table, parts, keep))


def fill_entry(entry: RunnerStep, step: Any, addresses: Any) -> tuple[Any, ...]:
    """Describe a step of a body to the runner; returns the objects that must stay alive. A kernel
    takes the next of the addresses."""
    args = array_of(ctypes.c_int64, step.args)
    entry.count, entry.args = len(step.args), ctypes.addressof(args)
    if isinstance(step.what, CKernel):
        entry.function = next(addresses)
        return (args,)
    if not isinstance(step.what, NativeCall):
        raise StaleCode("a step of a loop's body is the host's")
    loaded = step.what.load()
    entry.function, entry.extra = loaded.function, loaded.extra
    return args, loaded


def stored_loop(code: bytes, layout: LoopLayout) -> LoopCall:
    """The loop of stored code, whose primitives are made again for the threads that it has."""
    with lane_threads(layout.lanes):
        return LoopCall(pickle.loads(code), layout)


def lane_threads(lanes: int) -> toolchain.threads_used:
    """Inside, primitives for a step of a loop are made for the threads of that step."""
    return toolchain.threads_used(1 if lanes > 1 else 0)


def lanes_of(length: int) -> int:
    """Among how many cores the steps of a loop that carries nothing are shared out."""
    lanes = max(1, min(toolchain.count_threads(), length))
    busy = length / (-(-length // lanes) * max(1, toolchain.count_threads()))
    return lanes if busy >= LEAST_BUSY else 1


def array_of(kind: Any, rows: Any) -> Any:
    """An array for C, never of size 0."""
    return (kind * max(1, len(rows)))(*rows)


def expand_loops(calls: Any, times: int = 1) -> Iterator[Any]:
    """(call, how often), with the calls of loops' bodies in place of loops."""
    for call in calls:
        if call.primitive.parts is None:
            yield call, times
            continue
        for part, each, _ in call.primitive.parts(*call.specs, **call.attrs):
            yield from expand_loops([part], times * each)


class PlannedLoop(NamedTuple):
    """Plan of a step that runs a loop: the plan of its body, and the layout of its values."""

    plan: ProgramPlan
    layout: LoopLayout


class LoopLowerer(Lowerer):
    """A loop whose body is all kernels and calls of native code."""

    label = "step loop"
    ops: tuple[str, ...] = ("scan",)
    is_copy_alone = False

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        body, shape = node.attrs["body"], node.attrs["shape"]
        if node.host is not None or shape.length == 0 or is_empty(node):
            return None
        if why_not(body, current_target()) is not None:
            return None
        outputs = {x.attrs["number"] for x in graph.users_of(node) if x.op == "pick"}
        return Claim([node], reads=tuple(node.inputs), plan=outputs)

    def explain(self, node: Node, dtypes: str) -> MissingKernel | None:
        return why_not(node.attrs["body"], current_target())

    def plan(self, lowering: Any, claim: Claim) -> bool:
        return LoopPlanner(self, lowering, claim).run()

    def emit(self, step: Any) -> EmittedStep:
        planned: PlannedLoop = step.plan
        args = [(step.scratch[0], 0), ("error", 0)]
        args += [(view.base, view.offset) for view in step.sources]
        args += [(buffer, 0) for buffer in step.results]
        with lane_threads(planned.layout.lanes):
            return EmittedStep(args, LoopCall(assemble(planned.plan), planned.layout))

    def describe(self, step: Any) -> StepDescription:
        plan, layout = step.plan
        inside = ", ".join(inner.lowerer.describe(inner).text.strip() for inner in plan.schedule)
        times = "while" if layout.length == ENDLESS else f"{layout.length} ×"
        return StepDescription(f"scan of {times} ({inside})", step.computes, "scan")

    def work_of(self, info: Any) -> StepWork:
        numbers: list[int] = [0, 0, 0, 0]
        products: list[Any] = []
        for call, times in expand_loops(source.call for source in info.sources):
            inside = super().work_of(info._replace(sources=[Node(call)]))
            products += inside.what[1:]
            numbers[2] += inside.numbers[2] * times
            numbers[3] += times * bool(inside.numbers[2])
            for flops in inside.numbers[3:]:
                numbers += (flops, times)
        numbers[:2] = info.bytes, info.overwritten_bytes
        return StepWork((self, *products), numbers)

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        """As of a kernel; each run of a product in the loop has the rate of its own size."""
        nbytes, overwritten, flops, calls, *of_products = numbers
        computing = machine.computing_s(flops, ()) + calls * machine.loop_ns / 1e9
        for product, one, times in zip(products, of_products[::2], of_products[1::2], strict=True):
            computing += times * machine.computing_s(0, ((product, one),))
        return machine.kernel_ns(max(machine.moving_s(nbytes, overwritten), computing))


@functools.lru_cache(MOST_BODIES)
def why_not(body: Body, target: Target) -> MissingKernel | None:
    """Why a body is left to the host: the first of its calls for which a target has no kernel."""
    for call, _ in body.calls:
        if call.is_collective:
            return MissingKernel(f"{call.name} in its body", "Take it out of the loop")
        if call.name == "custom":
            if (missing := why_not(call.attrs["body"], target)) is not None:
                return missing
        elif call.primitive is not DETACH:
            missing = missing_kernel(Node(call, [Node(input_call(0, spec)) for spec in call.specs]))
            if missing is not None or call.host is not None:
                why = missing or MissingKernel("a user's function computes it", "Use a kernel")
                return why._replace(reason=f"{call.name} in its body: {why.reason}")
    return None


def body_target(target: Target, consts: int, length: int) -> Target:
    """The target for the body of a loop: constants are the same from step to step."""
    return target.extension(
        ("body of a loop", consts, length > 1),
        stable_inputs=frozenset(range(consts)) if length > 1 else frozenset(),
        keeps_inputs=length > 1,
        free_outputs=frozenset(),
        written_leaves=frozenset(),
        lends_outputs=False,
    )


class LoopPlanner:
    """Plans the step of a loop: its body, and where values lie."""

    def __init__(self, lowerer: LoopLowerer, lowering: Any, claim: Claim) -> None:
        self.lowerer = lowerer
        self.lowering = lowering
        self.node: Node = claim.last
        attrs = self.node.attrs
        self.body: Any = attrs["body"]
        self.shape: Any = attrs["shape"]
        self.reverse: Any = attrs["reverse"]
        count, carries = len(self.body.outputs), self.shape.carries
        self.picks: list[Any] = sorted(claim.plan)
        self.output_numbers: list[int] = [*range(carries), *(i for i in self.picks if i >= carries)]
        self.scratch_bytes: int = 0
        self.args: dict[int, int] = {}  # by the number of a result, its argument
        assert all(i < count for i in self.picks)

    def run(self) -> bool:
        """Whether the loop is planned: not where a step of its body is the host's."""
        is_shared = self.is_shared()
        lanes = lanes_of(self.shape.length) if is_shared else 1
        plan = self.planned_body(lanes)
        if is_shared and plan.arena_bytes > MOST_LANE_BYTES:
            is_shared, lanes, plan = False, 1, self.planned_body(1) if lanes > 1 else plan
        if any(step.lowerer is current_target().host for step in plan.schedule):
            return False
        sources = [self.lowering.row_major(x) for x in self.node.inputs]
        results = {i: self.lowering.buffer(self.node.spec[i], node=self.node) for i in self.picks}
        first = 2 + len(sources)  # after scratch memory, the error flag and the operands
        self.args = {i: first + at for at, i in enumerate(self.picks)}
        layout = self.laid_out(plan)
        if is_shared:
            layout = layout._replace(lanes=lanes, lane_bytes=self.scratch_bytes)
        scratch = self.lowering.buffer(Spec((self.scratch_bytes * lanes,), uint8), node=self.node)
        buffers, planned = list(results.values()), PlannedLoop(plan, layout)
        self.lowering.add_step(
            self.lowerer, self.node, sources, buffers, planned, scratch=[scratch]
        )
        self.lowering.hand_out(self.node, [results.get(i) for i in range(len(self.node.spec))])
        return True

    def is_shared(self) -> bool:
        """Whether cores may take whole steps, and are worth starting."""
        work = self.shape.length * sum(out.size for call, _ in self.body.calls for out in call.outs)
        return not self.shape.carries and work > PARALLEL_WORK

    def planned_body(self, lanes: int) -> ProgramPlan:
        outputs = [self.body.outputs[i] for i in self.output_numbers]
        target = body_target(current_target(), self.shape.consts, self.shape.length)
        with having(state, compile_target=target, recompute=None), lane_threads(lanes):
            return ProgramPlan(rewritten(graph_of_body(self.body, outputs, self.node.origin)))

    def place(self, nbytes: int) -> int:
        """Scratch memory of so many bytes."""
        at, step = self.scratch_bytes, -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self.scratch_bytes += step
        return at

    def laid_out(self, plan: ProgramPlan) -> LoopLayout:
        self.place(plan.arena_bytes)  # where the body's own arena begins
        consts, carries = self.shape.consts, self.shape.carries
        homes = [buffer.at for buffer, _ in plan.outputs]  # by result, the output that has it
        carried = tuple(homes[:carries])
        outputs = [self.output(plan, number, homes) for number in range(len(plan.output_buffers))]
        inputs = [
            (i - consts, NONE, 0)
            if consts <= i < consts + carries
            else (NONE, 2 + i, 0 if i < consts else spec.nbytes)
            for i, spec in enumerate(self.body.inputs)
        ]
        copies = []
        for number, i in enumerate(self.output_numbers):
            if i in self.args and not self.is_home(outputs[homes[number]], i):
                nbytes = plan.outputs[number][1].nbytes
                carry = number if i < carries else NONE
                copies.append((homes[number], carry, self.args[i], nbytes))
        starts = tuple((2 + consts + j) for j in range(carries))
        return LoopLayout(
            self.shape.length,
            self.reverse,
            1,
            0,
            0 if self.shape.gated else NONE,
            tuple((c, starts[c] if c >= 0 else arg, step) for c, arg, step in inputs),
            tuple(outputs),
            carried,
            tuple(copies),
        )

    def is_home(self, output: Any, i: int) -> bool:
        """Whether a result of the loop lies where an output of the body is written."""
        stack, _, arg, _, _ = output
        return self.args[i] == (arg if i < self.shape.carries and stack == NONE else stack)

    def output(self, plan: ProgramPlan, number: int, homes: Any) -> tuple[int, int, int, int, int]:
        """Where an output of the body lies: in a stack, or in one or two separate places, of
        which the first may be that of a result of the loop."""
        carries = self.shape.carries
        nbytes = plan.output_buffers[number].spec.nbytes
        mine = [i for i, home in zip(self.output_numbers, homes, strict=True) if home == number]
        stacked = next((i for i in mine if i >= carries), None)
        if stacked is not None:
            return (self.args[stacked], nbytes, NONE, NONE, NONE)
        last = None if self.shape.gated else next((i for i in mine if i in self.args), None)
        arg, place = (NONE, self.place(nbytes)) if last is None else (self.args[last], NONE)
        spare = NONE if not mine or self.stays(plan, number, mine) else self.place(nbytes)
        return (NONE, 0, arg, place, spare)

    def stays(self, plan: ProgramPlan, number: int, mine: Any) -> bool:
        """Whether a carried value may be written over the one before."""
        source = plan.output_buffers[number].source
        return source is not None and len(mine) == 1 and source.at == self.shape.consts + mine[0]
