"""The public functions of capture: optimize, verify, explain, export and their settings."""

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from glasshouse.base.errors import CaptureError, OptionError
from glasshouse.base.flags import flags
from glasshouse.capture.bytecode import instructions
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.check.verification import Verification, verify_calls
from glasshouse.capture.check.world import World
from glasshouse.capture.compilers import compiler_of, is_target, may_be_compiler
from glasshouse.capture.decorator import (
    OptimizeDecorator,
    UnfitCall,
    available,
    dispatchers,
    front,
    innermost,
)
from glasshouse.capture.programs.budget import BudgetCompiler
from glasshouse.capture.programs.program_compiler import compile_to_program
from glasshouse.capture.programs.recording_interpreter import eager
from glasshouse.capture.report import Explanation
from glasshouse.capture.sessions.config import config, counters
from glasshouse.capture.sessions.dispatching import Capture
from glasshouse.capture.sessions.export import ExportedGraph
from glasshouse.capture.sessions.reproduce import Reproduction
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import hooks
from glasshouse.tensor.handle import Tensor

__all__ = ["allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "explain",
           "export", "graph_break", "mark_dynamic", "optimize", "reset", "run", "skip",
           "verify"]  # fmt: skip


def optimize(
    compiler: Any = "program",
    nopython: bool = False,
    dynamic: bool = False,
    frontend: Any = None,
    memory_budget: int | float | str | None = None,
    verify: bool | None = None,
) -> Any:
    """Capture functions, methods and Modules, unmodified: calls run as compiled graphs.

    A decorator, with or without arguments, and a context that captures the functions called inside
    it. `compiler` is a name (`list_compilers`) or fn(graph_module, example_inputs) -> callable. A
    function or method counts as a compiler if it is registered or used as a decorator, or if it
    takes two arguments: the first is named gm or graph_module or annotated as a GraphModule, or the
    name of the second begins with example. With `nopython` a graph break is an error; with
    `dynamic` numbers and sizes may vary from the start.

    With `memory_budget`, training graphs recompute activations in their backward pass, at the
    least cost that keeps a call within the budget: bytes (int), or a fraction (float) of the peak
    without a budget. The peak is the most that the memory manager allocates while the graph's
    Program runs (for a captured module: its two Programs), with parameters and optimizer state. The
    first call, which is captured, may take more. Values and gradients stay the same.
    `.memory_plans` of the result, and `gh.explain`, describe the recomputation.

    With `verify` (by default: if GH_VERIFY is set) every call also runs as plain Python, on the
    current backend and on copies of the objects it reads; results, errors and effects are compared.
    Both are compiled (GH_COMPILE=always), so that equal Programs give equal bits. The first
    difference is a CaptureError that names the place and the guard, operation or kernel at fault.

    Raises: OptionError for an unknown compiler or a bad budget; later CaptureError for a break with
        nopython or a difference with verify, OptionError for a budget that cannot be met, with the
        least that can be met
    Example:
        >>> import glasshouse as gh
        >>> @gh.optimize("eager")
        ... def fn(x, y):
        ...     return gh.cos(x) + gh.sin(y)
        >>> fn(gh.zeros(2), gh.zeros(2)).tolist()
        [1.0, 1.0]
    """
    target = compiler if is_target(compiler) else None
    chosen = compile_to_program if target is not None else compiler_of(compiler)
    if memory_budget is not None:
        if chosen is not compile_to_program:
            what = "memory_budget with the compiler 'program'"
            raise OptionError("optimize", what, repr(compiler), "Leave one of them out.")
        chosen = BudgetCompiler(memory_budget)
    decorator = OptimizeDecorator(Capture(chosen, frontend or front, nopython, dynamic))
    decorator.verify = flags.verify if verify is None else verify
    if target is None:
        return decorator
    captured = decorator(target)
    if may_be_compiler(target) and captured is not target:
        captured.on_unfit_call = UnfitCall(target, decorator.capture)
    return captured


hooks.optimize = optimize


class CaptureModeContext(ContextDecorator):
    """Context and decorator inside which captured functions run in another mode."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.before: list[Any] = []

    def __enter__(self) -> Any:
        self.before.append(native().set_mode(self.mode) if available() else 0)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        before = self.before.pop()
        if available():
            native().set_mode(before)


def run(fn: Any = None) -> Any:
    """fn (or, without one, a context) in which captured functions only use known entries."""
    return CaptureModeContext(1) if fn is None else CaptureModeContext(1)(fn)


def disable(fn: Any = None) -> Any:
    """fn (or, without one, a context) in which nothing is captured, its calls included."""
    if fn is None:
        return CaptureModeContext(2)
    fn = innermost(fn)
    wrapped = CaptureModeContext(2)(fn)
    wrapped.__gh_disabled__ = True
    return wrapped


def skip(fn: Any) -> Any:
    """fn, not captured itself; functions that it calls may be captured."""
    fn = innermost(fn)

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        return fn(*args, **kwargs)

    wrapped.__gh_disabled__ = True  # type: ignore[attr-defined]  # read by capture
    config.disabled[id(fn.__code__)] = fn.__code__
    return wrapped


def graph_break() -> None:
    """End the graph here; outside captured functions nothing happens."""


graph_break.__gh_disabled__ = True  # type: ignore[attr-defined]  # read by capture


def register(table: dict[Any, Any], fn: Any) -> Any:
    for one in fn if isinstance(fn, (list, tuple)) else [fn]:
        table[id(one)] = one
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Make calls of fn (or of each in a list) nodes of the graph. Returns fn."""
    for one in fn if isinstance(fn, (list, tuple)) else [fn]:
        config.disallowed.pop(id(one), None)
    return register(config.allowed, fn)


