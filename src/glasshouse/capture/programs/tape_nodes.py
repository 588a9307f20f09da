"""The tape around a captured graph: the nodes for the graph, and walks along the tape."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.autograd.tape import Leaf, freed_error, sequence
from glasshouse.base.errors import GradError
from glasshouse.capture.programs.run_payloads import (
    BACKWARD_OUTPUT,
    RunPayloads,
    payload_on,
)
from glasshouse.compile.planning.plan import SMALL_BYTES
from glasshouse.dispatch import box, zeros
from glasshouse.graph.node import Node, computed
from glasshouse.tensor import Tensor

if TYPE_CHECKING:
    from glasshouse.autograd.tape import CallEntry
    from glasshouse.base.shape import Spec
    from glasshouse.capture.programs.backward_program import BackwardProgram

MOST_FILLED = 256  # small arrays that stay for the next pass


@lru_cache(MOST_FILLED)
def filled(spec: "Spec", value: float) -> Node:
    """A payload with one value everywhere, which nobody overwrites."""
    return computed(np.full(spec.shape, value, spec.dtype.np), spec, owned=False)


def cotangent_of(spec: "Spec", tensor: Tensor | None, backend: Any) -> Node:
    """The payload of a result's cotangent, computed; zeros where no gradient reached it. Small ones
    that are the same everywhere, as where a backward pass begins, need no run."""
    if spec.nbytes <= SMALL_BYTES:
        node = None if tensor is None else tensor.payload
        if node is None:
            return filled(spec, 0)
        if type(node) is Node and node.value is None and node.op == "full" and not node.scalar:
            return filled(spec, node.attrs["value"])
    return payload_on(backend, zeros(spec) if tensor is None else tensor)


class SpentNode:
    """The tape's node of a result whose backward was part of the graph."""

    grad_hooks: Any
    scope: Any

    def __init__(self, spec: "Spec") -> None:
        self.out_specs: list[Spec] = [spec]
        self.seq: int = next(sequence)
        self.freed: bool = True
        self.grad_hooks = self.scope = None
        self.parents: tuple[Any, ...] = ()

    def pull(self, cotangents: Any, create_graph: bool) -> Any:
        raise freed_error()

    def release(self) -> None:
        """Do nothing: nothing is saved."""


class ProgramNode:
    """The tape's node of a captured graph: pulls back by running a Program. Results whose
    tapes have nothing in common can be differentiated one after another."""

    remaining: set[int]

    freed: bool = False
    grad_hooks = scope = None

    def __init__(
        self,
        backward: "BackwardProgram",
        payloads: RunPayloads,
        scalars: list[bytes],
        places: list[Any],
    ) -> None:
        self.backward = backward
        self.payloads: RunPayloads = payloads
        self.scalars = scalars
        if not backward.reads_gradients:
            payloads.handles = []  # the tensors may be freed
        self.places: list[Any] = [places[update.number] for update in backward.gradients]
        self.parents: tuple[Any, ...] = tuple(self.places)
        self.out_specs: list[Spec] = backward.specs
        self.seq: int = next(sequence)
        self.remaining = set(backward.groups)  # of results that may still be differentiated
        self.pulled: set[int] = set()  # of the results in the present pass

    def pull(self, cotangents: list[Tensor], create_graph: bool) -> list[Any]:
        """[(parent, cotangent)] for the tensors that the graph read."""
        pairs = zip(self.backward.groups, cotangents, strict=True)
        self.pulled = {group for group, c in pairs if c is not None}
        if not self.pulled <= self.remaining:
            raise freed_error()
        if create_graph:
            what = "gradients of a captured function without create_graph"
            fix = "Call the function under gh.disable() for higher derivatives."
            raise GradError("backward", what, "create_graph=True", fix)
        backward, payloads = self.backward, self.payloads
        backend, program = backward.captured.backend, backward.program
        pairs = zip(self.out_specs, cotangents, strict=True)
        payloads.cotangents = [cotangent_of(spec, c, backend) for spec, c in pairs]
        values: list[Any] = []
        if program is not None:
            values = program.run(payloads.fetched(program.sources), self.scalars)
        pairs = zip(backward.reached, cotangents, strict=True)
        fed = set().union(*(numbers for numbers, c in pairs if c is not None))
        pulled = []
        for parent, (number, source, spec) in zip(self.places, backward.gradients, strict=True):
            if number in fed:
                is_computed = source.kind is BACKWARD_OUTPUT
                payload = values[source.what] if is_computed else payloads.get(source)
                pulled.append((parent, box(payload, spec, backend)))
        return pulled

    def release(self) -> None:
        self.remaining -= self.pulled
        if self.remaining:
            return
        self.freed = True
        self.places, self.parents = [], ()
        del self.payloads


def walk_tape(starts: "list[CallEntry | None]", ends: Any = ()) -> Iterator[Any]:
    """The nodes of a tape from some on, each once, without going beyond leaves and `ends`."""
    visited, stack = set(), list(starts)
    while stack:
        node = stack.pop()
        if node is not None and node not in visited:
            visited.add(node)
            yield node
            if node not in ends:
                stack.extend(p[0] for p in getattr(node, "parents", ()) if p is not None)


def is_open(x: Any, began: int) -> bool:
    """Whether a result's tape starts in the graph and is not differentiated yet."""
    node = x.tape_entry if isinstance(x, Tensor) else None
    leads = node is not None and not isinstance(node, Leaf) and node.seq > began
    return leads and not is_spent(node)


def is_spent(start: "CallEntry | None") -> bool:
    """Whether a tape leads to nodes that a backward pass has freed."""
    return any(not isinstance(node, Leaf) and node.freed for node in walk_tape([start]))
