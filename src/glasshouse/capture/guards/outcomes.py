"""Guards on expressions of a number that varies: on the outcome, not on the number.

`if step % 10 == 0` has two captures, one for each outcome, not one for each step.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.capture.guards.program import OutcomeCheck
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import SymbolicNumber, ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


WAYS = {  # checks by kind
    "truth": "bool({}) is wanted",
    "number": "type(x := {}) is int and x == wanted",
    "type": "type({}) is wanted",
}
MAX_OPERATIONS = 12  # in one expression: for longer ones the number itself is guarded
SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
}
BINARY = {getattr(operator, name): sign for name, sign in SIGNS.items()}
BINARY |= {getattr(operator, f"i{name}"): sign for name, sign in list(SIGNS.items())[:7]}
UNARY: dict[Any, Any] = {operator.neg: "-", operator.pos: "+"}
ONE_TO_ONE = ("+", "-")  # another number gives another outcome
NUMBER = "\0"  # a placeholder for the number in a text


class NumberExpression(NamedTuple):
    """An expression of one number that varies, as Python's text."""

    number: Var
    text: str
    names: dict[str, Any]  # values of its names
    fixed: list[Var]  # numbers that are constants in it
    one_to_one: bool  # another number gives another outcome


class Among(NamedTuple):
    """Whether a number is in a tuple or range of constants, as a function of the number."""

    values: Any

    def __call__(self, number: Any) -> bool:
        return number in self.values


class OutcomeWriter:
    """Writes an expression of numbers; `read` are those that vary."""

    def __init__(self, tracer: "CaptureTracer") -> None:
        self.tracer = tracer
        self.read: dict[ValueSource, Var] = {}
        self.fixed: list[Var] = []
        self.names: dict[str, Any] = {"__name__": __name__}
        self.operations: int = 0
        self.one_to_one: bool = True

    def outcome(self, fn: Callable[..., Any], args: Sequence[Any]) -> NumberExpression | None:
        """fn(*args) as an expression; None if it is too long or not of one number."""
        text = self.call(fn, args)
        if text is None or len(self.read) != 1:
            return None
        (number,) = self.read.values()
        return NumberExpression(number, text, self.names, self.fixed, self.one_to_one)

    def call(self, fn: Any, args: Sequence[Any]) -> str | None:
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            return None
        parts: list[Any] = [self.number(x) for x in args]
        if None in parts:
            return None
        sign = BINARY.get(fn) if len(parts) == 2 else UNARY.get(fn)
        self.one_to_one &= sign in ONE_TO_ONE
        if isinstance(fn, Among):
            return f"({parts[0]} in {fn.values!r})"
        if sign is not None:
            return f"({f' {sign} '.join(parts)})" if len(parts) == 2 else f"({sign}{parts[0]})"
        return f"{self.named(fn)}({', '.join(map(bare, parts))})"

    def named(self, value: Any) -> str:
        name = getattr(value, "__name__", "number")
        while self.names.setdefault(name, value) is not value:
            name += "_"
        return name

    def number(self, x: Var) -> str | None:
        value, origin = x.value, x.origin
        if isinstance(origin, SymbolicNumber):
            return self.call(origin.fn, origin.args)
        if isinstance(origin, ValueSource):
            if was_seen_to_vary(self.tracer, x):
                self.read[origin] = x
                return NUMBER
            self.fixed.append(x)
        if type(value) is int or type(value) is float and math.isfinite(value):
            text = repr(value)
            return f"({text})" if text.startswith("-") else text
        return self.named(value) if type(value) is float else None


def bare(text: str) -> str:
    """An operation without the parentheses around it."""
    return text[1:-1] if text.startswith("(") else text


def statement(text: str, way: str, expected: Any) -> str:
    """The condition as text for a reader."""
    if way == "number":
        return f"{text} == {expected}"
    if way == "type":
        return f"type({bare(text)}) is {expected.__name__}"
    return bare(text) if expected else f"not {text}"


def rely_on(tracer: "CaptureTracer", outcome: NumberExpression, way: str, expected: Any) -> None:
    """Guard the outcome of an expression: a truth, an int, or a type."""
    source = outcome.number.origin
    tracer.typed(outcome.number)
    for x in outcome.fixed:
        tracer.concretize(x)
    text = statement(outcome.text.replace(NUMBER, source.text), way, expected)
    if (source, text) not in tracer.guards.outcomes:
        tracer.guards.outcomes.add((source, text))
        code = WAYS[way].format(outcome.text.replace(NUMBER, "n"))
        test = eval(compile(f"lambda n, wanted: {code}", __file__, "eval"), outcome.names)
        tracer.guards.add("call", source, OutcomeCheck(test, expected, text))


def was_seen_to_vary(t: "CaptureTracer", var: Var) -> bool:
    """Whether a number varied in earlier calls, or may vary by a setting."""
    varied = t.varying.is_all or var.origin.text in t.varying.sources
    return varied and type(var.value) in (int, float) and t.varies(var)
