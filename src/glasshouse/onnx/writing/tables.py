"""Tables of constants whose sizes vary: the same rows again and again, or evenly spaced numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from glasshouse.onnx.writing.arrays import counted
from glasshouse.onnx.writing.joint import Unlike, VaryingNumber, merged
from glasshouse.onnx.writing.writer import GraphWriter


class RepeatedTable(NamedTuple):
    """`rows`, repeated along each axis."""

    rows: np.ndarray
    times: tuple[Any, ...]

    def write(self, w: GraphWriter) -> str:
        """The name of the table."""
        return w.node("Tile", [w.constant(self.rows), w.shape(self.times)])


class CountedTable(NamedTuple):
    """first + step i along an axis, for i below a size."""

    first: np.ndarray
    step: np.ndarray
    axis: int
    size: VaryingNumber

    def write(self, w: GraphWriter) -> str:
        """The name of the table."""
        numbers = counted(w, self.size, self.first.dtype)
        sizes = [-1 if i == self.axis else 1 for i in range(self.first.ndim)]
        numbers = w.node("Reshape", [numbers, w.integers(*sizes)])
        return w.node(
            "Add", [w.constant(self.first), w.node("Mul", [numbers, w.constant(self.step)])]
        )


def explained(arrays: Sequence[np.ndarray]) -> Any:
    """How tables of several traces follow from their sizes.

    Raises: Unlike where they do not
    """
    shapes = [x.shape for x in arrays]
    fault = Unlike(f"tables of constants of shapes {shapes[0]} and {shapes[-1]}")
    if len({x.ndim for x in arrays}) > 1 or len({x.dtype.name for x in arrays}) > 1:
        raise fault
    sizes = merged(shapes)
    axes = [axis for axis, size in enumerate(sizes) if isinstance(size, VaryingNumber)]
    rows = repeated_rows(arrays, axes)
    if rows is not None:
        times = [merged([n // m for n in of]) for of, m in zip(zip(*shapes), rows.shape)]
        return RepeatedTable(rows, tuple(times))
    if len(axes) != 1 or arrays[0].dtype.kind not in "iuf":
        raise fault
    (axis,) = axes
    first = arrays[0].take([0], axis)
    step = arrays[0].take([1], axis) - first
    for x in arrays:
        steps = [-1 if i == axis else 1 for i in range(x.ndim)]
        numbers = np.arange(x.shape[axis]).astype(x.dtype).reshape(steps)
        if not (x == first + numbers * step).all():
            raise fault
    return CountedTable(first, step, axis, sizes[axis])


def repeated_rows(arrays: Sequence[np.ndarray], axes: Sequence[int]) -> np.ndarray | None:
    """The rows that all arrays repeat along the axes, if there are such rows."""
    rows = list(arrays)
    for axis in axes:
        whole = int(np.gcd.reduce([x.shape[axis] for x in rows]))
        periods = (n for n in range(1, whole + 1) if whole % n == 0)
        period = next((n for n in periods if all(repeats(x, axis, n) for x in rows)), None)
        if period is None:
            return None
        rows = [x.take(range(period), axis) for x in rows]
    same = axes and all(x.shape == rows[0].shape and (x == rows[0]).all() for x in rows)
    return rows[0] if same else None


def repeats(x: np.ndarray, axis: int, period: int) -> bool:
    lines = np.moveaxis(x, axis, 0)
    return bool((lines[period:] == lines[:-period]).all()) if len(lines) > period else True
