"""Affine forms over the axes of a domain: strided views of buffers, and positions.

A view says where in the memory of `base` each position of a shape lies:
`offset + Σ strides[i] * index[i]`, in elements. Movement primitives turn views into views."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple


class View(NamedTuple):
    """Elements of `base` in `shape`. For a number sequence (iota) `base` is None."""

    base: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether the view is the whole base in row-major order, from its start."""
        return self.offset == 0 and same_strides(self, strides_of(self.shape))


def strides_of(shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Strides of a packed buffer whose axes lie in memory in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def same_strides(view: View, strides: tuple[int, ...]) -> bool:
    """Whether the strides agree wherever an axis has more than one position."""
    return all(n == 1 or s == t for n, s, t in zip(view.shape, view.strides, strides, strict=True))


def permuted(view: View, axes: tuple[int, ...]) -> View:
    shape, strides = (tuple(field[i] for i in axes) for field in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def expanded(view: View, shape: tuple[int, ...]) -> View:
    axes = zip(view.strides, view.shape, shape, strict=True)
    return view._replace(shape=tuple(shape), strides=tuple(s if n == m else 0 for s, n, m in axes))


def sliced(view: View, starts: Sequence[int], stops: Sequence[int], steps: tuple[int, ...]) -> View:
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, stops, steps, strict=True))
    offset = view.offset + sum(a * s for a, s in zip(starts, view.strides, strict=True))
    strides = tuple(s * k for s, k in zip(view.strides, steps, strict=True))
    return View(view.base, offset, shape, strides)


def flipped(view: View, axes: Any) -> View:
    offset = view.offset + sum((view.shape[i] - 1) * view.strides[i] for i in axes)
    strides = tuple(-s if i in axes else s for i, s in enumerate(view.strides))
    return View(view.base, offset, view.shape, strides)


def windowed(view: View, size: Any, stride: Any, dilation: Any) -> View:
    """Windows over the last axes: (..., *positions, *size)."""
    d = len(size)
    lead, spatial = view.shape[:-d], view.shape[-d:]
    steps = view.strides[len(lead) :]
    axes = zip(spatial, size, stride, dilation, strict=True)
    positions = tuple((n - (k - 1) * e - 1) // s + 1 for n, k, s, e in axes)
    strides = (
        *view.strides[: len(lead)],
        *(a * s for a, s in zip(steps, stride, strict=True)),
        *(a * e for a, e in zip(steps, dilation, strict=True)),
    )
    return View(view.base, view.offset, (*lead, *positions, *size), strides)


def reshaped(view: View, shape: tuple[int, ...]) -> View | None:
    """The view in another shape, or None where that takes a copy.
    Old axes that lie evenly are one; the new ones are taken out of them from the innermost on."""
    shape = tuple(shape)
    if prod(shape) == 0:
        return View(view.base, view.offset, shape, (0,) * len(shape))
    even = [(1, 0)]  # (size, step)
    for n, step in zip(view.shape, view.strides, strict=True):
        if n != 1:
            size, wider = even[-1]
            even[-1:] = [(size * n, step)] if wider == n * step else [even[-1], (n, step)]
    strides = []
    for n in reversed(shape):
        size, step = even.pop() if n != 1 else (1, 0)
        if size % n:
            return None
        strides.append(step)
        if size != n:
            even.append((size // n, step * n))
    return View(view.base, view.offset, shape, tuple(reversed(strides)))


def around(whole: View, widths: tuple[tuple[int, ...], ...]) -> list[View]:
    """Parts of a padded view to fill: those beside the operand where one axis alone has an edge, or
    else all."""
    padded = [axis for axis, width in enumerate(widths) if any(width)]
    low, high, interior = widths[padded[0]] if len(padded) == 1 else (0, 0, 1)
    if interior or low < 0 or high < 0:
        return [whole]
    (axis,), parts = padded, []
    size = whole.shape[axis]
    for start, stop in ((0, low), (size - high, size)):
        shape = (*whole.shape[:axis], stop - start, *whole.shape[axis + 1 :])
        part = View(whole.base, start * whole.strides[axis], shape, whole.strides)
        parts += [part] * (stop > start)
    return parts


def kept(view: View, domain: tuple[int, ...], axes: tuple[int, ...]) -> View:
    """View of a reduction's result over the domain: stride 0 along the reduced axes."""
    strides = iter(view.strides)
    spread = tuple(0 if i in axes else next(strides) for i in range(len(domain)))
    return View(view.base, 0, tuple(domain), spread)
