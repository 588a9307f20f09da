"""Tensors of this library in a trace: guards, attributes, sizes that vary."""

import operator
from typing import Any

import numpy as np

from glasshouse.autograd.tape import Leaf
from glasshouse.base import DType, Spec
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.constants import fix_inputs
from glasshouse.capture.rules.subscripts import note_data
from glasshouse.capture.trace.front import FrontEnd, converted_input, is_number
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    Break,
    Recipe,
    ValueSource,
    Var,
    constant,
)
from glasshouse.dispatch.bind import state
from glasshouse.ir.node import IRNode
from glasshouse.tensor import Tensor
from glasshouse.tensor.detached import DetachedView
from glasshouse.tensor.standard.creation import asarray
from glasshouse.tensor.torch_names.creation import from_numpy

FIXED = tuple("shape dtype ndim size itemsize nbytes spec device requires_grad is_leaf".split())
FIXED_COUNT = {"split", "meshgrid", "broadcast_arrays"}  # of results, by their arguments


class TensorFront(FrontEnd):
    """Guards on tensors, and their attributes."""

    # -- guards ----------------------------------------------------------------------------------

    def guard(self, tracer: "CaptureTracer", var: Any) -> None:
        source, guards, value = var.origin, tracer.guards, var.value
        if not isinstance(source, ValueSource) or id(source) in tracer.guards.guarded:
            return
        if type(value) is DetachedView:
            raise Break("x.data that was read outside is used")
        tracer.guards.guarded.add(id(source))
        guards.add("type", source, type(value))
        inside = guards.source("dict", source)
        guard_spec(self, tracer, value, source, inside)
        backend = guards.source("get", inside, "backend")
        guards.add("is", backend, value.backend)
        node = value.tape_entry
        kind = 0 if node is None else 1 if isinstance(node, Leaf) else 2
        guards.add("kind", inside, ("tape_entry", Leaf, kind))
        guards.add("kind", inside, ("mode", type(None), 0))

    # -- arrays of NumPy's -----------------------------------------------------------------------

    def apply(
        self,
        tracer: "CaptureTracer",
        op: str,
        target: Any,
        fn: Any,
        args: list[Var],
        kwargs: dict[Any, Any],
        *,
        numbers: bool = False,
    ) -> Var:
        if fn is from_numpy and len(args) == 1 and is_array_input(args[0]):
            return lift_array(tracer, args[0], from_numpy)
        args = [lift_array(tracer, x, asarray) if is_array_input(x) else x for x in args]
        return super().apply(tracer, op, target, fn, args, kwargs, numbers=numbers)

    # -- sizes that vary -------------------------------------------------------------------------

    def is_free(self, tracer: "CaptureTracer", source: ValueSource, value: Any, axis: int) -> bool:
        """Whether the size of an axis may be another one in a later call."""
        if axis in value.__dict__.get("_gh_dynamic", ()):
            tracer.varying.sources.add(f"{source.text}.shape[{axis}]")
        return tracer.varying.has_seen(f"{source.text}.shape[{axis}]")

    def shape(self, tracer: "CaptureTracer", var: Var) -> Var:
        """The shape; sizes that vary are Vars that vary."""
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

    def computed_shape(self, tracer: "CaptureTracer", var: Var) -> Var:
        """The shape of a tensor that the graph computes, as nodes of the graph."""
        if has_other_ranks(var.origin):
            fix_inputs(tracer, var.origin)
            return constant(var.value.shape)
        node = tracer.graph.call_function(getattr, (var.origin, "shape"))
        node.meta["varies"] = True
        items = []
        for i, n in enumerate(var.value.shape):
            item = tracer.graph.call_function(operator.getitem, (node, i))
            item.meta["varies"] = item.meta["scalar"] = True
            items.append(Var(n, item))
        return Var(var.value.shape, Recipe("tuple"), items)

    def varies_in_size(self, tracer: "CaptureTracer", var: Any) -> bool:
        """Whether a tensor may have another size in a later call."""
        if isinstance(var.origin, IRNode):
            return bool(var.origin.meta.get("varies"))
        return self.size_varies(tracer, var)

    def size_varies(self, tracer: "CaptureTracer", var: Any) -> bool:
        source, value = var.origin, var.value
        axes = range(value.ndim) if isinstance(source, ValueSource) else ()
        return any(self.is_free(tracer, source, value, i) for i in axes)

    def rank_varies(self, node: IRNode) -> bool:
        return may_squeeze(node) or super().rank_varies(node)

    def count_varies(self, node: IRNode, fn: Any, result: Any) -> bool:
        if hasattr(result, "_fields") or node.op == "call_module":
            return False
        numbers = (is_number(x) and x.meta["varies"] for x in node.all_input_nodes)
        named = getattr(fn, "__name__", "") in FIXED_COUNT and not any(numbers)
        return super().count_varies(node, fn, result) and not named

    def is_same_always(self, value: Any) -> bool:
        return value is None or isinstance(value, DType)

    def check_numbers(self, tracer: "CaptureTracer", args: list[Any]) -> None:
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

    def length(self, tracer: "CaptureTracer", var: Var) -> Var:
        if var.value.ndim and self.varies_in_size(tracer, var):
            return tracer.sequence(self.metadata(tracer, var, "shape"))[0]
        return super().length(tracer, var)

    # -- attributes ------------------------------------------------------------------------------

    def metadata(self, tracer: "CaptureTracer", var: Any, name: str) -> Var | None:
        value = var.value
        if name == "grad":
            return self.gradient(tracer, var)
        if name == "sharding" and (set_here := self.beside(tracer, var, name)) is not None:
            return set_here
        if name == "shape" and isinstance(var.origin, ValueSource):
            return self.shape(tracer, var)
        varies = self.varies_in_size(tracer, var)
        if name == "shape" and varies and isinstance(var.origin, IRNode):
            return self.computed_shape(tracer, var)
        if name in ("size", "nbytes") and varies:
            node = tracer.graph.call_function(getattr, (self.lift(tracer, var), name))
            node.meta["varies"] = node.meta["scalar"] = True
            count = Var(getattr(value, name), node)
            if name == "size":  # which is called too: x.size(0)
                count.items = {"shape": self.metadata(tracer, var, "shape")}
            return count
        if varies and (name == "spec" or name == "ndim" and has_other_ranks(var.origin)):
            fix_inputs(tracer, self.lift(tracer, var))
        if name in FIXED:
            return constant(getattr(value, name))
        if name == "__class__":
            return Var(type(value))
        if name == "data":
            view = DetachedView(value)
            data = Var(view, Recipe("call", Var(DetachedView), [var], {}))
            note_data(tracer, var, data)
            return tracer.heap.track(data)
        if name in value.__dict__ and name not in (
            "payload",
            "tape_entry",
            "slot",
            "mode",
            "backend",
        ):
            if not isinstance(var.origin, ValueSource):
                return Var(value.__dict__[name])
            inside = tracer.guards.source("dict", var.origin)
            return tracer.heap.load(value.__dict__[name], tracer.heap.entry_source(inside, name))
        return None

    def gradient(self, tracer: "CaptureTracer", var: Any) -> Var:
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
                var.items["grad"] = tracer.heap.track(Var(value, node))
        return var.items["grad"]

    def read_grad(self, tracer: "CaptureTracer", var: Any) -> None:
        """Guard a tensor's .grad as it is before the trace."""
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
            grad_var = tracer.heap.load(grad, tracer.guards.source("get", inside, "grad"))
            self.guard(tracer, grad_var)
            tracer.operands.snapshots.setdefault(id(grad), (grad, self.state_of(grad)))
            var.items["grad"] = grad_var

    def set_attribute(self, tracer: "CaptureTracer", var: Var, name: str, value: Var | None) -> Any:
        if name == "sharding" and value is not None:
            return self.set_beside(tracer, var, name, value)
        if name not in ("grad", "requires_grad", "data") or value is None:
            return super().set_attribute(tracer, var, name, value)
        if name == "grad":
            self.gradient(tracer, var)
        args = [var, Var(name), value]
        self.apply(tracer, "call_function", setattr, setattr, args, {})
        if name == "grad":
            var.items = {**(var.items or {}), "grad": value}
        return None

    def set_beside(self, tracer: "CaptureTracer", var: Var, name: Any, value: Any) -> None:
        """Set an attribute that the handle has beside the value, and no operation reads."""
        tracer.do(setattr, var.value, name, value.value)
        var.items = {**(var.items or {}), name: value}
        tracer.effects.write(var, ("attr", name, value))

    def beside(self, tracer: "CaptureTracer", var: Var, name: Any) -> Any:
        """An attribute that the handle has beside the value; None where its dict has it."""
        if var.items is not None and name in var.items:
            return var.items[name]
        if name not in var.value.__dict__ and isinstance(var.origin, ValueSource):
            tracer.guards.add("absent", tracer.guards.source("dict", var.origin), name)
        return None if name in var.value.__dict__ else constant(getattr(var.value, name))

    def lift(self, tracer: "CaptureTracer", var: Any) -> IRNode:
        if type(var.value) is not DetachedView or id(var) in tracer.operands.lifted:
            return super().lift(tracer, var)
        if not var.is_new:
            raise Break("x.data that was read outside is used")
        (tensor,) = var.origin.parts[1]
        node = tracer.graph.call_function(getattr, (self.lift(tracer, tensor), "data"))
        self.annotate(node)
        self.describe(node, var.value)
        tracer.operands.lifted[id(var)] = node, var
        return node

    def annotate(self, node: IRNode) -> None:
        node.meta["scope"] = state.scope

    def describe(self, node: IRNode, value: Any) -> None:
        node.meta["spec"] = value.spec


