"""Rules for the calls of a trace: which become nodes of the graph, and which break it."""

import operator
import sys
import types
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    Break,
    Kwargs,
    Recipe,
    UserError,
    ValueSource,
    Var,
    constant,
)
from glasshouse.dispatch.bind import state
from glasshouse.ir.node import IRNode
from glasshouse.profile.function_watch import kind_of_functions
from glasshouse.torch.aten.recurrent_operators import autocast_dtype
from glasshouse.torch.front import names
from glasshouse.torch.front.checks import TorchCheckFront
from glasshouse.torch.front.constants import is_invariant
from glasshouse.torch.front.dead_values import COMPUTED_BYTES, drop_dead_values
from glasshouse.torch.front.effects import depends_on_values, draws, written_places
from glasshouse.torch.front.names import name_of
from glasshouse.torch.front.numbers import FACTORS, memory_of, tensor_facts
from glasshouse.torch.front.state import is_plain
from glasshouse.torch.front.values import READING_HINT
from glasshouse.torch.patches.functions import OPERATOR_MODULES

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.tracer import CaptureTracer


PASS_HINT = "hooks run as Python; forward and backward in one call without them make one graph"
READING_OPERATORS = {"not_", "truth", "contains", "countOf", "indexOf"}


class UsersFrames:
    """A context that notes which Python functions of the user run: not those of PyTorch, of
    Python's library, or with `plain` code. Where another profiler is set, it notes nothing."""

    def __init__(self, plain: set[types.CodeType]) -> None:
        self.names: list[str] = []
        self.plain = plain

    def __call__(self, frame: Any, event: Any, argument: Any) -> None:
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        if event != "call" or library in names.LIBRARIES or self.has_no_effects(frame):
            return
        self.names.append(frame.f_code.co_qualname)

    def has_no_effects(self, frame: Any) -> bool:
        """Whether a frame is that of a torch.library operator, or of plain code."""
        while frame is not None:
            operator = str(frame.f_globals.get("__name__")).startswith(OPERATOR_MODULES)
            if operator or frame.f_code in self.plain:
                return True
            frame = frame.f_back
        return False

    def __enter__(self) -> "UsersFrames":
        self.before: Any = sys.getprofile()
        self.is_alone: bool = self.before is None or isinstance(self.before, kind_of_functions())
        if self.is_alone:
            sys.setprofile(self)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.is_alone:
            sys.setprofile(self.before)


