"""Checks of tensors' values in a graph, and the restart of a call where one fails.

Python then runs the call from its beginning. Writes of the graph before the check are undone first:
gradients that were set, the state of random numbers, and small inputs."""

import contextlib
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import ValueSource, Var
from glasshouse.ir.node import IRNode
from glasshouse.torch.ahead.planned import current
from glasshouse.torch.front.effects import draws, written_places
from glasshouse.torch.front.names import name_of
from glasshouse.torch.front.state import is_plain
from glasshouse.torch.front.values import TorchValueFront
from glasshouse.torch.patches.operators import raise_if_zero
from glasshouse.torch.patches.tensors import storage_address, version_of

FAILED_CHECK = "a check of the captured function failed: "  # the begin of the graph's error
UNDONE_BYTES = 4 << 20  # of inputs, at most, that a call copies to restore them
FINITE = {"isfinite", "isnan", "isinf", "isneginf", "isposinf"}  # of each element
UNEQUAL = {"ne", "__ne__"}  # to itself is a NaN
INVERTING = {"logical_not", "invert", "__invert__", "bitwise_not", "not_"}
JOINING = {"all", "any", "item", "add", "iadd", "logical_and", "logical_or", "and_", "or_",
           "__and__", "__or__"}  # fmt: skip
SETTING = {"setattr", "backward"}  # calls after which leaves may have other gradients
# Places of the arguments that a call writes to, other than the first.
WRITTEN = {
    "batch_norm": (3, 4),
    "_amp_foreach_non_finite_check_and_unscale_": (0, 1),
    "_amp_update_scale_": (0, 1),
}
UNSCALING = "_amp_foreach_non_finite_check_and_unscale_"  # notes whether gradients are finite


class LeafBefore:
    """A leaf with a weak reference to its current gradient. Where the gradient was replaced and is
    gone, no operation has read it, and a second run reads only its class."""

    def __init__(self, leaf: torch.Tensor) -> None:
        self.leaf = leaf
        self.gradient: weakref.ref[Any] | None = (
            None if leaf.grad is None else weakref.ref(leaf.grad)
        )

    def restore_gradient(self) -> None:
        """Restore the gradient; zeros without memory replace one that is gone."""
        if self.gradient is None:
            self.leaf.grad = None
            return
        gradient = self.gradient()
        if gradient is None:
            gradient = torch.zeros((), dtype=self.leaf.dtype).expand_as(self.leaf)
        self.leaf.grad = gradient


class FlagCheck:
    """A guard on the value of a flag in a tensor."""

    def __init__(self, flag: bool) -> None:
        self.flag = flag

    def __call__(self, tensor: Any) -> bool:
        return bool(tensor) is self.flag

    def __repr__(self) -> str:
        return "it is true" if self.flag else "it is false"


