"""Whole modules that compute again: what a checkpoint does, in a graph of both passes.

The backward pass of a module that was asked for ("Model.blocks.3!") reads copies of what the
forward pass made inside of it, computed just before from what stands outside. They draw the same
random numbers, for keys come from outside, and update nothing, for updates are results."""

from functools import cache

from glasshouse.dispatch import state
from glasshouse.graph.graph import Graph, Node, Origin, needed_nodes

BEHIND = ("backward", "recompute", "optimizer")  # the passes behind the forward pass


def is_backward(node: Node) -> bool:
    return node.origin.phase in BEHIND


def within(path: str, modules: tuple[str, ...]) -> bool:
    return any(path == m or path.startswith(m + ".") for m in modules)


def whole_modules() -> tuple[str, ...]:
    return tuple(m[:-1] for m in state.recompute if m.endswith("!"))


def rerun(graph: Graph, paths: tuple[str, ...]) -> Graph:
    """The graph whose backward pass computes these modules a second time."""
    new = Graph()
    made: dict[int, Node] = {}
    again: dict[int, Node] = {}
    begun: dict[str, int] = {}  # modules by the order in which they compute again

    @cache
    def home_of(module: str) -> str | None:
        return next((p for p in paths if within(module, (p,))), None)

    def is_inside(x: Node, home: str) -> bool:
        return x.op != "input" and not is_backward(x) and home_of(x.origin.module) == home

    def remade(x: Node, home: str | None) -> Node:
        """What a backward node of a module reads for x."""
        if home is None or not is_inside(x, home):
            return made[x.number]
        number, missing, stack = begun.setdefault(home, len(begun) + 1), {}, [x]
        while stack:
            y = stack.pop()
            if y.number not in again and y.number not in missing:
                missing[y.number] = y
                stack.extend(z for z in y.inputs if is_inside(z, home))
        for at in sorted(missing):
            y = missing[at]
            inputs = tuple(again.get(z.number) or made[z.number] for z in y.inputs)
            new.origin = Origin(y.origin.module, "recompute", y.origin.place, number)
            again[at] = new.emit(y.op, inputs, y.attrs, y.spec, y.host)
        return again[x.number]

    for node in needed_nodes(graph):
        home = home_of(node.origin.module) if is_backward(node) else None
        inputs = tuple([remade(x, home) for x in node.inputs])
        new.origin = node.origin._replace(again=node.origin.again + len(begun))
        made[node.number] = new.emit(node.op, inputs, node.attrs, node.spec, node.host)
    new.outputs = [made[node.number] for node in graph.outputs]
    return new