def without_from(args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments without the keyword "from", which the text of a graph cannot have as a name: it is
    always the first after the tensor."""
    if "from" not in kwargs or len(args) != 1:
        return args, kwargs
    return [*args, kwargs["from"]], {key: x for key, x in kwargs.items() if key != "from"}


def refuse_subclasses(
    front: FrontEnd, name: str, call: Var, args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Break where a tensor is of a subclass, whose own functions would run."""
    for x in (*args, *kwargs.values()):
        if front.is_tensor(x.value) and not is_plain(type(x.value)):
            reason = f"{name} of a {type(x.value).__name__}, a subclass of Tensor"
            raise Break(reason, call, args, kwargs)


def refuse_python_inside(
    front: "TorchNodeFront", tracer: "CaptureTracer", call: Var, args: list[Var], kwargs: Kwargs
) -> None:
    """Break where user code would run inside a backward pass."""
    reason = front.why_python_runs(tracer, args, kwargs)
    if reason is not None:
        raise Break(reason, call, args, kwargs, PASS_HINT)


class TorchNodeFront(TorchCheckFront):
    """PyTorch's functions and methods as nodes."""

    why_python_runs: Callable[..., str | None]  # of TorchFront
    forget_gradients: Callable[..., None]  # of TorchFront

    def apply(
        self,
        tracer: "CaptureTracer",
        op: str,
        target: Any,
        fn: Any,
        args: list[Any],
        kwargs: Kwargs,
        *,
        numbers: bool = False,
    ) -> Var:
        name = name_of(target)
        call = Var(fn) if op != "call_method" else Var(getattr(type(args[0].value), target))
        refuse_subclasses(self, name, call, args, kwargs)
        if name == "new" and len(args) == 2 and type(args[1].value) is torch.Size:
            args = [args[0], *tracer.sequence(args[1])]  # what it gets as a tuple is data
        args, kwargs = without_from(args, kwargs)
        if fn is torch.as_tensor and len(args) == 1 and self.is_tensor(args[0].value):
            return self.as_tensor_of(tracer, args[0], kwargs)
        if name in names.READS_PLAINLY and self.are_invariant(tracer, (*args, *kwargs.values())):
            words = {k: v.value for k, v in kwargs.items()}
            function = getattr(call.value, "__func__", call.value)
            return constant(tracer.do(function, *(x.value for x in args), **words))
        for factor in FACTORS:  # PyTorch reads a tensor that is given as one
            if factor in kwargs and self.is_factor(kwargs[factor]):
                kwargs = {**kwargs, factor: self.item(tracer, kwargs[factor])}
        hidden = [x for x in (*args, *kwargs.values()) if self.holds_hidden(tracer, x)]
        if name == "item" and not kwargs and len(args) == 1:
            return self.item(tracer, args[0])
        if hidden and not any(map(self.is_tensor_or_list, (*args, *kwargs.values()))):
            return self.calculate(tracer, fn, args)
        if name == "requires_grad_" and self.is_so_already(tracer, args, kwargs):
            return args[0]
        check_call(self, tracer, fn, target, args, kwargs, call=call, hidden=bool(hidden))
        if name == "backward" or fn in names.AUTOGRAD:
            refuse_python_inside(self, tracer, call, args, kwargs)
            if fn is not torch.autograd.grad:
                self.forget_gradients(tracer)
            drop_dead_values(tracer)
            return self.go_back(tracer, op, target, fn, args, kwargs)
        if tracer.front_state.computed_bytes > COMPUTED_BYTES:
            tracer.front_state.computed_bytes = 0
            drop_dead_values(tracer)
        numbers = takes_numbers(name)
        try:
            return super().apply(tracer, op, target, fn, args, kwargs, numbers=numbers)
        except UserError as raised:
            if self.writes(target, args) or "out" in kwargs:  # a part of it may be written
                tracer.stop_learning(f"{name}() raising {type(raised.error).__name__}")
            raise

    def go_back(
        self,
        tracer: "CaptureTracer",
        op: str,
        target: Any,
        fn: Callable[..., Any],
        args: list[Var],
        kwargs: Kwargs,
    ) -> Var:
        """Make a backward pass a node. If user code ran inside it, the rest of the call is left to
        Python, and from the next call on the pass too. A pass that raises is not run again: some of
        its gradients exist."""
        frames = UsersFrames(tracer.front_state.plain_codes)

        def watched(*args, **kwargs):
            with frames:
                return fn(*args, **kwargs)

        try:
            with self.noting_gradients(tracer):
                result = super().apply(tracer, op, target, watched, args, kwargs)
        except UserError as raised:
            tracer.stop_learning(f"a backward pass raising {type(raised.error).__name__}")
            raise
        if frames.names:
            code, at = tracer.frames.site()
            code.opaque.add(at)
            tracer.stop_learning(f"{frames.names[0]} ran in a backward pass")
        return result

    def is_invariant(self, tracer: "CaptureTracer", var: Var) -> bool:
        return is_invariant(tracer, var, self.writes)

    def are_invariant(self, tracer: "CaptureTracer", values: tuple[Var, ...]) -> bool:
        """Whether all arguments are constants, or tensors with the same values in each call."""
        return all(
            self.is_invariant(tracer, x) if self.is_tensor(x.value) else x.origin is None
            for x in values
        )

    def is_so_already(self, tracer: "CaptureTracer", args: list[Var], kwargs: Kwargs) -> bool:
        """Whether requires_grad_ changes nothing."""
        flag = kwargs.get("requires_grad") or (args[1] if len(args) > 1 else Var(True))
        if isinstance(args[0].origin, ValueSource):
            self.guard(tracer, args[0])
        return tracer.concretize(flag) is args[0].value.requires_grad

    def is_factor(self, var: Var) -> bool:
        """Whether a tensor may be given in place of a number."""
        x = var.value
        return self.is_tensor(x) and not x.ndim and not x.requires_grad

    def as_tensor_of(self, tracer: Any, x: Var, kwargs: Any) -> Var:
        """torch.as_tensor of a tensor: the tensor, unless it is of another dtype or device."""
        words = {k: v for k, v in kwargs.items() if v.value is not None}
        now = {"dtype": x.value.dtype, "device": x.value.device}
        options = {k: torch.device(v.value) if k == "device" else v.value for k, v in words.items()}
        if all(now.get(k) == v for k, v in options.items()):
            for v in words.values():
                tracer.concretize(v)
            return x
        return self.apply(tracer, "call_method", "to", x.value.to, [x], words)

    def is_tensor_or_list(self, var: Var) -> bool:
        return isinstance(var.value, (torch.Tensor, list, tuple))

    def depends_on_varying(self, node: IRNode, fn: Any) -> bool:
        return False  # numbers are inputs only where no size depends on them

    def operand(self, tracer: "CaptureTracer", var: Any, numbers: bool = False) -> Any:
        free = type(var.value) in (int, float) and not isinstance(var.origin, IRNode)
        if free and tracer.varies(var):
            return self.lift(tracer, var) if numbers else tracer.concretize(var)
        return super().operand(tracer, var, numbers)

    def writes(self, target: Any, args: Sequence[Any]) -> bool:
        has_effects = draws(target, args) or bool(written_places(target))
        return has_effects or name_of(target) in names.WRITES or super().writes(target, args)

    def why_uncatchable(
        self, tracer: "CaptureTracer", target: Any, args: list[Any], kwargs: Kwargs
    ) -> str | None:
        """The reason why a call cannot be in this graph; None if it can. Where the graph raises an
        error that somebody catches, Python runs the call again from its beginning: no write may
        come before."""
        name = name_of(target)
        raises = name in names.RAISES
        if name in ("getitem", "setitem"):
            raises = self.holds_tensor_var(tracer, args[1])
        elif name in names.RAISES_FOR_INTEGERS:
            tensors = [x.value for x in args if self.is_tensor(x.value)]
            raises = not any(t.is_floating_point() for t in tensors)
        if raises:
            catches = any(is_caught(f) for f in tracer.frames)
            if tracer.front_state.writes.any and (catches or tracer.effects.has_caught):
                return f"{name}(), which may raise inside try, after a write"
            tracer.effects.has_caught = tracer.effects.has_caught or catches
        inplace = kwargs.get("inplace") or Var(False)
        writes = self.writes(target, args) or "out" in kwargs or bool(inplace.value)
        if name in names.DROPOUTS:
            writes = len(args) > 3 and bool(args[3].value) or bool(inplace.value)
        elif draws(target, args) and not self.writes_to_first(target):
            writes = "generator" in kwargs or "out" in kwargs or bool(inplace.value)
        elif self.writes_to_first(target):
            writes = "generator" in kwargs or not self.is_made_here(tracer, args[0])
        if writes and name not in ("setattr", "requires_grad_"):
            tracer.front_state.writes.any = True
            self.note_written(tracer, target, args)
        return None

    def is_made_here(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a value is a number, or a tensor of the graph that shares no memory with its
        inputs."""
        if type(var.value) in (int, float):
            return True
        if not isinstance(var.origin, IRNode) or not self.is_tensor(var.value):
            return False
        lifted, memory = tracer.operands.lifted.values(), tracer.front_state.input_memory
        for _, x in islice(lifted, memory.lifted, None):
            if self.is_tensor(x.value):
                memory.places.add(memory_of(x.value))
        memory.lifted = len(lifted)
        return memory_of(var.value) not in memory.places

    def why_not(
        self, tracer: "CaptureTracer", fn: Any, target: Any, args: list[Any], kwargs: Kwargs
    ) -> str | None:
        """The reason why a call cannot be a node; None if it can."""
        name = name_of(target)
        if name == "one_hot" and self.has_classes(tracer, args, kwargs):
            return None
        unary = fn is operator.index or name in READING_OPERATORS
        reads = unary or name in names.READS_VALUES or depends_on_values(target)
        if reads or name == "where" and len(args) + len(kwargs) == 1:
            return f"{name}() needs a tensor's value"
        if name in names.CHANGES_TENSOR:
            return f"{name}() changes what a tensor is"
        if name in ("getitem", "__getitem__", "index") and self.picks(tracer, args[1]):
            return "indexing by a mask gives as many elements as the mask says"
        others = [*(args if name in names.CREATING else args[1:]), *kwargs.values()]
        if name in names.SIZED and any(self.holds_tensor_var(tracer, x) for x in others):
            return f"{name}() may need a tensor's value"
        first = args[0] if args else None
        if (
            name in names.DATA_ARGUMENT
            and first is not None
            and self.holds_tensor_var(tracer, first)
        ):
            return f"{name}() needs a tensor's value"
        return None

    def has_classes(self, tracer: "CaptureTracer", args: list[Var], kwargs: Kwargs) -> bool:
        """Whether one_hot gets the number of classes; else it depends on values."""
        count = kwargs.get("num_classes") or (args[1] if len(args) > 1 else Var(-1))
        return type(count.value) is int and tracer.concretize(count) >= 0

    def picks(self, tracer: "CaptureTracer", key: Var) -> bool:
        """Whether the number of indexed elements depends on an index's values."""
        value = key.value
        if self.is_tensor(value):
            return value.dtype in (torch.bool, torch.uint8)
        if isinstance(value, slice):
            return any(map(self.is_tensor, (value.start, value.stop, value.step)))
        if isinstance(value, (tuple, list)):
            return any(self.picks(tracer, x) for x in tracer.sequence(key))
        return False

    def holds_tensor_var(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a Var is a tensor, or a list or tuple with one in it."""
        if isinstance(var.value, (list, tuple)):
            return any(self.holds_tensor_var(tracer, x) for x in tracer.sequence(var))
        return self.is_tensor(var.value)

    def annotate(self, node: IRNode) -> None:
        node.meta["scope"], node.meta["phase"] = state.scope, state.phase
        node.meta["requires_grad"] = torch.is_grad_enabled()  # until it has run
        node.meta["autocast"] = autocast_dtype()
        node.meta["keeps_casts"] = (
            node.meta["autocast"] is not None and torch.is_autocast_cache_enabled()
        )

    def describe(self, node: IRNode, value: Any) -> None:
        node.meta.update(tensor_facts(value))

    def wrap(
        self, tracer: "CaptureTracer", node: IRNode, result: Any, args: list[Any], target: Any
    ) -> Var:
        if node.meta.get("requires_grad"):  # results have their own; this is for writes
            node.meta["requires_grad"] = self.requires_grad([x.value for x in args])
        if self.is_tensor(result):
            tracer.front_state.computed_bytes += result.numel() * result.element_size()
        if (
            isinstance(result, tuple)
            and type(result) is not tuple
            and not isinstance(result, torch.Size)
        ):
            return self.wrap_fields(tracer, node, result)
        is_plain = result is None or self.is_constant(result) or self.is_tensor(result)
        is_plain = is_plain or name_of(target) in names.METADATA or self.holds_tensor(result)
        if not is_plain and not (isinstance(result, (tuple, list)) and not result):
            code, at = tracer.frames.site()
            code.opaque.add(at)
            tracer.stop_learning(f"{name_of(target)}() gave a {type(result).__name__}")
            return Var(result)
        return super().wrap(tracer, node, result, args, target)

    def requires_grad(self, value: Any) -> bool:
        """Whether a gradient may go to a tensor, or to one in a list or tuple."""
        if isinstance(value, (list, tuple)):
            return any(map(self.requires_grad, value))
        return self.is_tensor(value) and value.requires_grad

    def wrap_fields(self, tracer: "CaptureTracer", node: IRNode, result: Any) -> Var:
        """A result with named fields, such as that of torch.max."""
        parts = []
        for i, part in enumerate(result):
            item = tracer.graph.call_function(operator.getitem, (node, i))
            item.meta.update(node.meta)
            parts.append(self.wrap(tracer, item, part, [], None))
        inside = Var(tuple(result), Recipe("tuple"), parts)
        recipe = Recipe("call", Var(type(result)), [inside], {})
        return tracer.heap.track(Var(result, recipe, parts))


def is_caught(frame: "CaptureFrame") -> bool:
    """Whether the user's code around a frame's instruction catches its error, or has a `finally`; a
    `with` of PyTorch does not count."""
    code, stack = frame.code, frame.saved
    handler = None if frame.trusted else code.handler_at(frame.at)
    while handler is not None:
        ops = [x.op for x in code.instructions[handler.target : handler.target + 2]]
        if ops[0] == "PUSH_EXC_INFO":
            leave = stack[handler.depth - 1].value if handler.depth <= len(stack) else None
            context = type(getattr(leave, "__self__", None)).__module__ or ""
            if ops[1:] != ["WITH_EXCEPT_START"] or not f"{context}.".startswith("torch."):
                return True
        handler = code.handler_at(handler.target)
    return False


def takes_numbers(name: str) -> bool:
    """Whether the sizes of an operation's results do not depend on its numbers."""
    return name.rstrip("_").removeprefix("_foreach_") in names.WITH_NUMBERS


def check_call(
    front: TorchNodeFront,
    tracer: "CaptureTracer",
    fn: Any,
    target: Any,
    args: list[Any],
    kwargs: Kwargs,
    *,
    call: Var,
    hidden: bool,
) -> None:
    """Break for a call that no graph may have; `hidden`: a tensor holds one of its numbers."""
    name = name_of(target)
    is_new = name == "requires_grad_" and isinstance(args[0].origin, IRNode)
    reason = None if is_new else front.why_not(tracer, fn, target, args, kwargs)
    if hidden and not takes_numbers(name):
        reason = f"{name}() is given a number that a tensor holds"
    if reason is not None:
        raise Break(reason, call, args, kwargs, READING_HINT)
    reason = front.why_uncatchable(tracer, target, args, kwargs)
    if reason is not None:
        raise Break(reason, call, args, kwargs)