def lift_array(tracer: "CaptureTracer", var: Var, convert: Any) -> Var:
    """An array as an input of the graph: a tensor, made from it by `convert` in each call."""
    lifted = tracer.operands.arrays.get((id(var), convert))
    if lifted is None:
        tensor, shape, dtype = convert(var.value), var.value.shape, var.value.dtype
        node = converted_input(tracer, var, tensor, convert)
        text = f"an array of shape {shape} and dtype {dtype}"
        tracer.guards.add("call", var.origin, GuardCheck(is_laid_out, (shape, dtype), text))
        lifted = tracer.heap.track(Var(tensor, node))
        tracer.operands.arrays[id(var), convert] = lifted
    return lifted


def guard_spec(
    front: TensorFront,
    tracer: "CaptureTracer",
    value: Any,
    source: ValueSource,
    inside: ValueSource,
) -> None:
    """Guard shape and dtype; a size that varies may be anything."""
    spec = tracer.guards.source("get", inside, "spec")
    sizes: list[Any] = [
        None if front.is_free(tracer, source, value, i) else n for i, n in enumerate(value.shape)
    ]
    expected = Spec(tuple(sizes), value.dtype) if None in sizes else value.spec
    tracer.guards.add("spec", spec, expected)


def is_array_input(var: Var) -> bool:
    """Whether a value is an array of NumPy's that existed before the trace."""
    return type(var.value) is np.ndarray and isinstance(var.origin, ValueSource)


def is_laid_out(value: Any, layout: Any) -> bool:
    """Whether a value is an array of a shape and dtype."""
    return type(value) is np.ndarray and (value.shape, value.dtype) == layout


def may_squeeze(node: IRNode) -> bool:
    """Whether an operation takes away axes if they have size 1: all, or as PyTorch those named."""
    is_method = isinstance(node.target, str)
    name = node.target if is_method else getattr(node.target, "__name__", "")
    refuses = "axis" in node.kwargs or not is_method and len(node.args) > 1
    return name == "squeeze" and not refuses


def has_other_ranks(origin: IRNode) -> bool:
    """Whether a tensor has another number of axes for other sizes."""
    return isinstance(origin, IRNode) and bool(origin.meta.get("rank_varies"))


def is_between(value: Any, bounds: Any) -> bool:
    return type(value) is int and bounds[0] <= value <= bounds[1]
