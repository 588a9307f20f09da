"""Functions that ONNX says in one node, or a few: the calls of their parts are not written.

While a function is traced, each call of a composed function of this table on values of the trace
becomes one call of the trace. A call that the table does not know (another dtype, an option) is
written by its parts."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

from glasshouse.base.dtype import float16, float32
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.call import PseudoPrimitive
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.mode import Level
from glasshouse.dispatch.value import Value
from glasshouse.onnx.writing.table import WRITERS
from glasshouse.ops.body import BodyTracer, traced

__all__ = ["Whole", "recognised", "whole"]


class Whole(NamedTuple):
    """A function that is written whole: `fits` says of its arguments which attributes the call has,
    or None for a call that is not known; `operands` names those that are tensors, in order."""

    primitive: PseudoPrimitive
    operands: tuple[str, ...]
    fits: Callable[..., Any]


WHOLES: dict[str, Whole] = {}


def whole(name: str, *operands: str, fits: Callable[..., Any] | None = None) -> Any:
    """A decorator for the function that writes a composed function of this name."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        primitive = PseudoPrimitive(f"{name}()", None)
        WHOLES[name] = Whole(primitive, operands, fits or (lambda **_: {}))
        WRITERS[primitive.name] = function
        return function

    return enter


WHERE_WHOLE = "onnx"  # key of the mode of traces that have them
one_at_a_time: Lock = Lock()  # of exports, which change the hook of all threads


@contextmanager
def recognised() -> Iterator[None]:
    """A context in which traces of this thread with that mode have these functions whole."""
    with one_at_a_time:
        yield from composing()


def composing() -> Iterator[None]:
    """The hook in force until the generator goes on."""
    before = hooks.compose

    def compose(what: Any, args: Any, named: Any) -> Any:
        entry = WHOLES.get(what[2])
        if entry is not None:
            tracer = innermost_tracer()
            result = None if tracer is None else whole_call(entry, tracer, what[0], args, named)
            if result is not None:
                return result
        return before(what, args, named)

    hooks.compose = compose
    try:
        yield
    finally:
        hooks.compose = before


def innermost_tracer() -> BodyTracer | None:
    """The trace that runs for an export on this thread, where no other transform does."""
    if not any(mode.key == WHERE_WHOLE for mode in state.modes):
        return None
    levels = [mode for mode in state.modes if isinstance(mode, Level)]
    tracers = [mode for mode in levels if isinstance(mode, BodyTracer)]
    return tracers[-1] if tracers and len(tracers) == len(levels) else None


@functools.lru_cache(1 << 10)
def parameters_of(fn: Any) -> inspect.Signature:
    return inspect.signature(fn)


def whole_call(entry: Whole, tracer: BodyTracer, fn: Any, args: Any, named: Any) -> Any:
    """The result of a call that is written whole; None for one that is not known."""
    try:
        bound = parameters_of(fn).bind(*args, **named)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    values = {name: arguments.pop(name, None) for name in entry.operands}
    first = next(iter(values.values()))
    if not all(x is None or isinstance(x, Value) for x in values.values()):
        return None
    if any(isinstance(x, Value) for x in arguments.values()):
        return None
    if not isinstance(first, Value) or first.dtype not in (float32, float16):
        return None
    attrs = entry.fits(**values, **arguments)
    if attrs is None:
        return None
    present = [x for x in values.values() if x is not None]
    if any(x.dtype.is_floating and x.dtype is not first.dtype for x in present):
        return None
    specs = [x.spec for x in present]
    like = iter(range(len(specs)))
    at = {name: None if x is None else next(like) for name, x in values.items()}

    def parts(*xs: Any) -> Any:
        operands = {name: None if i is None else xs[i] for name, i in at.items()}
        call = parameters_of(fn).bind(*args, **named)
        call.apply_defaults()
        call.arguments.update(operands)
        return fn(*call.args, **call.kwargs)

    _, _, result = traced(parts, specs, hoists=False, writes_scalars=True)
    attrs = {**attrs, "given": tuple(x is not None for x in values.values())}
    return tracer.emit(entry.primitive, tuple(present), attrs, result.spec)
