"""Eager PyTorch, told to our watchers: the FLOP counter and the profiler see it as our own calls.

A TorchDispatchMode is below autograd, so forward, backward and updates pass it. It is entered by
the thread that counts or records, and left with the last that does. Each call of an operator is a
`Call` with operands' shapes and dtypes, worked out once for equal ones (`operator_cost`)."""

import threading
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from glasshouse.dispatch.bind import state
from glasshouse.dispatch.scope import Scope
from glasshouse.dispatch.watch import LOOKING, Watcher, tell
from glasshouse.profile import libraries
from glasshouse.torch.operator_cost import Operator, OperatorWork, finish_work, work_of
from glasshouse.torch.passes import PassHooks, next_number, place, region_begins, region_ends
from glasshouse.torch.storages import StorageWatch

MOST_KINDS = 1 << 15  # of calls that are kept
OUTSIDE_OF_GRAPHS = 1 << 63  # numbers from here on are of nodes that accumulate gradients
current_node = torch._C._current_autograd_node
Tensor, Parameter = torch.Tensor, torch.nn.Parameter
PLAIN = (int, bool, type(None), str, torch.dtype, torch.memory_format)
NOTHING: dict = {}
# What torch.profiler.record_function calls.
ENTER_REGION = torch.ops.profiler._record_function_enter_new.default
EXIT_REGION = torch.ops.profiler._record_function_exit._RecordFunction

libraries.folders.add(str(Path(torch.__file__).parent))
operators: dict[int, Operator | None] = {}  # by the id of the overload: its hash is Python's
kept: list = []  # those overloads
works: dict[tuple, OperatorWork] = {}


class Told:
    """What a watcher sees of a result: the number of the node of autograd that it is of."""

    __slots__ = ("tape_entry", "payload", "seq")

    def __init__(self):
        self.payload, self.tape_entry, self.seq = None, None, -1


class PulledNode:
    """A node of autograd that the backward pass went through."""

    __slots__ = ("call", "scope", "seq", "name", "begin_ns", "before")

    def __init__(self, name: str, scope: Scope | None, seq: int, begin_ns: int, before: tuple):
        self.call, self.name, self.scope, self.seq = self, name, scope, seq
        self.begin_ns, self.before = begin_ns, before


def operator_of(func) -> Operator | None:
    """The operator of an overload; None for what is none."""
    operator = Operator(func) if isinstance(func, torch._ops.OpOverload) else None
    kept.append(func)
    operators[id(func)] = None if operator is not None and operator.silent else operator
    return operators[id(func)]


def key_of(operator: Operator, args, named: dict) -> tuple:
    """What of a call decides its cost: shapes, dtypes and what else is no number with a point."""
    key: list = [operator]
    add = key.append
    for x in (*args, *named.values()) if named else args:
        kind = type(x)
        if kind is Tensor or kind is Parameter:
            add(x.shape)
            add(x.dtype)
        elif kind is list or kind is tuple:
            add(key_of_list(x))
        elif kind in PLAIN:
            add(x)
        elif isinstance(x, Tensor):
            add(x.shape)
            add(x.dtype)
        else:
            add(kind)
    if named:
        key += named
    return tuple(key)


