"""Factors of channels multiplied into the weights of a convolution.

In inference a batch norm is a factor and a term for each channel, made of parameters alone:
conv(x, w) · s + t is conv(x, w · s) + t. The weights are multiplied once, since results of
parameters stay from run to run, and the term is the step's bias. Sums are rounded otherwise: by
about 1e-6 of the largest term in float32, and by a weight's rounding in narrower floats."""

from typing import NamedTuple

from glasshouse.base import DType, float32
from glasshouse.compile.lowering.lowerer import GraphUsers
from glasshouse.compile.lowering.target import current_target
from glasshouse.graph.graph import Graph, Node, transform
from glasshouse.targets.cpu.onednn import library as onednn

STABLE = {"reshape", "expand", "permute", "cast", "add", "sub", "mul", "div", "sqrt", "neg"}


class ConvolutionChain(NamedTuple):
    """A convolution, and what is done to its result alone: (operation, vector of the channels); the
    dtype after it."""

    conv: Node
    terms: list[tuple[str, Node]]
    dtype: DType


def factors_into_weights(graph: Graph) -> Graph:
    """The graph, in which weights have the factors of channels that come after a convolution."""
    chains = chains_of(graph, current_target().stable_inputs)
    if not chains:
        return graph
    new_nodes: dict[int, Node] = {}

    def rule(new: Graph, node: Node, inputs: tuple[Node, ...]) -> Node:
        chain = chains.get(node.number)
        result = (
            new.emit_call(node.call, inputs) if chain is None else scaled(new, chain, new_nodes)
        )
        new_nodes[node.number] = result
        return result

    folded = transform(graph, rule)
    folded.drop_unneeded()
    return folded


def chains_of(graph: Graph, stable_inputs: frozenset[int]) -> dict[int, ConvolutionChain]:
    """Chains with a factor, by the number of their last node."""
    chains: dict[int, ConvolutionChain] = {}
    if not stable_inputs:
        return chains
    users, stable = GraphUsers(graph), stable_nodes(graph, stable_inputs)
    for node in graph.nodes:
        if node.op != "conv" or node.host is not None or node.dtype.name not in onednn.DTYPES:
            continue
        last = current = node
        terms: list[tuple[str, Node]] = []
        while len(users.users_of(current)) == 1 and not users.is_output(current):
            (user,) = users.users_of(current)
            if user.op != "cast" or user.dtype is not float32:
                vector = vector_of(user, current)
                if vector is None or vector.number not in stable:
                    break
                terms.append((user.op, vector))
                last = user
            current = user
        if node.inputs[1].number in stable and any(op == "mul" for op, _ in terms):
            chains[last.number] = ConvolutionChain(node, terms, last.dtype)
    return chains


def stable_nodes(graph: Graph, stable_inputs: frozenset[int]) -> set[int]:
    """Numbers of the nodes that are made of inputs which do not change."""
    stable: set[int] = set()
    for node in graph.nodes:
        if node.op == "input":
            is_stable = node.attrs["number"] in stable_inputs
        else:
            is_stable = node.op == "full" or (
                node.op in STABLE and all(x.number in stable for x in node.inputs)
            )
        if is_stable and node.host is None:
            stable.add(node.number)
    return stable


def vector_of(user: Node, value: Node) -> Node | None:
    """A number for each channel that `user` adds to, takes from or multiplies with a value."""
    if user.op not in ("add", "sub", "mul") or user.host is not None:
        return None
    first, second = user.inputs
    other = second if first is value else first
    if other.op != "expand" or (user.op == "sub" and first is not value):
        return None
    (small,) = other.inputs
    channels = value.shape[1]
    rest = small.shape[:1] + small.shape[2:]
    fits = len(small.shape) == len(value.shape) and small.shape[1] == channels
    return small if fits and {*rest} == {1} and small.dtype.is_floating else None


def scaled(graph: Graph, chain: ConvolutionChain, new_nodes: dict[int, Node]) -> Node:
    """The result of a chain as a convolution with other weights, plus a term."""
    conv, before = chain.conv, graph.origin
    x, w = (new_nodes[operand.number] for operand in conv.inputs)
    ones, channels = (1,) * (conv.spec.ndim - 2), conv.shape[1]
    factor = term = None
    for op, vector in chain.terms:
        graph.origin = vector.origin
        flat = graph.emit("reshape", (new_nodes[vector.number],), {"shape": (channels,)})
        v = wide(graph, flat)
        if op == "mul":
            factor = v if factor is None else graph.emit("mul", (factor, v))
            term = None if term is None else graph.emit("mul", (term, v))
        elif term is None:
            term = graph.emit("neg", (v,)) if op == "sub" else v
        else:
            term = graph.emit(op, (term, v))
    assert factor is not None
    graph.origin = conv.origin
    rows = graph.emit("reshape", (factor,), {"shape": (channels, 1, *ones)})
    spread = graph.emit("expand", (rows,), {"shape": w.shape})
    weights = graph.emit("mul", (wide(graph, w), spread))
    if w.dtype is not float32:
        weights = graph.emit("cast", (weights,), {"dtype": w.dtype})
    y = wide(graph, graph.emit("conv", (x, weights), conv.attrs))
    graph.origin = before
    if term is not None:
        rows = graph.emit("reshape", (term,), {"shape": (1, channels, *ones)})
        y = graph.emit("add", (y, graph.emit("expand", (rows,), {"shape": y.shape})))
    return y if chain.dtype is float32 else graph.emit("cast", (y,), {"dtype": chain.dtype})


def wide(graph: Graph, x: Node) -> Node:
    return x if x.dtype is float32 else graph.emit("cast", (x,), {"dtype": float32})
