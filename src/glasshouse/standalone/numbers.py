"""Numbers that a step computes in Python, as C: learning rates, counts of steps, corrections."""

import math
import operator
from typing import Any, NamedTuple

from glasshouse.base.errors import OptionError

FUNCTIONS: dict[Any, str] = {
    operator.add: "({0} + {1})",
    operator.iadd: "({0} + {1})",
    operator.sub: "({0} - {1})",
    operator.isub: "({0} - {1})",
    operator.mul: "({0} * {1})",
    operator.imul: "({0} * {1})",
    operator.truediv: "({0} / {1})",
    operator.itruediv: "({0} / {1})",
    operator.floordiv: "floor({0} / {1})",
    operator.mod: "gh_modulo({0}, {1})",
    operator.neg: "(-{0})",
    operator.pos: "{0}",
    operator.pow: "pow({0}, {1})",
    operator.ipow: "pow({0}, {1})",
    pow: "pow({0}, {1})",
    math.pow: "pow({0}, {1})",
    abs: "fabs({0})",
    operator.abs: "fabs({0})",
    float: "{0}",
    int: "trunc({0})",
    min: "fmin({0}, {1})",
    max: "fmax({0}, {1})",
    **{
        getattr(math, name): f"{name}({{0}})"
        for name in ("sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "floor", "ceil", "log1p")
    },
}


class StateNumber(NamedTuple):
    """A number that the folder's state has under a name."""

    name: str


class ComputedNumber(NamedTuple):
    """A function's value at other numbers: at each a number, or an expression."""

    fn: Any
    args: tuple[Any, ...]


def c_number(expr: Any, places: dict[str, str]) -> str:
    """An expression in C; `places` has the texts of the state's numbers.

    Raises: OptionError for a function without a form in C
    """
    if isinstance(expr, StateNumber):
        return places[expr.name]
    if not isinstance(expr, ComputedNumber):
        return literal(float(expr))
    template = FUNCTIONS.get(expr.fn)
    args = [c_number(x, places) for x in expr.args]
    if template is None or f"{{{len(args)}}}" in template or f"{{{len(args) - 1}}}" not in template:
        name = getattr(expr.fn, "__qualname__", repr(expr.fn))
        fix = "Compute it outside of the step, and pass it as an argument."
        expected = "numbers computed by arithmetic and functions of `math`"
        raise OptionError("export_program", expected, f"{name} of {len(args)} arguments", fix)
    return template.format(*args)


def value_of(expr: Any, numbers: dict[str, float]) -> Any:
    """The value of an expression of the state's numbers."""
    if isinstance(expr, StateNumber):
        return numbers[expr.name]
    if isinstance(expr, ComputedNumber):
        return expr.fn(*[value_of(x, numbers) for x in expr.args])
    return expr


def literal(value: float) -> str:
    """A float64 in C, to the bit."""
    if math.isnan(value):
        return "(double)NAN"
    if math.isinf(value):
        return "(double)INFINITY" if value > 0 else "(-(double)INFINITY)"
    return f"({value.hex()})"


def names_in(expr: Any) -> set[str]:
    """The state's numbers that an expression reads."""
    if isinstance(expr, StateNumber):
        return {expr.name}
    if isinstance(expr, ComputedNumber):
        return set().union(*map(names_in, expr.args))
    return set()
