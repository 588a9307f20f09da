"""The front end of Glasshouse's own tensors, modules and optimizers."""

import enum
import operator
import types
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse.autograd.tape import Leaf, grad_mode, sequence
from glasshouse.base.dtype import DType
from glasshouse.base.shape import Spec
from glasshouse.capture.front import FrontEnd, is_number
from glasshouse.capture.guards import GuardCheck
from glasshouse.capture.plain import SCALARS
from glasshouse.capture.tape_nodes import walk_tape
from glasshouse.capture.values import Break, Recipe, ValueSource, Var, constant
from glasshouse.dispatch.autocast import autocast
from glasshouse.dispatch.backend import TensorBackend, current
from glasshouse.dispatch.bind import Watchers, state
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.primitive import Primitive
from glasshouse.dispatch.scope import in_module, phase, scope_of
from glasshouse.dispatch.value import Value
from glasshouse.ir.graph_module import GraphModule
from glasshouse.ir.node import IRNode
from glasshouse.nn.containers import ModuleDict, ModuleList, Sequential
from glasshouse.nn.module import Module, Parameter, functional_call
from glasshouse.optim.optimizer import Optimizer
from glasshouse.optim.schedule import LRScheduler
from glasshouse.profile.annotation import record_function
from glasshouse.tensor import Tensor, random
from glasshouse.tensor.detached import DetachedView

FIXED = (
    "shape",
    "dtype",
    "ndim",
    "size",
    "itemsize",
    "nbytes",
    "spec",
    "device",
    "requires_grad",
    "is_leaf",
)
FIXED_COUNT = {"split", "meshgrid", "broadcast_arrays"}  # as many results as the arguments say
STATE = {"payload", "spec", "backend", "mode", "node", "slot", "grad"}  # what a trace may write
TABLES = ("_parameters", "_buffers", "_modules")
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
LEFT_TO_PYTHON = {"seed", "default_generator", "set_state"}
INLINED_MODULES = (Sequential, ModuleList, ModuleDict, GraphModule)
CONTEXTS = (grad_mode, autocast, record_function)
CONSTANTS = (
    DType,
    Spec,
    Primitive,
    random.Generator,
    TensorBackend,
    enum.Enum,
    types.GenericAlias,
    slice,
)


