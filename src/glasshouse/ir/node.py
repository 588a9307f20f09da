"""A node of a program's graph, and the structure of its operands."""

import operator
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from glasshouse.dispatch.primitive import Primitive

if TYPE_CHECKING:
    from glasshouse.ir.graph import IRGraph


OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
INFIX: dict[Any, Any] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
WRITING = {"setitem", "delitem", *(f"i{fn.__name__.strip('_')}" for fn in INFIX)}

LEAVES: set[Any] = {int, float, bool, complex, str, bytes, type(None)}  # have no parts


def parts_of(x: Any) -> dict[Any, Any] | None:
    """Parts of a list, tuple, dict or dataclass by index, key or name; None for all else."""
    if isinstance(x, (list, tuple)):
        return dict(enumerate(x))
    if isinstance(x, dict):
        return x
    if not hasattr(type(x), "__dataclass_fields__"):
        return None
    return {f.name: getattr(x, f.name) for f in fields(x) if hasattr(x, f.name)}


def with_parts(x: Any, fn: Callable[..., Any]) -> Any:
    """A container like `x` with `fn` of each of its parts; `x` itself if it is none."""
    parts = parts_of(x)
    if parts is None:
        return x
    new_parts = {k: fn(v) for k, v in parts.items()}
    if isinstance(x, (list, tuple)):
        return (
            type(x)(*new_parts.values()) if hasattr(x, "_fields") else type(x)(new_parts.values())
        )
    if type(x) is dict or all(new_parts[k] is v for k, v in parts.items()):
        return new_parts if type(x) is dict else x
    new = copy(x)
    for k, v in new_parts.items():
        new.__setitem__(k, v) if isinstance(x, dict) else object.__setattr__(new, k, v)
    return new


def map_nodes(x: Any, fn: Callable[..., Any], kind: type[Any] | None = None) -> Any:
    """`x` with `fn` of each IRNode (or `kind`) in lists, tuples, dicts, slices and dataclasses."""
    if isinstance(x, kind or IRNode):
        return fn(x)
    if isinstance(x, slice):
        return slice(*(map_nodes(v, fn, kind) for v in (x.start, x.stop, x.step)))
    return with_parts(x, lambda part: map_nodes(part, fn, kind))


def all_of(kind: type[Any], x: Any) -> list[Any]:
    """All parts of a kind in `x`, in order."""
    parts: list[Any] = []
    gather(kind, x, parts)
    return parts


def gather(kind: type[Any], x: Any, into: list[Any]) -> None:
    """Append to `into` all parts of a kind in `x`."""
    if isinstance(x, kind):
        into.append(x)
    elif isinstance(x, (list, tuple)):
        for part in x:
            if type(part) not in LEAVES:
                gather(kind, part, into)
    elif isinstance(x, slice):
        gather(kind, (x.start, x.stop, x.step), into)
    elif type(x) not in LEAVES:
        for part in (parts_of(x) or {}).values():
            gather(kind, part, into)


class IRNode:
    """One step: `op`, `target` (a name, function or path), operands; `users` are its readers.

    `meta` has facts about it: "spec", "module" (path), "line" (file:line), "checkpoint"."""

    def __init__(
        self,
        graph: "IRGraph",
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[Any, Any],
    ) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users: dict[IRNode, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[Any, Any] = {}
        self.set_operands(args, kwargs)

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self.set_operands(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[Any, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[Any, Any]) -> None:
        self.set_operands(self._args, dict(kwargs))

    def set_operands(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
        """Replace all operands."""
        if self._args or self._kwargs:
            for node in self.all_input_nodes:
                node.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def all_input_nodes(self) -> list["IRNode"]:
        """The nodes among the operands, each once."""
        return list(dict.fromkeys(all_of(IRNode, (self._args, self._kwargs))))

    def replace_all_uses_with(self, other: "IRNode") -> list["IRNode"]:
        """Have every user read `other` instead; returns the users."""
        users = [user for user in self.users if user is not other]
        for user in users:
            user.replace_input_with(self, other)
        return users

    def replace_input_with(self, old: "IRNode", new: "IRNode") -> None:
        """Read `new` wherever `old` was read."""

        def swap(node):
            return new if node is old else node

        self.set_operands(map_nodes(self._args, swap), map_nodes(self._kwargs, swap))

    @property
    def writes(self) -> bool:
        """Whether it changes an operand: `add_`, `setitem`, `iadd`."""
        name = target_name(self.target) if self.op in ("call_function", "call_method") else ""
        return name.strip("_") in WRITING or name[-1:] == "_" != name[-2:-1]

    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """One line: %name = op[target](args)."""
        words = [repr(a) for a in self._args] + [f"{k}={v!r}" for k, v in self._kwargs.items()]
        return f"%{self.name} = {self.op}[{target_name(self.target)}]({', '.join(words)})"


def target_name(target: Any) -> str:
    if isinstance(target, Primitive):
        return target.name
    return target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
