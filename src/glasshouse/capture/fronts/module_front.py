"""Modules in a trace: members, calls of layers, contexts, guards on layers."""

import copy
import types
import weakref
from typing import Any

from glasshouse.autograd.tape import grad_mode
from glasshouse.capture.fronts.network_front import TABLES, NetworkFront
from glasshouse.capture.rules.constants import all_foldable, call_concrete
from glasshouse.capture.rules.descriptors import bound_method
from glasshouse.capture.rules.new_objects import new_dict
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import SCALARS
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Then, ValueSource, Var
from glasshouse.dispatch import TensorBackend
from glasshouse.dispatch.mode import KeyedMode
from glasshouse.dispatch.scope import in_module, originals, phase
from glasshouse.ir.graph_module import GraphModule
from glasshouse.nn.containers import ModuleDict, ModuleList, Sequential
from glasshouse.nn.hooks import CALL_KINDS, backward_hooks, call_hooks
from glasshouse.nn.layer import FunctionModule
from glasshouse.nn.linear import Flatten, Identity, Unflatten
from glasshouse.nn.module import Module, Parameter, functional_call
from glasshouse.optim import LRScheduler, Optimizer
from glasshouse.profile.annotation import record_function

INLINED_MODULES = (Sequential, ModuleList, ModuleDict, GraphModule)
# When they are made.
WITHOUT_DRAWS = (FunctionModule, Flatten, Identity, Unflatten, Sequential, ModuleList)
CONTEXTS = (grad_mode, KeyedMode, record_function)


