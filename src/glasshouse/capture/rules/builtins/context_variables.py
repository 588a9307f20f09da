"""Context variables: a trace guards the values that it reads, and later calls set those it sets. A
`reset` cancels the `set` of the same trace: later calls do neither."""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.values.plain import FUNCTIONS, MISSING, SCALARS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, ValueSource, Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


def context_method(
    t: "CaptureTracer", fn: Var, this: Var, name: str, args: list[Var], kwargs: Kwargs, then: Any
) -> Any:
    """Call a method of a context variable; a break if no rule covers it."""
    if isinstance(this.origin, ValueSource):
        t.guards.add("is", this.origin, this.value)
    changes = t.effects.context_changes.setdefault(id(this.value), [])
    if name == "get" and len(args) < 2 and not kwargs:
        if changes:
            return t.deliver(then, changes[-1].origin.parts[1])
        value = context_value(t, this.value, args)
        if value is not None:
            return t.deliver(then, value)
    elif name == "set" and len(args) == 1 and not kwargs:
        before = changes[-1] if changes else None
        recipe = Recipe("token", this, args[0], before)
        token = t.heap.track(Var(t.do(this.value.set, args[0].value), recipe))
        changes.append(token)
        t.effects.write(this, ("token", token))
        return t.deliver(then, token)
    elif name == "reset" and len(args) == 1 and not kwargs and changes[-1:] == args:
        return take_back(t, this, changes, then)
    raise Break(f"method {name} of a ContextVar", fn, args, kwargs)


def take_back(t: "CaptureTracer", this: Var, changes: list[Var], then: Any) -> Any:
    """reset(token) for the last `set` of the trace."""
    token = changes.pop()
    t.do(this.value.reset, token.value)
    token.origin = Recipe("used_token")
    t.effects.take_back(this)
    return t.give(then, None)


def context_value(t: "CaptureTracer", variable: ContextVar[Any], args: list[Var]) -> Var | None:
    """The guarded value of a variable that the trace did not set; None if not constant."""
    value = t.do(variable.get, MISSING)
    fixed = value is MISSING or type(value) in SCALARS or isinstance(value, FUNCTIONS)
    if not fixed:
        return None
    source = t.guards.source("const", None, variable, variable.name)
    text = f"{variable.name}.get() is {'nothing' if value is MISSING else repr(value)}"
    t.guards.add("call", source, GuardCheck(has_value, value, text))
    if value is not MISSING:
        return Var(value)
    if args:
        return args[0]
    usual = t.do(variable.get)  # raises if there is no default
    return Var(usual) if type(usual) in SCALARS or isinstance(usual, FUNCTIONS) else None


def has_value(variable: ContextVar[Any], want: Any) -> bool:
    """Whether a context variable has this value."""
    value = variable.get(MISSING)
    return value is want or type(value) is type(want) in (int, str, bytes) and value == want
