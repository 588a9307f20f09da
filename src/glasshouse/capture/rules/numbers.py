"""Arithmetic and comparisons of numbers, some of which differ from call to call."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.outcomes import Among, OutcomeWriter, rely_on, was_seen_to_vary
from glasshouse.capture.values.plain import ARRAY_SCALARS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import SymbolicNumber, ValueSource, Var
from glasshouse.ir.node import IRNode

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer

COMPARE = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
OF_NUMBERS = "add sub mul truediv floordiv mod pow".split()
ARITHMETIC: set[Any] = {
    *(getattr(operator, f"{i}{name}") for name in OF_NUMBERS for i in ("", "i")),
    *(getattr(math, name) for name in "sqrt exp log cos sin pow floor ceil tanh".split()),
    *(operator.neg, operator.pos, float, int, abs, min, max, round),
}
SURE: set[Any] = {
    *(getattr(operator, f"{i}{name}") for name in OF_NUMBERS[:3] for i in ("", "i")),
    *(operator.neg, operator.pos, abs, float),
}
WHOLE_DIVISIONS: set[Any] = {operator.mod, operator.imod, operator.floordiv, operator.ifloordiv}


def may_vary(t: "CaptureTracer", fn: Callable[..., Any]) -> bool:
    """Whether each call may do arithmetic again: it cannot raise, or is the library's."""
    return fn in SURE or fn in ARITHMETIC and t.frames[-1].trusted


def is_number_call(t: "CaptureTracer", args: list[Any]) -> bool:
    return bool(args) and any(t.varies(x) for x in args) and all(is_number_of_call(x) for x in args)


def is_number_of_call(x: Var) -> bool:
    """Whether a value is a number, or a comparison of numbers that vary."""
    if type(x.value) is bool:
        return isinstance(x.origin, SymbolicNumber)
    has_source = x.origin is None or isinstance(x.origin, (ValueSource, SymbolicNumber))
    return has_source and type(x.value) in (int, float, *ARRAY_SCALARS)


def is_size_call(t: "CaptureTracer", args: list[Any]) -> bool:
    """Whether arithmetic is on sizes that the graph computes."""
    return any(isinstance(x.origin, IRNode) for x in args) and all(
        type(x.value) in (int, float) for x in args
    )


def of_numbers(t: "CaptureTracer", fn: Any, args: list[Any]) -> Var | None:
    """An operation on numbers, some of which vary. Later calls do it again, or rely on its
    outcome; None if they rely on the numbers."""
    is_whole = fn is int and type(args[0].value) in (int, bool)
    if may_vary(t, fn) or divides_by_constant(fn, args) or is_whole:
        return t.number(fn, args)
    tells = fn is bool or fn in COMPARE or isinstance(fn, Among)
    outcome = OutcomeWriter(t).outcome(fn, args) if tells or fn in ARITHMETIC else None
    if outcome is None:
        return t.number(fn, args) if fn in COMPARE and all_vary(t, args) else None
    try:
        value = fn(*(x.value for x in args))
    except (ArithmeticError, TypeError, ValueError):
        return None
    if tells:
        rely_on(t, outcome, "truth", value)
        return Var(value)
    if type(value) not in (int, float):
        return None
    rely_on(t, outcome, "type", type(value))
    return t.number(fn, args)


def all_vary(t: "CaptureTracer", args: Sequence[Var]) -> bool:
    """Whether all numbers that an operation on these reads were seen to vary."""
    leaves = [*args]
    while any(isinstance(x.origin, SymbolicNumber) for x in leaves):
        parts = [x.origin.args if isinstance(x.origin, SymbolicNumber) else (x,) for x in leaves]
        leaves = [x for part in parts for x in part]
    read = [x for x in leaves if x.origin is not None]
    return len({x.origin for x in read}) > 1 and all(was_seen_to_vary(t, x) for x in read)


def number(t: "CaptureTracer", fn: Callable[..., Any], args: list[Any]) -> Var:
    """The Var of arithmetic that later calls do again."""
    for x in args:
        t.typed(x)
    return Var(t.do(fn, *(x.value for x in args)), SymbolicNumber(fn, tuple(args)))


def divides_by_constant(fn: Callable[..., Any], args: list[Any]) -> bool:
    """Whether this is // or % of whole numbers by a constant, which cannot raise."""
    whole = fn in WHOLE_DIVISIONS and all(type(x.value) is int for x in args)
    return whole and args[1].origin is None and args[1].value != 0
