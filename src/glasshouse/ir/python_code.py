"""The Python source of a graph."""

import keyword
import operator
import re
import sys
from collections import defaultdict
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from glasshouse.dispatch.primitive import Primitive, primitives
from glasshouse.ir.node import INFIX, IRNode, parts_of

if TYPE_CHECKING:
    from glasshouse.ir.graph import IRGraph


SHORT = {
    "F": "glasshouse.nn.functional",
    "gh": "glasshouse",
    "random": "glasshouse.tensor.random",
}  # modules, as people call them


class PythonCode:
    """Source of a graph: `text` defines `forward(self, ...)`; `names` are the globals it needs,
    None for `checkpoint`, through which functions of the nodes of one "checkpoint" are called."""

    def __init__(self, graph: "IRGraph") -> None:
        self.names: dict[str, Any] = {}
        inputs = [n for n in graph.nodes if n.op == "placeholder"]
        self.reserved_names: set[Any] = {*graph.names, *(n.target for n in inputs), *keyword.kwlist}
        body = [f"{n.name} = {n.target}" for n in inputs if n.name != n.target.strip("*")]
        nodes = [n for n in graph.nodes if n.op != "placeholder"]
        for label, run in groupby(nodes, lambda node: node.meta.get("checkpoint")):
            part = list(run)
            body += self.plain(part) if label is None else self.region(part, f"region_{label}")
        head = f"def forward({', '.join(['self', *map(self.argument, inputs)])}):"
        self.text: str = "\n".join([head, *(f"    {line}" for line in body)]) + "\n"

    def argument(self, node: IRNode) -> str:
        return f"{node.target}={self.text_of(node.args[0])}" if node.args else node.target

    def plain(self, nodes: list[IRNode]) -> list[str]:
        lines = []
        for within, run in groupby(nodes, lambda node: node.meta.get("within", ())):
            contexts = [f"{name}({', '.join(map(repr, args))})" for name, *args in within]
            if contexts:
                name = self.global_name("gh", sys.modules.get("glasshouse"))
                lines.append(f"with {', '.join(f'{name}.{x}' for x in contexts)}:")
            for node in run:
                spec = node.meta.get("spec")
                note = "" if spec is None else f"  # {spec}"
                lines.append("    " * bool(contexts) + self.statement(node) + note)
        return lines

    def region(self, nodes: list[IRNode], name: str) -> list[str]:
        """A checkpoint region: a nested function of its inputs, called through checkpoint."""
        inside = set(nodes)
        reads: dict[IRNode, None] = {}
        for node in nodes:
            reads |= dict.fromkeys(x for x in node.all_input_nodes if x not in inside)
        results = [n for n in nodes if any(user not in inside for user in n.users)]
        names = ", ".join(map(str, reads))
        returned = ", ".join(map(str, results))
        body = [f"    {line}" for line in [*self.plain(nodes), f"return {returned}"]]
        call = f"{self.global_name('checkpoint', None)}({name})({names})"
        return [f"def {name}({names}):", *body, f"{returned} = {call}" if results else call]

    def statement(self, node: IRNode) -> str:
        words = [self.text_of(a) for a in node.args]
        for key, value in node.kwargs.items():
            text = self.text_of(value)
            words.append(f"**{{{key!r}: {text}}}" if keyword.iskeyword(key) else f"{key}={text}")
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
            lhs = f"({words[0]})" if words[0][0] == "-" else words[0]  # -1 ** x is not (-1) ** x
            value = f" {INFIX[node.target]} ".join([lhs, *words[1:]])
        elif node.target is operator.getitem:
            value = f"{words[0]}[{self.index(node.args[1])}]"
        else:
            value = f"{self.function(node.target)}({inside})"
        return f"{node.name} = {value}"

    def index(self, x: Any) -> str:
        if isinstance(x, tuple) and x:
            return ", ".join(map(self.index, x)) + "," * (len(x) == 1)
        if not isinstance(x, slice):
            return self.text_of(x)
        ends = ["" if end is None else self.text_of(end) for end in (x.start, x.stop, x.step)]
        return ":".join(ends if x.step is not None else ends[:2])

    def global_name(self, base: str, x: Any) -> str:
        """The name of a global that is `x`."""
        name = re.sub(r"\W+", "_", base).strip("_")
        while name in self.reserved_names or self.names.setdefault(name, x) is not x:
            name += "_"
        return name

    def function(self, fn: Any) -> str:
        """A function, class or dtype in the source: ours as people write them, others global."""
        if isinstance(fn, Primitive):
            return f"{self.global_name('primitives', primitives)}[{fn.name!r}]"
        name = getattr(fn, "__name__", getattr(fn, "name", ""))
        for short, home in SHORT.items():
            module = sys.modules.get(home)
            if short not in self.reserved_names and getattr(module, str(name), None) is fn:
                return f"{self.global_name(short, module)}.{name}"
        return self.global_name(getattr(fn, "__qualname__", type(fn).__name__), fn)

    def text_of(self, x: Any) -> str:
        if isinstance(x, IRNode):
            return x.name
        parts = parts_of(x)
        if parts is not None:
            return self.container(x, {k: self.text_of(v) for k, v in parts.items()})
        if isinstance(x, slice):
            return f"slice({', '.join(map(self.text_of, (x.start, x.stop, x.step)))})"
        if isinstance(x, float) and repr(x) in ("inf", "-inf", "nan"):
            return f"float({repr(x)!r})"
        if x is Ellipsis:
            return "..."
        if x is None or type(x) in (bool, int, float, complex, str, bytes):
            return repr(x)
        if hasattr(x, "name"):
            return self.function(x)
        return self.global_name(f"constant_{len(self.names)}", x)

    def container(self, x: Any, parts: dict[Any, Any]) -> str:
        """A list, tuple, dict or dataclass of parts, which are text."""
        inner = ", ".join(parts.values())
        if type(x) is list:
            return f"[{inner}]"
        if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
            return f"({inner},)" if len(x) == 1 else f"({inner})"
        keys = "{" + ", ".join(f"{self.text_of(k)}: {v}" for k, v in parts.items()) + "}"
        if type(x) in (dict, defaultdict):
            return keys
        if not isinstance(x, (dict, tuple)):
            arguments = [f.name for f in fields(x) if f.init]
            inner = ", ".join(f"{k}={v}" for k, v in parts.items() if k in arguments)
        return f"{self.function(type(x))}({keys if isinstance(x, dict) else inner})"


def attribute(path: str) -> str:
    """The expression for a path: `getattr(self.layers, '0').weight` for "layers.0.weight"."""
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text