def disallow_in_graph(fn: Any) -> Any:
    """Make calls of fn (or of each in a list) break the graph. Returns fn."""
    for one in fn if isinstance(fn, (list, tuple)) else [fn]:
        config.allowed.pop(id(one), None)
    return register(config.disallowed, fn)


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Call fn once while capturing, and use its result in later calls. Returns fn."""
    config.constant_results.add(fn)
    return fn


def mark_dynamic(tensor: "Tensor", axis: Any) -> None:
    """Let the size of `axis` (or of each in a tuple) vary from the first capture on."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    before = getattr(tensor, "_gh_dynamic", ())
    tensor._gh_dynamic = frozenset(axes).union(before)  # type: ignore[attr-defined]  # for guards


def reset() -> None:
    """Forget all captures, and the counters."""
    for one in dispatchers:
        one.entries.clear()
        for _, resumed in one.capture.resumes.values():
            getattr(resumed, "entries", []).clear()
        for name in ("full", "tries", "hopeless"):
            one.__dict__.pop(name, None)
        one.capture.__dict__.update(resumes={}, noted=[], breaks=[], recompiles=[], varying=set())
    instructions.decoded_codes.clear()
    counters.clear()


def explain(fn: Any, /, *args: Any, **kwargs: Any) -> Explanation:
    """Run fn(*args, **kwargs) captured, and report graphs, breaks with reasons, guards, times, and
    calls that no kernel computes.

    Printing the result prints it as a table."""
    capture = Capture(eager, front)
    captured = OptimizeDecorator(capture)(fn)  # entries live no longer than this
    backend = backends.current()
    backend.evaluate()
    before = backend.fallbacks.copy()
    result = captured(*args, **kwargs)
    backend.evaluate()
    return Explanation(fn, capture, result, backend.fallbacks.since(before))


def verify(fn: Any, /, *args: Any, calls: int = 3, **kwargs: Any) -> Verification:
    """Compare captured calls of fn(*args, **kwargs) with plain Python; returns a report.

    The calls run on copies: the caller's objects do not change. Results, errors and effects are
    compared with those of plain Python on the current backend; both are compiled, so that equal
    Programs give equal bits. In a captured call, the kernel of each primitive is also compared
    with the primitive's NumPy reference. The report names the first that differs, with the user's
    line, the module and the largest error.

    Example:
        >>> import glasshouse as gh
        >>> print(verify(lambda x: gh.exp(x).sum(), gh.ones(3)))
        <lambda>: 3 captured calls do what plain Python does
    """
    capture = Capture(compile_to_program, front)
    world = World(innermost(fn), args, kwargs)
    return verify_calls(OptimizeDecorator(capture), front, world, calls)


def write_reproduction(
    fn: Any, /, *args: Any, compiler: str = "program", path: Any = "reproduction.py", **kwargs: Any
) -> Any:
    """Write a script that shows on its own how a compiler fails on a graph of fn(*args, **kwargs).

    Each graph is tried with inputs made from specs and a seed: the compiler raises, or gives other
    numbers than `eager`. The first that fails is made as small as it can be while failing in the
    same way; if none does, the largest is written as it is. Returns the path.

    Raises: OptionError for an unknown compiler; CaptureError if there is no graph
    """
    compiler, reproductions = compiler_of(compiler), []

    def keep(graph_module, example_inputs):
        reproductions.append(
            Reproduction(graph_module, example_inputs, compiler, innermost_name(fn))
        )
        return eager(graph_module, example_inputs)

    OptimizeDecorator(Capture(keep, front))(fn)(*args, **kwargs)
    if not reproductions:
        what = "a function with a graph"
        raise CaptureError("write_reproduction", what, "none", "Check its calls.")
    largest = max(reproductions, key=lambda one: len(one.calls))
    return next((one for one in reproductions if one.outcome(one.calls)), largest).write(path)


def innermost_name(fn: Any) -> str:
    fn = innermost(fn)
    return getattr(fn, "__qualname__", type(fn).__name__)


def export(fn: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """(graph module, guards) of fn as one graph for these arguments.

    The graph module takes the tensors among fn's arguments in the order of its signature, used or
    not, and returns fn's result. Other tensors that fn reads belong to the module.

    Raises: CaptureError if there is a break
    """
    capture = Capture(eager, front, nopython=True)
    capture.exporting = True
    captured = OptimizeDecorator(capture)(fn)
    captured(*args, **kwargs)
    trace = capture.entries[0].exported if capture.entries else None
    if trace is None:
        what = "a function that computes with tensors"
        raise CaptureError("export", what, "no graph", "Check it.")
    graph = ExportedGraph(trace, innermost(fn), front).build()
    return graph, [str(guard) for guard in trace.guards]
