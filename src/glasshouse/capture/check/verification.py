"""Compares captured calls with plain Python, in results and effects, and explains differences."""

import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.base.errors import CaptureError
from glasshouse.capture.check.kernel_check import RecordedGraph, WrongKernel
from glasshouse.capture.check.world import (
    Difference,
    Outcome,
    World,
    WorldComparison,
    brief,
    generators_kept,
)
from glasshouse.capture.guards.program import Guard, without_address
from glasshouse.capture.guards.read_audit import audited
from glasshouse.capture.programs.recording_interpreter import eager
from glasshouse.capture.sessions.dispatching import Capture
from glasshouse.capture.sessions.entries import entries_of

if TYPE_CHECKING:
    from glasshouse.capture.decorator import OptimizeDecorator
    from glasshouse.capture.fronts.glasshouse_front import GlasshouseFront
    from glasshouse.tensor.handle import Tensor


class Verification(NamedTuple):
    """The result of `gh.verify`. True if captured calls agree with plain Python.

    function    its name
    calls       the number of compared calls
    difference  the first place where results or effects differ, or None
    cause       a guard that should have failed, an operation, or a lost effect
    kernel      the primitive whose kernel differs from its reference, or None
    unguarded   reads of the user's program that no guard covers"""

    function: str
    calls: int
    difference: Difference | None = None
    cause: str = ""
    kernel: WrongKernel | None = None
    unguarded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.difference is None and self.kernel is None and not self.unguarded

    def __str__(self) -> str:
        if self:
            return f"{self.function}: {self.calls} captured calls do what plain Python does"
        lines = [f"{self.function}, call {self.calls}:"]
        if self.difference is not None:
            where, expected, got = self.difference
            lines.append(f"  {where}: plain Python has {expected}, captured {got}")
        lines += [f"  {x}" for x in (self.cause, self.kernel, *self.unguarded) if x]
        return "\n".join(lines)


class VerifiedFunction:
    """A captured function whose calls also run as plain Python, on copies, and are compared.

    Its attributes are those of the captured function."""

    def __init__(self, fn: Callable[..., Any], captured: Any, front: "GlasshouseFront") -> None:
        self.__dict__.update(_fn=fn, _captured=captured, _front=front, _calls=0)

    def __call__(self, /, *args: Any, **kwargs: Any) -> "Tensor | None":
        self.__dict__["_calls"] += 1
        check = CheckedCall(self._fn, self._captured, self._front, args, kwargs)
        outcome, difference = check.run(self._calls)
        if not difference:
            expected = "the captured call to do what plain Python does"
            raise CaptureError("verify", expected, str(difference), "Report it, or use gh.disable.")
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_captured"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._captured, name, value)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


class CheckedCall:
    """A captured call and the plain call that it is compared with."""

    plain: World
    spare: World

    def __init__(
        self,
        fn: Any,
        captured: Any,
        front: "GlasshouseFront",
        args: tuple[Any, ...],
        kwargs: dict[Any, Any],
    ) -> None:
        self.captured = captured
        self.front = front
        self.world: World = World(fn, args, kwargs)
        self.plain, self.spare = self.world.copied(), self.world.copied()
        self.entry: Any = answering_entry(captured, fn, args, kwargs)

    def run(self, calls: int) -> tuple[Outcome, Verification]:
        """The outcome of the captured call, and the result of the comparison."""
        name = getattr(self.world.fn, "__qualname__", type(self.world.fn).__name__)
        want = self.plain.run_plain()
        with audited() as findings:
            got = self.world.run(self.captured)
        difference = compare_outcomes(want, got) or self.plain.difference(self.world)
        if difference is not None:
            in_result = difference.where.startswith("result")
            return got, Verification(name, calls, difference, *self.explain(want, in_result))
        kernel = None if self.entry is not None else self.find_wrong_kernel(alone=True)[1]
        return got, Verification(name, calls, None, "", kernel, tuple(findings.unguarded))

    def find_wrong_kernel(self, alone: bool = False) -> tuple[Capture, WrongKernel | None, Outcome]:
        """A new capture of the call, on copies; the first primitive of its graphs whose kernel
        differs from its reference, `alone` or also where fused; the outcome of the call."""
        kernels: list[WrongKernel | None] = []

        def check(graph_module, example_inputs):
            forward = eager(graph_module, example_inputs)

            def run(*inputs):
                graph = RecordedGraph(graph_module, inputs)
                kernels.append(graph.wrong_alone() or (None if alone else graph.wrong_together()))
                return forward(*inputs)

            return run

        fresh: Any = Capture(check, self.front)
        fresh.checked = capture_with(fresh, self.spare.fn)  # its entries live as long as it does
        with generators_kept():
            outcome = self.spare.run(fresh.checked)
        return fresh, next((x for x in kernels if x is not None), None), outcome

    def explain(self, want: Outcome, in_result: bool) -> tuple[str, WrongKernel | None]:
        """Why a call went wrong, in its result or an effect: a new capture of it, on copies, tells
        guards from kernels."""
        fresh, kernel, alone = self.find_wrong_kernel()
        if kernel is not None:
            return "", kernel
        difference = compare_outcomes(want, alone) or self.plain.difference(self.spare)
        if difference is not None:
            return f"a new capture goes wrong too: {computed_by(fresh, difference)}", None
        guard = missing_guard(fresh, self.entry)
        if guard is not None:
            return f"a guard should have failed, and is not there: {guard}", None
        answered = f"an entry of {name_of(self.entry)} answered, and a new capture is right"
        if self.entry is None:
            answered = "the first call went wrong, and a new capture is right"
        may = "" if in_result else ", or an effect is lost"
        return f"{answered}: a guard is missing that tells the calls apart{may}", None


