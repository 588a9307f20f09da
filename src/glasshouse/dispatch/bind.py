"""Binding: every primitive call goes through `bind`, past the modes, to tape and backend.

`bind` hands the call to the topmost mode with that mode taken off the stack, so the mode's
own calls continue downwards; `below` is `bind` itself. With no mode left, `run` looks up the call,
lets the current backend compute, and has the autograd tape record a call with a tracked operand."""

import itertools
import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base import Spec
from glasshouse.base.errors import DTypeError, TransformError, type_name
from glasshouse.base.flags import flags
from glasshouse.dispatch.call import call_of, calls, source_call
from glasshouse.dispatch.hooks import PythonReplay, hooks
from glasshouse.dispatch.shared_arrays import shared_arrays

if TYPE_CHECKING:
    from glasshouse.dispatch.backend import TensorBackend


thread_numbers: "itertools.count[int]" = itertools.count()


class Watchers(NamedTuple):
    """Watchers of a thread's events, see dispatch/watch.py."""

    all: list[Any]
    timed: list[Any]  # watchers among them that want to know when a call began


watchers: list[Any] = []  # of all threads
timers: list[Any] = []


class State(threading.local):
    """State of a thread: its modes, its backend, whether the base tape records."""

    def __init__(self) -> None:
        self.modes: tuple[Any, ...] = ()
        self.backend: Any = None
        self.compile_target: Any = None  # the target of Programs; None: the default
        self.records = True
        self.scope: Any = None  # the running module's Scope
        self.phase = "forward"
        self.function = ""  # the composed function that runs, which the user called
        self.recompute: Any = None  # for backward: a RecomputeRequest of `graph`
        self.region: Any = None  # of a checkpoint: its number
        self.region_contexts: tuple[Any, ...] = ()  # of a checkpoint's second run, by its function
        self.saved_hooks: Any = None  # (pack(tensor, entry), unpack) of what the tape saves
        self.thread: int = next(thread_numbers)  # unlike idents, never given again
        self.seq = -1  # number on the tape of the call that is being differentiated
        self.values_hidden = False  # while capture traces: a look at a value is an error
        self.watchers: Watchers = Watchers(watchers, timers)


state: State = State()


def bind(primitive: Any, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The value (or tuple of values) of `primitive` applied to `args` with static `attrs`."""
    modes = state.modes
    if not modes:
        return hooks.run(primitive, args, attrs)
    state.modes = modes[:-1]
    try:
        return modes[-1].process(primitive, args, attrs, bind)
    finally:
        state.modes = modes


def run(primitive: Any, args: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Compute on the current backend; the bottom of the stack."""
    now = state.__dict__
    begin_ns = perf_counter_ns() if now["watchers"][1] else 0
    backend = now["backend"] or hooks.default_backend()
    try:
        specs = [arg.spec for arg in args]
    except AttributeError:
        expected = "tensors as operands"
        fix = "Convert with gh.asarray, or call the array function gh.<name>."
        raise DTypeError(primitive.name, expected, ", ".join(map(type_name, args)), fix) from None
    call = calls.get((primitive, None, *specs)) if not attrs else None
    if call is None:
        call = call_of(primitive, specs, attrs) if specs else source_call(primitive, attrs)
    data = [arg.payload if arg.backend is backend else move(arg, backend) for arg in args]
    out = backend.run(call, data, attrs)
    if flags.verify:
        shared_arrays.check(call.name, data)
        check_result(call, backend, out)
    single = primitive.num_outputs == 1
    result = box(out, call.out, backend) if single else box_all(out, call.out, backend)
    if now["records"] and primitive.vjp is not None:
        for arg in args:
            if arg.tape_entry is not None:
                hooks.tape.record(call, args, result)
                break
    for watcher in now["watchers"][0]:
        watcher.op(call, result, begin_ns)
    return result


PythonReplay.run, PythonReplay.state = staticmethod(run), state
hooks.replay_by(PythonReplay)


def box(data: Any, spec: Spec, backend: "TensorBackend | None") -> Any:
    """A tensor around a backend's payload."""
    tensor: Any = object.__new__(hooks.tensor_class)
    tensor.payload = data
    tensor.spec = spec
    tensor.backend = backend
    return tensor


def box_all(data: tuple[Any, ...], specs: Any, backend: "TensorBackend") -> Any:
    return tuple(box(d, s, backend) for d, s in zip(data, specs, strict=True))


def move(arg: Any, backend: Any) -> Any:
    """The payload of `arg` on `backend`; the tensor lives there from now on."""
    if arg.mode is not None or arg.backend is None:
        raise TransformError(
            "bind",
            "ordinary tensors here",
            f"{type_name(arg)} {arg.spec}, a "
            "value of a vmap, jvp or grad that is not active at this point",
            "Return it from the transformed function, or detach it there.",
        )
    if flags.debug:
        print(f"[gh] {arg.spec} moves from {arg.backend.name} to {backend.name}")
    arg.payload = backend.from_numpy(arg.backend.to_numpy(arg.payload))
    arg.backend = backend
    return arg.payload


def check_result(call: Any, backend: Any, out: Any) -> None:
    results = (out,) if call.primitive.num_outputs == 1 else out
    for data, expected in zip(results, call.outs, strict=True):
        got = backend.spec_of(data)
        if got != expected:
            fix = "Mend the backend's kernel or the card's infer."
            where = f"{call.name} on {backend.name}"
            raise AssertionError(f"{where}: expected a result {expected}; got {got}. {fix}")
