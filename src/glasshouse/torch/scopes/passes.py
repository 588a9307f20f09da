"""Tracks the module and pass of a thread in a PyTorch model while it is observed.

Replacements of PyTorch's functions set `state.scope` and `state.phase`, as our modules and
optimizers do; global hooks of modules would make torch.compile warn. For the backward pass we note
which module ran when each autograd node was made: nodes have ascending numbers. Recomputation of
checkpoints is seen at the two places in torch.utils.checkpoint where it begins."""

import threading
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import checkpoint

from glasshouse.capture.guards.class_reads import STANDS_FOR
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.scope import Scope, forget, name_within, scope_of
from glasshouse.dispatch.watch import CAPTURING, tell
from glasshouse.torch.patches.autograd import ENGINE, CheckpointFrame, Recomputation, next_number
from glasshouse.torch.patches.dynamo import OptimizedModule, callbacks, skip_code
from glasshouse.torch.patches.modes import dispatch_modes
from glasshouse.torch.patches.modules import CALL
from glasshouse.torch.patches.names import Slot, are_found
from glasshouse.torch.scopes.module_scope import TorchScope

MOST_MARKS = 1 << 18  # above it, the older half is dropped


class NodeScopes:
    """The module that ran when each autograd node was made, by the nodes' numbers."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.scopes: list[Scope | None] = []

    def mark(self, scope: Scope | None) -> None:
        """Nodes made from now on belong to this module."""
        number = next_number()
        if self.firsts and self.firsts[-1] >= number:
            self.scopes[-1] = scope
            return
        if len(self.firsts) > MOST_MARKS:
            del self.firsts[: MOST_MARKS // 2], self.scopes[: MOST_MARKS // 2]
        self.firsts.append(number)
        self.scopes.append(scope)

    def find(self, number: int) -> Scope | None:
        """The module in which a node was made; None outside of modules, and for older nodes."""
        place = bisect_right(self.firsts, number) - 1
        return self.scopes[place] if place >= 0 else None


class Place(threading.local):
    """A thread's state while it is observed: running modules and regions, and autograd's nodes."""

    def __init__(self) -> None:
        self.looking = False
        self.nodes: NodeScopes = NodeScopes()
        self.regions: list[str] = []  # of record_function, that are open
        self.running: list[tuple[Any, Scope | None, str, int]] = []
        self.models: list[Any] = []  # the roots of paths
        self.capturing_since = 0  # when TorchDynamo began, if it is at work
        self.mode: Any = None  # a WatchingMode, which knows the engine's node


place: Place = Place()


def count_other_modes() -> int:
    """The number of this thread's TorchDispatchModes, without our own."""
    return dispatch_modes() - place.looking


def enter(what: Any, scope: Scope | None, phase: str) -> None:
    """Begin a module or pass."""
    here, now = place.__dict__, state.__dict__
    if here["mode"].pulled is not None:
        here["mode"].change_node(None)
    here["running"].append((what, now["scope"], now["phase"], perf_counter_ns()))
    now["scope"], now["phase"] = scope, phase
    here["nodes"].mark(scope)


def leave(what: Any) -> int:
    """End a module or pass, and all inside it; returns its begin in ns, 0 if it was not seen."""
    here, now = place.__dict__, state.__dict__
    running = here["running"]
    if not running or (running[-1][0] is not what and all(e[0] is not what for e in running)):
        return 0
    if here["mode"].pulled is not None:
        here["mode"].change_node(None)
    entry = running.pop()
    while entry[0] is not what:
        entry = running.pop()
    _, scope, phase, begin_ns = entry
    now["scope"], now["phase"] = scope, phase
    here["nodes"].mark(scope)
    return begin_ns


# -- modules ----------------------------------------------------------------------------------


def outer_scope(module: torch.nn.Module) -> Scope | None:
    """The scope of the model that contains a module, when it is called from outside."""
    for model in place.models:
        if model is not module and name_within(model, module):
            return scope_of(model, None, TorchScope)
    return None


call_module: Any = CALL.original
is_compiling: Callable[..., bool] = torch.compiler.is_compiling


def told_call(module: torch.nn.Module, *args: Any, **named: Any) -> Any:
    """Call a module and report it with its scope; under TorchDynamo, only call it."""
    here = place.__dict__
    if is_compiling() or not here.get("looking") or isinstance(module, OptimizedModule):
        return call_module(module, *args, **named)
    now = state.__dict__
    outer = now["scope"]
    if outer is None and here["models"]:
        outer = outer_scope(module)
    scope = scope_of(module, outer, TorchScope)
    enter(module, scope, "recompute" if now["phase"] == "recompute" else "forward")
    try:
        return call_module(module, *args, **named)
    finally:
        if begin_ns := leave(module):
            for watcher in now["watchers"][0]:
                watcher.module(scope, begin_ns)


# TorchDynamo compiles the called module as before, and skips our reports.
BETWEEN = (told_call, enter, leave, outer_scope, scope_of, Scope.__init__, forget, NodeScopes.mark)
for function in BETWEEN:
    skip_code(function.__code__)


# -- passes -----------------------------------------------------------------------------------


OPTIMIZER = "Optimizer.step#"  # PyTorch's name for the region of each step


