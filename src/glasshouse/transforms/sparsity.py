"""Patterns of sparse Jacobians: columns that share no row are computed in one direction."""

from typing import Any

import numpy as np

from glasshouse.base import DTypeError, ShapeError
from glasshouse.dispatch import adopt, reshape
from glasshouse.tensor import Tensor, take, where


class Sparsity:
    """Which elements of a Jacobian may differ from zero, and how it is computed in few runs."""

    def __init__(self, pattern: Any) -> None:
        self.pattern: np.ndarray = np.array(
            pattern.numpy() if isinstance(pattern, Tensor) else pattern
        )
        if self.pattern.dtype != bool:
            got = self.pattern.dtype
            raise DTypeError("jacobian", "a sparsity of booleans", got, "Write pattern != 0.")

    def runs(self, rows: int, columns: int) -> tuple[int, ...]:
        """(pushes in forward mode, pullbacks in reverse mode)."""
        if self.pattern.size != rows * columns:
            raise self.misfit(f"{rows} output elements by {columns} input elements")
        matrix = self.pattern.reshape(rows, columns)
        return tuple(int(colours(m).max(initial=-1)) + 1 for m in (matrix, matrix.T))

    def misfit(self, expected: str) -> ShapeError:
        fix = "Give a row for each output element and a column for each input element."
        return ShapeError("jacobian", f"a sparsity of {expected}", self.pattern.shape, fix)

    def matrix(self, out: Any, x: Any) -> np.ndarray:
        """The pattern with one row per output element and one column per input element."""
        if self.pattern.shape not in ((np.prod(out, dtype=int), x.size), (*out, *x.shape)):
            raise self.misfit(f"shape {(*out, *x.shape)}")
        return self.pattern.reshape(-1, x.size)

    def from_columns(self, push: Any, x: Any) -> Any:
        """The Jacobian by x; push maps tangents (colours, *x.shape) to (*out, colours)."""
        if not x.size or self.pattern.size % x.size:
            raise self.misfit(f"{x.size} columns, as the input has elements")
        groups = colours(self.pattern.reshape(-1, x.size))
        derivative = push(directions(groups, x.spec))
        out = derivative.shape[:-1]
        matrix = self.matrix(out, x)
        values = take(reshape(derivative, (len(matrix), derivative.shape[-1])), groups, axis=1)
        return (reshape(where(matrix, values, 0), (*out, *x.shape)),)

    def from_rows(self, out: Any, pull: Any, x: Any) -> Any:
        """The Jacobian of out by x; pull maps cotangents (colours, *out.shape) to gradients."""
        matrix = self.matrix(out.shape, x)
        groups = colours(matrix.T)
        (derivative,) = pull(directions(groups, out.spec))
        values = take(reshape(derivative, (derivative.shape[0], x.size)), groups, axis=0)
        return (reshape(where(matrix, values, 0), (*out.shape, *x.shape)),)


def colours(matrix: np.ndarray) -> np.ndarray:
    """A number for each column; columns with one number have no row in common. Each column takes
    the first number that it may, those with many rows first."""
    numbers = np.zeros(matrix.shape[1], np.int64)
    rows_of_colour = np.zeros((0, len(matrix)), bool)  # the rows of each number
    for column in np.argsort(-matrix.sum(0), kind="stable"):
        rows = matrix[:, column]
        free = np.flatnonzero(~rows_of_colour[:, rows].any(1))
        if not free.size:
            rows_of_colour = np.concatenate([rows_of_colour, np.zeros((1, len(matrix)), bool)])
            free = [len(rows_of_colour) - 1]
        numbers[column] = free[0]
        rows_of_colour[free[0]] |= rows
    return numbers


def directions(groups: np.ndarray, spec: Any) -> Any:
    """For each number the sum of the unit vectors of its group: (numbers, *shape)."""
    sums = np.zeros((groups.max(initial=-1) + 1, spec.size), spec.dtype.np)
    sums[groups, np.arange(spec.size)] = 1
    return reshape(adopt(sums), (len(sums), *spec.shape))
