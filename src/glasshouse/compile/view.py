"""Affine forms over the axes of a domain: strided views of buffers, and positions.

A view says where in the memory of `base` each position of a shape lies:
`offset + Σ strides[i] * index[i]`, in elements. Movement primitives turn views into views."""

from math import prod
from typing import Any, NamedTuple


class View(NamedTuple):
    """Elements of `base` seen in `shape`. For a number sequence (iota) `base` is None."""

    base: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether the view is the whole base in row-major order, from its start."""
        return self.offset == 0 and same_strides(self, strides_of(self.shape))


def strides_of(shape, order=None) -> tuple[int, ...]:
    """Strides of a packed buffer whose axes lie in memory in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def same_strides(view: View, strides) -> bool:
    """Whether the strides agree wherever an axis has more than one position."""
    return all(n == 1 or s == t for n, s, t in zip(view.shape, view.strides, strides, strict=True))


def permuted(view: View, axes) -> View:
    shape, strides = (tuple(given[i] for i in axes) for given in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def expanded(view: View, shape) -> View:
    axes = zip(view.strides, view.shape, shape, strict=True)
    return view._replace(shape=tuple(shape), strides=tuple(s if n == m else 0 for s, n, m in axes))


def sliced(view: View, starts, stops, steps) -> View:
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, stops, steps, strict=True))
    offset = view.offset + sum(a * s for a, s in zip(starts, view.strides, strict=True))
    strides = tuple(s * k for s, k in zip(view.strides, steps, strict=True))
    return View(view.base, offset, shape, strides)


def flipped(view: View, axes) -> View:
    offset = view.offset + sum((view.shape[i] - 1) * view.strides[i] for i in axes)
    strides = tuple(-s if i in axes else s for i, s in enumerate(view.strides))
    return View(view.base, offset, view.shape, strides)


def windowed(view: View, size, stride, dilation) -> View:
    """The windows over the last axes: (..., *positions, *size)."""
    d = len(size)
    lead, spatial = view.shape[:-d], view.shape[-d:]
    steps = view.strides[len(lead) :]
    positions = tuple(
        (n - (k - 1) * e - 1) // s + 1
        for n, k, s, e in zip(spatial, size, stride, dilation, strict=True)
    )
    strides = (*view.strides[: len(lead)], *(a * s for a, s in zip(steps, stride, strict=True)),
               *(a * e for a, e in zip(steps, dilation, strict=True)))  # fmt: skip
    return View(view.base, view.offset, (*lead, *positions, *size), strides)


def reshaped(view: View, shape) -> View | None:
    """The view in another shape, or None where that takes a copy.
    Old and new axes are matched in groups of equal size; those of a group must lie evenly."""
    shape = tuple(shape)
    if prod(shape) == 0:
        return View(view.base, view.offset, shape, (0,) * len(shape))
    old = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    new = [n for n in shape if n != 1]
    strides: list[int] = [0] * len(new)
    i = j = 0
    while i < len(old):
        first_old, first_new = i, j
        size_old, size_new = old[i][0], new[j]
        while size_old != size_new:
            if size_old < size_new:
                i += 1
                size_old *= old[i][0]
            else:
                j += 1
                size_new *= new[j]
        for k in range(first_old, i):
            if old[k][1] != old[k + 1][0] * old[k + 1][1]:
                return None
        step = old[i][1]
        for k in range(j, first_new - 1, -1):
            strides[k] = step
            step *= new[k]
        i, j = i + 1, j + 1
    steps = iter(strides)
    return View(view.base, view.offset, shape, tuple(0 if n == 1 else next(steps) for n in shape))