def region_begins(name: str) -> None:
    """Begin a region of torch.profiler.record_function: the user's, or an optimizer's step."""
    is_step = name.startswith(OPTIMIZER)
    scope, phase = (None, "optimizer") if is_step else (state.scope, state.phase)
    place.regions.append(name)
    enter(place.regions, scope, phase)


def region_ends() -> None:
    """End the innermost region."""
    if place.regions:
        name, begin_ns = place.regions.pop(), leave(place.regions)
        if begin_ns and name.startswith(OPTIMIZER):
            tell("region", "optimizer", begin_ns)
        elif begin_ns:
            tell("annotation", name, begin_ns)


run_backward = ENGINE.original


def told_backward(*args: Any, **named: Any) -> tuple[torch.Tensor, ...]:
    """Run autograd's engine, and report it as a pass."""
    if not place.looking:
        return run_backward(*args, **named)
    token = object()
    enter(token, state.scope, state.phase)
    try:
        return run_backward(*args, **named)
    finally:
        tell("region", "backward", leave(token))


# -- checkpoints ------------------------------------------------------------------------------

Reentrant = checkpoint.CheckpointFunction
make_frame: Any = CheckpointFrame.__init__
make_recomputation: Any = Recomputation.__init__
end_recomputation: Any
begin_recomputation: Any
begin_recomputation, end_recomputation = (
    getattr(Recomputation, name, None)  # None for a missing name
    for name in ("__enter__", "__exit__")
)
forward_reentrant: Callable[..., Any] = Reentrant.forward
backward_reentrant: Callable[..., tuple[Any, ...]] = Reentrant.backward


def told_frame(self: Any, *args: Any, **named: Any) -> None:
    """Make a checkpoint's frame, and note the module that called it."""
    make_frame(self, *args, **named)
    self.glasshouse_scope = state.scope


def told_recomputation(self: Any, frame: Any, *args: int, **named: Any) -> None:
    make_recomputation(self, frame, *args, **named)
    self.glasshouse_scope = getattr(frame(), "glasshouse_scope", None)


def recomputation_begins(self: Any) -> Any:
    enter(self, self.glasshouse_scope, "recompute")
    return begin_recomputation(self)


def recomputation_ends(self: Any, *error: Any) -> None:
    end_recomputation(self, *error)
    if begin_ns := leave(self):
        tell("region", "recompute", begin_ns)


def told_forward_reentrant(context: Any, *args: Any) -> Any:
    context.glasshouse_scope = state.scope
    return forward_reentrant(context, *args)


def told_backward_reentrant(context: Any, *args: Any) -> Any:
    run, scope = context.run_function, getattr(context, "glasshouse_scope", None)

    def run_again(*inputs):
        token = object()
        enter(token, scope, "recompute")
        try:
            return run(*inputs)
        finally:
            tell("region", "recompute", leave(token))

    context.run_function = run_again
    try:
        return backward_reentrant(context, *args)
    finally:
        context.run_function = run


# -- TorchDynamo ------------------------------------------------------------------------------


def capturing_begins(*_: Any) -> None:
    """Note that TorchDynamo, or AOTAutograd for a backward pass, begins to compile."""
    place.capturing_since = perf_counter_ns()


def capturing_ends(*_: Any) -> None:
    """Report the compilation that ends."""
    begin_ns, place.capturing_since = place.capturing_since, 0
    if begin_ns and place.looking:
        tell("region", CAPTURING, begin_ns)


# (place, replacement), active while a thread is observed.
REPLACED: list[Any] = [
    (CALL, told_call),
    (ENGINE, told_backward),
    (Slot(CheckpointFrame, "__init__", make_frame), told_frame),
    (Slot(Recomputation, "__init__", make_recomputation), told_recomputation),
    (Slot(Recomputation, "__enter__", begin_recomputation), recomputation_begins),
    (Slot(Recomputation, "__exit__", end_recomputation), recomputation_ends),
    (Slot(Reentrant, "forward", forward_reentrant), staticmethod(told_forward_reentrant)),
    (Slot(Reentrant, "backward", backward_reentrant), staticmethod(told_backward_reentrant)),
]


class PassHooks:
    """All replacements, active while any thread is observed."""

    lock: "threading.Lock" = threading.Lock()
    users: int = 0
    undo: list[Any] = []

    @classmethod
    def add(cls) -> None:
        """Count one more observed thread."""
        with cls.lock:
            cls.users += 1
            if cls.users > 1:
                return
            cls.undo = [replaced(where, function) for where, function in REPLACED]
            if are_found(callbacks):
                callbacks.register_start_callback(capturing_begins)
                callbacks.register_end_callback(capturing_ends)

    @classmethod
    def remove(cls) -> None:
        """Count one observed thread less."""
        with cls.lock:
            cls.users -= 1
            if cls.users:
                return
            while cls.undo:
                cls.undo.pop()()
            if not are_found(callbacks):
                return
            lists = callbacks.start_callbacks, callbacks.end_callbacks
            for those, callback in zip(lists, (capturing_begins, capturing_ends), strict=True):
                if callback in those:  # torch._dynamo.reset removes all
                    those.remove(callback)


def replaced(where: Slot, function: Any) -> Callable[..., Any]:
    """Replace a function by another one; returns a function that restores it."""
    before = vars(where.owner).get(where.name)
    getattr(function, "__func__", function).__dict__[STANDS_FOR] = before
    return where.put(function)
