"""The door: primitives, `bind`, modes, values with operators, and the backend protocol."""

from glasshouse.dispatch.autocast import autocast, is_autocast_enabled
from glasshouse.dispatch.backend import TensorBackend
from glasshouse.dispatch.bind import bind
from glasshouse.dispatch.mode import Mode, active_modes
from glasshouse.dispatch.primitive import (
    LINEAR,
    Arr,
    ErrorSample,
    Primitive,
    Rule,
    Sample,
    define,
    find,
    primitives,
)
from glasshouse.dispatch.value import Value

__all__ = [
    "LINEAR",
    "Arr",
    "ErrorSample",
    "Mode",
    "Primitive",
    "Rule",
    "Sample",
    "TensorBackend",
    "Value",
    "active_modes",
    "autocast",
    "bind",
    "define",
    "find",
    "is_autocast_enabled",
    "primitives",
]
