"""Code: what a Program needs to run, without the graph that it was made from.

A graph and all that is worked out from it are hundreds of thousands of objects: too many for the
garbage collector to look through while a model trains. Code is small, and can be stored."""

import pickle
from typing import Any, NamedTuple

from glasshouse import memory
from glasshouse.base import Spec
from glasshouse.compile.emit_c import emit
from glasshouse.compile.missing_kernels import MissingKernel, is_empty, why_host
from glasshouse.compile.plan import Plan, tag_of
from glasshouse.compile.source_map import StepInfo
from glasshouse.compile.steps import Kernel, Opaque
from glasshouse.compile.view import View
from glasshouse.graph.graph import Node

ARENA, INPUT, OUTPUT, SCALAR, ERROR = range(5)  # what an argument means, as in native/runner.c
KERNEL, ONEDNN, HOST = range(3)  # what a step is, as in native/runner.c


class Place(NamedTuple):
    """A view of a buffer, and where that lies: `kind` is "arena", "input" or "output"."""

    kind: str
    at: int
    buffer: Spec
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class HostCall(NamedTuple):
    """A step that a user's function computes, or, for want of a kernel, a card's reference."""

    node: Node
    sources: list[Place]
    results: list[Place]
    missing: MissingKernel | None


class Made(NamedTuple):
    """An array that a run hands out; `source` is the input whose memory it takes if donated."""

    spec: Spec
    tag: memory.Tag
    source: int | None


class Step(NamedTuple):
    """A step for the runner: coded `args`; `what` is C, a `onednn.Call` or a `HostCall`."""

    kind: int
    args: list[int]
    what: Any


class Code(NamedTuple):
    """Steps in order; `outputs` are (number in `made`, shape); `infos` is told on demand."""

    steps: list[Step]
    made: list[Made]
    outputs: list[tuple[int, tuple[int, ...]]]
    owns: list[bool]
    arena_bytes: int
    infos: bytes | list[StepInfo]

    @property
    def is_portable(self) -> bool:
        """Whether another process can run it: no function of the user's is part of it."""
        hosts = [step.what.node.host for step in self.steps if step.kind == HOST]
        return isinstance(self.infos, bytes) and not any(hosts)


def assemble(plan: Plan) -> Code:
    """The code of a plan; the C of its kernels is emitted."""
    steps, sources = [], {}
    for i, step in enumerate(plan.schedule):
        if isinstance(step, Kernel) or step.kind in ("template", "winograd"):
            source = emit(step) if isinstance(step, Kernel) else step.plan
            sources[i] = source.text
            steps.append(Step(KERNEL, [coded(arg) for arg in source.args], source.text))
        elif step.kind == "host":
            steps.append(Step(HOST, [], host_call(step)))
        else:
            args = [coded((view.base, view.offset)) for view in step.plan.views]
            steps.append(Step(ONEDNN, args, step.plan.call))
    plan.sources = sources
    made = [Made(b.spec, tag_of(b), b.source.at if b.source else None) for b in plan.made]
    outputs = [(buffer.at, spec.shape) for buffer, spec in plan.outputs]
    return Code(steps, made, outputs, plan.owns, plan.arena_bytes, packed(plan.step_infos()))


def coded(arg) -> int:
    """An argument of a kernel as the runner reads it."""
    what, number = arg
    if what == "scalar":
        return SCALAR << 56 | number
    if what == "error":
        return ERROR << 56
    nbytes = number * what.dtype.itemsize
    kind = {"arena": ARENA, "input": INPUT, "output": OUTPUT}[what.place]
    return (kind << 56 | what.at) + (nbytes if what.place == "arena" else nbytes << 16)


def host_call(step: Opaque) -> HostCall:
    node = step.node
    alone = Node(node.op, (), node.attrs, node.spec, node.number, node.host, node.origin)
    sources, results = map(place_of, step.sources), (place_of(b.view()) for b in step.results)
    missing = None if node.host is not None or is_empty(node) else why_host(node)
    return HostCall(alone, list(sources), list(results), missing)


def place_of(view: View) -> Place:
    buffer = view.base
    return Place(buffer.place, buffer.at, buffer.spec, view.offset, view.shape, view.strides)


def packed(infos: list[StepInfo]) -> bytes | list[StepInfo]:
    """What is told of the steps, pickled if it can be: bytes cost the garbage collector nothing."""
    try:
        return pickle.dumps(infos)
    except (pickle.PicklingError, TypeError, AttributeError):
        return infos
