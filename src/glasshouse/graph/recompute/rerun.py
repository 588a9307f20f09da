"""Recomputation of whole modules, as by a checkpoint, in a graph of both passes.

The backward pass of a requested module reads copies of the values that the forward pass made inside
it, computed just before from values outside. They draw the same random numbers, since keys come
from outside, and update nothing, since updates are results. Collectives are not repeated: another
rank may have cut its recording where it cannot repeat them."""

from glasshouse.graph.graph import Graph, Node, is_backward, needed_nodes


def is_within(path: str, modules: tuple[str, ...]) -> bool:
    """Whether a path is that of one of the modules, or of a module in them."""
    return any(path == module or path.startswith(module + ".") for module in modules)


def rerun(graph: Graph, paths: tuple[str, ...]) -> Graph:
    """The graph whose backward pass computes these modules a second time."""
    return ModuleRerun(graph, paths).rewritten()


class ModuleRerun:
    """The rewriting of a graph in which modules run a second time.

    copies     by number in the old graph, the nodes of the new one
    second     the same for the second run
    order      the modules that have begun to run a second time, numbered from 1"""

    def __init__(self, graph: Graph, paths: tuple[str, ...]) -> None:
        self.old = graph
        self.new: Graph = Graph()
        self.paths = paths
        self.copies: dict[int, Node] = {}
        self.second: dict[int, Node] = {}
        self.order: dict[str, int] = {}
        self.homes: dict[str, str | None] = {}

    def home_of(self, module: str) -> str | None:
        """Which of the modules that run twice a path is in."""
        if module not in self.homes:
            homes = (path for path in self.paths if is_within(module, (path,)))
            self.homes[module] = next(homes, None)
        return self.homes[module]

    def is_inside(self, x: Node, home: str) -> bool:
        """Whether the forward pass of a module makes x."""
        is_made = x.op != "input" and not x.call.is_collective and not is_backward(x)
        return is_made and self.home_of(x.origin.module) == home

    def operand(self, x: Node, home: str | None) -> Node:
        """The node that a backward node of a module reads for x; if x is inside, run again."""
        if home is None or not self.is_inside(x, home):
            return self.copies[x.number]
        run = self.order.setdefault(home, len(self.order) + 1)
        missing, stack = {}, [x]
        while stack:
            y = stack.pop()
            if y.number not in self.second and y.number not in missing:
                missing[y.number] = y
                stack.extend(z for z in y.inputs if self.is_inside(z, home))
        for number in sorted(missing):
            y = missing[number]
            inputs = tuple(self.second.get(z.number) or self.copies[z.number] for z in y.inputs)
            self.new.origin = y.origin._replace(phase="recompute", rerun=run)
            self.second[number] = self.new.emit_call(y.call, inputs)
        return self.second[x.number]

    def rewritten(self) -> Graph:
        """The new graph."""
        for node in needed_nodes(self.old):
            home = self.home_of(node.origin.module) if is_backward(node) else None
            inputs = tuple([self.operand(x, home) for x in node.inputs])
            self.new.origin = node.origin._replace(rerun=node.origin.rerun + len(self.order))
            copy = self.new.emit_call(node.call, inputs)
            self.copies[node.number] = copy
        self.new.outputs = [self.copies[node.number] for node in self.old.outputs]
        return self.new
