"""From the steps of a Program back to the recorded calls, and the costs of each step."""

from math import prod
from typing import Any, NamedTuple

from glasshouse.compile.lowering.lowerer import StepDescription
from glasshouse.compile.steps.steps import FusedKernel, LoweredStep, PlannedBuffer
from glasshouse.compile.steps.work import COLLECTIVE, REFERENCE, StepKind, StepWork
from glasshouse.dispatch.call import PICK, Call
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.scope import NOWHERE, Origin
from glasshouse.graph.node import Node
from glasshouse.graph.record import Recording

NAME_OPS = 6  # primitives that the name of a kernel lists at most


class StoredValue(NamedTuple):
    """A value that a Program stores, from the step that lists it to the step `last`: `nbytes` from
    the byte `at` of its arena on, or the output of the number `at`. It is the value of a call, of
    the primitive `op`, which is the step's source number `source` (-1: of none that it lists), or a
    step's scratch memory."""

    name: str
    op: str
    spec: str
    origin: Origin
    at: int
    nbytes: int
    last: int
    source: int


class StepInfo(NamedTuple):
    """A step: `step_kind` is the lowerer that made it, or another kind, and `kind` its label; bytes
    are those that it moves; `saved_flops` those of its primitives' definitions that its algorithm
    saves. A step without sources only copies; `origin` is its reader's. `fallback` is the reason
    why one is left to the host for want of a kernel. Devices also have copies (`transfer`: HtoD,
    DtoH or DtoD) and collectives (`group`: its ranks). `rest` is the share of a kernel's elements
    that fill no vector of the processor. `arena` and `outputs`: values that lie in
    the arena and in outputs from this step on. `overwritten_bytes` are those of results that lie
    where operands lay."""

    name: str
    step_kind: StepKind
    sources: list[Node]  # the calls that it computes, without their operands
    origin: Origin
    read_bytes: int
    written_bytes: int
    number: int  # of its first equal kernel, whose C is shown
    transfer: str = ""
    group: tuple[int, ...] = ()
    saved_flops: int = 0
    fallback: str = ""
    rest: float = 0.0
    arena: tuple[StoredValue, ...] = ()
    outputs: tuple[StoredValue, ...] = ()
    overwritten_bytes: int = 0

    @property
    def kind(self) -> str:
        return self.step_kind.label

    @property
    def work(self) -> StepWork:
        """Work that takes time in the step."""
        return self.step_kind.work_of(self)

    @property
    def origins(self) -> list[Origin]:
        return [source.origin for source in self.sources] or [self.origin]

    @property
    def flops(self) -> int:
        """FLOPs of its primitives, each counted as often as the step computes it."""
        return sum(source.call.cost.flops for source in self.sources)

    @property
    def executed_flops(self) -> int:
        """FLOPs executed: fewer where its algorithm takes fewer than the definition."""
        return self.flops - self.saved_flops

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


def step_infos(program: Any) -> list[StepInfo]:
    """The steps of a Program, in order."""
    descriptions = [step.lowerer.describe(step) for step in program.schedule]
    homes = homes_of(program.schedule, descriptions)
    nodes_by_step: list[list[Node]] = [[] for _ in program.schedule]
    for stored in homes.values():
        for i, node in stored:
            nodes_by_step[i].append(node)
    first: dict[Any, int] = {}
    infos = []
    arena, outputs = (buffers_by_step(program.schedule, p) for p in ("arena", "output"))
    for i, step in enumerate(program.schedule):
        nodes = computed_in(nodes_by_step[i], homes)
        kernel, group = program.sources.get(i), descriptions[i].group
        name = name_of(nodes) or descriptions[i].name
        infos.append(
            StepInfo(
                f"{name} {group.name} {about_bytes(descriptions[i].given_bytes)}"
                if group
                else name,
                step.lowerer,
                [source_of(node) for node in nodes],
                origin_of(program.schedule, i, nodes_by_step),
                sum(bytes_of(views) for views in views_of(step).values()),
                sum(buffer.spec.nbytes for buffer in step.writes()),
                first.setdefault(kernel, i) if kernel else i,
                group=group.ranks if group else (),
                saved_flops=descriptions[i].saved_flops,
                fallback=descriptions[i].fallback,
                rest=descriptions[i].rest,
                arena=stored_values(program.schedule[i], nodes, arena[i]),
                outputs=stored_values(program.schedule[i], nodes, outputs[i]),
                overwritten_bytes=overwritten_bytes(step),
            )
        )
    return infos


