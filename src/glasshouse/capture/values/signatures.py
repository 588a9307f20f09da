"""Signatures of functions, and the read-only mapping of their parameters."""

import inspect
import types
from typing import TYPE_CHECKING, Any

from glasshouse.capture.values.var import Break, Recipe, ValueSource, Var, constant

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


REPLACED = {"__wrapped__", "__signature__"}  # attributes that refer to another signature


def on_signature(t: "CaptureTracer", fn: Any, args: Any, kwargs: Any, then: Any) -> Any:
    """inspect.signature of a plain function or method: a constant while its code and defaults stay
    the same."""
    target: Any = function_of(args[0]) if len(args) == 1 and not kwargs else None
    f = None if target is None else target.value
    plain = type(f) is types.FunctionType and not target.is_new
    if not plain or REPLACED & f.__dict__.keys():
        raise Break("a call of inspect.signature", fn, args, kwargs)
    t.concretize(target)
    if isinstance(target.origin, ValueSource):
        for name in ("__defaults__", "__kwdefaults__"):
            t.guards.add("is", t.guards.source("attr", target.origin, name), getattr(f, name))
    return t.give(then, inspect.signature(args[0].value))


def function_of(var: Var) -> Var | None:
    """The function of a method that was bound here; another value unchanged."""
    if type(var.value) is not types.MethodType:
        return var
    inner = var.origin.parts[1] if var.is_made("method") else None
    return inner if isinstance(inner, Var) else None


def is_of_signature(var: Var) -> bool:
    """Whether a value is a constant signature, or a parameter of one."""
    return type(var.value) in (inspect.Signature, inspect.Parameter) and var.origin is None


def signature_part(t: "CaptureTracer", var: Var, name: str) -> Var:
    """An attribute of a signature or of a parameter."""
    part = t.do(getattr, var.value, name)
    if type(part) is types.MappingProxyType:
        inner = constant(part.copy())  # of the type of the mapping under it
        return t.heap.track(Var(part, Recipe("call", Var(types.MappingProxyType), [inner], {})))
    return Var(part)


def without_proxy(var: Var) -> Var:
    """The dict under a read-only mapping that was made here; another value unchanged."""
    is_ours = type(var.value) is types.MappingProxyType and var.is_made("call")
    return var.origin.parts[1][0] if is_ours else var
