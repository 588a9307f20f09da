"""Places of the inputs and results of a captured Program."""

from enum import Enum
from typing import Any, NamedTuple

from glasshouse.graph.node import Node, computed
from glasshouse.tensor import Tensor


class PlaceKind(Enum):
    """Kinds of owners of payloads; the number of a PayloadPlace counts those of its kind."""

    TENSOR = "a tensor that the graph owns or is given"
    GRADIENT = "the gradient of such a tensor"
    KEY = "a random key that the run draws"
    OUTPUT = "an output of the forward Program"
    COTANGENT = "a gradient of a result that the backward pass is given"
    BACKWARD_OUTPUT = "an output of the backward Program"
    CONSTANT = "a payload that is the same in each run"


# Every run compares these, and names of a module are read faster than those of an Enum.
_: list[PlaceKind]
TENSOR, GRADIENT, KEY, OUTPUT, COTANGENT, *_ = PlaceKind


class PayloadPlace(NamedTuple):
    """One place by kind and number; of a constant the payload itself."""

    kind: PlaceKind
    number: int = -1
    payload: Node | None = None


class TensorUpdate(NamedTuple):
    """The tensor (or gradient) of this number gets the payload at a place, or None."""

    number: int
    place: PayloadPlace | None
    spec: object


class OutputKind(Enum):
    """Kinds of outputs of the graph."""

    VALUE = "no tensor: the same value each time"
    TENSOR = "a tensor that the graph owns or is given"
    GRADIENT = "the gradient of such a tensor"
    NEW = "a new tensor of what is at a place"
    SAME = "the same tensor as an output before it"


class GraphOutput(NamedTuple):
    """One output of the graph. `is_spent`: its backward pass was part of the graph."""

    kind: OutputKind
    number: int = -1
    value: object = None
    place: PayloadPlace | None = None
    spec: object = None
    is_spent: bool = False


class RunPayloads:
    """The payloads of one run by place."""

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

    def get(self, place: PayloadPlace) -> Node:
        kind, number, payload = place
        if kind is TENSOR:
            return self.tensors[number]
        if kind is OUTPUT:
            return self.outputs[number]
        if kind is GRADIENT:
            gradient = self.handles[number].grad
            bring_to_backend(gradient, self.backend)
            return gradient.payload
        if kind is KEY:
            return self.keys[number].payload
        return self.cotangents[number] if kind is COTANGENT else payload


def bring_to_backend(tensor: Tensor, backend: Any) -> None:
    """Move a tensor to the backend, and compute it."""
    if tensor.backend is not backend:
        tensor.payload, tensor.backend = backend.from_numpy(tensor.numpy()), backend
    if tensor.payload.value is None:
        backend.evaluate((tensor.payload,))


def separate_payloads(handles: list[Tensor], backend: Any) -> None:
    """Compute tensors and their gradients, each with a separate payload."""
    payloads: dict[int, Node] = {}
    with_gradients = (t for h in handles for t in (h, h.__dict__.get("grad")) if t is not None)
    tensors = unique_objects(with_gradients)
    backend.evaluate(tuple(t.payload for t in tensors if t.backend is backend))
    for tensor in tensors:
        bring_to_backend(tensor, backend)
        payload = tensor.payload
        if id(payload) in payloads:
            payload = tensor.payload = computed(payload.value, payload.spec, payload.owned)
        payloads[id(payload)] = payload


def unique_objects(values: Any) -> list[Any]:
    """The objects, each once, in order."""
    return list({id(x): x for x in values}.values())