def key_of_list(parts) -> tuple:
    if parts and isinstance(parts[0], (Tensor, type(None))):
        return tuple((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in parts)
    return tuple(parts)


class WatchingMode(TorchDispatchMode):
    """Tells this thread's watchers of each operator; changes nothing."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.thread = state.thread
        self.nodes = place.nodes
        self.told, self.last_number = Told(), next_number()
        self.node: Any = None  # that the engine is in
        self.pulled: PulledNode | None = None
        self.storages: dict[Watcher, StorageWatch] = {}  # of those who want to know

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: no wrapper around each call; TorchDynamo is told below to leave it alone."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What torch.compile traces is no call; its Programs count for themselves."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        number = id(func)
        operator = operators[number] if number in operators else operator_of(func)
        named = kwargs or NOTHING
        now = state.__dict__
        watchers, timers = now["watchers"]
        if operator is None or not watchers:
            if func is ENTER_REGION and watchers:
                region_begins(args[0])
            elif func is EXIT_REGION:
                region_ends()
            return func(*args, **named)
        if operator.composite:
            with self:
                return operator.overload.decompose(*args, **named)
        self.follow_engine()
        if self.storages and operator.kind != "movement":
            for storages in self.storages.values():
                storages.operands((*args, *named.values()))
        key = key_of(operator, args, named)
        work = works.get(key)
        if work is None:
            return self.call_first(key, operator, args, named)
        begin_ns = perf_counter_ns() if timers else 0
        result = operator.call(*args, **named)
        self.tell(work, begin_ns, now, watchers, result)
        return result

    def call_first(self, key: tuple, operator: Operator, args, named: dict):
        """The result of a kind of call that was not there before."""
        begin_ns = perf_counter_ns()
        work = work_of(operator, args, named)  # before the call, whose time this is no part of
        tell("region", LOOKING, begin_ns)
        begin_ns = perf_counter_ns()
        result = operator.call(*args, **named)
        finish_work(work, result)
        if len(works) >= MOST_KINDS:
            works.clear()
        works[key] = work
        now = state.__dict__
        self.tell(work, begin_ns, now, now["watchers"][0], result)
        return result

    def tell(self, work: OperatorWork, begin_ns: int, now: dict, watchers: list, result) -> None:
        """Tell of one call, in the module and pass that it belongs to."""
        told, number = self.told, next_number()
        if number == self.last_number:
            told.tape_entry = None
        else:  # autograd made a node for this call
            self.last_number, told.seq, told.tape_entry = number, number - 1, told
            if self.pulled is not None and now["phase"] == "backward":
                self.nodes.mark(now["scope"])  # of a gradient that has one itself
        for watcher in watchers:
            watcher.op(work.call, told, begin_ns)
        if work.repeated is not None:
            self.tell_repeated(work.repeated, now, watchers)
        if self.storages and work.call.primitive.kind != "movement":
            for storages in self.storages.values():
                storages.results(result, work.call.name)

    def tell_repeated(self, call, now: dict, watchers: list) -> None:
        """Tell those who count of the part of a call that computes again what was there before."""
        phase, now["phase"] = now["phase"], "recompute"
        for watcher in watchers:
            if not watcher.wants_begin:
                watcher.op(call, self.told, 0)
        now["phase"] = phase

    def follow_engine(self) -> None:
        """Take note of the node that the engine is in now."""
        if current_node() is not self.node and state.phase != "recompute":
            self.change_node(current_node())

    def change_node(self, node) -> None:
        """The engine has come to another node, or has left the last one: calls belong to the module
        in which it was made, until the next one."""
        now = state.__dict__
        if now["thread"] != self.thread:  # one of autograd's own, which works for this one
            now["thread"] = self.thread
        is_timed, pulled = now["watchers"][1], self.pulled
        if pulled is not None:
            if is_timed:
                tell("pull", pulled, pulled.begin_ns)
            now["scope"], now["phase"], now["seq"] = pulled.before
        self.node, self.pulled = node, None
        if node is None:
            return
        seq = node._sequence_nr()
        if seq >= OUTSIDE_OF_GRAPHS:
            seq = -1
        name, begin_ns = (node.name(), perf_counter_ns()) if is_timed else ("", 0)
        before, scope = (now["scope"], now["phase"], now["seq"]), self.nodes.find(seq)
        self.pulled = PulledNode(name, scope, seq, begin_ns, before)
        now["scope"], now["phase"], now["seq"] = scope, "backward", seq


for method in (
    WatchingMode.__torch_dispatch__,
    WatchingMode.call_first,
    WatchingMode.tell,
    WatchingMode.follow_engine,
    WatchingMode.change_node,
):
    torch._dynamo.eval_frame.skip_code(method.__code__)


class OwnMode(threading.local):
    """The mode of a thread, and how many look on through it."""

    def __init__(self):
        self.mode: WatchingMode | None = None
        self.users = 0


own = OwnMode()


def observe(watcher: Watcher, model=None):
    """Have a watcher told of this thread's operators; what comes back ends that."""
    if own.users == 0:
        own.mode = WatchingMode()
        place.looking, place.mode = True, own.mode
        PassHooks.add()
        own.mode.__enter__()
    own.users += 1
    if watcher.wants_allocations:
        own.mode.storages[watcher] = StorageWatch(watcher)
    thread, is_model = own.mode.thread, isinstance(model, torch.nn.Module)
    if is_model:
        place.models.append(model)

    def end():
        if state.thread != thread:  # the mode stays with its thread, and tells nobody
            return
        own.mode.change_node(None)
        if is_model:
            place.models.remove(model)
        if watcher.wants_allocations:
            own.mode.storages.pop(watcher).end()
        own.users -= 1
        if own.users == 0:
            leave_mode(own.mode)

    return end


def leave_mode(mode: WatchingMode) -> None:
    """Take a mode from the stack of modes, on which others may have come to lie."""
    above = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    _push_mode(mode)
    mode.__exit__(None, None, None)
    for other in reversed(above):
        _push_mode(other)
    PassHooks.remove()
    place.looking, own.mode = False, None
    for _, scope, phase, _ in place.running[:1]:
        state.scope, state.phase = scope, phase
    place.running.clear()
    place.regions.clear()
    place.nodes = type(place.nodes)()
