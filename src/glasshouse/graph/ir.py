"""The graph of a program: what tracing and capture produce, what people read and rewrite.

A node is a placeholder (an argument), get_attr (a parameter, buffer or constant of the module),
call_function, call_method, call_module, or output. Its `args` and `kwargs` may nest other nodes in
lists, tuples, dicts and slices. A graph prints as the Python that computes it (`python_code`). The
compiler has a graph of its own (`graph/graph.py`), of primitives only, to which this one is lowered
by running it."""

import builtins
import keyword
import operator
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from glasshouse.base import OptionError, having, suggest
from glasshouse.dispatch.primitive import Primitive, primitives

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
SHORT = {"F": "glasshouse.nn.functional", "gh": "glasshouse"}  # modules, as people call them
PURE = ("get_attr", "call_function", "call_module")  # may be dropped when nobody uses them


def map_nodes(x: Any, fn: Callable) -> Any:
    """`x` with `fn` applied to each Node in it, inside lists, tuples, dicts and slices."""
    if isinstance(x, Node):
        return fn(x)
    if isinstance(x, (list, tuple)):
        items = [map_nodes(item, fn) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: map_nodes(v, fn) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(*(map_nodes(v, fn) for v in (x.start, x.stop, x.step)))
    return x


class Node:
    """One step: `op`, `target` (a name, function or path), operands; `users` are who reads it.

    `meta` is for what is known of it: "spec", "module" (path), "line" (file:line), "checkpoint"."""

    def __init__(self, graph: "Graph", name: str, op: str, target, args: tuple, kwargs: dict):
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple = ()
        self._kwargs: dict = {}
        self.set_operands(args, kwargs)

    @property
    def args(self) -> tuple:
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self.set_operands(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict) -> None:
        self.set_operands(self._args, dict(kwargs))

    def set_operands(self, args: tuple, kwargs: dict) -> None:
        """Replace all operands."""
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def all_input_nodes(self) -> list["Node"]:
        """The nodes among the operands, each once."""
        found: dict[Node, None] = {}
        map_nodes((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    def replace_all_uses_with(self, other: "Node") -> list["Node"]:
        """Have every user read `other` instead; returns who they were."""
        users = [user for user in self.users if user is not other]
        for user in users:
            user.replace_input_with(self, other)
        return users

    def replace_input_with(self, old: "Node", new: "Node") -> None:
        """Read `new` wherever `old` was read."""

        def swap(node):
            return new if node is old else node

        self.set_operands(map_nodes(self._args, swap), map_nodes(self._kwargs, swap))

    def __repr__(self):
        return self.name

    def format_node(self) -> str:
        """One line: %name = op[target](args)."""
        words = [repr(a) for a in self._args] + [f"{k}={v!r}" for k, v in self._kwargs.items()]
        return f"%{self.name} = {self.op}[{target_name(self.target)}]({', '.join(words)})"


def target_name(target) -> str:
    if isinstance(target, Primitive):
        return target.name
    return target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))


class Graph:
    """Nodes in the order in which they run."""

    def __init__(self):
        self.nodes: list[Node] = []
        self.names: set[str] = set()
        self.place: int | None = None  # where new nodes go; None: at the end

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    # -- making nodes --------------------------------------------------------------------------

    def create_node(self, op: str, target, args=(), kwargs=None, name: str | None = None) -> Node:
        """A new node, where `inserting_before` says or last. Raises: OptionError for the op."""
        if op not in OPS:
            raise OptionError("create_node", f"one of {', '.join(OPS)}", repr(op), suggest(op, OPS))
        wanted = name or target_name(target)
        node = Node(self, self.free_name(wanted), op, target, tuple(args), kwargs or {})
        if self.place is None:
            self.nodes.append(node)
        else:
            self.nodes.insert(self.place, node)
            self.place += 1
        return node

    def free_name(self, wanted: str) -> str:
        stem = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem) or hasattr(builtins, stem):
            stem = f"{stem}_" if not stem[0].isdigit() else f"_{stem}"
        name, count = stem, 0
        while name in self.names or name == "self":
            count += 1
            name = f"{stem}_{count}"
        self.names.add(name)
        return name

    def placeholder(self, name: str, *default) -> Node:
        return self.create_node("placeholder", name, default, name=name)

    def get_attr(self, path: str) -> Node:
        return self.create_node("get_attr", path)

    def call_function(self, fn: Callable, args=(), kwargs=None) -> Node:
        return self.create_node("call_function", fn, args, kwargs)

    def call_method(self, name: str, args=(), kwargs=None) -> Node:
        return self.create_node("call_method", name, args, kwargs)

    def call_module(self, path: str, args=(), kwargs=None) -> Node:
        return self.create_node("call_module", path, args, kwargs)

    def output(self, result) -> Node:
        return self.create_node("output", "output", (result,))

    def inserting_before(self, node: Node) -> having:
        """Context: new nodes come before `node`."""
        return having(self, place=self.nodes.index(node))

    def inserting_after(self, node: Node) -> having:
        """Context: new nodes come after `node`."""
        return having(self, place=self.nodes.index(node) + 1)

    def erase_node(self, node: Node) -> None:
        """Take out a node. Raises: OptionError if somebody reads it."""
        if node.users:
            raise OptionError("erase_node", "a node that nobody reads",
                              f"{node}, which {', '.join(map(str, node.users))} reads",
                              "Replace its uses first.")  # fmt: skip
        node.set_operands((), {})
        self.nodes.remove(node)

    def find(self, op: str, target=None) -> list[Node]:
        """The nodes of an op, and of a target if one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def copy_node(self, node: Node, made: dict[Node, Any]) -> Node:
        """A node like that of another graph, reading what was `made` of that one's operands."""
        args, kwargs = (map_nodes(x, made.__getitem__) for x in (node.args, node.kwargs))
        made[node] = self.create_node(node.op, node.target, args, kwargs, node.name)
        made[node].meta = dict(node.meta)
        return made[node]

    def copy(self) -> "Graph":
        """A graph like this one, with nodes of its own."""
        new, made = Graph(), dict[Node, Any]()
        for node in self.nodes:
            new.copy_node(node, made)
        return new

    # -- passes --------------------------------------------------------------------------------

    def eliminate_dead_code(self) -> bool:
        """Drop what nobody reads; whether anything was dropped."""
        before = len(self.nodes)
        for node in reversed(list(self.nodes)):
            if node.op in PURE and not node.users:
                self.erase_node(node)
        return len(self.nodes) < before

    def eliminate_common_subexpressions(self) -> bool:
        """Compute equal primitive calls and reads once; whether anything changed."""
        known: dict[tuple, Node] = {}
        changed = False
        for node in list(self.nodes):
            pure = isinstance(node.target, Primitive) or node.op == "get_attr"
            if not pure or "checkpoint" in node.meta:
                continue
            key = (node.op, node.target, repr((node.args, node.kwargs)))
            same = known.setdefault(key, node)
            if same is not node:
                node.replace_all_uses_with(same)
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Raise AssertionError unless the graph is well formed: order, names, users, one output."""
        seen: dict[Node, None] = {}
        names = [node.name for node in self.nodes]
        assert len(set(names)) == len(names), "ir: two nodes have one name"
        for node in self.nodes:
            assert node.op in OPS and node.graph is self, f"ir: {node.format_node()} is not ours"
            for x in node.all_input_nodes:
                assert x in seen, f"ir: {node.format_node()} reads {x} before it is computed"
                assert node in x.users, f"ir: {x} does not know that {node} reads it"
            seen[node] = None
        outputs = [node for node in self.nodes if node.op == "output"]
        assert len(outputs) == 1 and self.nodes[-1].op == "output", "ir: expected one output, last"

    # -- printing ------------------------------------------------------------------------------

    def rows(self) -> list[list[str]]:
        found = ((n, target_name(n.target)) for n in self.nodes)
        return [[n.op, n.name, target, str(n.args), str(n.kwargs)] for n, target in found]

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [["opcode", "name", "target", "args", "kwargs"], *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def python_code(self) -> "Code":
        """The source of `forward`, and what its names mean."""
        return Code(self)

    def __str__(self):
        return "\n".join(node.format_node() for node in self.nodes)


class Code:
    """Source of a graph: `text` defines `forward(self, ...)`; `names` are the globals it needs.
    Nodes of one "checkpoint" in their meta become a function, called through `checkpoint`."""

    def __init__(self, graph: Graph):
        self.names: dict[str, Any] = {"primitives": primitives}
        self.taken = graph.names
        arguments = [self.argument(n) for n in graph.nodes if n.op == "placeholder"]
        body: list[str] = []
        nodes = [n for n in graph.nodes if n.op != "placeholder"]
        for label, run in groupby(nodes, lambda node: node.meta.get("checkpoint")):
            part = list(run)
            body += self.plain(part) if label is None else self.region(part, f"region_{label}")
        head = f"def forward({', '.join(['self', *arguments])}):"
        self.text = "\n".join([head, *(f"    {line}" for line in body)]) + "\n"

    def argument(self, node: Node) -> str:
        return f"{node.name}={node.args[0]!r}" if node.args else node.name

    def plain(self, nodes: list[Node]) -> list[str]:
        specs = [node.meta.get("spec") for node in nodes]
        notes = ["" if spec is None else f"  # {spec}" for spec in specs]
        return [self.statement(node) + note for node, note in zip(nodes, notes, strict=True)]

    def region(self, nodes: list[Node], name: str) -> list[str]:
        """A checkpoint region: a nested function of what it reads, called through checkpoint."""
        inside = set(nodes)
        reads: dict[Node, None] = {}
        for node in nodes:
            reads |= dict.fromkeys(x for x in node.all_input_nodes if x not in inside)
        results = [n for n in nodes if any(user not in inside for user in n.users)]
        names = ", ".join(map(str, reads))
        returned = ", ".join(map(str, results))
        self.names["checkpoint"] = None  # filled in by who knows it
        body = [f"    {line}" for line in [*self.plain(nodes), f"return {returned}"]]
        return [f"def {name}({names}):", *body, f"{returned} = checkpoint({name})({names})"]

    def statement(self, node: Node) -> str:
        words = [self.text_of(a) for a in node.args]
        words += [f"{k}={self.text_of(v)}" for k, v in node.kwargs.items()]
        inside = ", ".join(words)
        if node.op == "output":
            return f"return {self.text_of(node.args[0])}"
        if node.op == "get_attr":
            value = attribute(node.target)
        elif node.op == "call_module":
            value = f"{attribute(node.target)}({inside})"
        elif node.op == "call_method":
            value = f"{words[0]}.{node.target}({', '.join(words[1:])})"
        elif node.target in INFIX:
            value = f" {INFIX[node.target]} ".join(words)
        elif node.target is operator.getitem:
            value = f"{words[0]}[{self.index(node.args[1])}]"
        else:
            value = f"{self.function(node.target)}({inside})"
        return f"{node.name} = {value}"

    def index(self, x) -> str:
        if isinstance(x, tuple) and x:
            return ", ".join(map(self.index, x)) + "," * (len(x) == 1)
        if not isinstance(x, slice):
            return self.text_of(x)
        ends = ["" if end is None else self.text_of(end) for end in (x.start, x.stop, x.step)]
        return ":".join(ends if x.step is not None else ends[:2])

    def function(self, fn) -> str:
        """A function in the source: ours as people write them, others as a global."""
        if isinstance(fn, Primitive):
            return f"primitives[{fn.name!r}]"
        for short, home in SHORT.items():
            module, name = sys.modules.get(home), getattr(fn, "__name__", "")
            if short not in self.taken and getattr(module, name, None) is fn:
                self.names[short] = module
                return f"{short}.{name}"
        name = re.sub(r"\W+", "_", getattr(fn, "__qualname__", type(fn).__name__)).strip("_")
        while name in self.taken or self.names.setdefault(name, fn) is not fn:
            name += "_"
        return name

    def text_of(self, x) -> str:
        if isinstance(x, Node):
            return x.name
        if isinstance(x, tuple):
            inner = ", ".join(map(self.text_of, x))
            return f"({inner},)" if len(x) == 1 else f"({inner})"
        if isinstance(x, list):
            return f"[{', '.join(map(self.text_of, x))}]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{k!r}: {self.text_of(v)}" for k, v in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({', '.join(map(self.text_of, (x.start, x.stop, x.step)))})"
        if isinstance(x, float) and repr(x) in ("inf", "-inf", "nan"):
            return f"float({repr(x)!r})"
        if x is Ellipsis:
            return "..."
        if x is None or type(x) in (bool, int, float, complex, str, bytes):
            return repr(x)
        name = f"constant_{len(self.names)}" if not hasattr(x, "name") else f"value_{x.name}"
        self.names[name] = x
        return name


def attribute(path: str) -> str:
    """The expression for a path: `getattr(self.layers, '0').weight` for "layers.0.weight"."""
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text
