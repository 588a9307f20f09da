"""The payloads of a captured Program's run by their sources, and where its results go."""

from typing import Any, Generic, NamedTuple, TypeVar

from glasshouse.base.shape import Spec
from glasshouse.compile.programs.binding import ResultKind, Source, SourceKind, Sources
from glasshouse.graph.node import Node, computed
from glasshouse.tensor import Tensor

# Every run compares these, and names of a module are read faster than those of an Enum.
S = TypeVar("S", Source, Source | None)
INPUT, GRADIENT, KEY, OUTPUT, COTANGENT, BACKWARD_OUTPUT, _ = SourceKind


class TensorUpdate(NamedTuple, Generic[S]):
    """The tensor (or gradient) of this number gets the payload of a source, or becomes None."""

    number: int
    source: S
    spec: Spec


def update_to(number: int, tensor: Tensor, sources: Sources) -> TensorUpdate[Source]:
    """The update that sets the tensor of this number to its current value."""
    return TensorUpdate(number, sources.of(tensor.payload), tensor.spec)


class GraphOutput(NamedTuple):
    """One output of the graph: its kind, and in `what` the number of an input or of an earlier
    output, a constant, or the source of a new tensor's value. `is_spent`: its backward pass was
    part of the graph."""

    kind: ResultKind
    what: Any
    spec: Any = None  # of a new tensor
    is_spent: bool = False


class RunPayloads:
    """The payloads of one run by their sources."""

    __slots__ = ("tensors", "handles", "keys", "outputs", "backend", "cotangents")

    def __init__(
        self, tensors: list[Node], handles: list[Tensor], keys: list[Tensor], backend: Any
    ) -> None:
        self.tensors: list[Node] = tensors
        self.handles: list[Tensor] = handles
        self.keys: list[Tensor] = keys
        self.backend: Any = backend
        self.outputs: list[Node] = []
        self.cotangents: list[Node] = []

    def fetched(self, sources: list[Source]) -> list[Node]:
        """The payloads of a Program's inputs."""
        tensors, get = self.tensors, self.get
        return [tensors[x.what] if x.kind is INPUT else get(x) for x in sources]

    def get(self, source: Source) -> Node:
        kind, what = source
        if kind is INPUT:
            return self.tensors[what]
        if kind is OUTPUT:
            return self.outputs[what]
        if kind is GRADIENT:
            return payload_on(self.backend, self.handles[what].grad)
        if kind is KEY:
            return self.keys[what].payload
        return self.cotangents[what] if kind is COTANGENT else what


def payload_on(backend: Any, tensor: Any) -> Node:
    """The computed payload of a tensor, which lives on the backend from now on."""
    if tensor.backend is not backend:
        tensor.payload, tensor.backend = backend.from_numpy(tensor.numpy()), backend
    if tensor.payload.value is None:
        backend.evaluate((tensor.payload,))
    return tensor.payload


def separate_payloads(handles: list[Tensor], backend: Any) -> None:
    """Compute tensors and their gradients, each with a separate payload."""
    payloads: dict[int, Node] = {}
    with_gradients = (t for h in handles for t in (h, h.__dict__.get("grad")) if t is not None)
    tensors = unique_objects(with_gradients)
    backend.evaluate(tuple(t.payload for t in tensors if t.backend is backend))
    for tensor in tensors:
        payload = payload_on(backend, tensor)
        if id(payload) in payloads:
            payload = tensor.payload = computed(payload.value, payload.spec, payload.owned)
        payloads[id(payload)] = payload


def unique_objects(values: Any) -> list[Any]:
    """The objects, each once, in order."""
    return list({id(x): x for x in values}.values())
