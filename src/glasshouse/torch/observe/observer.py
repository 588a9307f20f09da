"""Reports eager PyTorch to our watchers: the FLOP counter and the profiler see it as our own calls.

A TorchDispatchMode is below autograd, so it sees forward, backward and updates. A thread enters it
with its first watcher, and leaves it with its last. Each call of an operator is a `Call` with the
operands' shapes and dtypes, whose cost is computed once for equal ones (`operator_cost`)."""

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from glasshouse.dispatch.bind import state
from glasshouse.dispatch.scope import Scope
from glasshouse.dispatch.watch import COMPILED, LOOKING, Watcher, tell
from glasshouse.profile import holders, libraries
from glasshouse.profile.holders import Holders
from glasshouse.torch.observe import loader_times
from glasshouse.torch.observe.inner_operators import look_inside
from glasshouse.torch.observe.operator_cost import (
    FunctionOperator,
    Operator,
    OperatorWork,
    contents_of,
    finish_work,
    work_of,
)
from glasshouse.torch.observe.storages import StorageWatch, place_of
from glasshouse.torch.observe.threads import starter, unwatched_threads
from glasshouse.torch.patches.autograd import current_node, number_of
from glasshouse.torch.patches.dynamo import skip_code
from glasshouse.torch.patches.fakes import FakeTensor
from glasshouse.torch.patches.modes import DispatchMode, pop_mode, push_mode
from glasshouse.torch.patches.names import Slot
from glasshouse.torch.patches.operators import (
    ENTER_REGION,
    EXIT_REGION,
    HigherOrderOperator,
    OpOverload,
)
from glasshouse.torch.scopes import passes
from glasshouse.torch.scopes.passes import (
    NodeScopes,
    PassHooks,
    next_number,
    place,
    region_begins,
    region_ends,
)

MOST_KINDS = 1 << 15  # of calls that are kept
OUTSIDE_OF_GRAPHS = 1 << 63  # numbers from here on belong to nodes that accumulate gradients
Tensor: type[torch.Tensor] = torch.Tensor
Parameter: type[torch.nn.Parameter] = torch.nn.Parameter
PLAIN = (int, bool, type(None), str, torch.dtype, torch.memory_format)
NOTHING: dict[Any, Any] = {}
DEVICE, META = torch.ops.prim.device.default, torch.device("meta")


def small_program(between: Callable[[], None]) -> None:
    """A forward and a backward pass, whose operators compute next to nothing, with a function to
    call between them."""
    x = torch.ones(4, 4, dtype=torch.float32, device="cpu", requires_grad=True)
    y = x
    for _ in range(4):
        for operator in (torch.tanh, x.matmul):
            between()
            y = operator(y)
            y.register_hook(lambda _: between())
    y.sum().backward()


libraries.folders.add(str(Path(torch.__file__).parent))
libraries.programs["torch"] = small_program
operators: dict[int, Operator | None] = {}  # by the overload's id: its hash runs Python
overloads: list[Any] = []  # keeps these ids in use
works: dict[tuple[Any, ...], OperatorWork] = {}


class ResultView:
    """A result as a watcher sees it: `seq` is the number of its autograd node."""

    __slots__ = ("tape_entry", "payload", "seq")

    payload: Any
    tape_entry: Any
    seq: int

    def __init__(self) -> None:
        self.payload, self.tape_entry, self.seq = None, None, -1


class PulledNode:
    """A node of autograd that the backward pass went through."""

    __slots__ = ("call", "scope", "seq", "name", "begin_ns", "before")

    def __init__(
        self, name: str, scope: Scope | None, seq: int, begin_ns: int, before: tuple[Any, ...]
    ) -> None:
        self.call: Any = self
        self.name: str = name
        self.scope: Scope | None = scope
        self.seq: int = seq
        self.begin_ns: int = begin_ns
        self.before: tuple[Any, ...] = before


def operator_of(func: Any) -> Operator | None:
    """The operator of an overload; None for other functions."""
    operator = None
    if isinstance(func, OpOverload):
        operator = Operator(func)
    elif isinstance(func, HigherOrderOperator):
        operator = FunctionOperator(func)
    overloads.append(func)
    operators[id(func)] = None if operator is not None and operator.silent else operator
    return operators[id(func)]


def key_of(operator: Operator, args: tuple[Any, ...], named: dict[Any, Any]) -> tuple[Any, ...]:
    """The cost key of a call: operator, shapes, dtypes, constants; of floats the type alone."""
    key: list[Any] = [operator]
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


