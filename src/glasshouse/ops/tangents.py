"""Tangents through one call, by the cards' rules."""

import functools
from typing import Any

from glasshouse.dispatch import Primitive, Value
from glasshouse.dispatch.primitive import LINEAR


def push(primitive: Primitive, primals: Any, tangents: Any, y: Value, attrs: dict[str, Any]) -> Any:
    """The tangent(s) of a call's result(s), from its operands' tangents; None stands for zero."""
    if primitive.pushforward is not None:
        has_any = any(t is not None for t in tangents)
        return primitive.pushforward(tangents, y, *primals, **attrs) if has_any else None
    moving = [(i, t) for i, t in enumerate(tangents) if t is not None and primitive.jvp is not None]
    parts = [contribution(primitive, i, t, y, primals, attrs) for i, t in moving]
    parts = [part for part in parts if part is not None]
    return functools.reduce(add_tangents, parts) if parts else None


def add_tangents(a: Any, b: Any) -> Any:
    if not isinstance(a, tuple):
        return a + b
    return tuple(x if y is None else y if x is None else x + y for x, y in zip(a, b, strict=True))


def contribution(primitive: Primitive, i: int, t: Any, y: Any, primals: Any, attrs: Any) -> Any:
    """The term of the result's tangent from tangent `t` of operand `i`; None without a rule."""
    rule: Any = primitive.jvp
    if rule is not LINEAR:
        rule = rule(i) if callable(rule) else rule[i]
    if rule is None:
        return None
    if rule is LINEAR:
        return primitive(*primals[:i], t, *primals[i + 1 :], **attrs)
    return rule(t, y, *primals, **attrs)
