"""The table of ONNX operators: for each name and opset version, the function that composes it.

A function takes a node's inputs in their order, None where one is left out, and its attributes by
name. A value is a Tensor, a NumPy array that is known before the network runs (a size, an axis, a
constant), a list (a sequence), or None (an empty optional)."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse.base.errors import DTypeError, ShapeError
from glasshouse.dispatch.value import Value
from glasshouse.tensor import Tensor

OPSETS = range(1, 29)  # below 7 where a node has the attributes that it has in 7
MOST_KNOWN = 1 << 16  # elements of an array that is still computed with NumPy


class OnnxOperator(NamedTuple):
    """A function of the table. One that is `plain` computes known arrays with NumPy; inputs at
    `static` places are known when it is called; one that is `raw` gets all inputs as they are; one
    that `counts` is told how many outputs the node has."""

    domain: str
    name: str
    since: int
    function: Callable[..., Any]
    plain: bool
    static: tuple[int, ...]
    raw: bool
    counts: bool
    taken: tuple[int, float]  # how many inputs it takes at least and at most
    attributes: frozenset[str] | None


OPERATORS: dict[tuple[str, str], list[OnnxOperator]] = {}


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    plain: bool = False,
    static: tuple[int, ...] = (),
    raw: bool = False,
) -> Callable[..., Any]:
    """A decorator that puts a function into the table under these names, from an opset on."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        taken, attributes = parameters_of(function)
        counts = attributes is not None and "outputs" in attributes
        for name in names:
            entry = OnnxOperator(
                domain, name, since, function, plain, static, raw, counts, taken, attributes
            )
            versions = OPERATORS.setdefault((domain, name), [])
            versions.append(entry)
            versions.sort(key=lambda x: -x.since)
        return function

    return enter


def parameters_of(function: Callable[..., Any]) -> tuple[tuple[int, float], frozenset[str] | None]:
    """How many inputs a function takes, and the names of its attributes (None: any)."""
    parameters = inspect.signature(function).parameters.values()
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in inputs)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    free = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    return (least, np.inf if variadic else len(inputs)), None if free else names


def find_operator(domain: str, name: str, opset: int) -> OnnxOperator | None:
    """The newest entry that an opset knows."""
    versions = OPERATORS.get((domain, name), ())
    return next((entry for entry in versions if entry.since <= opset), None)


def namespace(*values: Any) -> Any:
    """`numpy` where all values are known, else `glasshouse`; both have the array API's names."""
    return gh if any(isinstance(x, Value) for x in values) else np


def as_array(x: Any) -> np.ndarray:
    """A value as a NumPy array; a tensor is computed, and read."""
    return x.numpy() if isinstance(x, Tensor) else np.asarray(x)


def lifted(x: Any) -> Any:
    """A known array as a tensor; lists by their elements."""
    if isinstance(x, list):
        return [lifted(each) for each in x]
    if isinstance(x, np.ndarray):
        if x.dtype == object:
            fix = "Strings are outside of what networks compute here."
            raise DTypeError("onnx", "numbers", "strings", fix)
        return gh.asarray(x)
    return x


def integers(x: Any) -> list[int]:
    """The whole numbers of a known array."""
    return [int(i) for i in np.ravel(as_array(x))]


def place(axis: int, ndim: int) -> int:
    """An axis counted from the front.

    Raises: ShapeError for one that is not there
    """
    if not -ndim <= axis < max(ndim, 1):
        raise ShapeError("onnx", f"an axis of {ndim}", axis, "Mend the node's axis.")
    return axis % ndim if ndim else 0


def places(axes: Any, ndim: int) -> list[int]:
    """Axes counted from the front; all of them for None.

    Raises: ShapeError for one that is not there, or twice
    """
    if axes is None:
        return [*range(ndim)]
    result = [place(axis, ndim) for axis in integers(axes)]
    if len(set(result)) != len(result):
        raise ShapeError("onnx", "axes that differ", integers(axes), "Mend the node's axes.")
    return result