def about_bytes(nbytes: int) -> str:
    """A number of bytes as part of a name: 4.2 MB."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def buffers_by_step(
    schedule: "list[FusedKernel | LoweredStep]", place: str
) -> list[list[tuple[Any, int]]]:
    """For each step, the buffers of a place that are used from it on, and their last step."""
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, step in enumerate(schedule):
        for buffer in (*step.writes(), *step.reads()):
            if buffer.place == place and buffer.host is None:
                first.setdefault(buffer, i)
                last[buffer] = i
    buffers: list[list[tuple[Any, int]]] = [[] for _ in schedule]
    for buffer, i in sorted(first.items(), key=lambda x: x[0].number):
        buffers[i].append((buffer, last[buffer]))
    return buffers


def stored_values(
    step: Any, nodes: list[Node], buffers: "list[tuple[PlannedBuffer, int]]"
) -> tuple[StoredValue, ...]:
    """Values that a step that computes these nodes stores in these buffers."""
    places = {node.number: i for i, node in enumerate(nodes)}
    values = []
    for buffer, last in buffers:
        node: Any = buffer.node
        spec = buffer.spec
        is_scratch = node is None or node.op not in primitives
        name = f"scratch of {step.lowerer.label}" if is_scratch else label_of(node)
        op, number = ("", -1) if is_scratch else (node.op, node.number)
        origin, source = origin_of_buffer(step, node), places.get(number, -1)
        size = buffer.at, spec.nbytes
        values.append(StoredValue(name, op, repr(spec), origin, *size, last, source))
    return tuple(values)


def origin_of_buffer(step: "FusedKernel | LoweredStep", node: Node | None) -> Origin:
    """Origin of a buffer's value; else of the step that writes it."""
    node = step.node if node is None else node
    return node.origin if node is not None and node.op in primitives else NOWHERE


def label_of(node: Node) -> str:
    """Name of a node's result: its primitive, or the foreign operator that the primitive stands
    for."""
    return node.attrs.get("operator", node.op)


def name_of(nodes: list[Node]) -> str:
    shown = [x for x in nodes if primitives[x.op].kind not in ("create", "movement")]
    names = list(dict.fromkeys(map(label_of, shown or nodes)))
    if len(names) > NAME_OPS:
        names[NAME_OPS - 1 :] = [f"{len(names) - NAME_OPS + 1} more"]
    return " + ".join(names)


def origin_of(
    schedule: "list[FusedKernel | LoweredStep]", i: int, nodes_by_step: list[list[Node]]
) -> Origin:
    """Origin of a step: its own nodes', else that of the first step that reads its results."""
    node = schedule[i].node
    if nodes_by_step[i]:
        return nodes_by_step[i][0].origin
    if node is not None and node.op in primitives:
        return node.origin
    writes = schedule[i].writes()
    for later in range(i + 1, len(schedule)):
        if writes & schedule[later].reads():
            for node in nodes_by_step[later]:
                return node.origin
    return Origin()


