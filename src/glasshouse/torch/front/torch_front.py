"""The front end of PyTorch's tensors, modules and optimizers: gh.optimize on a PyTorch program.

PyTorch's functions and methods are nodes of the graph; the Python of its modules and optimizers is
interpreted like the user's. A trace computes for real, so the first call is an ordinary one; later
calls use the captured graph."""

import operator
import types
from typing import Any

import torch
from torch.autograd import forward_ad

from glasshouse import memory
from glasshouse.capture.sessions.dispatching import miss
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Kwargs, Then, Var
from glasshouse.dispatch.bind import state
from glasshouse.ir.graph_module import GraphModule
from glasshouse.torch.front import names
from glasshouse.torch.front.calls import TorchCallFront
from glasshouse.torch.front.claims import is_of_torch
from glasshouse.torch.front.compilers import (
    StateModes,
    compile_graph,
    compiler_names,
    registered_compiler,
)
from glasshouse.torch.front.functions import TorchFunctionFront
from glasshouse.torch.front.modules import TorchModuleFront
from glasshouse.torch.front.names import name_of
from glasshouse.torch.front.nodes import TorchNodeFront
from glasshouse.torch.front.state import NO_LEVEL, modes_check, others_watch
from glasshouse.torch.front.tensors import TorchTensorFront
from glasshouse.torch.front.trace_state import TorchTrace
from glasshouse.torch.patches.dynamo import skip_all
from glasshouse.torch.patches.functions import NATIVE_MODULE
from glasshouse.torch.patches.modes import FORWARD_LEVEL

DESCRIPTORS = (
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)


class TorchFront(
    TorchTensorFront, TorchNodeFront, TorchCallFront, TorchFunctionFront, TorchModuleFront
):
    """Programs of PyTorch."""

    name = "torch"
    computes_for_real = True
    left_to_python: tuple[str, ...] = (*names.LEFT_TO_PYTHON, *names.OURS)
    looked_into: frozenset[str] = frozenset(names.LOOKED_INTO)
    in_place: frozenset[Any] = frozenset({operator.setitem})

    def __init__(self) -> None:
        skip_all(miss.__code__)

    def claims(self, fn: Any, slots: tuple[Any, ...]) -> bool:
        return is_of_torch(fn, slots)

    def compile(self, compiler: Any, module: "GraphModule", example_inputs: list[Any]) -> Any:
        return compile_graph(compiler, module, example_inputs)

    def named_compiler(self, name: str) -> Any:
        return registered_compiler(name)

    def compiler_names(self) -> Any:
        return compiler_names()

    def is_module(self, value: Any) -> bool:
        return isinstance(value, torch.nn.Module)

    def is_constant(self, value: Any) -> bool:
        return isinstance(value, names.VALUES)

    def is_operation(self, fn: Any) -> bool:
        if isinstance(fn, names.OVERLOADS):
            return True
        if isinstance(fn, types.BuiltinFunctionType):
            return fn.__module__ in names.NATIVE_MODULES and (
                fn.__self__ is None or fn.__module__ != NATIVE_MODULE
            )
        if isinstance(fn, types.FunctionType):
            is_theirs = fn.__module__ in names.NODE_MODULES and "<locals>" not in fn.__qualname__
            return is_theirs or fn in names.AUTOGRAD
        if type(fn) not in DESCRIPTORS:  # a user's object may answer == as it likes
            return False
        return issubclass(torch.Tensor, fn.__objclass__) and fn.__objclass__ is not object

    def can_trace(self) -> bool:
        """Whether no mode sees each operation."""
        return not others_watch()

    def ambient(self, tracer: "CaptureTracer") -> None:
        base = tracer.guards.source("const", None, torch, "torch")
        tracer.guards.add("call", base, modes_check())
        base = tracer.guards.source("const", None, forward_ad, "torch.autograd.forward_ad")
        inside = tracer.guards.source("dict", base)
        level = tracer.guards.source("get", inside, FORWARD_LEVEL.name)
        tracer.guards.add("eq", level, NO_LEVEL)

    def begin(self, tracer: "CaptureTracer") -> TorchTrace:
        memory.current().empty_cache()  # the trace computes in PyTorch's memory
        tracer.graph.entry_modes = StateModes()
        return TorchTrace()

    def end(self, tracer: "CaptureTracer") -> None:
        """End the trace."""
        state.scope, state.phase = tracer.front_state.place_before

    stop = end

    def call(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Then
    ) -> bool:
        f = fn.value
        if fn.is_made("method") and self.is_tensor(fn.origin.parts[0].value):
            this, name = fn.origin.parts
            if isinstance(name, Var):
                name = name_of(name.value)
            tracer.deliver(then, self.apply(tracer, "call_method", name, f, [this, *args], kwargs))
            return True
        if isinstance(f, torch.nn.Module):
            return self.call_module(tracer, fn, args, kwargs, then)
        if isinstance(f, types.FunctionType) and f.__code__ is names.OPTIMIZER_STEP:
            self.call_step(tracer, fn, args, kwargs, then)
            return True
        if self.call_special(tracer, fn, args, kwargs, then):
            return True
        return super().call(tracer, fn, args, kwargs, then)
