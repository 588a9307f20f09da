"""`is`: whether two values are one object, guarded."""

from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.program import brief
from glasshouse.capture.rules.constants import fix_inputs
from glasshouse.capture.values.plain import FUNCTIONS, SCALARS, compares
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import SymbolicNumber, ValueSource, Var
from glasshouse.ir.node import IRNode

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def identical(t: "CaptureTracer", lhs: Var, rhs: Var) -> bool:
    """lhs is rhs, guarded."""
    same = lhs.value is rhs.value
    if not t.guards.live or lhs is rhs:
        return same
    if same and id(lhs.value) in t.operands.shared:
        for var in (lhs, rhs):
            if isinstance(var.origin, IRNode):
                fix_inputs(t, var.origin)
    single = (bool, type(None), type(Ellipsis), type(NotImplemented))
    for var, other in ((lhs, rhs), (rhs, lhs)):
        if type(other.value) in single and isinstance(var.origin, ValueSource):
            t.concretize(other)
            if type(var.value) in single:
                t.guards.add("is", var.origin, var.value)
            else:
                t.typed(var)
            return same
        computed = isinstance(var.origin, (IRNode, SymbolicNumber))
        if computed and type(other.value) in single and type(var.value) not in single:
            return same  # for any number
    sources = [x for x in (lhs, rhs) if isinstance(x.origin, ValueSource)]
    functions = any(isinstance(x.value, FUNCTIONS) for x in sources)
    scalars = any(type(x.value) in SCALARS for x in (lhs, rhs))
    fixed = [x for x in (lhs, rhs) if x.origin is None]
    if functions or scalars and len(sources) + len(fixed) < 2:  # a computed number
        for x in (lhs, rhs):
            if isinstance(x.origin, ValueSource) or type(x.value) in SCALARS:
                t.concretize(x)
    elif sources and fixed and same and is_held(lhs.value):
        t.concretize(sources[0])
    elif sources and fixed and not scalars and type(lhs.value) is not type(rhs.value):
        t.typed(sources[0])
    elif len(sources) + len(fixed) == 2 and sources:
        places = [x.origin or constant_source(t, x.value) for x in (lhs, rhs)]
        if lhs.origin is None:
            places.reverse()
        t.guards.add("same" if same else "distinct", *places)
    return same


def constant_source(t: "CaptureTracer", value: Any) -> ValueSource:
    """The source of a constant that another value is compared with."""
    return t.guards.source("const", None, value, brief(value))


def is_held(value: Any) -> bool:
    """Whether guards on a value are guards on its identity."""
    return not compares(value) and type(value) not in (tuple, list, set)
