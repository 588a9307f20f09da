"""Python functions in a trace: whether they are inlined, and the frame of such a call."""

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.bytecode.instructions import GENERATORS, decoded, original_of, slot_names
from glasshouse.capture.bytecode.skipped import is_skipped
from glasshouse.capture.frames.frame import CapturedGenerator, CaptureFrame, plain_value
from glasshouse.capture.frames.polyfill_natives import KINDS
from glasshouse.capture.rules.class_lookups import rely_on_function
from glasshouse.capture.rules.iteration import is_left_open, keeps, leave_generator_to_python
from glasshouse.capture.rules.new_objects import new_dict
from glasshouse.capture.rules.opcodes import op_MAKE_CELL, unknown_operation
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import is_trusted
from glasshouse.capture.values.polyfills import NATIVES
from glasshouse.capture.values.var import Kwargs, Recipe, Then, Var, constant

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


LIMIT_DEPTH = 120
NO_WORDS: dict[str, Var] = {}


def leave_to_python(
    t: "CaptureTracer", reason: Any, fn: Var, args: Any, kwargs: Any, then: Any
) -> Any:
    """Do a call in Python, and from their next call on also all running functions."""
    for frame in t.frames:
        decoded(original_of(frame.root)[0]).unknown = frame.code.unknown = reason
    t.stop_learning(reason)
    t.hands_over = False  # a call of a resume function holds its arguments
    return t.call(fn, args, kwargs, then)


def why_opaque(
    t: "CaptureTracer", f: Callable[..., Any], args: Any = (), kwargs: Any = NO_WORDS
) -> str | None:
    """The reason why a call of a function is not captured; None if it is."""
    code = f.__code__
    config = t.config
    off = id(code) in config.disabled or id(f) in config.disallowed
    marked: Any = getattr(f, "__gh_disabled__", False)  # or why
    if off or marked:
        return marked if isinstance(marked, str) else f"{f.__qualname__} is not to be captured"
    if code.co_flags & (0x80 | 0x200):
        return f"{f.__qualname__} is a coroutine"
    module = str(f.__globals__.get("__name__", ""))  # wraps() copies the name of another
    if is_skipped(module, f.__qualname__):
        return f"{module}.{f.__qualname__} is not captured"
    is_left = module.startswith(t.front.left_to_python)
    if is_left and not t.front.looks_into(t, module, args, kwargs):
        return t.front.why_left(f, module)
    missing = unknown_operation(code)
    return f"{f.__qualname__} has {missing}" if missing else None


def inline(
    t: "CaptureTracer",
    fn: Var,
    args: list[Any],
    kwargs: Kwargs,
    then: Then,
    init: Var | None = None,
) -> Any:
    """Interpret a call in a new frame."""
    f, code = fn.value, fn.value.__code__
    if t.guards.live and code.co_flags & GENERATORS and is_left_open(t, code):
        return leave_generator_to_python(t, fn, args, kwargs, then)
    if not fn.is_new:
        t.guards.note_read("function", f, "__code__", f)
        rely_on_function(t, f)
    frame = CaptureFrame(code, f.__globals__, len(slot_names(code)))
    bind_arguments(t, fn, frame, args, kwargs)
    closure = closure_of(t, fn)
    count = len(frame.locals) - len(code.co_freevars)
    frame.locals[count:] = closure
    if code.co_flags & GENERATORS:
        operations = [x.op for x in frame.code.instructions]
        frame.ip = operations.index("RETURN_GENERATOR") + 1
        for ins in frame.code.instructions[: frame.ip]:
            if ins.op == "MAKE_CELL":
                op_MAKE_CELL(t, frame, ins)
        site = t.frames.site()
        make = functools.partial(call_natively, NATIVES.get(f, f), args, kwargs)
        new = CapturedGenerator(frame, site, type(t).untraced, make)
        new.kind, new.is_kept = KINDS.get(f, new.kind), not t.guards.live or keeps(t)
        return t.deliver(then, t.heap.track(Var(new, Recipe("generator", site))))
    frame.then, frame.init = then, init
    t.frames.append(frame)
    return None


def closure_of(t: "CaptureTracer", fn: Var) -> list[Var]:
    """The cells of a function."""
    if fn.is_made("function"):
        closure = fn.origin.parts[2].get("closure")
        return [] if closure is None else list(closure.items)
    closure, cells = t.heap.sub(fn, "attr", "__closure__"), []
    for i, cell in enumerate(fn.value.__closure__ or ()):
        source = None
        if closure is not None:
            source = t.guards.source("item", closure, i)
        elif t.guards.live:
            source = t.guards.source("const", None, cell, f"cell{i}")
        cells.append(t.heap.load(cell, source))
    return cells


def default_of(t: "CaptureTracer", fn: Var, kind: str, key: Any) -> Var:
    """A default argument."""
    if fn.is_made("function"):
        defaults = fn.origin.parts[2][kind.strip("_")]
        if not defaults.items:
            return constant(defaults.value[key])
        return defaults.items[key] if isinstance(key, int) else defaults.items[key][1]
    f = fn.value
    value, base = getattr(f, kind)[key], t.heap.sub(fn, "attr", kind)
    if base is None and t.guards.live and not is_trusted(str(f.__module__)):
        place = t.guards.source("const", None, f, f.__name__)
        base = t.guards.source("attr", place, kind)
    if base is None or f.__module__.startswith("glasshouse."):
        return t.heap.load_in(True, value, t.guards.source("const", None, value, "default"))
    step = "item" if isinstance(key, int) else "get"
    return t.heap.load(value, t.guards.source(step, base, key))


def bind_arguments(
    t: "CaptureTracer", fn: Var, frame: CaptureFrame, args: list[Any], kwargs: Kwargs
) -> None:
    """Put arguments into a frame's slots: Python binds the Vars."""
    f = fn.value
    code = f.__code__
    named, stars = code.co_argcount + code.co_kwonlyargcount, code.co_flags & 0xC
    names = code.co_varnames[: named + stars.bit_count()]
    taking = ARGUMENTS.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=names,
        co_nlocals=len(names),
        co_flags=ARGUMENTS.co_flags | stars,
        co_name=code.co_name,
    )
    bind = types.FunctionType(taking, {})
    bind.__qualname__ = f.__qualname__
    bind.__defaults__ = tuple(("__defaults__", i) for i in range(len(f.__defaults__ or ())))
    bind.__kwdefaults__ = {name: ("__kwdefaults__", name) for name in f.__kwdefaults__ or ()}
    values = list(t.do(bind, *args, **kwargs).values())
    for i, x in enumerate(values[:named]):
        frame.locals[i] = x if isinstance(x, Var) else default_of(t, fn, *x)
    for i, x in enumerate(values[named:], named):
        pairs = type(x) is dict and ((Var(k), v) for k, v in x.items())
        frame.locals[i] = new_dict(t, pairs) if pairs else t.heap.new_tuple(x)


def call_natively(f: Callable[..., Any], args: list[Var], kwargs: dict[Any, Any]) -> Any:
    """f of Vars, with Python's own iterators among them."""
    return f(*map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()})


def arguments() -> dict[str, Any]:
    return locals()


ARGUMENTS = arguments.__code__  # with the parameters of another function it binds like that
