"""The compilers of captured graphs, by name, and tests that tell them from functions."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import OptionError, suggest, type_name
from glasshouse.capture.fronts.registry import (
    foreign_compiler,
    foreign_compiler_names,
    is_foreign_module,
)
from glasshouse.capture.programs.program_compiler import compile_to_program
from glasshouse.capture.programs.recording_interpreter import eager
from glasshouse.nn.module import Module


def printed(graph_module: Any, example_inputs: Any) -> Any:
    """The compiler that prints the graph as a table and runs it uncompiled."""
    graph_module.graph.print_tabular()
    return graph_module.forward


compilers: dict[str, Any] = {
    "program": compile_to_program,
    "eager": eager,
    "nop": eager,
    "print": printed,
}
COMPILER_ALIASES = {"glass": "program"}  # names from earlier versions


def register_compiler(fn: Any = None, *, name: str | None = None) -> Any:
    """Register a compiler: fn(graph_module, example_inputs) -> callable; also a decorator."""
    if fn is None:
        return functools.partial(register_compiler, name=name)
    compilers[name or fn.__name__] = fn
    return fn


def list_compilers() -> list[str]:
    """The names of the compilers that `optimize` knows.


    Example:
        >>> list_compilers()
        ['eager', 'nop', 'print', 'program']
    """
    return sorted(compilers)


def compiler_of(compiler: Any) -> Any:
    """A compiler by name, or the function itself."""
    if callable(compiler):
        return compiler
    if not isinstance(compiler, str):
        fix = "Pass the function itself, not what it returned."
        raise OptionError(
            "optimize", "a function, or a compiler or its name", type_name(compiler), fix
        )
    if compiler not in compilers:
        compiler = COMPILER_ALIASES.get(compiler, compiler)
    foreign = None if compiler in compilers else foreign_compiler(compiler)
    if foreign is not None:
        return foreign
    if compiler not in compilers:
        nearest = suggest(compiler, [*compilers, *foreign_compiler_names()])
        raise OptionError("optimize", "a compiler", repr(compiler), nearest)
    return compilers[compiler]


BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def is_target(x: Any) -> bool:
    """Whether something is to be captured, rather than used as a compiler. A function or method is
    a compiler if it is registered as one or has the parameters of one."""
    if isinstance(x, Module) or is_foreign_module(x):
        return True
    if not isinstance(x, (types.FunctionType, types.MethodType)):
        return False
    return not takes_a_graph(x) and x not in compilers.values()


def takes_a_graph(fn: Callable[..., Any]) -> bool:
    """Whether a function takes a graph and examples of its inputs, by the names of both."""
    positional = [p for p in inspect.signature(fn).parameters.values() if p.kind in BY_PLACE]
    needed = needed_arguments(fn)
    if len(positional) < 2 or len(needed) > 2:
        return False
    first, second = positional[:2]
    of_graph = first.name in ("gm", "graph_module") or "GraphModule" in str(first.annotation)
    return of_graph or len(needed) == 2 and second.name.startswith("example")


def needed_arguments(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that a call fills by their places, and must."""
    parameters = inspect.signature(fn).parameters.values()
    return [p for p in parameters if p.kind in BY_PLACE[:2] and p.default is p.empty]


def may_be_compiler(fn: Any) -> bool:
    """Whether a function takes two arguments, and needs both."""
    if not isinstance(fn, types.FunctionType):
        return False
    return len(needed_arguments(fn)) == len(inspect.signature(fn).parameters) == 2
