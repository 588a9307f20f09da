"""Nodes for calls of operations: the arguments that break the graph, and a node's metadata."""

import types
from typing import Any

from glasshouse.capture.rules.constants import fix_inputs
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Var
from glasshouse.ir.node import IRNode


def refuse_functions(
    front: Any, tracer: "CaptureTracer", fn: Any, call: Var, args: Any, kwargs: Any
) -> None:
    """Break the graph where a call has a function of the user's as an argument."""
    for x in (*args, *kwargs.values()):
        is_users = isinstance(x.value, types.FunctionType) and not front.is_operation(x.value)
        if is_users and id(fn) not in tracer.config.allowed:
            reason = f"{getattr(fn, '__name__', fn)} is given a function"
            raise Break(reason, call, args, kwargs)


def describe_call(front: Any, tracer: "CaptureTracer", node: IRNode, fn: Any) -> None:
    """Note a call's place and its varying inputs in its node."""
    node.meta["line"] = tracer.frames[-1].where
    node.meta["user"] = tracer.frames.user_line()
    node.meta["handled"] = any(
        not f.trusted and f.code.handler_at(f.at) is not None for f in tracer.frames
    )
    front.annotate(node)
    node.meta["varies"] = front.depends_on_varying(node, fn)
    node.meta["rank_varies"] = node.meta["varies"] and front.rank_varies(node)
    if node.meta["varies"] and any(f.code.catches_at(f.at) for f in tracer.frames):
        fix_inputs(tracer, node)  # with others it may raise, which the graph cannot catch