class LeftContext:
    """A context that leaves another one, which was entered elsewhere, and enters it again."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        self.context.__exit__(None, None, None)

    def __exit__(self, *exc_info: Any) -> None:
        self.context.__enter__()


class ModuleFront(NetworkFront):
    """Layers are nodes of the graph; other modules are Python that is interpreted."""

    module_type = Module
    member_types: tuple[type[Parameter], type[Module]] = (Parameter, Module)
    optimizer_type = Optimizer
    scheduler_type = LRScheduler

    def parts(self, tracer: "CaptureTracer", module: Any) -> list[Var]:
        """The tracked Vars of the module, of those below it, and of their dicts of parameters,
        buffers and modules."""
        candidates = (x for m in module.modules() for x in (m, *(m.__dict__[p] for p in TABLES)))
        return [
            x for x in (tracer.heap.tracked.get(id(part)) for part in candidates) if x is not None
        ]

    # -- calls -----------------------------------------------------------------------------------

    def call(
        self, tracer: "CaptureTracer", fn: Any, args: list[Any], kwargs: Kwargs, then: Then
    ) -> Any:
        f = fn.value
        if isinstance(f, types.MethodType | types.BuiltinMethodType):
            owner = f.__self__
            if f.__name__ in ("__enter__", "__exit__") and self.is_context(fn):
                this = fn.origin.parts[0] if isinstance(fn.origin, Recipe) else None
                return self.context(tracer, fn, this, f.__name__, then)
            if isinstance(owner, TensorBackend) and f.__name__ in ("evaluate", "sync"):
                tracer.give(then, None)
                return True
            if isinstance(owner, LRScheduler) and f.__name__ == "step":
                return self.schedule(tracer, fn, args, kwargs, then)
        unbound = isinstance(f, types.FunctionType) and f.__name__ in ("__enter__", "__exit__")
        if unbound and args and isinstance(args[0].value, CONTEXTS):  # as ExitStack calls it
            method = Var(getattr(args[0].value, f.__name__))
            return self.context(tracer, method, args[0], f.__name__, then)
        is_class = isinstance(f, type)
        if f is phase or is_class and issubclass(f, (Module, *CONTEXTS)):
            tracer.concretize(fn)
        if f is phase or is_class and issubclass(f, CONTEXTS):
            var = Var(call_concrete(tracer, f, args, kwargs), Recipe("call", fn, args, kwargs), {})
            tracer.deliver(then, tracer.heap.track(var))
            return True
        if isinstance(f, Module):
            return self.call_module(tracer, fn, args, kwargs, then)
        if f is Module.__call__ and args and isinstance(args[0].value, Module):
            return self.call_module(tracer, args[0], args[1:], kwargs, then, by_class=False)
        if (
            is_class
            and issubclass(f, Module)
            and self.make_stateless(tracer, fn, args, kwargs, then)
        ):
            return True
        if f is functional_call or is_class and issubclass(f, (Module, Optimizer, LRScheduler)):
            raise Break(f"call of {f.__name__}", fn, args, kwargs)
        return super().call(tracer, fn, args, kwargs, then)

    def make_stateless(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any
    ) -> bool:
        """Make a layer of the library without tensors; False for another one."""
        cls = fn.value
        foldable = all_foldable(tracer, args, kwargs) and cls.__module__.startswith("glasshouse.nn")
        if (
            not foldable
            or not issubclass(cls, WITHOUT_DRAWS)
            or any(x.items for x in (*args, *kwargs.values()) if x.is_made("call"))
        ):
            return False
        words = {k: v.value for k, v in kwargs.items()}
        layer = tracer.do(cls, *(x.value for x in args), **words)
        if [*layer.parameters(), *layer.buffers()]:
            return False
        for x in (*args, *kwargs.values()):
            tracer.concretize(x)
        tracer.deliver(then, tracer.heap.track(Var(layer, Recipe("call", fn, args, kwargs), {})))
        return True

    def is_context(self, fn: Var) -> bool:
        """Whether a bound method belongs to no_grad, autocast, a phase …"""
        if isinstance(fn.value.__self__, CONTEXTS):
            return True
        this: Any = fn.origin.parts[0] if isinstance(fn.origin, Recipe) else None
        is_call = this is not None and this.is_made("call")
        return is_call and this.origin.parts[0].value is phase

    def context(
        self, tracer: "CaptureTracer", fn: Var, var: Var | None, name: str, then: Any
    ) -> bool:
        """Enter or leave no_grad, autocast, a phase …"""
        if name == "__exit__" and var is None and self.leave_from_outside(tracer, fn):
            tracer.give(then, None)
            return True
        if var is None or not var.is_new:
            nothing = [Var(None)] * (0 if name == "__enter__" else 3)
            raise Break("a context made elsewhere", fn, nothing)
        if name == "__enter__":
            cls, args, kwargs = var.origin.parts
            entered = tracer.do(var.value.__enter__)
            words = {k: tracer.concretize(v) for k, v in kwargs.items()}
            node = tracer.graph.call_function(cls.value, tuple(map(tracer.concretize, args)), words)
            tracer.graph.call_method("__enter__", (node,))
            tracer.effects.context_nodes[id(var)] = node
            tracer.effects.contexts.append(var)
            tracer.deliver(then, var if entered is var.value else Var(entered))
            return True
        tracer.do(var.value.__exit__, None, None, None)
        if tracer.guards.live:
            tracer.graph.call_method(
                "__exit__", (tracer.effects.context_nodes[id(var)], None, None, None)
            )
        tracer.effects.contexts.remove(var)
        tracer.give(then, None)
        return True

    def leave_from_outside(self, tracer: "CaptureTracer", fn: Var) -> bool:
        """Leave a no_grad that was entered before a break; False if that is not possible.

        The rest of the graph gets its own grad_mode. After the graph the replacement calls
        __exit__."""
        bound, context = fn.origin, fn.value.__self__
        fits = isinstance(bound, ValueSource) and isinstance(context, grad_mode) and context.outer
        inner = any(x.is_new for x in tracer.effects.contexts)
        if not fits or inner or not tracer.guards.live:
            return False
        tracer.guards.add("type", bound, types.MethodType)
        var = tracer.heap.load(context, tracer.guards.source("attr", bound, "__self__"))
        tracer.typed(var)
        inside = tracer.guards.source("dict", var.origin)
        outer = tracer.guards.source("get", inside, "outer")
        records, count = context.outer[-1], len(context.outer)
        tracer.guards.add("len", outer, count)
        tracer.guards.add("is", tracer.guards.source("item", outer, count - 1), records)
        context.__exit__(None, None, None)
        node = tracer.graph.call_function(grad_mode, (records,))
        tracer.graph.call_method("__enter__", (node,))
        leaving = Var(LeftContext(context))
        tracer.effects.context_nodes[id(leaving)] = node
        tracer.effects.contexts.append(leaving)
        tracer.effects.write(var, ("method", "__exit__", [Var(None)] * 3))
        return True

    def call_module(
        self,
        tracer: "CaptureTracer",
        fn: Any,
        args: list[Any],
        kwargs: Kwargs,
        then: Any,
        by_class: bool = True,
    ) -> bool:
        """A module: a node if it is a layer of the library, else its forward is interpreted."""
        module, cls = fn.value, type(fn.value)
        own_call = cls.__call__
        if by_class and own_call is not Module.__call__:
            tracer.call(bound_method(tracer, fn, Var(own_call)), args, kwargs, then)
            return True
        tracer.typed(fn)
        if not call_hooks:
            tracer.guards.add("len", tracer.guards.source("const", None, call_hooks, "hooks"), 0)
        library = f"{cls.__module__}.".startswith("glasshouse.nn.")
        leaf = library and not isinstance(module, INLINED_MODULES) and not has_hooks(module)
        leaf = leaf and not call_hooks and not tracer.varying.has_identity(fn.origin)
        if leaf and "forward" not in module.__dict__:
            text = cls.__name__
            if any(x.log for x in self.parts(tracer, module)):
                raise Break("a layer that was changed here is called", fn, args, kwargs)
            if isinstance(fn.origin, ValueSource):
                text = fn.origin.text
                self.guard_module(tracer, fn)
                if next(module.parameters(), None) is not None or has_buffers(module):
                    tracer.guards.add("is", fn.origin, module)
                else:  # later calls may have another like it, and this one may have changed
                    module = self.copy_of(tracer, module)
            elif fn.is_made("call") and not fn.items:
                text, module = cls.__name__, copy.deepcopy(module)  # in its present state
            elif fn.origin is not None:
                raise Break("a layer that was made here is called", fn, args, kwargs)
            name = self.own(tracer, text, module)
            tracer.deliver(then, self.apply(tracer, "call_module", name, module, args, kwargs))
            return True
        guard_hooks(tracer, fn)
        self.guard_forward(tracer, fn)
        if backward_hooks(module):
            raise Break("a module with backward hooks", fn, args, kwargs)
        with self.running(tracer, in_module, fn):
            if has_own_hooks(module) or call_hooks:
                words = new_dict(tracer, [(Var(k), v) for k, v in kwargs.items()])
                hook_args = [fn, tracer.heap.new_tuple(args), words]
                tracer.call(Var(Module._call_with_hooks), hook_args, {}, then)
            else:
                tracer.get_attribute(fn, "forward", lambda t, v: t.call(v, args, kwargs, then))
        return True

    def copy_of(self, tracer: "CaptureTracer", module: Module) -> Module:
        """The copy that the graph calls in place of a module without tensors. Values that the
        module does not own are shared."""
        if id(module) not in tracer.front_state.copies:
            owned = (dict, list, set, Module)
            values = [x for m in module.modules() for x in [*m.__dict__.values()]]
            memo = {id(x): x for x in values if not isinstance(x, owned)}
            tracer.front_state.copies[id(module)] = module, copy.deepcopy(module, memo)
            originals[tracer.front_state.copies[id(module)][1]] = weakref.ref(module)
        return tracer.front_state.copies[id(module)][1]

    def is_called(self, tracer: "CaptureTracer", value: Any) -> bool:
        called: list[Any] = [x for x in tracer.operands.members.values() if isinstance(x, Module)]
        called += [module for module, _ in tracer.front_state.copies.values()]
        return isinstance(value, Module) and any(value is m for x in called for m in x.modules())

    # -- guards ----------------------------------------------------------------------------------

    def guard_module(self, tracer: "CaptureTracer", var: Any) -> None:
        """Guard all that a layer's forward may read."""
        source, module = var.origin, var.value
        if id(source) in tracer.guards.guarded:
            return
        tracer.guards.guarded.add(id(source))
        guards = tracer.guards
        guards.add("type", source, type(module))
        inside = guards.source("dict", source)
        tracer.guards.classes.add(type(module))
        guards.add("len", inside, len(module.__dict__))  # with all names below: there are no others
        for name, value in [*module.__dict__.items()]:  # another thread may add one
            self.guard_part(tracer, value, guards.source("get", inside, name))

    def guard_part(self, tracer: "CaptureTracer", value: Any, source: ValueSource) -> None:
        """Guard one attribute of a layer."""
        guards = tracer.guards
        kind = type(value)
        if kind in SCALARS or kind is tuple:
            is_one = value is None or kind is bool  # there is no other object like it
            guards.add("is" if is_one else "eq", source, value)
        elif self.is_tensor(value):
            var = tracer.heap.load(value, source)
            guards.add("is", source, value)
            self.guard(tracer, var)
            tracer.operands.snapshots.setdefault(id(value), (value, self.state_of(value)))
        elif issubclass(kind, Module):
            self.guard_module(tracer, tracer.heap.load(value, source))
        elif issubclass(kind, dict):
            guards.add("keys", source, tuple(value)) if value else guards.add("len", source, 0)
            for key, part in value.items():
                self.guard_part(tracer, part, guards.source("get", source, key))
        elif issubclass(kind, (list, tuple)):
            guards.add("len", source, len(value))
            for i, part in enumerate(value):
                self.guard_part(tracer, part, guards.source("item", source, i))
        elif issubclass(kind, (set, frozenset)):
            guards.add("len", source, len(value))
        else:
            guards.add("is", source, value)


def has_buffers(module: Any) -> bool:
    return any(m._buffers for m in module.modules())


def has_own_hooks(module: Any) -> bool:
    return any(module.__dict__[kind] for kind in CALL_KINDS)


def has_hooks(module: Any) -> bool:
    return any(has_own_hooks(m) for m in module.modules())


def guard_hooks(tracer: "CaptureTracer", fn: Var) -> None:
    """Rely on a module's tables of hooks, where they are empty, to stay so."""
    if isinstance(fn.origin, ValueSource):
        inside = tracer.guards.source("dict", fn.origin)
        for kind in CALL_KINDS:
            if not fn.value.__dict__[kind]:
                table = tracer.guards.source("get", inside, kind)
                tracer.guards.add("len", table, 0)
