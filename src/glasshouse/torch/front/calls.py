"""PyTorch functions that are no nodes: those of its state, of optimizers and schedulers."""

import contextlib
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.distributions import Distribution
from torch.optim.lr_scheduler import LRScheduler

from glasshouse.capture.fronts.network_front import NetworkFront
from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.constants import all_foldable, call_concrete
from glasshouse.capture.rules.descriptors import bound_method
from glasshouse.capture.rules.new_objects import new_dict
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Kwargs, Recipe, Then, ValueSource, Var, constant
from glasshouse.torch.front import names
from glasshouse.torch.front.functions import applied_class
from glasshouse.torch.front.state import GUARDED_WITH_MODES, READERS, StateCheck
from glasshouse.torch.patches.autograd import validates_arguments
from glasshouse.torch.patches.functions import is_for_dynamo, undisabled
from glasshouse.torch.patches.modes import is_profiled
from glasshouse.torch.patches.tensors import grouped_tensors
from glasshouse.torch.scopes.state_modes import StateModes

DISTRIBUTIONS = "torch.distributions"


class TorchCallFront(NetworkFront):
    """Calls that change or read PyTorch's state beside its tensors."""

    apply_function: Callable[..., bool]  # both are of other parts of the front end
    can_restart: Callable[..., bool]

    def call_special(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Then
    ) -> bool:
        """Handle a call of a function known here; False for any other."""
        f = fn.value
        bound = isinstance(f, types.MethodType) and isinstance(f.__self__, LRScheduler)
        if bound and f.__name__ == "step":
            return self.schedule(tracer, fn, args, kwargs, then)
        binds = isinstance(f, types.MethodWrapperType) and f.__name__ == "__get__"
        if binds and isinstance(f.__self__, types.FunctionType) and not kwargs:
            this = fn.origin.parts[0] if fn.is_made("method") else Var(f.__self__)
            tracer.deliver(then, bound_method(tracer, args[0], this))
            return True
        if isinstance(f, weakref.ref) and not args:
            return self.dereference(tracer, fn, then)
        if applied_class(f) is not None:
            return self.apply_function(tracer, fn, args, kwargs, then)
        if isinstance(f, types.FunctionType) and f in names.AUTOGRAD:
            return self.call_with_tuples(tracer, fn, args, kwargs, then)
        has_table = isinstance(f, (type, types.FunctionType, types.BuiltinFunctionType))
        if not has_table or not self.call_state(tracer, fn, args, kwargs, then):
            return False
        tracer.concretize(fn)
        return True

    def call_with_tuples(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Any
    ) -> bool:
        """Handle a backward pass whose argument is an iterator or a view of a dict, such as
        `model.parameters()`: PyTorch makes a tuple of it. False if there is none."""
        arguments = [*enumerate(args), *kwargs.items()]
        place = next((k for k, x in arguments if isinstance(x.value, names.ITERABLES)), None)
        if place is None:
            return False

        def with_tuple(tracer, items):
            changed = {k: items if k == place else x for k, x in arguments}
            words = {k: changed[k] for k in kwargs}
            return tracer.call(fn, [changed[i] for i in range(len(args))], words, then)

        tracer.call(Var(tuple), [dict(arguments)[place]], {}, with_tuple)
        return True

    def looks_into(
        self, tracer: "CaptureTracer", module: str, args: list[Var], kwargs: Kwargs
    ) -> bool:
        """Whether a module is interpreted. Distributions are, where the graph can check the values
        that they validate, or they validate none."""
        if not module.startswith(DISTRIBUTIONS):
            return super().looks_into(tracer, module, args, kwargs)
        is_within = tracer.frames[-1].globals.get("__name__", "").startswith(DISTRIBUTIONS)
        if is_within or self.can_restart(tracer):
            return True
        distributions = (x.value for x in args if isinstance(x.value, Distribution))
        option = kwargs.get("validate_args")
        if option is None or option.value is None:
            return not validates_arguments(next(distributions, Distribution))
        return not option.value

    def why_left(self, fn: Callable[..., Any], module: str) -> str:
        usual = super().why_left(fn, module)
        why = next((x for start, x in names.WHY_LEFT.items() if module.startswith(start)), None)
        return usual if why is None else f"{usual}: {why}"

    def dereference(self, tracer: "CaptureTracer", fn: Var, then: Any) -> bool:
        """Handle a call of a weak reference to an object that the trace has met."""
        var: Any = tracer.heap.tracked.get(id(fn.value()))
        is_read = var is not None and isinstance(var.origin, ValueSource)
        if not is_read or not isinstance(fn.origin, ValueSource):
            raise Break("a weak reference is called", fn)
        tracer.guards.add("is", var.origin, var.value)
        tracer.guards.add("call", fn.origin, GuardCheck(refers_to, fn.value, "a weak reference"))
        tracer.deliver(then, var)
        return True

    def call_state(
        self, tracer: "CaptureTracer", fn: Var, args: list[Var], kwargs: Kwargs, then: Then
    ) -> bool:
        """Handle a function that reads or sets PyTorch's state; False for any other."""
        f = fn.value
        if f in names.CONSTANTS:
            tracer.give(then, names.CONSTANTS[f])
        elif f in names.COMPILING:
            asks = str(tracer.frames[-1].globals.get("__name__"))
            theirs = f"{asks}.".startswith("torch.")
            tracer.give(then, tracer.config.is_compiling and not theirs)
        elif f in names.STATE_READERS:
            for x in (*args, *kwargs.values()):
                self.read_for_state(tracer, x)
            words = {k: v.value for k, v in kwargs.items()}
            value = tracer.do(f, *(x.value for x in args), **words)
            if f not in names.ALWAYS_THE_SAME:
                self.guard_state(tracer, f, [*(x.value for x in args), *words.values()], value)
            tracer.deliver(then, constant(value))
        elif f in names.STATE_SETTERS:
            operands = tuple(map(tracer.concretize, args))
            tracer.graph.call_function(f, operands)
            value = tracer.do(f, *operands)
            self.note_contexts(tracer)
            tracer.deliver(then, constant(value))
        elif f in names.CHECKS and args and args[0].value is True and tracer.foldable(args[0]):
            tracer.concretize(args[0])
            tracer.give(then, None)
        elif f is typing.cast:
            tracer.deliver(then, args[1])
        elif f is grouped_tensors:
            tracer.deliver(then, self.grouped(tracer, args, kwargs))
        elif f is record_function and not is_profiled():
            tracer.call(Var(contextlib.nullcontext), [], {}, then)
        elif (inner := undisabled(f)) is not None:
            tracer.concretize(fn)  # the inner call may break
            tracer.call(Var(inner), args, kwargs, then)
        elif is_for_dynamo(f):
            tracer.give(then, None)
        elif f in names.CLASSES and all_foldable(tracer, args, kwargs):
            tracer.deliver(then, constant(call_concrete(tracer, f, args, kwargs)))
        elif f is torch.autocast or isinstance(f, type) and issubclass(f, torch.autocast):
            if not all_foldable(tracer, args, kwargs):
                raise Break("autocast", fn, args, kwargs)
            context = call_concrete(tracer, f, args, kwargs)
            var = Var(context, Recipe("call", fn, args, kwargs), {})
            tracer.deliver(then, tracer.heap.track(var))
        else:
            return False
        return True

    def note_contexts(self, tracer: "CaptureTracer") -> None:
        """Note the modes after a `with` that was entered before the graph, where one of its
        exits has just set some: an error that leaves the function leaves these."""
        frames = (f for f in reversed(tracer.frames) if f.root.co_name in ("__enter__", "__exit__"))
        frame = next(frames, None)
        if frame is None:
            return
        modes = tracer.front_state.modes
        if not any(f is frame for f in modes.frames):
            modes.frames.append(frame)
            modes.entered += 1 if frame.root.co_name == "__enter__" else -1
            if modes.entered < 0:
                modes.outside_frame, modes.entered = frame, 0
        if frame is modes.outside_frame:  # an exit may set more than one
            modes.outside = StateModes()

    def leaver(self, tracer: "CaptureTracer") -> Any:
        modes = tracer.front_state.modes.outside
        return None if modes is None else modes.set

    def guard_state(
        self, tracer: "CaptureTracer", f: Callable[..., Any], arguments: list[str], value: Any
    ) -> None:
        """Guard the result of a function that reads PyTorch's state, as when the trace began."""
        key = f, arguments[0] if arguments else None
        if key in READERS or f in GUARDED_WITH_MODES:
            return
        base = tracer.guards.source("const", None, f, f.__name__)
        check = StateCheck([(*key, tracer.front_state.modes.at_start.get(key, value))])
        tracer.guards.add("call", base, check)

    def grouped(self, tracer: "CaptureTracer", args: list[Var], kwargs: Kwargs) -> Var:
        """Lists of tensors by device and dtype, as for optimizers: nothing is computed."""
        lists = [tracer.sequence(x) for x in tracer.sequence(args[0])]
        by_id = {id(x.value): x for row in lists for x in row}
        for x in by_id.values():
            if self.is_tensor(x.value):
                self.guard(tracer, x)
        words = {k: v.value for k, v in kwargs.items()}
        groups = tracer.do(grouped_tensors, *(x.value for x in args), **words)
        pairs = []
        for key, (rows, indices) in groups.items():
            row_lists = [tracer.heap.new_list([by_id[id(x)] for x in row]) for row in rows]
            numbers = tracer.heap.new_list([Var(i) for i in indices])
            pairs.append(
                (constant(key), tracer.heap.new_tuple([tracer.heap.new_list(row_lists), numbers]))
            )
        return new_dict(tracer, pairs)

    def read_for_state(self, tracer: "CaptureTracer", var: Var) -> None:
        """Guard an argument of a function that reads state: the class of a tensor, other values."""
        if self.is_tensor(var.value):
            if isinstance(var.origin, ValueSource):
                self.guard(tracer, var)
        elif isinstance(var.value, (list, tuple)):
            for item in tracer.sequence(var):
                self.read_for_state(tracer, item)
        elif tracer.foldable(var):
            tracer.concretize(var)
        else:
            tracer.typed(var)


def refers_to(reference: Any, target: Any) -> bool:
    """Whether two weak references are to one object, which is alive."""
    return type(reference) is type(target) and reference() is target() is not None
