"""The table from primitives to ONNX: for each one, the function that writes it.

A function takes the writer, the call and its operands' values, and gives the value of its result,
or a list of them."""

from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import DTypeError, OptionError

WRITERS: dict[str, Callable[..., Any]] = {}
WHERE = "onnx.export"
# Primitives that ONNX has no operator for, and what to do instead.
ABSENT = {
    **dict.fromkeys(
        ("cholesky", "qr", "lu", "triangular_solve", "eigh", "svd", "eig"),
        "ONNX has no decompositions of matrices; compute this part outside.",
    ),
    "random_bits": "Pass what is drawn as an input. Modules are exported as in eval mode.",
    "conv_weight_grad": "Export the forward pass.",
    "window_scatter": "Export the forward pass.",
}


def writes(*names: str) -> Callable[..., Any]:
    """A decorator that puts a function into the table under the names of primitives."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return enter


def refused(what: str, fix: str) -> OptionError:
    """The error for an operation that ONNX cannot express."""
    return OptionError(WHERE, "what ONNX's operators compute", what, fix)


def check_real(call: Any) -> None:
    """Refuse complex operands.

    Raises: DTypeError for a call that has one
    """
    for x in (*call.operands, *call.results):
        if x.dtype.is_complex:
            fix = "Compute with real and imaginary parts: gh.real, gh.imag."
            raise DTypeError(WHERE, f"real numbers for {call.name}", x.dtype.name, fix)
