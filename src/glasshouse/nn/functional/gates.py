"""Gated linear units: one half of the features times a function of the other."""

import functools
from typing import Any

from glasshouse.base import ShapeError, check_axis
from glasshouse.dispatch.compose import composed
from glasshouse.nn.checks import check_floating
from glasshouse.nn.functional.activation import gelu, relu, sigmoid, silu
from glasshouse.tensor import Tensor, split


def gated(gate: Any) -> Any:
    """A decorator: the declared function is a · gate(b) of the halves a and b of its input."""

    def make(declared):
        @composed
        @functools.wraps(declared)
        def call(input, dim=-1):
            where = declared.__name__
            x = check_floating(where, input)
            axis = check_axis(where, dim, x.ndim)
            if x.shape[axis] % 2:
                raise ShapeError(where, f"an even size on axis {axis}", x.shape, "Change dim.")
            a, b = split(x, 2, axis=axis)
            return a * gate(b)

        return call

    return make


@gated(sigmoid)
def glu(input: Tensor, dim: int = -1) -> Any:
    """a · sigmoid(b) of the halves a and b of x along dim.

    Shapes: (..., 2C, ...) -> (..., C, ...).
    Raises: ShapeError for an odd size.
    Source: Dauphin et al. 2016, arXiv:1612.08083, eq. 1.
    """


@gated(gelu)
def geglu(input: Tensor, dim: int = -1) -> Any:
    """a · gelu(b) of the halves a and b of x along dim.

    Shapes: (..., 2C, ...) -> (..., C, ...).
    Raises: ShapeError for an odd size.
    Source: Shazeer 2020, arXiv:2002.05202, eq. 5.
    """


@gated(relu)
def reglu(input: Tensor, dim: int = -1) -> Any:
    """a · relu(b) of the halves a and b of x along dim.

    Shapes: (..., 2C, ...) -> (..., C, ...).
    Raises: ShapeError for an odd size.
    Source: Shazeer 2020, arXiv:2002.05202, eq. 5.
    Example:
        >>> reglu([2.0, 3.0]).tolist()
        [6.0]
    """


@gated(silu)
def swiglu(input: Tensor, dim: int = -1) -> Any:
    """a · silu(b) of the halves a and b of x along dim.

    Shapes: (..., 2C, ...) -> (..., C, ...).
    Raises: ShapeError for an odd size.
    Source: Shazeer 2020, arXiv:2002.05202, eq. 5.
    """
