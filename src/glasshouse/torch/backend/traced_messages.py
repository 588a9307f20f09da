"""Messages of loggers wait until their graph has run.

TorchDynamo breaks the graph at a call such as `logger.warning("…")`, and traces each frame around
it once more. Traced for us, a message with constant text is logged after the graph in each call, by
the current logger. PyTorch does the same for functions in
`torch._dynamo.config.reorderable_logging_functions`, which takes no methods. Messages keep their
order; their file, line and function are those of the call in the program."""

import dis
import functools
import inspect
import logging
import types
from typing import Any

import torch

from glasshouse.torch.backend.trace_hooks import is_traced_for_us
from glasshouse.torch.patches.names import are_found
from glasshouse.torch.patches.traces import (
    CALL_METHOD,
    NESTED_BREAKS,
    REORDERABLE,
    Codegen,
    ConstantVariable,
    LoggerVariable,
    VariableTracker,
)

STANDARD = ("debug", "info", "warning", "error", "critical", "log")
# Whether this PyTorch can log after a graph, as it does for those functions.
CAN_WAIT = are_found(
    CALL_METHOD, REORDERABLE, Codegen, ConstantVariable, LoggerVariable, VariableTracker
)


@functools.cache
def returns_nothing(function: Any) -> bool:
    """Whether a Python function always returns None, by its bytecode."""
    if not inspect.isfunction(function) or function.__code__.co_flags & inspect.CO_GENERATOR:
        return False
    instructions = list(dis.get_instructions(function))
    for before, instruction in zip([None, *instructions], instructions, strict=False):
        is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if instruction.opname == "RETURN_VALUE" and not is_none:
            return False
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
    return True


def is_message(logger: logging.Logger, name: str) -> bool:
    """Whether the method of this name only logs a message: a standard one, or one that a library
    added and that returns nothing."""
    method = getattr(logger, name, None)
    if method is None:
        return False
    function = inspect.unwrap(getattr(method, "__func__", method))
    if getattr(function, "__module__", None) == logging.__name__ and name not in STANDARD:
        return False
    return returns_nothing(function)


def told_at(code: Any, line: int, name: str, values: list[Any]) -> Any:
    """A function that logs a message, as if called at this line of a code object."""

    def tell(logger):
        getattr(logger, name)(*values)

    names = {"co_name": code.co_name, "co_qualname": code.co_qualname}
    place = {"co_filename": code.co_filename, "co_firstlineno": line - 1}
    there = tell.__code__.replace(**names, **place)
    function = types.FunctionType(there, {"getattr": getattr}, code.co_name, None, tell.__closure__)
    return torch.compiler.disable(function, reason="a message after a graph")


class WaitingMessage(VariableTracker):
    """The function that logs a message, in the code that TorchDynamo writes."""

    def __init__(self, tell: Any, **named: Any) -> None:
        super().__init__(**named)
        self.tell = tell

    def reconstruct(self, codegen: Codegen) -> None:
        """Write code that has this function on the stack."""
        name = codegen.tx.output.install_global("__message", self.tell)
        codegen.append_output(codegen.create_load_global(name, add=True))


def can_wait(logger: LoggerVariable, tx: Any, name: str, args: Any, kwargs: Any) -> bool:
    """Whether a logger's call can wait until the graph has run."""
    is_plain = logger.source is not None and not kwargs and not tx.export
    is_outermost = tx.output.current_tracer.parent is None and not (
        are_found(NESTED_BREAKS) and NESTED_BREAKS.value
    )
    constant = all(x.is_python_constant() for x in args)
    return is_plain and is_outermost and constant and is_message(logger.value, name)


def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Replaces TorchDynamo's handler of a logger's method: a message that can wait is postponed."""
    if not is_traced_for_us() or not can_wait(self, tx, name, args, kwargs):
        return CALL_METHOD.original(self, tx, name, args, kwargs)
    values = [x.as_python_constant() for x in args]
    message = WaitingMessage(told_at(tx.f_code, tx.lineno, name, values))
    tx.output.root_tx.debug_locals.append((message, [self]))
    return ConstantVariable.create(None)


def let_messages_wait() -> None:
    """From now on loggers' messages wait until the graph has run, if it is for our backend."""
    CALL_METHOD.put(call_method)
