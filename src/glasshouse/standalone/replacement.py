"""The Python that a captured call runs around its Program, read statement by statement.

A replacement reads its inputs, runs the graph, and writes the call's changes. Here it is evaluated
on the objects of a call, except the graph: its results stay symbols, and numbers keep their
expressions. So a step's numbers, inputs and effects are known without Python."""

import ast
import types
from typing import Any, NamedTuple

from glasshouse.base.errors import CaptureError
from glasshouse.base.interrupts import hold, release
from glasshouse.standalone.names import ReachedNames
from glasshouse.standalone.numbers import ComputedNumber, StateNumber
from glasshouse.tensor import Tensor

IGNORED = ("undo", "h")  # names of the undo of a failed run, and of containers that are replaced
WHERE = "export_program"


class Result(NamedTuple):
    """A result of the graph."""

    number: int


class Read(NamedTuple):
    """A value that Python knows; of a number also its expression."""

    value: Any
    expr: Any = None


class Write(NamedTuple):
    """A value that a call leaves at a name: a `Read` or a `Result`."""

    name: str
    value: Any


class ReplacementReading:
    """Reading of a replacement with these slots: `inputs` of the graph, `writes`, and its `value`.

    `numbers` has the values of the state's numbers that it reads, by name."""

    def __init__(
        self, replacement: types.FunctionType, source: str, slots: Any, names: ReachedNames
    ) -> None:
        self.pool: dict[str, Any] = replacement.__globals__
        self.names = names
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        self.env: dict[str, Any] = {}
        self.numbers: dict[str, float] = {}
        self.inputs: list[Read] | None = None
        self.writes: list[Write] = []
        self.value: Any = Read(None)
        self.cells: dict[int, Any]
        self.cells = {id(x): name for name, x in slots if isinstance(x, types.CellType)}
        for arg, (name, value) in zip(function.args.args, slots, strict=False):
            self.env[arg.arg] = self.read(name, value)
        if len(function.args.args) != len(slots):
            self.refuse(function)
        self.run(function.body)

    def refuse(self, node: ast.AST) -> Any:
        text = ast.unparse(node).splitlines()[0]
        fix = "Let the step change tensors, and numbers of optimizers and modules."
        raise CaptureError(WHERE, "a step that C can do", f"the Python `{text}`", fix)

    # -- statements ------------------------------------------------------------------------------

    def run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=[target]):
                    self.assign(target, statement.value)
                case ast.Expr(value=ast.Call() as call):
                    self.call_for_effect(call)
                case ast.Try():
                    self.run(statement.body)
                case ast.Return():
                    self.value = self.evaluate(statement.value) if statement.value else Read(None)
                case ast.AugAssign() | ast.Delete() | ast.Pass():
                    pass
                case _:
                    self.refuse(statement)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                if name not in IGNORED:
                    self.env[name] = self.evaluate(value)
            case ast.Tuple(elts=[ast.Name(id="i"), ast.Name(id="h")]):
                assert isinstance(value, ast.Tuple)
                self.env["i"] = self.evaluate(value.elts[0])
            case ast.Subscript():
                base, key = self.evaluate(target.value), self.evaluate(target.slice)
                self.write(base, self.value_of(key, target), self.evaluate(value), target)
            case ast.Attribute():
                self.write(self.evaluate(target.value), target.attr, self.evaluate(value), target)
            case _:
                self.refuse(target)

    def call_for_effect(self, call: ast.Call) -> None:
        fn = self.value_of(self.evaluate(call.func), call)
        args = [self.evaluate(x) for x in call.args]
        if fn in (hold, release):
            return
        if fn in (object.__setattr__, setattr, dict.__setitem__) and len(args) == 3:
            base, key, value = args
            self.write(base, self.value_of(key, call), value, call)
        else:
            self.refuse(call)

    def write(self, base: Any, key: Any, value: Any, node: ast.AST) -> None:
        """Record the new value of a part of a container, leaf by leaf."""
        owner = self.names.containers.get(id(self.value_of(base, node)))
        if owner is None:
            self.refuse(node)
        self.write_leaf(self.names.part_name(str(owner), key), value, node)

    def write_leaf(self, name: str, value: Any, node: ast.AST) -> None:
        if isinstance(value, (dict, list, tuple)) and not isinstance(value, (Read, Result)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, part in items:
                self.write_leaf(self.names.part_name(name, key), part, node)
        else:
            self.writes.append(Write(name, value))

    # -- expressions -----------------------------------------------------------------------------

    def read(self, name: str, value: Any) -> Read:
        """A value found under a name: a number becomes one of the state's."""
        if type(value) not in (int, float):
            return Read(value)
        self.numbers[name] = float(value)
        return Read(value, StateNumber(name))

    def value_of(self, read: Any, node: ast.AST) -> Any:
        """A value that does not depend on the graph."""
        return read.value if isinstance(read, Read) else self.refuse(node)

    def part(self, base: Any, key: Any, value: Any) -> Read:
        """A part of a container, as it was read."""
        if id(base) in self.cells:
            return self.read(self.cells[id(base)], value)
        owner = self.names.containers.get(id(base))
        return Read(value) if owner is None else self.read(self.names.part_name(owner, key), value)

    def evaluate(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return Read(node.value)
            case ast.Name(id=name):
                return self.env[name] if name in self.env else Read(self.pool[name])
            case ast.Attribute():
                base = self.value_of(self.evaluate(node.value), node)
                return self.part(base, node.attr, getattr(base, node.attr))
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
            case ast.UnaryOp():  # an equal number, or a negative one
                value = self.value_of(self.evaluate(node.operand), node)
                return Read(-value if isinstance(node.op, ast.USub) else value)
            case ast.List() | ast.Tuple():
                parts = [self.evaluate(x) for x in node.elts]
                return parts if isinstance(node, ast.List) else tuple(parts)
            case ast.Dict():
                keys = [self.value_of(self.evaluate(x), node) for x in node.keys if x is not None]
                return dict(zip(keys, map(self.evaluate, node.values), strict=True))
        return self.refuse(node)

    def subscript(self, node: ast.Subscript) -> Any:
        base = self.evaluate(node.value)
        key = self.value_of(self.evaluate(node.slice), node)
        if base is GRAPH:
            return Result(key)
        if isinstance(base, (dict, list, tuple)) and not isinstance(base, (Read, Result)):
            return base[key]
        base = self.value_of(base, node)
        return self.part(base, key, base[key])

    def call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "graph":
            inputs = self.evaluate(node.args[0])
            self.inputs = list(inputs)
            return GRAPH
        fn = self.value_of(self.evaluate(node.func), node)
        args = [self.evaluate(x) for x in node.args]
        values = [self.value_of(x, node) for x in args]
        value = fn(*values)
        name = getattr(fn, "__name__", "")
        if len(values) == 2 and name in ("__getitem__", "attribute_of_c", "stored"):
            return self.part(values[0], values[1], value)
        if type(value) not in (int, float):
            return Read(value)
        exprs = [x.value if x.expr is None else x.expr for x in args]
        if all(x.expr is None for x in args):
            return Read(value)
        if any(isinstance(x, Tensor) for x in exprs):
            self.refuse(node)
        return Read(value, ComputedNumber(fn, tuple(exprs)))


class AllResults:
    """Marker of the results of the graph."""


GRAPH = AllResults()