class TorchCheckFront(TorchValueFront):
    """Checks of values in PyTorch's graphs, and the state that a failed one restores."""

    is_made_here: Callable[..., bool]  # of TorchFront

    def truth(self, tracer: "CaptureTracer", var: Var) -> Any:
        flag = super().truth(tracer, var)
        if flag is None and self.is_given_flag(tracer, var):
            flag = tracer.do(bool, var.value)
            self.guard(tracer, var)
            tracer.guards.add("call", var.origin, FlagCheck(flag))
        return flag

    def is_given_flag(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a tensor is a single boolean from before the call that the call does not write
        to, such as a buffer that says whether a module is initialized."""
        x = var.value
        targets = tracer.front_state.writes.tensors
        if not isinstance(var.origin, ValueSource) or targets is None:
            return False
        if not is_plain(type(x)) or x.dtype is not torch.bool or x.numel() != 1:
            return False
        memory = storage_address(x.untyped_storage())
        return all(memory != storage_address(y.untyped_storage()) for y in targets.values())

    def checked(
        self, tracer: "CaptureTracer", var: Var, is_error: Callable[..., Any]
    ) -> bool | None:
        x = var.value
        is_number = not self.is_tensor(x)
        if is_number and not self.may_be_tensor(tracer, var.origin):
            return None
        is_one = is_number or x.numel() == 1 and is_plain(type(x))
        if not is_one or not self.can_restart(tracer):
            return None
        flag = tracer.do(bool, x)
        if not is_error(not flag):
            return None
        if is_number:
            var = self.operate(tracer, operator.ne, [self.tensor_of(tracer, var.origin), Var(0)])
        if not flag:
            invert = torch.logical_not
            var = self.apply(tracer, "call_function", invert, invert, [var], {})
        check, message = raise_if_zero, Var(FAILED_CHECK + tracer.frames[-1].where)
        self.apply(tracer, "call_function", check, check, [var, message], {})
        tracer.effects.has_checks = True
        writes = tracer.front_state.writes
        writes.undone = dict(writes.tensors)
        return flag

    def truth_where_finite(self, tracer: "CaptureTracer", var: Var) -> Any:
        truths = self.truths_where_finite(var.origin)
        if truths is None or len(truths) > 1:
            return truths and tracer.do(bool, var.value)
        return truths.pop()

    def truths_where_finite(self, node: IRNode) -> set[bool] | None:
        """The truth values that a node may have where all numbers are finite; None where it depends
        on something else, too."""
        name = name_of(node.target) if isinstance(node, IRNode) else ""
        if name == "isfinite":
            return {True}
        if name in FINITE or name in UNEQUAL and len(set(node.args)) == 1:
            return {False}
        if name == "item" and self.notes_finite(node.args[0]):
            return {False}
        if name not in JOINING and name not in INVERTING:
            return None
        truths: list[Any] = [self.truths_where_finite(x) for x in node.all_input_nodes]
        if not truths or None in truths:
            return None
        joined = set().union(*truths)
        return {not x for x in joined} if name in INVERTING else joined

    def notes_finite(self, node: IRNode) -> bool:
        """Whether the operator that notes infinite gradients writes to a tensor."""
        users = (user for user in node.users if name_of(user.target) == UNSCALING)
        return any(user.args[1] is node for user in users)

    def is_failed_check(self, error: Any) -> bool:
        return isinstance(error, RuntimeError) and str(error).startswith(FAILED_CHECK)

    def can_restart(self, tracer: "CaptureTracer") -> bool:
        """Whether Python can run the call again from its beginning if the graph stops here."""
        written_bytes = tracer.front_state.writes.bytes
        return written_bytes is not None and written_bytes <= UNDONE_BYTES

    def note_written(self, tracer: "CaptureTracer", target: Any, args: list[Var]) -> None:
        """Note the inputs that a call writes to; None where they are unknown."""
        name = name_of(target)
        writes = tracer.front_state.writes
        if writes.tensors is None or name == "backward":  # see noting_gradients
            return
        is_first, by_schema = self.writes_to_first(target), written_places(target)
        places = WRITTEN.get(name, by_schema or (0,) * is_first)
        operands = [args[i] for i in places if i < len(args)]
        targets = [x for operand in operands for x in self.tensors_in(tracer, operand)]
        targets = [x for x in targets if not self.is_made_here(tracer, x)]
        are_inputs = (
            isinstance(x.origin, ValueSource) and self.is_tensor(x.value) for x in targets
        )
        is_known = is_first or bool(by_schema) or bool(targets)
        if is_known and all(are_inputs) and len(operands) == len(places):
            writes.tensors |= {id(x.value): x.value for x in targets}
        else:
            writes.tensors = None

    def tensors_in(self, tracer: "CaptureTracer", var: Var) -> list[Var]:
        """The items of a list or tuple; any other value alone."""
        inside = isinstance(var.value, (list, tuple))
        return (tracer.sequence(var) or [var]) if inside else [var]

    @contextlib.contextmanager
    def noting_gradients(self, tracer: "CaptureTracer") -> Iterator[None]:
        """Inside, a backward pass runs. Gradients that it adds to in place cannot be restored."""
        tensors = [x.value for _, x in tracer.operands.lifted.values() if self.is_tensor(x.value)]
        gradients = [x.grad for x in tensors if x.is_leaf and x.grad is not None]
        before = [version_of(x) for x in gradients]
        yield
        if before != [version_of(x) for x in gradients]:
            tracer.front_state.writes.tensors = None

    def keeper(self, tracer: "CaptureTracer", wrote: bool) -> Any:
        """A function that saves the state that a graph changes, and returns one that restores it if
        the graph raises. None if it writes nothing, or neither has checks nor is inside try."""
        if not ((tracer.effects.has_caught or tracer.effects.has_checks) and wrote):
            return None
        called = {name_of(node.target) for node in tracer.graph.nodes}
        is_random = any(draws(node.target, node.args) for node in tracer.graph.nodes)
        sets = not SETTING.isdisjoint(called)
        inputs = [x.value for _, x in tracer.operands.inputs if tracer.is_tensor(x)]
        places = [i for i, x in enumerate(inputs) if id(x) in tracer.front_state.writes.undone]

        def keep(tensors):
            leaves = [x for x in tensors if x.is_leaf and x.requires_grad]
            before = [LeafBefore(x) for x in leaves] if sets else []
            copies = [(tensors[i].detach(), tensors[i].detach().clone()) for i in places]
            generator = torch.get_rng_state() if is_random else None
            if current.simulation is not None:
                current.simulation.note([x for _, x in copies], "aten::clone")
                current.simulation.note(generator, "aten::get_rng_state")

            def undo():
                for leaf in before:
                    leaf.restore_gradient()
                for tensor, copy in copies:
                    tensor.copy_(copy)
                if generator is not None:
                    torch.set_rng_state(generator)

            return undo

        return keep
