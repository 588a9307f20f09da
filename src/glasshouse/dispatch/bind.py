"""The one door: every primitive call goes through `bind`, past the modes, to tape and backend.

`bind` hands the call to the topmost mode with that mode taken off the stack, so whatever the mode
calls goes on downwards; `below` is `bind` itself. With no mode left, `run` infers the spec, lets
the current backend compute, and has the autograd tape record a call with a tracked operand."""

import itertools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from glasshouse.base.errors import DTypeError, TransformError, type_name
from glasshouse.base.flags import flags

thread_numbers = itertools.count()


class State(threading.local):
    """What a thread has in force: its modes, its backend, whether the base tape records."""

    def __init__(self):
        self.modes: tuple = ()
        self.backend = None
        self.compile_target: Any = None  # what Programs are compiled for; None: the default
        self.records = True
        self.scope: Any = None  # the running module's Scope
        self.phase = "forward"
        self.recompute: Any = None  # what backward makes again: a remat.passes RecomputeRequest
        self.region: Any = None  # of a checkpoint: its number
        self.saved_hooks: Any = None  # (pack, unpack) of what the tape saves
        self.thread = next(thread_numbers)  # unlike idents, never given again
        self.seq = -1  # number on the tape of the call that is being differentiated
        self.values_hidden = False  # while capture traces: a look at a value is an error


state = State()


class Hooks:
    """The places where a higher storey plugs in, when it is imported or first needed."""

    tensor_class: type  # set by `tensor`: the class that boxes a backend's result
    record: Callable  # set by `autograd`: record(primitive, args, attrs, specs, result)
    tape: tuple  # set by `autograd`: the class of the tape's nodes, and what numbers them
    run: Callable  # `run`; from the first Program on, what native/replay.c has in its place
    pull: Callable | None = None  # set with it: pull(node, slots, create_graph)
    compose: Callable  # compose((fn, scalars), args, named), see dispatch/compose.py
    default_backend: Callable  # set by `dispatch.backend`: () -> TensorBackend


hooks = Hooks()
watchers: list = []  # see dispatch/watch.py
timers: list = []  # those of them that want to know when a call began


def bind(primitive, args, attrs):
    """The value (or tuple of values) of `primitive` applied to `args` with static `attrs`."""
    modes = state.modes
    if not modes:
        return hooks.run(primitive, args, attrs)
    state.modes = modes[:-1]
    try:
        return modes[-1].process(primitive, args, attrs, bind)
    finally:
        state.modes = modes


def run(primitive, args, attrs):
    """Compute on the current backend; the bottom of the stack."""
    begin_ns = perf_counter_ns() if timers else 0
    backend = state.backend or hooks.default_backend()
    try:
        specs = [arg.spec for arg in args]
    except AttributeError:
        raise DTypeError(
            primitive.name,
            "tensors as operands",
            ", ".join(map(type_name, args)),
            "Convert with gh.asarray, or call the array function gh.<name>.",
        ) from None
    spec = primitive.infer(*specs, **attrs)
    data = [arg.payload if arg.backend is backend else move(arg, backend) for arg in args]
    out = backend.run(primitive, data, attrs, spec)
    if flags.verify:
        check_result(primitive, backend, out, spec)
    result = box(out, spec, backend) if primitive.num_outputs == 1 else box_all(out, spec, backend)
    if state.records and primitive.vjp is not None:
        for arg in args:
            if arg.node is not None:
                hooks.record(primitive, args, attrs, specs, result)
                break
    for watcher in watchers:
        watcher.op(primitive, specs, attrs, spec, result, begin_ns)
    return result


hooks.run = run


def box(data, spec, backend):
    """A tensor around a backend's payload."""
    tensor: Any = object.__new__(hooks.tensor_class)
    tensor.payload = data
    tensor.spec = spec
    tensor.backend = backend
    return tensor


def box_all(data, specs, backend):
    return tuple(box(d, s, backend) for d, s in zip(data, specs, strict=True))


def move(arg, backend):
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


def check_result(primitive, backend, out, spec):
    pairs = [(out, spec)] if primitive.num_outputs == 1 else list(zip(out, spec, strict=True))
    for data, expected in pairs:
        got = backend.spec_of(data)
        if got != expected:
            fix = "Mend the backend's kernel or the card's infer."
            where = f"{primitive.name} on {backend.name}"
            raise AssertionError(f"{where}: expected a result {expected}; got {got}. {fix}")
