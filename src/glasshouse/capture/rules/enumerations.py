"""Members of enumerations: constant objects, whose attributes may change."""

import enum

from glasshouse.capture.values.plain import MISSING, SCALARS
from glasshouse.capture.values.var import Break, Var


class EnumerationRules:
    """The part of the tracer that finds members of enumerations."""

    def member(self, cls: type, name: str, member: enum.Enum) -> Var:
        """A member of an enumeration, with its source."""
        place = self.guards.source("const", None, member, f"{cls.__name__}.{name}")
        return self.load(member, place)

    def member_for(self, fn: Var, args, kwargs, member: enum.Enum, then):
        """The member of an enumeration for a value, by a call of the class."""
        cls, value = fn.value, args[0].value if len(args) == 1 and not kwargs else MISSING
        may_change = isinstance(member, enum.Enum) and self.may_change(cls)  # not one in C
        if not may_change or value is member:
            return self.give(then, member)
        if type(value) not in SCALARS or cls._value2member_map_.get(value) is not member:
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        table = self.source_in(fn, "lookup", "_value2member_map_")
        self.guards.add("is", self.guards.source("get", table, value), member)
        return self.deliver(then, self.member(cls, member._name_ or repr(value), member))
