"""The graph of a program, which tracing and capture produce, and people read and rewrite.

A node is a placeholder (an argument), get_attr (a parameter, buffer or constant of the module),
call_function, call_method, call_module, or output. Its `args` and `kwargs` may nest other nodes in
lists, tuples, dicts and slices. A graph prints as the Python that computes it (`python_code`). By
running it is lowered to the compiler's graph (`graph/graph.py`), which has primitives only."""

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

from glasshouse.base import OptionError, having, suggest
from glasshouse.dispatch.primitive import Primitive
from glasshouse.ir.node import OPS, IRNode, map_nodes, target_name
from glasshouse.ir.python_code import PythonCode

PURE = ("get_attr", "call_function", "call_module")  # may be dropped when nobody uses them


class IRGraph:
    """Nodes in the order in which they run. Of a captured graph, `on_error` takes an error of its
    compiler, and `entry_modes` are the library's modes where it begins."""

    on_error: Callable[..., None]
    entry_modes: Any

    def __init__(self) -> None:
        self.nodes: list[IRNode] = []
        self.names: set[str] = set()
        self.counts: dict[str, int] = {}  # the last number that a name was given
        self.place: int | None = None  # where new nodes go; None: at the end

    def __iter__(self) -> Iterator[IRNode]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    # -- making nodes --------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] | None = None,
        name: str | None = None,
    ) -> IRNode:
        """A new node, where `inserting_before` says or last.

        Raises: OptionError for the op.
        """
        if op not in OPS:
            raise OptionError("create_node", f"one of {', '.join(OPS)}", repr(op), suggest(op, OPS))
        base = name or target_name(target)
        node = IRNode(self, self.free_name(base), op, target, tuple(args), kwargs or {})
        if self.place is None:
            self.nodes.append(node)
        else:
            self.nodes.insert(self.place, node)
            self.place += 1
        return node

    def free_name(self, base: str) -> str:
        stem = re.sub(r"\W+", "_", base).strip("_") or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem) or hasattr(builtins, stem):
            stem = f"{stem}_" if not stem[0].isdigit() else f"_{stem}"
        count = self.counts.get(stem, 0)
        name = f"{stem}_{count}" if count else stem
        while name in self.names or name == "self":
            count += 1
            name = f"{stem}_{count}"
        self.counts[stem] = count
        self.names.add(name)
        return name

    def placeholder(self, name: str, *default: int) -> IRNode:
        """An argument. Its name is changed if it is no identifier or another argument has it, as
        can happen with names that capture makes."""
        node = self.create_node("placeholder", name, default, name=name)
        others = self.find("placeholder", name) if node.name != name else ()
        is_taken = any(other is not node for other in others)
        if is_taken or not name.lstrip("*").isidentifier():
            node.target = node.name
        return node

    def get_attr(self, path: str) -> IRNode:
        return self.create_node("get_attr", path)

    def call_function(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] | None = None,
    ) -> IRNode:
        return self.create_node("call_function", fn, args, kwargs)

    def call_method(
        self,
        name: str,
        args: tuple[IRNode | float | None, ...] = (),
        kwargs: dict[str, int] | None = None,
    ) -> IRNode:
        return self.create_node("call_method", name, args, kwargs)

    def call_module(self, path: str, args: tuple[IRNode, ...] = (), kwargs: Any = None) -> IRNode:
        return self.create_node("call_module", path, args, kwargs)

    def output(self, result: Any) -> IRNode:
        return self.create_node("output", "output", (result,))

    def inserting_before(self, node: IRNode) -> having:
        """Context: new nodes come before `node`."""
        return having(self, place=self.nodes.index(node))

    def inserting_after(self, node: IRNode) -> having:
        """Context: new nodes come after `node`."""
        return having(self, place=self.nodes.index(node) + 1)

    def erase_node(self, node: IRNode) -> None:
        """Take out a node.

        Raises: OptionError if somebody reads it.
        """
        if node.users:
            got = f"{node}, which {', '.join(map(str, node.users))} reads"
            fix = "Replace its uses first."
            raise OptionError("erase_node", "a node that nobody reads", got, fix)
        node.set_operands((), {})
        at = self.nodes.index(node)
        del self.nodes[at]
        if self.place is not None and at < self.place:
            self.place -= 1

    def find(self, op: str, target: Primitive | str | None = None) -> list[IRNode]:
        """The nodes of an op, and of a target if one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def copy_node(self, node: IRNode, copies: dict[IRNode, Any]) -> IRNode:
        """A node like that of another graph, reading the `copies` of that one's operands."""
        args, kwargs = (map_nodes(x, copies.__getitem__) for x in (node.args, node.kwargs))
        copies[node] = self.create_node(node.op, node.target, args, kwargs, node.name)
        copies[node].meta = dict(node.meta)
        return copies[node]

    def copy(self) -> "IRGraph":
        """A copy of this graph, with its own nodes."""
        new, copies = IRGraph(), dict[IRNode, Any]()
        for node in self.nodes:
            new.copy_node(node, copies)
        return new

    # -- passes --------------------------------------------------------------------------------

    def eliminate_dead_code(self) -> bool:
        """Drop pure nodes without readers; return whether any were dropped."""
        before = len(self.nodes)
        for node in reversed(list(self.nodes)):
            if node.op in PURE and not node.users and not node.writes:
                self.erase_node(node)
        return len(self.nodes) < before

    def eliminate_common_subexpressions(self) -> bool:
        """Compute equal primitive calls and reads once; whether anything changed."""
        first_equal: dict[tuple[Any, ...], IRNode] = {}
        changed = False
        for node in list(self.nodes):
            if node.writes:
                first_equal.clear()
            pure = isinstance(node.target, Primitive) or node.op == "get_attr"
            if not pure or "checkpoint" in node.meta or any(user.writes for user in node.users):
                continue
            key = (node.op, node.target, repr((node.args, node.kwargs)))
            first = first_equal.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Raise AssertionError unless the graph is well formed: order, names, users, one output."""
        computed: dict[IRNode, None] = {}
        names = [node.name for node in self.nodes]
        assert len(set(names)) == len(names), "ir: two nodes have one name"
        for node in self.nodes:
            assert node.op in OPS and node.graph is self, f"ir: {node.format_node()} is not ours"
            for x in node.all_input_nodes:
                assert x in computed, f"ir: {node.format_node()} reads {x} before it is computed"
                assert node in x.users, f"ir: {x} does not know that {node} reads it"
            computed[node] = None
        outputs = [node for node in self.nodes if node.op == "output"]
        assert len(outputs) == 1 and self.nodes[-1].op == "output", "ir: expected one output, last"

    # -- printing ------------------------------------------------------------------------------

    def rows(self) -> list[list[str]]:
        pairs = ((n, target_name(n.target)) for n in self.nodes)
        return [[n.op, n.name, target, str(n.args), str(n.kwargs)] for n, target in pairs]

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [["opcode", "name", "target", "args", "kwargs"], *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())

    def python_code(self) -> PythonCode:
        """The source of `forward`, and the objects that its names refer to."""
        return PythonCode(self)

    def __str__(self) -> str:
        return "\n".join(node.format_node() for node in self.nodes)
