"""Calls: primitives, `bind`, modes, values with operators, and the backend protocol."""

from glasshouse.dispatch.autocast import autocast, is_autocast_enabled
from glasshouse.dispatch.backend import TensorBackend, quiet
from glasshouse.dispatch.bind import bind, box, state, timers, watchers
from glasshouse.dispatch.call import Cost, cost_of
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.kernel_text import KernelText
from glasshouse.dispatch.mode import Level, Mode, active_modes
from glasshouse.dispatch.primitive import (
    DTYPE_GROUPS,
    LINEAR,
    Arr,
    ErrorSample,
    Primitive,
    Rule,
    Sample,
    card,
    define,
    find,
    primitives,
    refusal,
    sample,
)
from glasshouse.dispatch.scope import phase, scope_of
from glasshouse.dispatch.value import (
    SCALARS,
    Value,
    adopt,
    as_value,
    broadcast_to,
    cast,
    full,
    match,
    reshape,
    share,
    unshared,
    zeros,
)
from glasshouse.dispatch.watch import OpCall, Watcher, add_op_callback, tell

__all__ = ["LINEAR", "Arr", "Cost", "ErrorSample", "KernelText", "Mode", "OpCall", "Primitive",
           "Rule", "Sample", "TensorBackend", "Value", "Watcher", "active_modes", "add_op_callback",
           "autocast", "bind", "cost_of", "define", "find", "is_autocast_enabled",
           "primitives"]  # fmt: skip