def key_of_list(parts: list[int | torch.Tensor]) -> tuple[Any, ...]:
    if parts and isinstance(parts[0], (Tensor, type(None))):
        return tuple((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in parts)
    return tuple(parts)


def device_of(x: FakeTensor) -> torch.device:
    """The device of a tensor without contents. PyTorch asks for it more often than it computes, and
    asking through all modes takes ten times as long."""
    return META if x.fake_mode.in_kernel_invocation else x.fake_device


class WatchingMode(DispatchMode):
    """Reports each operator to this thread's watchers; changes nothing."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.thread: int = state.thread
        self.nodes: NodeScopes = place.nodes
        self.view: ResultView = ResultView()
        self.last_number: Any = next_number()
        self.node: Any = None  # that the engine is in
        self.pulled: PulledNode | None = None
        self.storages: dict[Watcher, StorageWatch] = {}  # for watchers of memory

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: no wrapper around each call; `skip_code` below keeps TorchDynamo out instead."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: calls that torch.compile traces do not count; its Programs count for themselves."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type[Any], ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        number = id(func)
        operator = operators[number] if number in operators else operator_of(func)
        named = kwargs or NOTHING
        now = state.__dict__
        watchers, timers = now["watchers"]
        if operator is None or not watchers:
            if func is DEVICE and isinstance(args[0], FakeTensor):
                return device_of(args[0])
            if func is ENTER_REGION and watchers:
                region_begins(args[0])
            elif func is EXIT_REGION:
                region_ends()
            return func(*args, **named)
        if operator.composite:
            with self:
                return operator.overload.decompose(*args, **named)
        if operator.only_calls:
            return operator.call(*map(self.watched, args), **named)
        self.follow_engine()
        if self.storages and operator.kind != "movement" and not operator.is_fresh:
            self.note_operands((*args, *named.values()))
        if operator.takes_functions:  # among tuples of tensors, which decide nothing
            key = key_of(operator, args[:3], NOTHING)
        else:
            key = key_of(operator, args, named)
            if operator.by_contents:
                key += contents_of(args)
        work = works.get(key)
        if work is None:
            return self.call_first(key, operator, args, named)
        begin_ns = perf_counter_ns() if timers else 0
        result = operator.call(*args, **named)
        self.tell(work, begin_ns, now, watchers, result)
        return result

    def watched(self, x: Any) -> Any:
        """A graph among an operator's arguments as a function whose operators are reported; any
        other argument as it is."""
        if not isinstance(x, torch.fx.GraphModule):
            return x

        def call(*args):
            with self:
                return x(*args)

        return call

    def call_first(
        self, key: tuple[Any, ...], operator: Operator, args: tuple[Any, ...], named: dict[Any, Any]
    ) -> Any:
        """The result of a call whose cost key is new."""
        begin_ns = perf_counter_ns()
        work = work_of(operator, args, named)  # before the call, to keep it out of its time
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

    def tell(
        self,
        work: OperatorWork,
        begin_ns: int,
        now: dict[Any, Any],
        watchers: list[Any],
        result: Any,
    ) -> None:
        """Report one call to the watchers, in its module and pass."""
        view, number = self.view, next_number()
        if number == self.last_number:
            view.tape_entry = None
        else:  # autograd made a node for this call
            self.last_number, view.seq, view.tape_entry = number, number - 1, view
            if self.pulled is not None and now["phase"] == "backward":
                self.nodes.mark(now["scope"])  # a gradient that has a gradient itself
        for watcher in watchers:
            watcher.op(work.call, view, begin_ns)
        if work.repeated is not None:
            self.tell_repeated(work.repeated, now, watchers)
        if self.storages and work.call.primitive.kind != "movement":
            self.note_results(result, work.call.name)

    def note_operands(self, args: tuple[Any, ...]) -> None:
        """Report tensors that are about to be read to the watchers of memory."""
        for storages in self.storages.values():
            storages.operands(args)

    def pass_over(self, tensors: list[Any]) -> None:
        """Have the watchers of memory ignore tensors over memory that others own."""
        for storages in self.storages.values():
            storages.pass_over(tensors)

    def note_results(self, result: float | torch.Tensor, name: str) -> None:
        """Report new tensors to the watchers of memory, under this name."""
        for storages in self.storages.values():
            storages.results(result, name)

    def tell_repeated(self, call: Any, now: dict[Any, Any], watchers: list[Any]) -> None:
        """Report the recomputation in a call to watchers that count."""
        phase, now["phase"] = now["phase"], "recompute"
        for watcher in watchers:
            if not watcher.wants_begin:
                watcher.op(call, self.view, 0)
        now["phase"] = phase

    def graph_ended(self, begin_ns: int) -> None:
        """Report the end of a compiled graph's forward pass. autograd has made its node already, so
        the next operator does not get the node's number."""
        number = next_number()
        seq = number - 1 if number != self.last_number else -1
        self.last_number = number
        tell("region", COMPILED, begin_ns, seq)

    def follow_engine(self) -> None:
        """Take note of the node that the engine is in now."""
        if current_node() is not self.node and state.phase != "recompute":
            self.change_node(current_node())

    def change_node(self, node: Any) -> None:
        """Follow autograd's engine to another node, or out of the last one: calls belong to the
        module in which that node was made, until the next one."""
        now = state.__dict__
        if now["thread"] != self.thread:  # a thread of autograd that works for this one
            now["thread"] = self.thread
        is_timed, pulled = now["watchers"][1], self.pulled
        if pulled is not None:
            if is_timed:
                tell("pull", pulled, pulled.begin_ns)
            now["scope"], now["phase"], now["seq"] = pulled.before
        self.node, self.pulled = node, None
        if node is None:
            return
        seq = number_of(node)
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
    WatchingMode.graph_ended,
    WatchingMode.follow_engine,
    WatchingMode.change_node,
):
    skip_code(method.__code__)


