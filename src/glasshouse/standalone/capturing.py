"""The Program of a step: captured on copies of all that the step may change."""

import inspect
import re
import types
from collections.abc import Callable
from keyword import iskeyword
from typing import Any, NamedTuple

from glasshouse.autograd import no_grad
from glasshouse.base.errors import BackendError, CaptureError, OptionError, type_name
from glasshouse.base.flags import flags
from glasshouse.capture.api import Capture, OptimizeDecorator, compile_to_program, front, innermost
from glasshouse.capture.check.world import Copier, World, generators_kept
from glasshouse.capture.guards.program import Guard, read_source
from glasshouse.capture.jit import JitFunction
from glasshouse.capture.programs.captured_program import CapturedProgram
from glasshouse.capture.programs.program_compiler import CompiledGraph
from glasshouse.capture.sessions.entries import entries_of
from glasshouse.compile.lowering.source_map import label_of
from glasshouse.compile.programs.executable import Program
from glasshouse.compile.steps.emitted import HostCall
from glasshouse.dispatch import backend as backends
from glasshouse.nn.module import Module
from glasshouse.standalone.names import ReachedNames
from glasshouse.standalone.replacement import ReplacementReading
from glasshouse.targets import Target, use_target

DECIDING = ("eq", "call", "is")  # kinds of guards that a number can fail
MOST_CALLS = 8  # until a call of the step is like the one before
WHERE = "export_program"


class CapturedCall(NamedTuple):
    """A call that ran as one Program: the Program with the places of its values, the Python around
    it, the names of the objects that it reads, the arguments, and the names of the user's objects.

    `calls` counts the calls before, on the copies; `draws` are the generators' states then."""

    program: CapturedProgram
    reading: ReplacementReading
    names: ReachedNames
    original: ReachedNames
    arguments: dict[str, Any]
    calls: int
    draws: list[tuple[int, int, int]]
    draws_before: list[tuple[int, int, int]]


def capture_call(fn: Any, args: tuple[Any, ...], target: Target) -> CapturedCall:
    """Capture a step for a target; the user's objects stay as they are.

    Raises: OptionError for an invalid step; CaptureError for a call that is not one Program
    """
    fn = user_function(fn)
    if isinstance(fn, Module):
        with no_grad():
            return captured_copy(fn, args, target)
    try:
        return captured_copy(fn, args, target)
    except OpenBackwardPass:
        with no_grad():
            return captured_copy(fn, args, target)


class OpenBackwardPass(Exception):
    """A step whose results are differentiated outside."""


def captured_copy(fn: Any, args: tuple[Any, ...], target: Target) -> CapturedCall:
    """Capture copies of a function and its arguments."""
    copier = Copier()
    call, roots = callable_of(copier.copy(fn), len(args))
    original = ReachedNames(callable_of(fn)[1])
    inputs = copier.copy(args)
    with use_target(target), flags.override(compile="always"), generators_kept():
        captured = OptimizeDecorator(Capture(compile_to_program, front, nopython=True))(call)
        calls = 0
        while not captured.hits and calls < MOST_CALLS:
            captured(*inputs)
            backends.current().sync()
            calls += 1
        if not captured.hits:
            expected = f"a step whose calls are alike after {MOST_CALLS} calls"
            fix = "gh.explain says what changes."
            raise CaptureError(WHERE, expected, "another capture each time", fix)
        slots = slots_of(call, inputs)
        values = tuple(value for _, value in slots)
        entry = next(x for x in entries_of(captured) if x.check(values) == -1)
        arguments = {name: x for name, x in slots if not isinstance(x, types.CellType)}
        names = ReachedNames({**roots, **arguments})
        reading = ReplacementReading(entry.run, entry.info.source, slots, names)
        check_guards(entry.info.guards, values, names, reading)
        graph = getattr(entry.run.__globals__.get("graph"), "__self__", None)
        program = program_of(graph, [x.value for x in reading.inputs or ()])
        draws = [state_of(generator) for generator in program.keys]
    return CapturedCall(
        program,
        reading,
        names,
        original,
        arguments,
        calls,
        draws,
        [state_of(generator) for generator in program.keys],
    )


