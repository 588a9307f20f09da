"""Numbers in tensors, which Python reads (`x.item()`) and calculates with.

The graph returns such numbers. A check of one (`if not math.isfinite(loss.item()): …`) is computed
from the tensor, so that no run waits for the number."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from glasshouse.capture.rules.numbers import ARITHMETIC, COMPARE
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Var
from glasshouse.ir.node import IRNode
from glasshouse.torch.front.constants import may_write_to
from glasshouse.torch.front.numbers import memory, memory_of
from glasshouse.torch.front.state import is_plain

READING_HINT = "read values after the captured function, or accept the break"
NUMBERS = (bool, int, float)
KINDS_OF_NUMBERS = {math.isfinite, math.isnan, math.isinf}
# The same function on float64 tensors without axes; not division, which raises for 0.
TWINS: dict[Any, Any] = {
    fn: fn for fn in (operator.add, operator.sub, operator.mul, operator.neg, abs, *COMPARE)
}
TWINS |= {operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul}
TWINS |= {math.isfinite: torch.isfinite, math.isnan: torch.isnan, math.isinf: torch.isinf}
EXACT = 1 << 53  # float64 has all whole numbers up to here
WIDE = {torch.float16, torch.bfloat16, torch.float32, torch.float64}  # float64 has their values
WHOLE = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32}  # and the values of these


class TorchValueFront(FrontEnd):
    """Numbers of graphs that only a run knows."""

    def item(self, tracer: "CaptureTracer", var: Var) -> Var:
        """The number of tensor.item(), a result of the graph that nothing else may rely on."""
        value = tracer.do(var.value.item)
        if type(value) not in NUMBERS:
            raise Break(
                "item() needs a tensor's value", Var(torch.Tensor.item), [var], {}, READING_HINT
            )
        node = tracer.graph.call_method("item", (self.operand(tracer, var),))
        node.meta.update(line=tracer.frames[-1].where, varies=True, scalar=True, hidden=True)
        tracer.front_state.read_tensors[node] = var
        return Var(value, node)

    def number_of(self, tracer: "CaptureTracer", fn: type[Any], var: Var) -> Any:
        if self.is_hidden(var):
            return self.calculate(tracer, fn, [var])
        x = var.value
        if not self.is_tensor(x):
            return None
        is_own = x.dtype.is_floating_point if fn is float else not x.dtype.is_floating_point
        if not is_own or x.dtype is torch.bool or x.numel() != 1 or not is_plain(type(x)):
            return None
        tracer.do(fn, x)  # which may warn
        return self.item(tracer, var)

    def calculate(self, tracer: "CaptureTracer", fn: Callable[..., Any], args: list[Var]) -> Var:
        """Arithmetic on numbers that tensors hold."""
        catches = any(f.code.catches_at(f.at) and not f.trusted for f in tracer.frames)
        if catches or fn not in ARITHMETIC:
            raise Break("a number that a tensor holds is calculated with", Var(fn), args)
        return self.calculated(tracer, fn, args)

    def calculated(self, tracer: "CaptureTracer", fn: Callable[..., Any], args: list[Var]) -> Var:
        """The result of a function of numbers, some of which tensors hold, as a node."""
        operands = tuple(self.operand(tracer, x, True) for x in args)
        value = tracer.do(fn, *(x.value for x in args))
        node = tracer.graph.call_function(fn, operands)
        node.meta.update(line=tracer.frames[-1].where, varies=True, scalar=True, hidden=True)
        return Var(value, node)

    def of_held_numbers(
        self, tracer: "CaptureTracer", fn: Callable[..., Any], args: list[Var]
    ) -> Any:
        if not any(map(self.is_hidden, args)) or any(type(x.value) not in NUMBERS for x in args):
            return None
        tells = fn in COMPARE or fn in KINDS_OF_NUMBERS
        return (self.calculated if tells else self.calculate)(tracer, fn, args)

    def is_hidden(self, var: Any) -> bool:
        return isinstance(var.origin, IRNode) and bool(var.origin.meta.get("hidden"))

    def holds_hidden(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a Var is a number that a tensor holds, or has one in it."""
        if isinstance(var.value, (list, tuple)):
            items = tracer.sequence(var) or ()
            return any(self.holds_hidden(tracer, x) for x in items)
        return self.is_hidden(var)

    # -- the same as tensors -----------------------------------------------------------------------

    def may_be_tensor(self, tracer: Any, value: Any) -> bool:
        """Whether a float64 tensor can hold a node's number, or a constant, exactly."""
        if not isinstance(value, IRNode):
            return type(value) in NUMBERS and not (type(value) is int and abs(value) > EXACT)
        if value in tracer.front_state.read_tensors:
            x = tracer.front_state.read_tensors[value].value
            return x.dtype in WIDE | WHOLE and not self.is_written_after(tracer, value, x)
        if TWINS.get(value.target) is operator.mul and self.has_whole(tracer, value):
            return False  # the product may have more digits than float64
        is_twin = value.target in TWINS
        return is_twin and all(self.may_be_tensor(tracer, x) for x in value.args)

    def has_whole(self, tracer: Any, node: IRNode) -> bool:
        """Whether a number is computed from whole numbers that tensors hold."""
        if node in tracer.front_state.read_tensors:
            return tracer.front_state.read_tensors[node].value.dtype in WHOLE
        return any(self.has_whole(tracer, x) for x in node.all_input_nodes)

    def is_written_after(self, tracer: Any, node: IRNode, x: torch.Tensor) -> bool:
        """Whether a tensor may have been written to since a node of the graph read it."""
        nodes = tracer.graph.nodes
        later = nodes[nodes.index(node) + 1 :]
        targets = {memory(y) for other in later for y in may_write_to(other, self.writes)}
        return bool(targets & {None, memory_of(x)})

    def tensor_of(self, tracer: Any, node: IRNode) -> Var:
        """A tensor without axes with the number of a node."""
        if node in tracer.front_state.read_tensors:
            x = tracer.front_state.read_tensors[node]
            number = self.apply_method(tracer, x, "reshape", [Var(())])
            return self.apply_method(tracer, number, "double")
        args = node.args
        operands = [self.tensor_of(tracer, x) if isinstance(x, IRNode) else Var(x) for x in args]
        twin = TWINS[node.target]
        if node.target in KINDS_OF_NUMBERS:
            return self.apply(tracer, "call_function", twin, twin, operands, {})
        return self.operate(tracer, twin, operands)

    def apply_method(self, tracer: Any, x: Var, method: str, args: Any = ()) -> Var:
        """The result of a tensor's method, as a node."""
        return self.apply(tracer, "call_method", method, getattr(x.value, method), [x, *args], {})