def capture_with(capture: Capture, fn: Any) -> Any:
    """A function under another capture."""
    from_method = isinstance(fn, types.MethodType)
    function = fn.__func__ if from_method else fn
    if not isinstance(function, types.FunctionType):
        dispatcher = capture.dispatcher(call_object)
        return lambda *args, **kwargs: dispatcher(function, *args, **kwargs)
    dispatcher = capture.dispatcher(function)
    return types.MethodType(dispatcher, fn.__self__) if from_method else dispatcher


def call_object(target: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call an object; this function is captured in its place."""
    return target(*args, **kwargs)


def compare_outcomes(want: Outcome, got: Outcome) -> Difference | None:
    """Where two outcomes differ: another result, or another error."""
    if want.error is None and got.error is None:
        return WorldComparison().compare("result", want.value, got.value)
    one, two = (x.error and f"{type(x.error).__name__}: {x.error}" for x in (want, got))
    if one == two:
        return None
    shown = (e or f"no error, but {brief(x.value)}" for e, x in ((one, want), (two, got)))
    return Difference("result", *shown)


def answering_entry(captured: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
    """The entry that will answer a call; None where it will be captured."""
    dispatcher = getattr(captured, "__func__", captured)
    slots = slots_of(dispatcher, captured, args, kwargs)
    if slots is None:
        return None
    return next((x for x in entries_of(dispatcher) if x.check(slots) < 0), None)


def slots_of(
    dispatcher: Any, captured: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> tuple[Any, ...] | None:
    """The values of a call for the slots of the function's code; None if they cannot be bound."""
    fn = getattr(dispatcher, "fn", None)
    if not isinstance(fn, types.FunctionType):
        return None
    receiver = (captured.__self__,) if isinstance(captured, types.MethodType) else ()
    try:
        bound = inspect.signature(fn).bind(*receiver, *args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    code = fn.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 4) + bool(code.co_flags & 8)
    slots = tuple(bound.arguments[name] for name in code.co_varnames[:count])
    return (*slots, *(fn.__closure__ or ()))


def missing_guard(fresh: Capture, entry: Any) -> str | None:
    """The first guard of a new capture that the entry, which answered, does not have."""
    if entry is None:
        return None
    there = {text_of(guard) for guard in entry.info.guards}
    new = (guard for info in fresh.entries for guard in info.guards)
    return next((text for guard in new if (text := text_of(guard)) not in there), None)


def text_of(guard: Guard) -> str:
    """A guard as Python, without addresses: copies have others."""
    return without_address(str(guard))


def computed_by(capture: Capture, difference: Difference) -> str:
    """The last operations of the graphs, with the user's lines, as the source of a difference."""
    nodes = [x for info in capture.entries if info.graph for x in info.graph.graph.nodes]
    calls = [f"{x.name} ({x.meta.get('user', '')})" for x in nodes if x.op.startswith("call_")]
    where = difference.where.partition(" (")[0]
    return f"{where} comes from {', '.join(calls[-3:]) or 'no operation of a graph'}"


def name_of(entry: Any) -> str:
    """The user's function of an entry."""
    return entry.info.name if entry is not None else ""


def verify_calls(
    make_captured: "OptimizeDecorator", front: "GlasshouseFront", world: World, calls: int
) -> Verification:
    """Compare some calls on copies, so that the user's objects do not change. `make_captured`
    captures a function."""
    copy = world.copied()
    captured = make_captured(copy.fn)
    with generators_kept():
        for number in range(1, calls + 1):
            call = CheckedCall(copy.fn, captured, front, copy.args, copy.kwargs)
            _, difference = call.run(number)
            if not difference:
                break
    return difference
