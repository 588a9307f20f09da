"""The front end of Glasshouse's own tensors, modules and optimizers."""

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from glasshouse.autograd.backward import leaves_visited_early
from glasshouse.autograd.tape import AT_END, Leaf, sequence
from glasshouse.base import DType, Spec
from glasshouse.base.device import device
from glasshouse.capture.fronts.hooked_backward import backward_with_hooks
from glasshouse.capture.fronts.module_front import CONTEXTS, LeftContext, ModuleFront
from glasshouse.capture.fronts.tensor_front import TensorFront
from glasshouse.capture.guards.program import GuardCheck, WeakLink
from glasshouse.capture.programs.tape_nodes import walk_tape
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Then, ValueSource, Var
from glasshouse.dispatch import Primitive, Value, hooks
from glasshouse.dispatch.backend import TensorBackend, current
from glasshouse.dispatch.bind import Watchers, state
from glasshouse.dispatch.mode import KeyedMode
from glasshouse.nn.module import Module, Parameter
from glasshouse.tensor import Tensor, asarray, random

STATE = {
    "payload",
    "spec",
    "backend",
    "mode",
    "tape_entry",
    "slot",
    "grad",
}  # attributes that a trace may write
OPERATIONS = tuple(
    f"glasshouse.{name}"
    for name in (
        "tensor",
        "ops",
        "nn.functional",
        "nn.init",
        "autograd",
        "dispatch.value",
        "dispatch.bind",
        "vision",
        "metrics",
    )
)
# Modules of these that write, or call the user's functions.
INTERPRETED = (
    "glasshouse.ops.checks",
    "glasshouse.tensor.gradients",
    "glasshouse.nn.functional.flex",
)
LEFT_TO_PYTHON = {"seed", "default_generator", "set_state"}
CONSTANTS = (
    DType,
    device,
    Spec,
    Primitive,
    random.Generator,
    TensorBackend,
    enum.Enum,
    types.GenericAlias,
    slice,
)


AROUND = ("records", "modes", "backend", "compile_target", "scope")  # attributes that contexts set


def tensors_of(part: Any) -> list[Any]:
    """The tensors of a part of a graph's module."""
    if isinstance(part, Module):
        return [*part.parameters(), *part.buffers()]
    return [part] if isinstance(part, Value) else []


@dataclass
class OwnTrace:
    """The front end's state for one trace."""

    sequence: int  # entries of the tape with a lower number are older
    outer_scope: Any
    watchers: Watchers | None  # of calls, put back after the trace; then None
    draws: list[Any] = field(default_factory=list)  # (generator, key) of random numbers
    copies: dict[int, tuple[Any, ...]] = field(
        default_factory=dict
    )  # (module, copy) by the module's id
    parts: dict[int, tuple[Any, ...]] = field(
        default_factory=dict
    )  # of tensors: see rules/subscripts.py


