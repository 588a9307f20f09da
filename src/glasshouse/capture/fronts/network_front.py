"""Modules, optimizers and schedulers in a trace, whichever library has them. Modules keep their
members in dicts. Schedulers change numbers of optimizers outside the graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from glasshouse.capture.rules.constants import all_foldable
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.plain import is_library
from glasshouse.capture.values.var import Break, Kwargs, Recipe, ValueSource, Var
from glasshouse.dispatch.bind import state

if TYPE_CHECKING:
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.tracer import CaptureTracer
    from glasshouse.capture.values.var import Var


TABLES = ("_parameters", "_buffers", "_modules")


class NetworkFront(FrontEnd):
    """A library with modules, optimizers and schedulers of these types."""

    module_type: type[Any]
    member_types: tuple[type[Any], ...]  # of the values in a module's dicts
    optimizer_type: type[Any]
    scheduler_type: type[Any]

    # -- modules ---------------------------------------------------------------------------------

    def member(self, tracer: "CaptureTracer", obj: Any, name: str) -> "Var | None":
        """Parameters, buffers and submodules of a module."""
        module = obj.value
        if not isinstance(module, self.module_type):
            return None
        if tracer.look_up(type(module), "__getattr__") is not self.module_type.__getattr__:
            return None
        for kind in TABLES:
            members = module.__dict__.get(kind, ())
            tracked = tracer.heap.tracked.get(id(members))
            if tracked is not None and name in (tracked.items or ()):
                return tracked.items[name] and tracked.items[name][1]
            if name in members:
                source = None
                if tracer.guards.live and isinstance(obj.origin, ValueSource):
                    table = self.table(tracer, obj, kind)
                    source = tracer.guards.source("get", table, name, f"{obj.origin.text}.{name}")
                return tracer.heap.load(members[name], source)
        if tracer.guards.live and not tracer.has(obj, name):
            self.rely_on_no_member(tracer, obj, name)
            tracer.do(getattr, module, name)
        return None

    def table(self, tracer: "CaptureTracer", obj: "Var", kind: str) -> ValueSource:
        """The source of one of a module's dicts."""
        inside = tracer.guards.source("dict", obj.origin)
        return tracer.guards.source("get", inside, kind)

    def sets_plainly(self, tracer: "CaptureTracer", obj: "Var", name: str, var: "Var") -> bool:
        module = obj.value
        if not isinstance(module, self.module_type):
            return False
        if type(module).__setattr__ is not self.module_type.__setattr__:
            return False
        if var is not None and isinstance(var.value, self.member_types):
            return False
        if any(name in module.__dict__.get(kind, ()) for kind in TABLES):
            return False
        self.rely_on_no_member(tracer, obj, name)
        return True

    def rely_on_no_member(self, tracer: "CaptureTracer", obj: "Var", name: str) -> None:
        """Guard that a module has no parameter, buffer or module of a name."""
        if tracer.guards.live and isinstance(obj.origin, ValueSource):
            for kind in [x for x in TABLES if x in obj.value.__dict__]:
                tracer.guards.add("absent", self.table(tracer, obj, kind), name)

    def guard_forward(self, tracer: "CaptureTracer", fn: Any) -> None:
        """Guard that a module of the library has the forward of its class. Forwards of other
        modules are guarded where they are read."""
        is_users = "forward" in fn.value.__dict__ or not is_library(type(fn.value))
        if not is_users and isinstance(fn.origin, ValueSource):
            tracer.guards.add("absent", tracer.guards.source("dict", fn.origin), "forward")

    @contextmanager
    def running(
        self, tracer: "CaptureTracer", context: Callable[..., Any], var: Any
    ) -> Iterator[None]:
        """Run the frame that is entered here in the context (a function) of a Var, until the frame
        ends."""
        depth, before = len(tracer.frames), (state.scope, state.phase)
        inside = context(var.value)
        inside.__enter__()
        entered = False
        try:
            yield
            entered = len(tracer.frames) > depth
        finally:
            if entered:
                tracer.frames[depth].scope = before, context, var
            else:
                state.scope, state.phase = before

    def leave(self, frame: "CaptureFrame") -> None:
        if frame.scope is not None:
            state.scope, state.phase = frame.scope[0]

    # -- optimizers and schedulers ---------------------------------------------------------------

    def varies(self, source: ValueSource) -> bool:
        """Whether a number belongs to an optimizer or scheduler, and so changes during training."""
        keepers = (self.optimizer_type, self.scheduler_type)
        step = source
        while step is not None:
            if step.kind == "attr" and step.key == "grad_hooks":
                return False  # it belongs to a hook
            if step.kind == "const" and isinstance(step.key, keepers):
                return True
            if step.text.endswith((".param_groups", ".state")):
                return True
            step = step.base
        return False

    def is_stale(self, tracer: "CaptureTracer", var: "Var") -> Any:
        """Whether a scheduler's step may have changed a value."""
        if not tracer.effects.scheduled or not isinstance(var.origin, ValueSource):
            return False
        changed = isinstance(var.value, (self.optimizer_type, self.scheduler_type))
        return changed or "param_groups" in var.origin.text

    def schedule(
        self, tracer: "CaptureTracer", fn: "Var", args: list[Var], kwargs: Kwargs, then: Any
    ) -> bool:
        """Call a scheduler's step outside the graph: Python repeats it in each call."""
        var: Any = fn.origin.parts[0] if isinstance(fn.origin, Recipe) else None
        from_outside = var is not None and isinstance(var.origin, ValueSource) and not kwargs
        if not from_outside or not all_foldable(tracer, args):
            raise Break("a scheduler's step", fn, args, kwargs)
        tracer.typed(var)
        tracer.real_call(fn, args, {})  # from the user's line, which its warnings name
        tracer.effects.write_apart(var, ("method", "step", list(args)))
        tracer.effects.scheduled = True
        tracer.give(then, None)
        return True