class GlasshouseFront(FrontEnd):
    """Tensors of this library: calls of its functions and layers are nodes; optimizers and
    containers are Python that is interpreted like the user's."""

    name = "glasshouse"
    reentered = CONTEXTS
    left_to_python = (
        "glasshouse.transforms",
        "glasshouse.data",
        "glasshouse.interop",
        "glasshouse.dispatch.watch",
        "glasshouse.profile.counter",
        "glasshouse.profile.profiler",
    )

    def is_tensor(self, value):
        return isinstance(value, Value)

    def is_operation(self, fn):
        if isinstance(fn, Primitive):
            return True
        if isinstance(fn, type):
            return issubclass(fn, Value)
        name = getattr(fn, "__module__", None) or ""
        if not isinstance(fn, types.FunctionType):
            bound = isinstance(fn, (types.BuiltinFunctionType, types.MethodType))
            owner = fn.__self__ if bound else None
            return isinstance(owner, type) and issubclass(owner, Value)
        if name == "glasshouse.ops.checks" or not name.startswith(OPERATIONS):
            return False
        if fn.__name__ in LEFT_TO_PYTHON or "<locals>" in fn.__qualname__:
            return False
        return "." not in fn.__qualname__ or is_tensor_method(fn)

    def is_constant(self, value):
        return isinstance(value, CONSTANTS)

    def is_owned(self, value):
        return isinstance(value, Parameter)

    def keep(self, value, link, entry):
        value.__dict__.setdefault("_gh_entries", WeakKeyDictionary())[link] = entry

    # -- guards ----------------------------------------------------------------------------------

    def guard(self, tracer, var):
        source, guards, value = var.origin, tracer.guards, var.value
        if not isinstance(source, ValueSource) or id(source) in tracer.guarded:
            return
        if type(value) is DetachedView:
            raise Break("x.data that was read outside is used")
        tracer.guarded.add(id(source))
        guards.add("type", source, type(value))
        inside = guards.source("dict", source)
        self.guard_spec(tracer, value, source, inside)
        backend = guards.source("get", inside, "backend")
        guards.add("is", backend, value.backend)
        node = value.node
        kind = 0 if node is None else 1 if isinstance(node, Leaf) else 2
        guards.add("kind", inside, ("node", Leaf, kind))
        guards.add("kind", inside, ("mode", type(None), 0))

    def guard_spec(self, tracer, value, source, inside):
        """Guard shape and dtype; a size that was seen to vary may be anything."""
        spec = tracer.guards.source("get", inside, "spec")
        sizes = [
            None if self.is_free(tracer, source, value, i) else n for i, n in enumerate(value.shape)
        ]
        wanted = Spec(tuple(sizes), value.dtype) if None in sizes else value.spec
        tracer.guards.add("spec", spec, wanted)

    def ambient(self, tracer):
        base = tracer.guards.source("const", None, state, "state")
        for name in ("records", "backend", "compile_target"):
            source = tracer.guards.source("attr", base, name)
            tracer.guards.add("is", source, getattr(state, name))
        modes = tracer.guards.source("attr", base, "modes")
        if state.modes:
            wanted = [(mode.dtype, mode.enabled) for mode in state.modes]
            tracer.guards.add(
                "call", modes, GuardCheck(same_autocasts, wanted, f"autocast {wanted}")
            )
        else:
            tracer.guards.add("is", modes, ())

    def is_ambient(self, value):
        return value is state or value is hooks

    def is_stale(self, tracer, var):
        """Whether a scheduler's step may have changed what is read."""
        if not tracer.scheduled or not isinstance(var.origin, ValueSource):
            return False
        return isinstance(var.value, (Optimizer, LRScheduler)) or "param_groups" in var.origin.text

    def can_trace(self) -> bool:
        """Whether nothing but autocast is between calls and backend."""
        return all(isinstance(mode, autocast) for mode in state.modes)

    def varies(self, source):
        """Numbers of optimizers change as training goes on."""
        step = source
        while step is not None:
            if step.kind == "const" and isinstance(step.key, (Optimizer, LRScheduler)):
                return True
            if step.text.endswith((".param_groups", ".state")):
                return True
            step = step.base
        return False

    # -- running ---------------------------------------------------------------------------------

    def begin(self, tracer):
        current().sync()  # what waits is no part of the trace
        tracer.sequence_at = next(sequence)
        tracer.told, state.watchers = state.watchers, Watchers([], [])  # the compiled graph counts
        tracer.draws = []
        tracer.outer_scope = state.scope
        random.observers.append(tracer.draws)

    def end(self, tracer):
        """The trace is over."""
        if tracer.draws in random.observers:
            random.observers[:] = [x for x in random.observers if x is not tracer.draws]
        if tracer.told is not None:
            state.scope = tracer.outer_scope
            state.watchers = tracer.told
            tracer.told = None

    stop = end

    def rollback(self, tracer):
        after = [(value, self.state_of(value)) for value, _ in tracer.snapshots.values()]
        draws = [(generator, generator.draws) for generator, _ in tracer.draws]
        for value, saved in tracer.snapshots.values():
            self.restore(value, saved)
        for generator, _ in draws:
            generator.draws -= 1

        def redo():
            for value, saved in after:
                self.restore(value, saved)
            for generator, count in draws:
                generator.draws = count

        return redo

    def run(self, fn, args, kwargs):
        state.values_hidden = True
        try:
            return fn(*args, **kwargs)
        finally:
            state.values_hidden = False

    def state_of(self, value):
        own = value.__dict__
        return {name: own[name] for name in STATE if name in own}

    def restore(self, value, saved):
        for name in STATE - saved.keys():
            value.__dict__.pop(name, None)
        value.__dict__.update(saved)

    def adopt(self, value, result):
        if value is not result and self.is_tensor(value):
            self.restore(value, self.state_of(result))
        return True

    def own_gradient(self, tracer, owner, value, result):
        for node, var in tracer.lifted.values():
            if node is owner and var.value.__dict__.get("grad") is result:
                var.value.grad = value

    def before(self, tracer, target, args):
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if name == "backward":
            tensors = [x for x in args if self.is_tensor(x.value)]
            self.before_backward(tracer, tensors[:1] or args[:1])

    def before_backward(self, tracer, outputs):
        """Know every leaf that a backward pass will reach."""
        leaves = []
        for var in outputs:
            roots = [var] if self.is_tensor(var.value) else tracer.sequence(var) or []
            for node in walk_tape([x.value.node for x in roots]):
                leaves += [node] if isinstance(node, Leaf) else []
                if not isinstance(node, Leaf) and node.seq < tracer.sequence_at:
                    where = "through what was computed before"
                    raise Break(f"backward {where}", Var(Tensor.backward), outputs)
                if node.grad_hooks:
                    raise Break("backward with hooks on tensors", Var(Tensor.backward), outputs)
        for leaf in leaves:
            tensor = leaf.tensor()
            var = None if tensor is None else tracer.tracked.get(id(tensor))
            if var is None:
                reason = "backward reaches a tensor that was not read here"
                raise Break(reason, Var(Tensor.backward), outputs)
            self.read_grad(tracer, var)
            if isinstance(var.origin, ValueSource):
                inside = tracer.guards.source("dict", var.origin)
                tracer.guards.add("unhooked", inside, ("node", "grad_hooks"))
        for leaf in leaves:
            tracer.tracked[id(leaf.tensor())].items["grad"] = None  # known when it is read

    def read_grad(self, tracer, var):
        """Guard what a tensor's .grad is before the trace."""
        if var.items is None:
            var.items = {}
        if "grad" in var.items or not isinstance(var.origin, ValueSource):
            return
        self.lift(tracer, var)
        inside = tracer.guards.source("dict", var.origin)
        grad = var.value.grad
        if grad is None:
            tracer.guards.add("kind", inside, ("grad", Tensor, 0))
            var.items["grad"] = Var(None)
        else:
            grad_var = tracer.load(grad, tracer.guards.source("get", inside, "grad"))
            self.guard(tracer, grad_var)
            tracer.snapshots.setdefault(id(grad), (grad, self.state_of(grad)))
            var.items["grad"] = grad_var

    # -- attributes ------------------------------------------------------------------------------

    def metadata(self, tracer, var, name):
        value = var.value
        if name == "grad":
            return self.gradient(tracer, var)
        if name == "shape" and isinstance(var.origin, ValueSource):
            return self.shape(tracer, var)
        varies = self.varies_in_size(tracer, var)
        if name == "shape" and varies and isinstance(var.origin, IRNode):
            return self.computed_shape(tracer, var)
        if name in ("size", "nbytes") and varies:
            node = tracer.graph.call_function(getattr, (self.lift(tracer, var), name))
            node.meta["varies"] = node.meta["scalar"] = True
            return Var(getattr(value, name), node)
        fixed = name == "spec" or name == "ndim" and ranks_vary(var.origin)
        if fixed and varies:
            tracer.fix_inputs(self.lift(tracer, var))
        if name in FIXED:
            return constant(getattr(value, name))
        if name == "__class__":
            return Var(type(value))
        if name == "data":
            view = DetachedView(value)
            return tracer.track(Var(view, Recipe("call", Var(DetachedView), [var], {})))
        if name in value.__dict__ and name not in ("payload", "node", "slot", "mode", "backend"):
            if not isinstance(var.origin, ValueSource):
                return Var(value.__dict__[name])
            inside = tracer.guards.source("dict", var.origin)
            return tracer.load(value.__dict__[name], tracer.entry_source(inside, name))
        return None

    def shape(self, tracer, var):
        """The shape; sizes that vary are numbers that do."""
        source, value = var.origin, var.value
        varying = [self.is_free(tracer, source, value, i) for i in range(value.ndim)]
        if not any(varying):
            return Var(value.shape, None)
        base = tracer.guards.source("attr", source, "shape")
        items = [
            Var(n, tracer.guards.source("item", base, i)) if free else Var(n)
            for i, (n, free) in enumerate(zip(value.shape, varying, strict=True))
        ]
        return Var(value.shape, Recipe("tuple"), items)

    def is_free(self, tracer, source, value, axis: int) -> bool:
        """Whether the size of an axis may be another one in a later call."""
        if axis in value.__dict__.get("_gh_dynamic", ()):
            tracer.dynamic.add(f"{source.text}.shape[{axis}]")
        return tracer.varying_size(f"{source.text}.shape[{axis}]")

    def computed_shape(self, tracer, var):
        """The shape of a tensor that the graph computes, as the graph computes it."""
        if ranks_vary(var.origin):
            tracer.fix_inputs(var.origin)
            return constant(var.value.shape)
        node = tracer.graph.call_function(getattr, (var.origin, "shape"))
        node.meta["varies"] = True
        items = []
        for i, n in enumerate(var.value.shape):
            item = tracer.graph.call_function(operator.getitem, (node, i))
            item.meta["varies"] = item.meta["scalar"] = True
            items.append(Var(n, item))
        return Var(var.value.shape, Recipe("tuple"), items)

    def varies_in_size(self, tracer, var) -> bool:
        """Whether a tensor may have another size in a later call."""
        if isinstance(var.origin, IRNode):
            return bool(var.origin.meta.get("varies"))
        return self.size_varies(tracer, var)

    def size_varies(self, tracer, var):
        source, value = var.origin, var.value
        axes = range(value.ndim) if isinstance(source, ValueSource) else ()
        return any(self.is_free(tracer, source, value, i) for i in axes)

    def count_varies(self, node, fn, result):
        if hasattr(result, "_fields") or node.op == "call_module":
            return False
        numbers = (is_number(x) and x.meta["varies"] for x in node.all_input_nodes)
        named = getattr(fn, "__name__", "") in FIXED_COUNT and not any(numbers)
        return super().count_varies(node, fn, result) and not named

    def is_same_always(self, value):
        return value is None or isinstance(value, DType)

    def check_numbers(self, tracer, args):
        dtypes = [x.value.dtype for x in args if self.is_tensor(x.value)]
        limits = [np.iinfo(dtype.np) for dtype in dtypes if dtype.is_integer]
        if not limits:
            return
        low, high = max(int(x.min) for x in limits), min(int(x.max) for x in limits)
        for var in args:
            if type(var.value) is not int or not tracer.varies(var):
                continue
            if isinstance(var.origin, ValueSource):
                check = GuardCheck(is_between, (low, high), f"a number from {low} to {high}")
                tracer.guards.add("call", var.origin, check)
            elif high < 1 << 31:
                tracer.concretize(var)

    def length(self, tracer, var):
        if var.value.ndim and self.varies_in_size(tracer, var):
            return tracer.sequence(self.metadata(tracer, var, "shape"))[0]
        return super().length(tracer, var)

    def gradient(self, tracer, var):
        """tensor.grad."""
        if var.items is None:
            var.items = {}
        if isinstance(var.origin, ValueSource):
            self.read_grad(tracer, var)
        if var.items.get("grad") is None:
            value = var.value.grad
            if value is None:
                var.items["grad"] = Var(None)
            else:
                node = tracer.graph.call_function(getattr, (self.lift(tracer, var), "grad"))
                node.meta["line"] = tracer.frames[-1].where
                self.describe(node, value)
                var.items["grad"] = tracer.track(Var(value, node))
        return var.items["grad"]

    def set_attribute(self, tracer, var, name, value):
        if name not in ("grad", "requires_grad", "data") or value is None:
            return super().set_attribute(tracer, var, name, value)
        if name == "grad":
            self.gradient(tracer, var)
        args = [var, Var(name), value]
        self.apply(tracer, "call_function", setattr, setattr, args, {})
        if name == "grad":
            var.items["grad"] = value
        return None

    def lift(self, tracer, var):
        if type(var.value) is not DetachedView or id(var) in tracer.lifted:
            return super().lift(tracer, var)
        if not var.is_new:
            raise Break("x.data that was read outside is used")
        (tensor,) = var.origin.parts[1]
        node = tracer.graph.call_function(getattr, (self.lift(tracer, tensor), "data"))
        self.annotate(node)
        self.describe(node, var.value)
        tracer.lifted[id(var)] = node, var
        return node

    def annotate(self, node):
        node.meta["scope"] = state.scope

    def describe(self, node, value):
        node.meta["spec"] = value.spec

    def member(self, tracer, obj, name):
        """Parameters, buffers and submodules of a Module."""
        if not isinstance(obj.value, Module):
            return None
        for kind in TABLES:
            members = obj.value.__dict__.get(kind, ())
            tracked = tracer.tracked.get(id(members))
            if tracked is not None and tracked.log and name in tracked.items:
                return tracked.items[name] and tracked.items[name][1]
            if name in members:
                source = None
                if tracer.live and isinstance(obj.origin, ValueSource):
                    inside = tracer.guards.source("dict", obj.origin)
                    table = tracer.guards.source("get", inside, kind)
                    source = tracer.guards.source("get", table, name, f"{obj.origin.text}.{name}")
                return tracer.load(members[name], source)
        if (
            tracer.live
            and type(obj.value).__getattr__ is Module.__getattr__
            and not hasattr(type(obj.value), name)
        ):
            self.lacks(tracer, obj, name)
            tracer.do(getattr, obj.value, name)
        return None

    def tables(self, tracer, module) -> list[Var]:
        """The dicts of parameters, buffers and modules below a module that were looked into."""
        tables = (tracer.tracked.get(id(m.__dict__[p])) for m in module.modules() for p in TABLES)
        return [x for x in tables if x is not None]

    def lacks(self, tracer, obj, name) -> None:
        """Guard that a Module has no such member."""
        if isinstance(obj.origin, ValueSource):
            inside = tracer.guards.source("dict", obj.origin)
            for kind in TABLES:
                table = tracer.guards.source("get", inside, kind)
                tracer.guards.add("absent", table, name)

    def sets_plainly(self, obj, name, var):
        module = obj.value
        if not isinstance(module, Module) or type(module).__setattr__ is not Module.__setattr__:
            return False
        if var is not None and isinstance(var.value, (Parameter, Module)):
            return False
        return not any(name in module.__dict__.get(table, ()) for table in TABLES)

    # -- calls -----------------------------------------------------------------------------------

    def call(self, tracer, fn, args, kwargs, then):
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
            own = Var(getattr(args[0].value, f.__name__))
            return self.context(tracer, own, args[0], f.__name__, then)
        is_class = isinstance(f, type)
        if f is phase or is_class and issubclass(f, CONTEXTS):
            made = Var(tracer.call_concrete(f, args, kwargs), Recipe("call", fn, args, kwargs), {})
            tracer.deliver(then, tracer.track(made))
            return True
        if isinstance(f, Module):
            return self.call_module(tracer, fn, args, kwargs, then)
        if f is Module.__call__ and args and isinstance(args[0].value, Module):
            return self.call_module(tracer, args[0], args[1:], kwargs, then, own=False)
        if f is functional_call or is_class and issubclass(f, (Module, Optimizer, LRScheduler)):
            raise Break(f"call of {f.__name__}", fn, args, kwargs)
        return super().call(tracer, fn, args, kwargs, then)

    def is_context(self, fn) -> bool:
        """Whether a bound method is that of no_grad, autocast, a phase …"""
        if isinstance(fn.value.__self__, CONTEXTS):
            return True
        this = fn.origin.parts[0] if isinstance(fn.origin, Recipe) else None
        made = this is not None and isinstance(this.origin, Recipe) and this.origin.kind == "call"
        return made and this.origin.parts[0].value is phase

    def context(self, tracer, fn, var, name, then):
        """Enter or leave no_grad, autocast, a phase …"""
        if var is None or not var.is_new:
            nothing = [Var(None)] * (0 if name == "__enter__" else 3)
            raise Break("a context made elsewhere", fn, nothing)
        if name == "__enter__":
            cls, args, kwargs = var.origin.parts
            entered = tracer.do(var.value.__enter__)
            words = {k: tracer.concretize(v) for k, v in kwargs.items()}
            made = tracer.graph.call_function(cls.value, tuple(map(tracer.concretize, args)), words)
            tracer.graph.call_method("__enter__", (made,))
            tracer.context_nodes[id(var)] = made
            tracer.contexts.append(var)
            tracer.deliver(then, var if entered is var.value else Var(entered))
            return True
        tracer.do(var.value.__exit__, None, None, None)
        if tracer.live:
            tracer.graph.call_method("__exit__", (tracer.context_nodes[id(var)], None, None, None))
        tracer.contexts.remove(var)
        tracer.give(then, None)
        return True

    def schedule(self, tracer, fn, args, kwargs, then):
        """A scheduler's step has nothing for the graph: Python does it again in each call."""
        var = fn.origin.parts[0] if isinstance(fn.origin, Recipe) else None
        from_outside = var is not None and isinstance(var.origin, ValueSource) and not kwargs
        if not from_outside or not tracer.all_foldable(args):
            raise Break("a scheduler's step", fn, args, kwargs)
        tracer.typed(var)
        tracer.call_concrete(fn.value, args)
        tracer.write(var, ("method", "step", list(args)))
        tracer.scheduled = True
        tracer.give(then, None)
        return True

    def call_module(self, tracer, fn, args, kwargs, then, own=True):
        """A module: a node if it is a layer of the library, else its forward is interpreted."""
        module = fn.value
        cls = type(module)
        own_call = cls.__call__
        if own and own_call is not Module.__call__:
            tracer.call(tracer.bound(fn, Var(own_call)), args, kwargs, then)
            return True
        tracer.typed(fn)
        library = f"{cls.__module__}.".startswith("glasshouse.nn.")
        leaf = library and not isinstance(module, INLINED_MODULES) and not has_hooks(module)
        if leaf and "forward" not in module.__dict__:
            text = cls.__name__
            if isinstance(fn.origin, ValueSource):
                text = fn.origin.text
                if next(module.parameters(), None) is not None or has_buffers(module):
                    tracer.guards.add("is", fn.origin, module)
                self.guard_module(tracer, fn)
            elif fn.origin is not None:
                raise Break("a layer that was made here is called", fn, args, kwargs)
            if any(t.log for t in self.tables(tracer, module)):
                raise Break("a layer whose tensors were replaced here is called", fn, args, kwargs)
            name = self.own(tracer, text, module)
            tracer.deliver(then, self.apply(tracer, "call_module", name, module, args, kwargs))
            return True
        if isinstance(fn.origin, ValueSource):
            inside = tracer.guards.source("dict", fn.origin)
            for kind in ("_forward_hooks", "_forward_pre_hooks"):
                if not module.__dict__[kind]:
                    table = tracer.guards.source("get", inside, kind)
                    tracer.guards.add("len", table, 0)
        depth = len(tracer.frames)
        outer = state.scope
        state.scope = scope_of(module, outer)
        if has_own_hooks(module):
            words = tracer.new_dict((Var(k), v) for k, v in kwargs.items())
            tracer.call(Var(Module._call_with_hooks), [fn, tracer.new_tuple(args), words], {}, then)
        else:
            tracer.get_attribute(fn, "forward", lambda t, v: t.call(v, args, kwargs, then))
        if len(tracer.frames) > depth:
            tracer.frames[depth].scope = outer, in_module, fn
        else:
            state.scope = outer
        return True

    def leave(self, frame):
        if frame.scope is not None:
            state.scope = frame.scope[0]

    def guard_module(self, tracer, var):
        """Guard all that a layer's forward may read."""
        source, module = var.origin, var.value
        if id(source) in tracer.guarded:
            return
        tracer.guarded.add(id(source))
        guards = tracer.guards
        guards.add("type", source, type(module))
        inside = guards.source("dict", source)
        for name, value in module.__dict__.items():
            self.guard_part(tracer, value, guards.source("get", inside, name))

    def guard_part(self, tracer, value, source):
        """Guard one attribute of a layer."""
        guards = tracer.guards
        if self.is_tensor(value):
            var = tracer.load(value, source)
            guards.add("is", source, value)
            self.guard(tracer, var)
            tracer.snapshots.setdefault(id(value), (value, self.state_of(value)))
        elif isinstance(value, Module):
            self.guard_module(tracer, tracer.load(value, source))
        elif isinstance(value, dict):
            guards.add("keys", source, tuple(value)) if value else guards.add("len", source, 0)
            for key, part in value.items():
                self.guard_part(tracer, part, guards.source("get", source, key))
        elif isinstance(value, (list, tuple)) and type(value) is not tuple:
            guards.add("len", source, len(value))
            for i, part in enumerate(value):
                self.guard_part(tracer, part, guards.source("item", source, i))
        elif isinstance(value, (set, frozenset)):
            guards.add("len", source, len(value))
        else:
            compared = type(value) is tuple or type(value) in SCALARS
            kind = "eq" if compared and value is not None and type(value) is not bool else "is"
            guards.add(kind, source, value)


def ranks_vary(node) -> bool:
    """Whether the number of axes that an operation leaves depends on sizes."""
    if not isinstance(node, IRNode):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name == "squeeze" and len(node.args) < 2 and not node.kwargs


def is_between(value, bounds) -> bool:
    return type(value) is int and bounds[0] <= value <= bounds[1]


def same_autocasts(modes, wanted) -> bool:
    return [(getattr(m, "dtype", None), getattr(m, "enabled", None)) for m in modes] == wanted


def has_buffers(module) -> bool:
    return any(m._buffers for m in module.modules())


def has_own_hooks(module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def has_hooks(module) -> bool:
    return any(has_own_hooks(m) for m in module.modules())


def is_tensor_method(fn) -> bool:
    return fn.__qualname__.partition(".")[0] in ("Tensor", "Value", "Parameter")