class GlasshouseFront(TensorFront, ModuleFront):
    """Tensors of this library: calls of its functions and layers are nodes; optimizers and
    containers are Python that is interpreted like the user's."""

    name = "glasshouse"
    yields = True
    reentered: tuple[type[Any], ...] = (
        *CONTEXTS,
        LeftContext,
    )
    left_to_python: tuple[Any, ...] = (
        "glasshouse.transforms",
        "glasshouse.data",
        "glasshouse.interop",
        "glasshouse.dispatch.watch",
        "glasshouse.profile.counter",
        "glasshouse.profile.profiler",
    )

    # -- kinds of values -------------------------------------------------------------------------

    def is_tensor(self, value: Any) -> bool:
        return issubclass(type(value), Value)

    def is_operation(self, fn: Any) -> bool:
        if isinstance(fn, Primitive):
            return True
        if isinstance(fn, type):
            return issubclass(fn, Value)
        if not isinstance(fn, types.FunctionType):
            bound = isinstance(fn, (types.BuiltinFunctionType, types.MethodType))
            owner: Any = fn.__self__ if bound else None
            return isinstance(owner, type) and issubclass(owner, Value)
        name = fn.__module__ or ""
        if name in INTERPRETED or not name.startswith(OPERATIONS):
            return False
        if fn.__name__ in LEFT_TO_PYTHON or "<locals>" in fn.__qualname__:
            return False
        return "." not in fn.__qualname__ or is_tensor_method(fn)

    def as_tensor(self, number: Any) -> Any:
        return asarray(number)

    def is_constant(self, value: Any) -> bool:
        return isinstance(value, CONSTANTS)

    def is_owned(self, value: Any) -> bool:
        return isinstance(value, Parameter)

    def is_ambient(self, value: Any) -> bool:
        return value is state or value is hooks

    def keep(self, value: Any, link: "WeakLink", entry: Any) -> None:
        value.__dict__.setdefault("_gh_entries", WeakKeyDictionary())[link] = entry

    # -- the state around a trace ----------------------------------------------------------------

    def ambient(self, tracer: "CaptureTracer") -> None:
        # Through the thread's dict, since an attribute of a threading.local takes longer to read.
        base = tracer.guards.source("const", None, state, "state")
        inside = tracer.guards.source("attr", base, "__dict__")
        for name in ("records", "backend", "compile_target"):
            source = tracer.guards.source("get", inside, name, f"state.{name}")
            tracer.guards.add("is", source, getattr(state, name))
        modes = tracer.guards.source("get", inside, "modes", "state.modes")
        if state.modes:
            keys = [mode.key for mode in state.modes]
            tracer.guards.add("call", modes, GuardCheck(same_modes, keys, f"modes {keys}"))
        else:
            tracer.guards.add("is", modes, ())

    def can_trace(self) -> bool:
        """Whether only autocast and the like are between calls and backend."""
        return all(isinstance(mode, KeyedMode) for mode in state.modes)

    def begin(self, tracer: "CaptureTracer") -> "OwnTrace":
        current().sync()  # pending work is not part of the trace
        begun = OwnTrace(next(sequence), state.scope, state.watchers)
        state.watchers = Watchers([], [])  # the compiled graph counts
        random.observers.append(begun.draws)
        return begun

    def end(self, tracer: "CaptureTracer") -> None:
        """The trace is over."""
        begun = tracer.front_state
        if begun.draws in random.observers:
            random.observers[:] = [x for x in random.observers if x is not begun.draws]
        if begun.watchers is not None:
            state.scope = begun.outer_scope
            state.watchers, begun.watchers = begun.watchers, None

    stop = end

    def run(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        state.values_hidden = True
        try:
            return fn(*args, **kwargs)
        finally:
            state.values_hidden = False

    # -- values before and after -----------------------------------------------------------------

    def keeper(self, tracer: "CaptureTracer", wrote: bool) -> Callable[..., Any] | None:
        members = tracer.operands.members.values() if wrote else ()
        random_draws = tracer.front_state.draws
        generators = list({id(generator): generator for generator, _ in random_draws}.values())
        enters = any(node.target == "__enter__" for node in tracer.graph.nodes)
        if not (wrote or generators or enters):
            return None

        def keep(tensors):
            targets = [*tensors, *(x for part in members for x in tensors_of(part))]
            saved = [(x, self.state_of(x)) for x in targets if wrote]
            draws = [generator.draws for generator in generators]
            around = {name: getattr(state, name) for name in AROUND}

            def undo():
                for value, before in saved:
                    self.restore(value, before)
                for generator, count in zip(generators, draws, strict=True):
                    generator.draws = count
                vars(state).update(around)

            return undo

        return keep

    def rollback(self, tracer: "CaptureTracer") -> Callable[..., Any]:
        after = [(value, self.state_of(value)) for value, _ in tracer.operands.snapshots.values()]
        draws = [(generator, generator.draws) for generator, _ in tracer.front_state.draws]
        for value, saved in tracer.operands.snapshots.values():
            self.restore(value, saved)
        for generator, _ in draws:
            generator.draws -= 1

        def redo():
            for value, saved in after:
                self.restore(value, saved)
            for generator, count in draws:
                generator.draws = count

        return redo

    def state_of(self, value: Any) -> dict[str, Any]:
        attributes = value.__dict__
        return {name: attributes[name] for name in STATE if name in attributes}

    def restore(self, value: Any, saved: dict[str, Any]) -> None:
        for name in STATE - saved.keys():
            value.__dict__.pop(name, None)
        value.__dict__.update(saved)

    def adopt(self, value: Any, result: Any) -> bool:
        if value is not result and self.is_tensor(value):
            if "sharding" in value.__dict__:  # which Python sets, not the graph
                result.sharding = value.sharding
            self.restore(value, self.state_of(result))
        return True

    def own_gradient(self, tracer: "CaptureTracer", owner: Any, value: Any, result: Any) -> None:
        for node, var in tracer.operands.lifted.values():
            if node is owner and var.value.__dict__.get("grad") is result:
                var.value.grad = value

    def before(self, tracer: "CaptureTracer", target: Any, args: list[Any]) -> None:
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if name == "backward":
            tensors = [x for x in args if self.is_tensor(x.value)]
            outputs = tensors[:1] or args[:1]
            if any(leaf.grad_hooks for leaf in self.before_backward(tracer, outputs)):
                raise Break("backward with hooks on tensors", Var(Tensor.backward), outputs)

    def call(
        self, tracer: "CaptureTracer", fn: Any, args: list[Any], kwargs: Kwargs, then: Then
    ) -> Any:
        of: Any
        of, name = fn.origin.parts if fn.is_made("method") else (None, None)
        if name != "backward" or not self.is_tensor(of.value):
            return super().call(tracer, fn, args, kwargs, then)
        whole = Var(Tensor.backward), [of, *args], kwargs
        try:
            hooked = [leaf for leaf in self.before_backward(tracer, [of]) if leaf.grad_hooks]
        except Break as graph_break:
            raise Break(graph_break.reason, *whole) from None
        for _, hook in [pair for leaf in hooked for pair in leaf.grad_hooks.values()]:
            why: Any = getattr(hook, "__gh_disabled__", False)
            if why:
                raise Break(why if isinstance(why, str) else "a hook not to be captured", *whole)
        if not hooked:
            return super().call(tracer, fn, args, kwargs, then)
        create_graph = kwargs.get("create_graph") or (args[2] if len(args) > 2 else Var(False))
        if create_graph.value:
            raise Break("backward with hooks on tensors", *whole)
        with leaves_visited_early((of.value,)):
            hooked.sort(key=lambda leaf: -leaf.seq)
        hook_args = self.hooks_of(tracer, hooked)
        tracer.call(Var(backward_with_hooks), [*hook_args, of, *args], kwargs, then)
        return True

    def hooks_of(self, tracer: "CaptureTracer", leaves: Any) -> Any:
        """The arguments of `backward_with_hooks` for the hooks of these leaves, guarded."""
        ends, pairs = dict[Any, Any](), list[Any]()
        for leaf in leaves:
            var, entries = tracer.heap.tracked[id(leaf.tensor())], []
            inside = tracer.guards.source("dict", var.origin)
            entry = tracer.guards.source("get", inside, "tape_entry")
            table = tracer.guards.source("attr", entry, "grad_hooks")
            tracer.guards.add("keys", table, tuple(leaf.grad_hooks))
            for key, (slot, hook) in leaf.grad_hooks.items():
                pair = tracer.guards.source("get", table, key)
                hook_var = tracer.heap.load(hook, tracer.guards.source("item", pair, 1))
                if slot == AT_END:
                    ends.setdefault(hook, hook_var)
                    hook_var = Var([*ends].index(hook))
                entries.append(tracer.heap.new_tuple([Var(slot), hook_var]))
            pairs.append(tracer.heap.new_tuple([var, tracer.heap.new_tuple(entries)]))
        return tracer.heap.new_tuple(pairs), tracer.heap.new_tuple([*ends.values()])

    def before_backward(self, tracer: "CaptureTracer", outputs: list[Var]) -> list[Leaf]:
        """The leaves that a backward pass will reach, each tracked and guarded."""
        leaves = []
        for var in outputs:
            roots = [var] if self.is_tensor(var.value) else tracer.sequence(var) or []
            for node in walk_tape([x.value.tape_entry for x in roots]):
                leaves += [node] if isinstance(node, Leaf) else []
                if not isinstance(node, Leaf) and node.seq < tracer.front_state.sequence:
                    where = "through what was computed before"
                    raise Break(f"backward {where}", Var(Tensor.backward), outputs)
                if node.grad_hooks and not isinstance(node, Leaf):
                    raise Break("backward with hooks on tensors", Var(Tensor.backward), outputs)
        for leaf in leaves:
            tensor = leaf.tensor()
            var = None if tensor is None else tracer.heap.tracked.get(id(tensor))
            if var is None:
                reason = "backward reaches a tensor that was not read here"
                raise Break(reason, Var(Tensor.backward), outputs)
            self.read_grad(tracer, var)
            if leaf.grad_hooks and not isinstance(var.origin, ValueSource):
                raise Break("backward with hooks on tensors", Var(Tensor.backward), outputs)
            if isinstance(var.origin, ValueSource) and not leaf.grad_hooks:
                inside = tracer.guards.source("dict", var.origin)
                tracer.guards.add("unhooked", inside, ("tape_entry", "grad_hooks"))
        for leaf in leaves:
            if not leaf.grad_hooks:  # known when it is read
                tracer.heap.tracked[id(leaf.tensor())].items["grad"] = None
        return leaves


def same_modes(modes: Any, keys: Any) -> bool:
    return [mode.key for mode in modes] == keys


def is_tensor_method(fn: Callable[..., Any]) -> bool:
    return fn.__qualname__.partition(".")[0] in ("Tensor", "Value", "Parameter")
