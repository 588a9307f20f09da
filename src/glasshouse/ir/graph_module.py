"""A module whose forward is a graph: printable, changeable Python."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError
from glasshouse.dispatch import Value, autocast
from glasshouse.ir.graph import IRGraph
from glasshouse.ir.node import OPS, IRNode, map_nodes
from glasshouse.nn.module import Module
from glasshouse.transforms.checkpoint import checkpoint


class GraphModule(Module):
    """Runs `graph` with the parameters and modules of `root` (a Module, or a dict by path), and
    with `constants`, tensors by name that are not saved.

    `code` is its Python; after a change of `graph`, `recompile()` makes it new. It is pickled as
    its nodes; functions in it must be importable by name.

    Raises: OptionError if the graph names something that root lacks
    Example:
        >>> from glasshouse.ir.graph import IRGraph
        >>> graph = IRGraph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_method("sum", (x,))
        >>> _ = graph.output(y)
        >>> GraphModule(Module(), graph)(gh.ones(3)).item()
        3.0
    """

    def __init__(self, root: Any, graph: IRGraph, constants: Any = ()) -> None:
        super().__init__()
        if isinstance(root, Module):
            for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
                self.__dict__[kind].update(root.__dict__[kind])
            self.__dict__["training"] = root.training
        else:
            for path, value in root.items():
                setattr(self, path, value)
        for name, value in dict(constants).items():
            self.register_buffer(name, value, persistent=False)
        self.__dict__["graph"] = graph
        self.recompile()
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                self.member(node.target)

    def member(self, path: str) -> Any:
        """The parameter, buffer, constant or module at a path.

        Raises: OptionError.
        """
        member: Any = self
        for part in path.split("."):
            member = getattr(member, part, None)
            if member is None:
                fix = "Register it before the graph names it."
                raise OptionError("GraphModule", f"a root with {path!r}", "one without", fix)
        return member

    def recompile(self) -> "GraphModule":
        """Make `code` and `forward` of the graph as it is now."""
        self.graph.lint()
        source = self.graph.python_code()
        names = {k: checkpoint if x is None else x for k, x in source.names.items()}
        exec(compile(source.text, "<graph module>", "exec"), names)
        self.__dict__["code"] = source.text
        self.__dict__["run"] = names["forward"]
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[Any, Any], list[Any]]]:
        fields = {k: v for k, v in self.__dict__.items() if k not in ("graph", "run", "code")}
        return rebuild, (fields, [encode(node) for node in self.graph.nodes])


def encode(node: IRNode) -> tuple[Any, ...]:
    """A node as plain data: operands that are nodes become their names."""
    operands = (map_nodes(x, lambda n: Named(n.name)) for x in (node.args, node.kwargs))
    return node.name, node.op, node.target, *operands, node.meta


class Named(str):
    """The name of a node, in place of the node."""


def rebuild(fields: dict[Any, Any], rows: list[tuple[Any, ...]]) -> GraphModule:
    graph, nodes = IRGraph(), dict[str, IRNode]()
    for name, op, target, args, kwargs, meta in rows:
        args, kwargs = (map_nodes(x, lambda at: nodes[str(at)], Named) for x in (args, kwargs))
        nodes[name] = graph.create_node(op, target, args, kwargs, name)
        nodes[name].meta = meta
    module = GraphModule.__new__(GraphModule)
    module.__dict__.update(fields, graph=graph)
    return module.recompile()


class Interpreter:
    """Runs a GraphModule node by node. Subclasses override `run_node`, or one kind of node."""

    module: GraphModule
    graph: Any

    def __init__(self, module: GraphModule) -> None:
        self.module, self.graph = module, module.graph
        self.env: dict[IRNode, Any] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the graph for these arguments."""
        self.arguments: Iterator[Any] = iter(args)
        self.named: dict[str, Any] = kwargs
        self.env = {}
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
        return None

    def run_node(self, node: IRNode) -> Any:
        args, kwargs = (map_nodes(x, self.env.__getitem__) for x in (node.args, node.kwargs))
        with ExitStack() as stack:
            for name, *options in node.meta.get("within", ()):
                stack.enter_context({"no_grad": no_grad, "autocast": autocast}[name](*options))
            return getattr(self, node.op)(node.target, args, kwargs)

    def placeholder(self, target: str, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        if target[0] == "*":
            rest = tuple(self.arguments)
            return self.named | dict(*rest) if target[1] == "*" else rest
        return self.named.pop(target) if target in self.named else next(self.arguments, *args)

    def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        return self.module.member(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: tuple[Value, ...], kwargs: dict[Any, Any]) -> Any:
        return self.module.member(target)(*args, **kwargs)

    def output(
        self, target: str, args: tuple[tuple[Value, ...] | Value, ...], kwargs: dict[Any, Any]
    ) -> Any:
        return args[0]


def remade(op: str) -> Any:
    """The method of a Transformer that makes the same node in the new graph."""

    def method(self, target, args, kwargs):
        return self.new.create_node(op, target, args, kwargs)

    return method


class Transformer(Interpreter):
    """Makes a new graph, node by node; a method returns the new node for an old one."""

    placeholder: Callable[..., Any]
    get_attr: Callable[..., Any]
    call_function: Callable[..., Any]
    call_method: Callable[..., Any]
    call_module: Callable[..., Any]
    output: Callable[..., Any]

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new: IRGraph = IRGraph()

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        self.run()
        return GraphModule(self.module, self.new)

    def run_node(self, node: IRNode) -> IRNode:
        result = super().run_node(node)
        if isinstance(result, IRNode) and not result.meta:
            result.meta = dict(node.meta)
        return result

    placeholder, get_attr, call_function, call_method, call_module, output = map(remade, OPS)
