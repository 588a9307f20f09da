"""`is`: whether two values are one object, guarded."""

from glasshouse.capture.guards.program import brief
from glasshouse.capture.values.plain import FUNCTIONS, SCALARS, compares
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import SymbolicNumber, ValueSource, Var
from glasshouse.ir.node import IRNode


class IdentityRules:
    """The part of the tracer that tells objects apart."""

    def identical(self, lhs: Var, rhs: Var) -> bool:
        """lhs is rhs, guarded."""
        same = lhs.value is rhs.value
        if not self.live or lhs is rhs:
            return same
        if same and id(lhs.value) in self.shared:
            for var in (lhs, rhs):
                if isinstance(var.origin, IRNode):
                    self.fix_inputs(var.origin)
        single = (bool, type(None), type(Ellipsis), type(NotImplemented))
        for var, other in ((lhs, rhs), (rhs, lhs)):
            if type(other.value) in single and isinstance(var.origin, ValueSource):
                self.concretize(other)
                if type(var.value) in single:
                    self.guards.add("is", var.origin, var.value)
                else:
                    self.typed(var)
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
                    self.concretize(x)
        elif sources and fixed and same and is_held(lhs.value):
            self.concretize(sources[0])
        elif sources and fixed and not scalars and type(lhs.value) is not type(rhs.value):
            self.typed(sources[0])
        elif len(sources) + len(fixed) == 2 and sources:
            places = [x.origin or self.constant_source(x.value) for x in (lhs, rhs)]
            if lhs.origin is None:
                places.reverse()
            self.guards.add("same" if same else "distinct", *places)
        return same

    def constant_source(self, value) -> ValueSource:
        """The source of a constant that another value is compared with."""
        return self.guards.source("const", None, value, brief(value))


def is_held(value) -> bool:
    """Whether guards on a value are guards on its identity."""
    return not compares(value) and type(value) not in (tuple, list, set)