# TorchDynamo also skips the functions that a recording calls to look at memory.
for function in (*vars(Holders).values(), *vars(holders).values(), place_of):
    if inspect.isfunction(function):
        skip_code(function.__code__)


class ThreadMode(threading.local):
    """The mode of a thread, and the number of its watchers."""

    def __init__(self) -> None:
        self.mode: Any = None  # a WatchingMode
        self.users: int = 0
        self.has_hooks: bool = False


thread_mode: ThreadMode = ThreadMode()


def observe(watcher: Watcher, model: Any = None, *, hooks: bool = True) -> Callable[..., Any]:
    """Report this thread's operators to a watcher; returns a function that ends it. `hooks` says
    whether replacements of PyTorch's functions are active until then."""
    if hooks and not thread_mode.has_hooks:
        thread_mode.has_hooks = True
        PassHooks.add()
    if thread_mode.users == 0:
        thread_mode.mode = WatchingMode()
        place.looking, place.mode = True, thread_mode.mode
        thread_mode.mode.__enter__()
    watcher.unwatched_threads = unwatched_threads()
    thread_mode.users += 1
    if watcher.wants_allocations:
        thread_mode.mode.storages[watcher] = StorageWatch(watcher)
    end_of_inner = look_inside() if watcher.wants_inner_operators else None
    thread, is_model = thread_mode.mode.thread, isinstance(model, torch.nn.Module)
    if is_model:
        place.models.append(model)

    def end():
        if state.thread != thread:  # the mode stays with its thread, without watchers
            return
        if end_of_inner is not None:
            watcher.read_inner_operators = end_of_inner()
        thread_mode.mode.change_node(None)
        if is_model:
            place.models.remove(model)
        if watcher.wants_allocations:
            thread_mode.mode.storages.pop(watcher).end()
        thread_mode.users -= 1
        if thread_mode.users == 0:
            leave_mode(thread_mode.mode)

    return end


def observe_thread() -> Callable[[], None]:
    """Report this thread's operators to all watchers, but not its memory: threads share storages,
    which would be reported twice. Threads may outlive the recording."""
    return observe(Watcher(), hooks=False)


passes.REPLACED.append(
    (Slot(threading.Thread, "start", threading.Thread.start), starter(observe_thread))
)
passes.REPLACED += loader_times.REPLACED


def leave_mode(mode: WatchingMode) -> None:
    """Take a mode from the stack of modes, from below others if need be."""
    above = []
    while (top := pop_mode()) is not mode:
        above.append(top)
    push_mode(mode)
    mode.__exit__(None, None, None)
    for other in reversed(above):
        push_mode(other)
    if thread_mode.has_hooks:
        thread_mode.has_hooks = False
        PassHooks.remove()
    place.looking, thread_mode.mode = False, None
    for _, scope, phase, _ in place.running[:1]:
        state.scope, state.phase = scope, phase
    place.running.clear()
    place.regions.clear()
    place.nodes = type(place.nodes)()
