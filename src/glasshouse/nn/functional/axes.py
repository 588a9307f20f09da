"""Families of functions for 1, 2 and 3 spatial axes, made from one that works for any number."""

from collections.abc import Callable
from inspect import cleandoc, signature
from typing import Any

from glasshouse.nn.checks import check_floating, check_ndim
from glasshouse.tensor import Tensor

AXES = {1: "L", 2: "H, W", 3: "D, H, W"}
RESULTS = {1: "L'", 2: "H', W'", 3: "D', H', W'"}  # the same, of another size
COUNTS = {1: "one spatial axis", 2: "two spatial axes", 3: "three spatial axes"}


def spatial_input(
    where: str, n: int, input: Tensor, check: Callable[..., Any] = check_floating
) -> Tensor:
    """The input (C, *S) or (N, C, *S) with n spatial axes, as a value that passes the check."""
    x = check(where, input)
    check_ndim(where, x, (n + 1, n + 2), f"(C, {AXES[n]}) or (N, C, {AXES[n]})")
    return x


def by_axes(compute: Any, name: str | None = None) -> list[Any]:
    """The functions `name`1d, 2d and 3d: `compute(own name, number of axes, ...)`.

    The docstring of `compute` is the second's. It ends in the shapes, which are those of all, with
    {s} for the axes and {t} for the result's."""
    about, _, shapes = cleandoc(compute.__doc__).partition("Shapes: ")

    def make(n: int):
        def function(*args, **kwargs):
            return compute(function.__name__, n, *args, **kwargs)

        original = signature(compute)
        parameters = list(original.parameters.values())[2:]
        function.__signature__ = original.replace(  # type: ignore[attr-defined]  # as inspect reads
            parameters=parameters
        )
        function.__name__ = function.__qualname__ = f"{name or compute.__name__}{n}d"
        summary = about if n == 2 else f"`{name or compute.__name__}2d` with {COUNTS[n]}.\n"
        function.__doc__ = f"{summary}Shapes: {shapes.format(s=AXES[n], t=RESULTS[n])}"
        function.__module__ = compute.__module__
        return function

    return [make(n) for n in AXES]