def homes_of(
    schedule: "list[FusedKernel | LoweredStep]", descriptions: list[StepDescription]
) -> dict[int, list[tuple[int, Node]]]:
    """By node: the steps that store it; a step that only copies into place stores nothing."""
    homes: dict[int, list[tuple[int, Node]]] = {}
    opaque = {step.node.number for step in schedule if step.node is not None}
    for i, (step, description) in enumerate(zip(schedule, descriptions, strict=True)):
        for node in description.nodes:
            if node.op in primitives and (step.node is not None or node.number not in opaque):
                homes.setdefault(node.number, []).append((i, node))
    return homes


def computed_in(nodes: list[Node], homes: dict[int, list[tuple[Any, ...]]]) -> list[Node]:
    """Nodes that a step computes: its stored ones, and their operands that are stored nowhere."""
    computed, stack = {node.number: node for node in nodes}, list(nodes)
    while stack:
        for x in stack.pop().inputs:
            if x.number not in computed and x.number not in homes and x.op in primitives:
                computed[x.number] = x
                stack.append(x)
    return [computed[number] for number in sorted(computed)]


def source_of(node: Node) -> Node:
    """The node without its operands."""
    return Node(node.call, (), node.origin)


def views_of(step: "FusedKernel | LoweredStep") -> dict[Any, set[Any]]:
    """The views that a step reads, by their buffer."""
    views: dict[Any, set[Any]] = {}
    for view in step.views():
        if view.base is not None:
            views.setdefault(view.base, set()).add(view)
    return views


def overwritten_bytes(step: "FusedKernel | LoweredStep") -> int:
    """Bytes of the results of a step that lie where its operands lay."""
    places = {place_of(buffer) for buffer in views_of(step)}
    return sum(x.spec.nbytes for x in step.writes() if place_of(x) in places)


def place_of(buffer: PlannedBuffer) -> tuple[str, int]:
    """Place of a buffer: of an output that replaces an input, the input's."""
    holder = buffer.host or buffer
    return ("input", holder.source.at) if holder.source is not None else (holder.place, holder.at)


def bytes_of(views: set[Any]) -> int:
    """Bytes of a buffer that views of it show; each element once."""
    base = next(iter(views)).base
    shown = sum(prod(n for n, s in zip(v.shape, v.strides, strict=True) if s) for v in views)
    return min(base.spec.nbytes, shown * base.dtype.itemsize)


def calls_of(recording: Recording) -> list[Node]:
    """The nodes of a recording without their operands; their origins have their places."""
    return [
        Node(node.call, (), node.origin._replace(place=i, function=node.function))
        for i, node in enumerate(recording.nodes)
    ]


def counts_of(recording: Recording) -> list[tuple[Call, Origin]]:
    """Count each call by its origin, for watchers of runs that do not see the calls."""
    nodes = (node for node in recording.nodes if node.call.primitive is not PICK)
    return [(node.call, node.origin) for node in nodes]


class ReferenceSteps:
    """The steps of a recording that the cards' references compute, one by one: no arena, no C."""

    schedule: tuple[()] = ()
    sources: dict[Any, Any] = {}
    lines: dict[Any, Any] = {}
    arena_bytes: int = 0

    def __init__(self, recording: Recording) -> None:
        self.calls: list[Node] = calls_of(recording)

    def step_infos(self) -> list[StepInfo]:
        """As those of a Program."""
        return [info_of(source, i) for i, source in enumerate(self.calls)]


def info_of(source: Node, number: int) -> StepInfo:
    """The step that computes one call."""
    call = source.call
    if call.primitive is PICK:
        return StepInfo("pick", REFERENCE, [], NOWHERE, 0, 0, number)
    read_bytes, written_bytes = (
        sum(spec.nbytes for spec in specs) for specs in (call.specs, call.outs)
    )
    if call.is_collective and "group" in call.attrs:
        ranks, where = call.attrs["group"].ranks, source.origin
        return StepInfo(
            call.name, COLLECTIVE, [source], where, read_bytes, written_bytes, number, group=ranks
        )
    return StepInfo(
        call.name, REFERENCE, [source], source.origin, read_bytes, written_bytes, number
    )