def user_function(fn: Any) -> Any:
    """The function or module inside the wrappers that capture and compile it."""
    fn = fn.fn if isinstance(fn, JitFunction) else innermost(fn)
    if not isinstance(fn, (types.FunctionType, types.MethodType, Module)):
        expected = "a function, a method or a Module"
        raise OptionError(WHERE, expected, type_name(fn), "Pass the step itself.")
    return fn


def callable_of(fn: Any, count: int = 0) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function to capture, and the objects that it may read, by name."""
    if isinstance(fn, Module):
        return module_call(fn, count), {"": fn}
    return fn, World(fn, (), {}).roots


def module_call(module: Module, count: int) -> Callable[..., Any]:
    """A module's forward as a function with its parameters; one that takes any number gets those
    that `input_names` has, as a network of an ONNX file, or `count` of them."""
    own = inspect.signature(module.forward).parameters.values()
    parameters = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in own):
        words = [re.sub(r"\W", "_", name) for name in getattr(module, "input_names", ())]
        words = [f"{x}_" if iskeyword(x) else x for x in words]
        is_good = len(set(words)) == count and all(x.isidentifier() for x in words)
        parameters = words if is_good else [f"input_{i}" for i in range(count)]
    listed = ", ".join(parameters)
    text = f"def forward({listed}):\n    return exported_module({listed})\n"
    names = {"exported_module": module, "__name__": "exported"}
    exec(compile(text, "<exported>", "exec"), names)
    forward: Any = names["forward"]
    return forward


def slots_of(fn: Any, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """The values of a function's variables when it begins, as guards number them."""
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    slots = list(bound.arguments.items())
    function = fn
    if isinstance(fn, types.MethodType):
        function = fn.__func__
        slots.insert(0, (function.__code__.co_varnames[0], fn.__self__))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [*slots, *cells]


def check_guards(
    guards: list[Guard], slots: Any, names: ReachedNames, reading: ReplacementReading
) -> None:
    """Check that no guard depends on a number that the step itself changes, for C asks none.

    Raises: CaptureError with the number, and the line that looks at it
    """
    changing = {write.name for write in reading.writes}
    for guard in guards:
        if guard.kind not in DECIDING or guard.source.base is None:
            continue
        owner = names.containers.get(id(read_source(guard.source.base, slots)))
        name = None if owner is None else names.part_name(owner, guard.source.key)
        if name in changing:
            line = ":".join(map(str, guard.line or ()))
            expected = "a step that does the same whatever its numbers are"
            fix = "Leave the choice to the caller."
            raise CaptureError(WHERE, expected, f"a choice by {name} at {line}", fix)


def program_of(graph: Any, inputs: list[Any]) -> CapturedProgram:
    """The Program that a captured graph runs for these inputs.

    Raises: CaptureError if there is none
    """
    programs = (
        graph.programs.get(graph.sizes_of(inputs), ()) if type(graph) is CompiledGraph else ()
    )
    program = next((x for x in programs if x is not None and x.fits(inputs)), None)
    if program is None or program.forward is None:
        expected = "a step that computes with tensors, as one Program"
        raise CaptureError(WHERE, expected, "none", "gh.explain says what runs as Python.")
    if program.backward is not None:
        raise OpenBackwardPass
    return program


def check_steps(program: Program) -> None:
    """Check that each step has a form in C.

    Raises: BackendError with the primitive, the reason and the user's line
    """
    for step in program.hosts.values():
        if not isinstance(step, HostCall):
            raise BackendError(WHERE, "a step of one process", "a collective", "Use one rank.")
        line = program.lines.get(step.node.origin.place, "")
        reason, fix = step.missing or (
            "a function of the user computes it",
            "Write it with tensors",
        )
        got = f"{label_of(step.node)}{f' at {line}' if line else ''}: {reason}"
        raise BackendError(WHERE, "primitives that C computes", got, f"{fix}.")


def state_of(generator: Any) -> tuple[int, int, int]:
    """The key and the number of draws of a generator."""
    return (*generator.key_words, generator.draws)
