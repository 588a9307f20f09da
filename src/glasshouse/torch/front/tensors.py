"""Rules for PyTorch's tensors in a trace: guards, attributes, gradients."""

from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

import torch

from glasshouse.capture.guards.program import WeakLink
from glasshouse.capture.rules.class_lookups import rely_on_data
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import MISSING
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, ValueSource, Var, constant
from glasshouse.ir.node import IRNode
from glasshouse.torch.front import names
from glasshouse.torch.front.state import TensorCheck, has_hooks, is_plain


class KeptEntries(WeakKeyDictionary[Any, Any]):
    """The compiled entries that a parameter keeps alive. Its copies and files have none."""

    def __deepcopy__(self, memo: Any) -> Any:
        return KeptEntries()

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, ()


class TorchTensorFront(FrontEnd):
    """Guards on tensors, and reads and writes of their attributes."""

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def is_key(self, value: Any) -> bool:
        return is_plain(type(value)) or self.is_constant(value)

    def keep(self, value: Any, link: "WeakLink", entry: Any) -> None:
        entries = value.__dict__.get("_gh_entries")
        if type(entries) is not KeptEntries:
            entries = value._gh_entries = KeptEntries()
        entries[link] = entry

    def guard(self, tracer: "CaptureTracer", var: Var) -> None:
        source, value = var.origin, var.value
        self.check_plain(value)
        if isinstance(source, ValueSource) and id(source) not in tracer.guards.guarded:
            tracer.guards.guarded.add(id(source))
            check = tracer.front_state.tensor_checks[id(source)] = TensorCheck(value)
            tracer.guards.add("call", source, check)

    def check_plain(self, value: Any) -> None:
        """Break where a tensor's class overrides operations."""
        if not is_plain(type(value)):
            raise Break(f"a {type(value).__name__}, a subclass of Tensor")

    def attribute(self, tracer: "CaptureTracer", var: Var, name: str) -> Var:
        value = var.value
        if not is_plain(type(value)):
            raise Break(
                f"attribute {name!r} of a {type(value).__name__}", Var(getattr), [var, Var(name)]
            )
        if isinstance(var.origin, ValueSource):
            self.guard(tracer, var)
        if name in names.FIXED:
            return constant(tracer.do(getattr, value, name))
        if name == "__class__":
            return Var(type(value))
        if name == "grad":
            return self.gradient(tracer, var)
        if name == "grad_fn" and value.grad_fn is None:  # the guards say so
            return Var(None)
        if name in names.VIEWS:
            return self.apply(tracer, "call_function", getattr, getattr, [var, Var(name)], {})
        attributes = value.__dict__
        if name in attributes and isinstance(var.origin, ValueSource):
            inside = tracer.guards.source("dict", var.origin)
            return tracer.heap.load(attributes[name], tracer.heap.entry_source(inside, name))
        own_kind = getattr(type(value), name, None)
        if callable(own_kind) and not attributes and not isinstance(own_kind, (type, property)):
            return Var(getattr(value, name), Recipe("method", var, name))
        if own_kind is None and not hasattr(value, name):
            if isinstance(var.origin, ValueSource):
                inside = tracer.guards.source("dict", var.origin)
                tracer.guards.add("absent", inside, name)
            rely_on_data(tracer, var, name, MISSING)
            tracer.do(getattr, value, name)  # raises
        if callable(own_kind) and name not in attributes:
            return Var(getattr(value, name), Recipe("method", var, name))
        if not tracer.guards.live:
            return Var(tracer.do(getattr, value, name))
        raise Break(f"attribute {name!r} of a tensor", Var(getattr), [var, Var(name)])

    def metadata(self, tracer: "CaptureTracer", var: Var, name: str) -> Var | None:
        return constant(tuple(var.value.shape)) if name == "shape" else None

    def gradient(self, tracer: "CaptureTracer", var: Var) -> Var:
        """The value of tensor.grad."""
        value, read = var.value, (var.items or {}).get("grad")
        if read is not None:
            return read
        if not value.is_leaf:
            raise Break("the gradient of what is no leaf", Var(getattr), [var, Var("grad")])
        grad, first = value.grad, self.first_gradient(tracer, var)
        if grad is None:
            gradient = Var(None)
        elif grad is first.value:
            gradient = first
        else:
            args = [var, Var("grad")]
            gradient = self.apply(tracer, "call_function", getattr, getattr, args, {})
        var.items = {**(var.items or {}), "grad": gradient}
        return gradient

    def first_gradient(self, tracer: "CaptureTracer", var: Var) -> Var:
        """The gradient that a tensor had when the trace began, guarded; None where it was set."""
        gradients = tracer.front_state.gradients
        if not isinstance(var.origin, ValueSource) or id(var.value) in gradients.were_set:
            return Var(None)
        first = gradients.first.get(id(var.value), var.value.grad)
        source = tracer.guards.source("attr", var.origin, "grad")
        if first is None:
            tracer.guards.add("is", source, None)
            return Var(None)
        # Its sizes and strides matter where an operation is given it: most are just replaced.
        self.check_plain(first)
        tracer.guards.add("type", source, type(first))
        gradients.sources.add(id(source))
        return tracer.heap.load(first, source)

    def set_attribute(
        self, tracer: "CaptureTracer", var: Var, name: str, value: Var | None
    ) -> None:
        if name == "requires_grad" and value is not None and isinstance(var.origin, IRNode):
            method = var.value.requires_grad_
            self.apply(tracer, "call_method", "requires_grad_", method, [var, value], {})
            return None
        if name != "grad" or value is None or not is_plain(type(var.value)):
            return super().set_attribute(tracer, var, name, value)  # raises
        self.gradient(tracer, var)
        tracer.front_state.gradients.were_set.add(id(var.value))
        args = [var, Var(name), value]
        self.apply(tracer, "call_function", setattr, setattr, args, {})
        var.items = {**(var.items or {}), "grad": value}
        return None

    def why_python_runs(
        self, tracer: "CaptureTracer", args: list[Var], kwargs: Kwargs
    ) -> str | None:
        """The reason why user code may run inside a backward pass, where it sees gradients too
        early, or changes values that were read; None where it cannot. Then guards forbid hooks."""
        values = [x for _, x in tracer.operands.lifted.values()]
        for x in (*args, *kwargs.values()):
            values += tracer.sequence(x) if isinstance(x.value, (list, tuple)) else [x]
        tensors = [
            x
            for x in values
            if self.is_tensor(x.value)
            and x.value.requires_grad
            and not isinstance(x.origin, IRNode)
        ]
        if not all(x.value.is_leaf for x in tensors):
            return "a backward pass through what was computed outside of the graph"
        if any(has_hooks(x.value) for x in tensors):
            return "a backward pass of tensors that have hooks"
        for x in tensors:
            if isinstance(x.origin, ValueSource):
                self.guard(tracer, x)
                tracer.front_state.tensor_checks[id(x.origin)].forbid_hooks()
        return None

    def forget_gradients(self, tracer: "CaptureTracer") -> None:
        """Forget known gradients: a backward pass may change them."""
        for _, var in tracer.operands.lifted.values():
            if self.is_tensor(var.value) and var.value.is_leaf:
                tracer.front_state.gradients.first.setdefault(id(var.value), var.value.grad)
        for var in tracer.heap.tracked.values():
            if isinstance(var.items, dict) and self.is_tensor(var.value):
                var.items.pop("grad", None)
