"""Rules for PyTorch's modules in a trace: members, calls, hooks."""

from typing import Any

import torch
from torch.nn.modules import module as of_modules
from torch.optim.lr_scheduler import LRScheduler

from glasshouse.capture.fronts.network_front import NetworkFront
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, ValueSource, Var
from glasshouse.torch.patches.modules import (
    CALL,
    COMPILED_CALL,
    GLOBAL_HOOKS,
    HOOKS,
    compiled_call,
    has_backward_hooks,
)
from glasshouse.torch.scopes.module_scope import in_optimizer, in_torch_module

NOT_CAPTURED = (torch.jit.ScriptModule, torch.nn.modules.lazy.LazyModuleMixin)


class TorchModuleFront(NetworkFront):
    """Modules: their Python is interpreted, their parameters are inputs of the graph."""

    module_type: type[Any] = torch.nn.Module
    member_types: tuple[type[Any], ...] = (torch.Tensor, torch.nn.Module)
    optimizer_type: type[Any] = torch.optim.Optimizer
    scheduler_type = LRScheduler

    def call_module(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any
    ) -> bool:
        """Interpret a module's forward, with its hooks."""
        module, cls = fn.value, type(fn.value)
        if isinstance(module, NOT_CAPTURED):
            raise Break(f"a {cls.__name__}, which is not captured", fn, args, kwargs)
        call = cls.__call__
        if call is not torch.nn.Module.__call__:
            return False
        tracer.typed(fn)
        if isinstance(fn.origin, ValueSource):
            inside = tracer.guards.source("dict", fn.origin)
            for kind in HOOKS:
                if not module.__dict__[kind]:
                    tracer.guards.add("len", tracer.guards.source("get", inside, kind), 0)
            if module.__dict__.get(COMPILED_CALL.name, False) is None:
                source = tracer.guards.source("get", inside, COMPILED_CALL.name)
                tracer.guards.add("is", source, None)
        if compiled_call(module) is not None:
            raise Break("a module that torch.compile compiled", fn, args, kwargs)
        self.guard_forward(tracer, fn)
        self.guard_global_hooks(tracer)
        hooked = any(module.__dict__[kind] for kind in HOOKS)
        hooked = hooked or any(getattr(of_modules, kind) for kind in GLOBAL_HOOKS)
        if hooked and has_backward_hooks(module):
            raise Break("a module with backward hooks", fn, args, kwargs)
        with self.running(tracer, in_torch_module, fn):
            if hooked:
                tracer.call(Var(CALL.value), [fn, *args], kwargs, then)
            else:
                tracer.get_attribute(fn, "forward", lambda t, v: t.call(v, args, kwargs, then))
        return True

    def call_step(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any
    ) -> None:
        """Interpret an optimizer's step."""
        with self.running(tracer, in_optimizer, args[0]):
            tracer.call_function(fn, args, kwargs, then)

    def guard_global_hooks(self, tracer: "CaptureTracer") -> None:
        """Guard that there are no hooks for all modules."""
        base = tracer.guards.source("const", None, of_modules, "torch.nn.modules.module")
        inside = tracer.guards.source("dict", base)
        for kind in GLOBAL_HOOKS:
            if not getattr(of_modules, kind):
                tracer.guards.add("len", tracer.guards.source("get", inside, kind), 0)
