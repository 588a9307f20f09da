"""Cards that are composed of others: a graph has the others in their place."""

import warnings
from collections.abc import Callable
from typing import Any

from glasshouse.base import BackendError, from_numpy_dtype
from glasshouse.base.flags import flags, having
from glasshouse.dispatch import Level, Primitive, primitives, state
from glasshouse.graph.graph import Graph, Node

faults: dict[str, str] = {}  # by card: what is wrong with its composition, which is not used


class CompositionLevel(Level):
    """Adds the cards that a composition calls to a graph; its values wrap nodes."""

    def __init__(self, card: Primitive | None, graph: Graph, make: Callable[..., Any]) -> None:
        self.card = card
        self.graph = graph
        self.make = make

    def process(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Any:
        if primitive is self.card:
            raise self.error("other cards", "a call of the card itself")
        if primitive.name == "constant" and attrs["value"].ndim:
            raise self.error("operands and Python numbers alone", "an array", "Make it an operand.")
        if primitive.name == "constant":
            primitive, attrs = primitives["full"], as_full(attrs["value"])
        if not args:
            spec = primitive.infer(**attrs)
            return self.wrap(self.graph.emit(primitive.name, (), attrs, spec))
        if any(x.mode is not self for x in args):
            raise self.error("its own operands", "a tensor from outside", "Make it an operand.")
        node = self.make(self.graph, primitive.name, *(x.payload for x in args), **attrs)
        if primitive.num_outputs == 1:
            return self.wrap(node)
        picks = ("pick", (node,))
        return tuple(
            self.wrap(self.graph.emit(*picks, {"number": i}, part))
            for i, part in enumerate(node.spec)
        )

    def error(
        self, expected: str, got: str, fix: str = "Change its `composition`."
    ) -> BackendError:
        name = "a function" if self.card is None else self.card.name
        return BackendError(f"the composition of {name}", expected, got, fix)


def as_full(value: Any) -> dict[Any, Any]:
    return {"shape": (), "value": value.item(), "dtype": from_numpy_dtype(value.dtype)}


def composed_node(
    card: Primitive, graph: Graph, node: Node, inputs: Any, make: Callable[..., Any]
) -> Node | None:
    """The node of other cards that takes the place of a card's; `make(graph, op, *inputs, **attrs)`
    adds one. None, with a warning the first time, for a composition that is at fault.

    Raises: BackendError for such a one, where `strict` is set
    """
    if card.name in faults:
        return None
    try:
        return compose_node(card, graph, node, inputs, make)
    except BackendError as error:
        if flags.strict:
            raise
        faults[card.name] = str(error)
        warnings.warn(f"glasshouse: {error} It is computed without.", stacklevel=2)
        return None


def compose_node(
    card: Primitive, graph: Graph, node: Node, inputs: Any, make: Callable[..., Any]
) -> Node:
    """The node, in any case.

    Raises: BackendError for a composition that fails, or gives another spec than the card infers
    """
    level = CompositionLevel(card, graph, make)
    assert card.composition is not None
    try:
        result = run_level(level, card.composition, inputs, node.attrs)
    except BackendError:
        raise
    except Exception as error:
        raise level.error("a function of the operands", repr(error)) from error
    if getattr(result, "mode", None) is not level or result.spec != node.spec:
        got = getattr(result, "spec", type(result).__name__)
        raise level.error(f"{node.spec}, as the card infers", got)
    return result.payload


def run_level(
    level: CompositionLevel, function: Callable[..., Any], inputs: Any, attrs: Any
) -> Any:
    """The result of a function of values, whose calls are added to the level's graph."""
    with having(state, modes=(level,), records=False):
        return function(*map(level.wrap, inputs), **attrs)


def node_of(function: Callable[..., Any], graph: Graph, inputs: Any, make: Any) -> Node:
    """The node of a function's result for operands in a graph."""
    return run_level(CompositionLevel(None, graph, make), function, inputs, {}).payload
