"""Context variables: a trace guards the values that it reads, and later calls set those it sets."""

from contextvars import ContextVar

from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.values.plain import FUNCTIONS, MISSING, SCALARS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Recipe, ValueSource, Var


class ContextVariableRules:
    """The part of the tracer that knows `get`, `set` and `reset` of a ContextVar.

    A `reset` cancels the `set` of the same trace: later calls do neither."""

    def context_method(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """Call a method of a context variable; a break if no rule covers it."""
        if isinstance(this.origin, ValueSource):
            self.guards.add("is", this.origin, this.value)
        changes = self.context_changes.setdefault(id(this.value), [])
        if name == "get" and len(args) < 2 and not kwargs:
            if changes:
                return self.deliver(then, changes[-1].origin.parts[1])
            value = self.context_value(this.value, args)
            if value is not None:
                return self.deliver(then, value)
        elif name == "set" and len(args) == 1 and not kwargs:
            before = changes[-1] if changes else None
            recipe = Recipe("token", this, args[0], before)
            token = self.track(Var(self.do(this.value.set, args[0].value), recipe))
            changes.append(token)
            self.write(this, ("token", token))
            return self.deliver(then, token)
        elif name == "reset" and len(args) == 1 and not kwargs and changes[-1:] == args:
            return self.take_back(this, changes, then)
        raise Break(f"method {name} of a ContextVar", fn, args, kwargs)

    def take_back(self, this: Var, changes: list[Var], then):
        """reset(token) for the last `set` of the trace."""
        token = changes.pop()
        self.do(this.value.reset, token.value)
        token.origin = Recipe("used_token")
        this.log.pop()
        if not this.log:
            this.log = None
            self.written.remove(this)
        return self.give(then, None)

    def context_value(self, variable: ContextVar, args) -> Var | None:
        """The guarded value of a variable that the trace did not set; None if not constant."""
        value = self.do(variable.get, MISSING)
        fixed = value is MISSING or type(value) in SCALARS or isinstance(value, FUNCTIONS)
        if not fixed:
            return None
        source = self.guards.source("const", None, variable, variable.name)
        text = f"{variable.name}.get() is {'nothing' if value is MISSING else repr(value)}"
        self.guards.add("call", source, GuardCheck(has_value, value, text))
        if value is not MISSING:
            return Var(value)
        if args:
            return args[0]
        usual = self.do(variable.get)  # raises if there is no default
        return Var(usual) if type(usual) in SCALARS or isinstance(usual, FUNCTIONS) else None


def has_value(variable: ContextVar, want) -> bool:
    """Whether a context variable has this value."""
    value = variable.get(MISSING)
    return value is want or type(value) is type(want) in (int, str, bytes) and value == want
