"""What a trace knows of PyTorch's modules: members, calls, hooks."""

import torch
from torch.nn.modules import module as of_modules

from glasshouse.capture.front import FrontEnd
from glasshouse.capture.plain import is_instance as isinstance
from glasshouse.capture.plain import is_library, static_lookup
from glasshouse.capture.values import Break, ValueSource, Var

TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
NOT_CAPTURED = (torch.jit.ScriptModule, torch.nn.modules.lazy.LazyModuleMixin)


class TorchModuleFront(FrontEnd):
    """Modules are Python that is interpreted; their parameters are inputs of the graph."""

    def member(self, tracer, obj, name):
        """Parameters, buffers and submodules of a Module."""
        module = obj.value
        if not isinstance(module, torch.nn.Module):
            return None
        if type(module).__getattr__ is not torch.nn.Module.__getattr__:
            return None
        for kind in TABLES:
            members = module.__dict__.get(kind, ())
            tracked = tracer.tracked.get(id(members))
            if tracked is not None and tracked.log and name in tracked.items:
                return tracked.items[name] and tracked.items[name][1]
            if name in members:
                source = None
                if tracer.live and isinstance(obj.origin, ValueSource):
                    table = self.table(tracer, obj, kind)
                    source = tracer.guards.source("get", table, name, f"{obj.origin.text}.{name}")
                return tracer.load(members[name], source)
        if tracer.live and not hasattr(type(module), name):
            if isinstance(obj.origin, ValueSource):
                for kind in TABLES:
                    tracer.guards.add("absent", self.table(tracer, obj, kind), name)
            tracer.do(getattr, module, name)
        return None

    def table(self, tracer, obj, kind: str) -> ValueSource:
        """The source of one of a module's dicts."""
        inside = tracer.guards.source("dict", obj.origin)
        return tracer.guards.source("get", inside, kind)

    def sets_plainly(self, obj, name, var):
        module = obj.value
        if not isinstance(module, torch.nn.Module):
            return False
        if type(module).__setattr__ is not torch.nn.Module.__setattr__:
            return False
        if var is not None and isinstance(var.value, (torch.Tensor, torch.nn.Module)):
            return False
        return not any(name in module.__dict__.get(table, ()) for table in TABLES)

    def call_module(self, tracer, fn, args, kwargs, then) -> bool:
        """Interpret a module's forward, with its hooks where it has some."""
        module, cls = fn.value, type(fn.value)
        if isinstance(module, NOT_CAPTURED):
            raise Break(f"a {cls.__name__}, which is not captured", fn, args, kwargs)
        own = cls.__call__
        if own is not torch.nn.Module.__call__:
            return False
        tracer.typed(fn)
        if isinstance(fn.origin, ValueSource):
            inside = tracer.guards.source("dict", fn.origin)
            for kind in HOOKS:
                if not module.__dict__[kind]:
                    tracer.guards.add("len", tracer.guards.source("get", inside, kind), 0)
            compiled = module.__dict__.get("_compiled_call_impl")
            if "_compiled_call_impl" in module.__dict__ and compiled is None:
                source = tracer.guards.source("get", inside, "_compiled_call_impl")
                tracer.guards.add("is", source, None)
        if module._compiled_call_impl is not None:
            raise Break("a module that torch.compile compiled", fn, args, kwargs)
        self.guard_forward(tracer, fn)
        self.guard_global_hooks(tracer)
        hooked = any(module.__dict__[kind] for kind in HOOKS)
        if hooked or any(getattr(of_modules, kind) for kind in GLOBAL_HOOKS):
            if module._backward_hooks or module._backward_pre_hooks:
                raise Break("a module with backward hooks", fn, args, kwargs)
            tracer.call(Var(torch.nn.Module._call_impl), [fn, *args], kwargs, then)
        else:
            tracer.get_attribute(fn, "forward", lambda t, v: t.call(v, args, kwargs, then))
        return True

    def guard_forward(self, tracer, fn) -> None:
        """Guard that a module of PyTorch's own has the forward of its class, and which that is;
        other classes are guarded where they are read."""
        cls = type(fn.value)
        if not is_library(cls) or not isinstance(fn.origin, ValueSource):
            return
        if "forward" not in fn.value.__dict__:
            tracer.guards.add("absent", tracer.guards.source("dict", fn.origin), "forward")
        base = tracer.guards.source("const", None, cls, cls.__name__)
        place = tracer.guards.source("lookup", base, "forward")
        tracer.guards.add("is", place, static_lookup(cls, "forward")[0])

    def guard_global_hooks(self, tracer) -> None:
        """Guard that there are no hooks for all modules."""
        base = tracer.guards.source("const", None, of_modules, "torch.nn.modules.module")
        inside = tracer.guards.source("dict", base)
        for kind in GLOBAL_HOOKS:
            if not getattr(of_modules, kind):
                tracer.guards.add("len", tracer.guards.source("get", inside, kind), 0)
