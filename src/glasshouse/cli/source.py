"""The source text of the functions on a card, as it stands in their file."""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from glasshouse.dispatch import Rule


@lru_cache
def lambdas_of(path: str) -> tuple[str, list[ast.Lambda]]:
    text = "".join(linecache.getlines(path))
    return text, [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)]


def lambda_text(fn: FunctionType) -> str:
    """The text of one lambda, found among those of its line by where its body begins."""
    code = fn.__code__
    text, lambdas = lambdas_of(code.co_filename)
    begins = {(line, column) for line, _, column, _ in code.co_positions()}
    for node in lambdas:
        begin = node.body.lineno, node.body.col_offset
        if node.lineno == code.co_firstlineno and begin in begins:
            return " ".join((ast.get_source_segment(text, node) or "").split())
    return textwrap.dedent(inspect.getsource(fn)).strip()


def unwrap(fn: Any) -> Any:
    fn = fn.fn if isinstance(fn, Rule) else fn
    return inspect.unwrap(fn) if callable(fn) else fn


def def_text(fn: FunctionType) -> str:
    """The text of a named function; of an inner one that only returns, the same as a lambda."""
    text = textwrap.dedent(inspect.getsource(fn)).strip()
    node = ast.parse(text).body[0]
    text = "\n".join(text.split("\n")[node.lineno - 1 :])  # a reference, without its card
    if not fn.__closure__ or not isinstance(node, ast.FunctionDef):
        return text
    body = node.body[ast.get_docstring(node) is not None :]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return text
    return f"lambda {ast.unparse(node.args)}: {ast.unparse(body[0].value)}"


def captured(fn: FunctionType) -> dict[Any, Any]:
    """Functions of ours and plain values that `fn` closes over, by the name that it calls them."""
    captured_values = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        value = unwrap(cell.cell_contents)
        if isinstance(value, FunctionType | int | float | str | tuple) and value is not fn:
            captured_values[name] = value
    return captured_values


def source_text(fn: Callable[..., Any]) -> str:
    """The source of a card's function, then the functions and plain values that it closes over.
    A string, None or a library's function is shown by its name."""
    fn = unwrap(fn)
    if fn is None:
        return "none"
    if not isinstance(fn, FunctionType):
        return fn if isinstance(fn, str) else library_name(fn)
    text = lambda_text(fn) if fn.__name__ == "<lambda>" else def_text(fn)
    return "\n".join([text, *(inner_text(*pair) for pair in captured(fn).items())])


def inner_text(name: str, value: str | bool) -> str:
    if not isinstance(value, FunctionType):
        return f"{name} = {value!r}"
    text = source_text(value)
    return f"{name} = {text}" if text.startswith("lambda") else f"# {name} is\n{text}"


def library_name(fn: Any) -> str:
    """How a library's function is called in code: `numpy.exp`."""
    name = getattr(fn, "__name__", None)
    if name is None:
        return repr(fn)
    module = "numpy" if type(fn).__name__ == "ufunc" else getattr(fn, "__module__", "") or ""
    return f"{module}.{name}".lstrip(".")
