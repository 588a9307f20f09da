"""Expressions: the computation of a fused kernel at each position of its domain.

A leaf loads from a buffer through a view, is a number, or is a position. Equal expressions are one
object, so a kernel computes each once."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from glasshouse.base.dtype import DType, int64
from glasshouse.compile.steps.view import View
from glasshouse.dispatch.primitive import primitives

# About how many cycles for a vector of results, beside 1 for an addition: what computing a value
# again costs, compared with a load from memory. Those of cards are in their kernel texts.
COSTS = {"random": 40, "gather": 6}


def cost_of(op: str) -> int:
    card = primitives.get(op)
    return COSTS.get(op, 1) if card is None or card.kernel is None else card.kernel.cost


class Expr:
    """One value. `view` is a load's or position's; `value` a constant, a scalar's number or a
    card's attrs. `cost`, `size` (operations) and `loads` (the views loaded) are those of the whole
    expression, a shared part counting once for each use in `cost` and `size`."""

    __slots__ = ("op", "args", "dtype", "view", "value", "cost", "size", "loads", "number")
    op: str
    args: tuple["Expr", ...]
    dtype: DType
    view: Any  # View | None
    value: Any
    cost: int
    size: int
    loads: tuple[View, ...]  # each once, in a fixed order
    number: int

    def __repr__(self) -> str:
        inside = self.view if self.view is not None else self.value if not self.args else self.args
        return f"{self.op}({inside})"


def loads_of(op: str, args: Sequence[Expr], view: View | None) -> tuple[View, ...]:
    """The views that an operation and its operands load, each once."""
    loaded: list[tuple[View, ...]] = []
    if view is not None and op in ("load", "gather"):
        loaded.append((view,))
    loaded += [a.loads for a in args if a.loads]
    if not loaded:
        return ()
    first = loaded[0]
    if all(views is first for views in loaded):
        return first
    return tuple(dict.fromkeys(chain(*loaded)))


class Exprs:
    """Makes expressions, equal ones once."""

    def __init__(self) -> None:
        self.by_key: dict[Any, Expr] = {}
        self.costs: dict[str, int] = {}  # of operations, as far as they were needed

    def make(
        self,
        op: str,
        args: Any = (),
        dtype: DType = int64,
        view: View | None = None,
        value: Any = None,
    ) -> Expr:
        """The expression; `args` are expressions over the same domain."""
        where = None if view is None else (id(view.base), *view[1:])
        text = None if value is None else repr(value)
        key = (op, dtype.name, where, text, *[a.number for a in args])
        expr = self.by_key.get(key)
        if expr is None:
            expr = self.by_key[key] = Expr()
            expr.op, expr.args, expr.dtype = op, tuple(args), dtype
            expr.view, expr.value = view, value
            expr.cost = self.cost_of(op) + sum([a.cost for a in args])
            expr.size = 1 + sum([a.size for a in args])
            expr.loads = loads_of(op, args, view)
            expr.number = len(self.by_key)
        return expr

    def cost_of(self, op: str) -> int:
        cost = self.costs.get(op)
        if cost is None:
            cost = self.costs[op] = cost_of(op)
        return cost

    def load(self, view: View) -> Expr:
        return self.make("load", (), view.base.dtype, view)

    def moved(
        self, expr: Expr, move: Callable[..., Any], memo: dict[int, Any] | None = None
    ) -> Expr | None:
        """Apply `move` to each view of the expression; None if that fails for one."""
        memo = {} if memo is None else memo
        if expr.number in memo:
            return memo[expr.number]
        view = expr.view
        if view is not None:
            view = move(view)
            if view is None:
                return None
        args = []
        for a in expr.args:
            b = self.moved(a, move, memo)
            if b is None:
                return None
            args.append(b)
        same = view == expr.view and all(a is b for a, b in zip(args, expr.args, strict=True))
        moved_expr = expr if same else self.make(expr.op, args, expr.dtype, view, expr.value)
        memo[expr.number] = moved_expr
        return moved_expr


def parts_of(roots: list[Expr]) -> list[Expr]:
    """Every expression in `roots` once, in the order in which they were made."""
    parts: dict[int, Expr] = {}
    stack = list(roots)
    while stack:
        expr = stack.pop()
        if expr.number not in parts:
            parts[expr.number] = expr
            stack.extend(expr.args)
    return [parts[number] for number in sorted(parts)]


def walk(
    roots: list[Expr], stop: Callable[..., Any] = lambda expr: False, include: bool = False
) -> list[Expr]:
    """Every expression in `roots` once, operands first; below `stop` none, there if `include`."""
    order, visited, stack = [], set(), [(root, False) for root in reversed(list(roots))]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            order.append(expr)
        elif expr.number not in visited:
            visited.add(expr.number)
            if stop(expr):
                if include:
                    order.append(expr)
                continue
            stack.append((expr, True))
            stack.extend((a, False) for a in reversed(expr.args))
    return order
