"""Functions of jax.numpy that arrange, choose and compare, where `gh` has none or another."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.base import ShapeError, as_dtype, check_axis
from glasshouse.dispatch import SCALARS, Value, as_value
from glasshouse.dispatch import cast as cast_to
from glasshouse.jax import functions as g
from glasshouse.jax.numpy.host import nonzero
from glasshouse.tensor import Tensor
from glasshouse.transforms.vmap import vmap

__all__ = ["append", "apply_along_axis", "apply_over_axes", "argpartition", "argsort",
           "around", "array", "array_equiv", "array_split", "atleast_1d",
           "atleast_2d", "atleast_3d", "block", "choose", "compress", "copy",
           "delete", "diag_indices_from", "diagonal", "dsplit", "eye",
           "fill_diagonal", "fromfunction", "geomspace", "hsplit", "identity",
           "insert", "iscomplex", "iscomplexobj", "isrealobj", "isscalar", "iterable",
           "meshgrid", "ndim", "partition", "piecewise", "place", "put",
           "put_along_axis", "ravel", "ravel_multi_index", "repeat", "reshape",
           "resize", "rollaxis", "select", "shape", "size", "sort", "sort_complex",
           "split", "take", "take_along_axis", "trace", "transpose",
           "tril_indices_from", "triu_indices_from", "unravel_index", "vectorize",
           "vsplit", "where"]  # fmt: skip


def cast(x: Any, dtype: Any) -> Tensor:
    """x in a dtype, or in the one of this name."""
    return cast_to(as_value(x), as_dtype(dtype))


def tensor(x: Any, dtype: Any = None) -> Tensor:
    """A tensor of nested lists, arrays and numbers, with tensors among them."""
    if isinstance(x, (list, tuple)) and any(isinstance(part, (Value, list, tuple)) for part in x):
        return g.stack([tensor(part, dtype) for part in x])
    return g.asarray(x, dtype=dtype) if dtype is not None else g.asarray(x)


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: str | None = None, ndmin: int = 0
) -> Tensor:
    """A tensor of numbers, arrays or nested lists, of `ndmin` axes at least."""
    x = tensor(object, dtype)
    return g.reshape(x, (1,) * max(0, ndmin - x.ndim) + x.shape)


def copy(a: Any, order: str | None = None) -> Tensor:
    """A new tensor with the contents of a."""
    return g.asarray(as_value(a), copy=True)


def shape(a: Any) -> tuple[int, ...]:
    """The sizes of the axes."""
    return tuple(as_value(a).shape)


def ndim(a: Any) -> int:
    """The number of axes."""
    return as_value(a).ndim


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, all or along an axis."""
    return as_value(a).size if axis is None else as_value(a).shape[axis]


def isscalar(element: Any) -> bool:
    """Whether it is a number, or a tensor without axes."""
    return isinstance(element, SCALARS) or getattr(element, "ndim", None) == 0


def iterable(y: Any) -> bool:
    """Whether `iter(y)` gives elements."""
    return hasattr(y, "__iter__") and getattr(y, "ndim", 1) > 0


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return as_value(x).dtype.is_complex


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)


def iscomplex(x: Any) -> Tensor:
    """Whether the imaginary part of each element is not zero."""
    x = as_value(x)
    return g.imag(x) != 0 if x.dtype.is_complex else g.zeros(x.shape, dtype="bool")


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """a in another shape; with order "F" the first axis varies fastest."""
    x = as_value(a)
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if order != "F":
        return g.reshape(x, sizes)
    turned = g.reshape(transpose(x), tuple(reversed(sizes)))
    return transpose(turned)


def ravel(a: Any, order: str = "C") -> Tensor:
    """The elements along one axis."""
    return reshape(a, (-1,), order)


def transpose(a: Any, axes: Any = None) -> Tensor:
    """a with its axes in the order `axes`, or in reverse."""
    x = as_value(a)
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    return g.permute_dims(x, tuple(axis % x.ndim for axis in order))


def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    """a with `axis` moved in front of the axis `start`."""
    x = as_value(a)
    axis, start = check_axis("rollaxis", axis, x.ndim), start + x.ndim if start < 0 else start
    return g.moveaxis(x, axis, start - 1 if start > axis else start)


def with_axes(name: str, least: int, place: Callable[..., Any], about: str) -> Any:
    """A function that gives each argument axes of size 1."""

    def function(*arys: Any) -> Any:
        results = [place(as_value(x)) for x in arys]
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The arguments with {about}."
    return function


def in_three_axes(x: Tensor) -> Tensor:
    return g.reshape(x, {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape))


atleast_1d: Any = with_axes(
    "atleast_1d", 1, lambda x: g.reshape(x, x.shape or (1,)), "an axis or more"
)
atleast_2d: Any = with_axes(
    "atleast_2d", 2, lambda x: g.reshape(x, (1,) * (2 - x.ndim) + x.shape), "two axes or more"
)
atleast_3d: Any = with_axes("atleast_3d", 3, in_three_axes, "three axes or more")


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """The parts of ary along an axis: so many equal ones, or cut before each of the indices.

    Raises: ShapeError for a size that is no multiple of the number of parts.
    """
    x = as_value(ary)
    axis = check_axis("split", axis, x.ndim)
    if np.ndim(indices_or_sections) == 0:
        count = operator.index(indices_or_sections)
        if x.shape[axis] % count:
            fix = "Use array_split."
            raise ShapeError("split", f"a multiple of {count}", x.shape[axis], fix)
    return array_split(x, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """The parts of ary along an axis: so many nearly equal ones, or cut before each index."""
    x = as_value(ary)
    axis = check_axis("array_split", axis, x.ndim)
    size = x.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        count = operator.index(indices_or_sections)
        each, extra = divmod(size, count)
        cuts = [i * each + min(i, extra) for i in range(count + 1)]
    else:
        cuts = [0, *(int(i) for i in np.asarray(indices_or_sections)), size]
    before = (slice(None),) * axis
    return [x[(*before, slice(a, b))] for a, b in zip(cuts, cuts[1:])]


def hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """The parts along axis 1, or along the one axis."""
    return split(ary, indices_or_sections, min(1, as_value(ary).ndim - 1))


def vsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """The parts along axis 0."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    """The parts along axis 2."""
    return split(ary, indices_or_sections, 2)


def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    """arr with values after it along an axis; without one, both flat."""
    x, y = as_value(arr), as_value(values)
    if axis is None:
        x, y, axis = ravel(x), ravel(y), 0
    return g.concat([x, y], axis=axis)


def block(arrays: Any) -> Tensor:
    """One array of nested lists of arrays; the innermost lists lie along the last axis."""

    def depth(part):
        return 1 + depth(part[0]) if isinstance(part, list) else 0

    levels = depth(arrays)

    def most_axes(part):
        return max(map(most_axes, part)) if isinstance(part, list) else as_value(part).ndim

    ndim = max(levels, most_axes(arrays))

    def join(part, level):
        if not isinstance(part, list):
            x = as_value(part)
            return g.reshape(x, (1,) * (ndim - x.ndim) + x.shape)
        return g.concat([join(x, level + 1) for x in part], axis=ndim - levels + level)

    return join(arrays, 0)


def repeat(a: Any, repeats: Any, axis: int | None = None, **options: Any) -> Tensor:
    """Each slice along an axis as often as `repeats` says."""
    x = as_value(a)
    if axis is None:
        x, axis = ravel(x), 0
    counts = np.asarray(repeats.numpy() if isinstance(repeats, Tensor) else repeats)
    axis = check_axis("repeat", axis, x.ndim)
    places = np.repeat(np.arange(x.shape[axis]), np.broadcast_to(counts, (x.shape[axis],)))
    return g.take(x, places, axis=axis)


def resize(a: Any, new_shape: Any) -> Tensor:
    """The elements of a, repeated or cut to fill a shape."""
    x = ravel(a)
    sizes = tuple(new_shape) if isinstance(new_shape, Sequence) else (new_shape,)
    return g.reshape(g.take(x, np.arange(math.prod(sizes)) % max(x.size, 1), axis=0), sizes)


def delete(arr: Any, obj: Any, axis: int | None = None, **options: Any) -> Tensor:
    """arr without the slices that obj names."""
    x = as_value(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = check_axis("delete", axis, x.ndim)
    obj = obj.numpy() if isinstance(obj, Tensor) else obj
    return g.take(x, np.delete(np.arange(x.shape[axis]), obj), axis=axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """arr with values before the positions that obj names."""
    x = as_value(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = check_axis("insert", axis, x.ndim)
    obj = obj.numpy() if isinstance(obj, Tensor) else obj
    size = x.shape[axis]
    places = np.insert(np.arange(size), obj, -1)
    new = places < 0
    values = cast(as_value(values), x.dtype)
    count = int(new.sum())
    values = g.moveaxis(values, 0, axis) if np.ndim(obj) == 0 and values.ndim > 1 else values
    target = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values = g.broadcast_to(values, target)
    order = np.where(new, size + np.cumsum(new) - 1, places)
    return g.take(g.concat([x, values], axis=axis), order, axis=axis)


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    **options: Any,
) -> Tensor:
    """The slices of a that indices name; of all elements in a row without an axis."""
    x = as_value(a)
    if axis is None:
        x, axis = ravel(x), 0
    return g.take(x, as_value(indices), axis=axis)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, **options: Any) -> Tensor:
    """The elements of arr that indices name along an axis, line by line."""
    x = as_value(arr)
    if axis is None:
        x, axis = ravel(x), 0
    return g.take_along_axis(x, as_value(indices), axis=axis)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = False, **options: Any
) -> Tensor:
    """arr with values at the places that indices name along an axis."""
    x = as_value(arr)
    if axis is None:
        flat = g.put_along_axis(ravel(x), as_value(indices), values, axis=0)
        return g.reshape(flat, x.shape)
    return g.put_along_axis(x, as_value(indices), values, axis=axis)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Tensor:
    """a with v at positions of its flat elements."""
    x, places = as_value(a), ravel(ind)
    values = resize(cast(as_value(v), x.dtype), places.shape)
    return g.reshape(ravel(x).at[places].set(values), x.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = False) -> Tensor:
    """arr with vals, one after the other, where mask is true."""
    x = as_value(arr)
    flags = ravel(g.not_equal(as_value(mask), 0))
    values = cast(ravel(vals), x.dtype)
    number = g.cumulative_sum(cast(flags, "int64"), axis=0) - 1
    chosen = g.take(values, g.maximum(number, 0) % values.size, axis=0)
    return g.reshape(g.where(flags, chosen, ravel(x)), x.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Tensor:
    """a with val on its diagonal."""
    x = as_value(a)
    count = min(x.shape)
    places = tuple(np.arange(count) for _ in x.shape)
    return x.at[places].set(resize(cast(as_value(val), x.dtype), (count,)))


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Tensor:
    """Of each place, the element of the choice that a names."""
    arrays = g.broadcast_arrays(as_value(a), *map(as_value, choices))
    stacked = g.stack(list(arrays[1:]))
    return g.take_along_axis(stacked, g.expand_dims(arrays[0], axis=0), axis=0)[0]


def compress(condition: Any, a: Any, axis: int | None = None, **options: Any) -> Tensor:
    """The slices of a where the condition is true; contents of the condition have to be known."""
    x = as_value(a)
    if axis is None:
        x, axis = ravel(x), 0
    flags = condition.numpy() if isinstance(condition, Tensor) else np.asarray(condition)
    return g.take(x, np.flatnonzero(flags), axis=axis)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    """Of each place, the element of the first choice whose condition is true."""
    dtype = g.result_type(*map(as_value, choicelist), default)
    result = cast(as_value(default), dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = g.where(as_value(condition), cast(as_value(choice), dtype), result)
    return result


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tensor:
    """The functions (or numbers) of x where their conditions are true, the last true one; one
    function more is for all other places."""
    x = as_value(x)
    condlist = condlist if isinstance(condlist, (list, tuple)) else [condlist]
    functions = list(funclist)
    if len(functions) == len(condlist) + 1:
        otherwise = functions.pop()
    else:
        otherwise = 0

    def value(fn):
        y = fn(x, *args, **kw) if callable(fn) else fn
        return g.broadcast_to(cast(as_value(y), x.dtype), x.shape)

    result = value(otherwise)
    for condition, fn in zip(condlist, functions, strict=True):
        result = g.where(as_value(condition), value(fn), result)
    return result


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal of the matrices that two axes make, as the last axis."""
    return g.diagonal(as_value(a), offset, axis1, axis2)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """The sum of the diagonal of the matrices that two axes make."""
    return g.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def triangle(name: str, make: Callable[..., Any]) -> Any:
    """A function that gives the places of a triangle of a matrix."""

    def function(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
        rows, columns = as_value(arr).shape
        return tuple(map(g.asarray, make(rows, k, columns)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The places of a triangle of a matrix, a vector for each axis."
    return function


tril_indices_from: Any = triangle("tril_indices_from", np.tril_indices)
triu_indices_from: Any = triangle("triu_indices_from", np.triu_indices)


def diag_indices_from(arr: Any) -> tuple[Tensor, ...]:
    """The places of the diagonal, a vector for each axis."""
    x = as_value(arr)
    return tuple(g.arange(x.shape[0]) for _ in x.shape)


def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """The positions on each axis of flat positions."""
    return g.unravel_index(as_value(indices), tuple(shape))


def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Tensor:
    """Flat positions of positions on each axis."""
    total = as_value(0)
    pairs = list(zip(multi_index, dims, strict=True))
    for places, n in pairs if order == "C" else reversed(pairs):
        total = total * n + as_value(places)
    return total


def sort(
    a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
    descending: bool = False,
) -> Tensor:  # fmt: skip
    """a in order along an axis; flat without one."""
    x, axis = (ravel(a), 0) if axis is None else (as_value(a), axis)
    return g.sort(x, axis=axis, descending=descending)


def argsort(
    a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
    descending: bool = False,
) -> Tensor:  # fmt: skip
    """The places of the elements in order along an axis."""
    x, axis = (ravel(a), 0) if axis is None else (as_value(a), axis)
    return g.argsort(x, axis=axis, descending=descending)


def partition(a: Any, kth: int, axis: int = -1) -> Tensor:
    """a with the kth element in its place along an axis, smaller ones before it; here, in order."""
    return sort(a, axis)


def argpartition(a: Any, kth: int, axis: int = -1) -> Tensor:
    """The places of the elements as `partition` puts them."""
    return argsort(a, axis)


def sort_complex(a: Any) -> Tensor:
    """The elements in order, as complex numbers."""
    x = as_value(a).numpy()
    return g.asarray(np.sort_complex(x).astype(np.complex64))


def where(condition: Any, x: Any = None, y: Any = None, **options: Any) -> Any:
    """The elements of x where the condition is true, else those of y; without them the places where
    it is true."""
    return nonzero(condition) if x is None and y is None else g.where(as_value(condition), x, y)


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Tensor]:
    """The coordinates of a grid on each axis; `sparse` ones are not repeated."""
    axes = [as_value(x) for x in xi]
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[:2] = [1, 0]
    rows = [
        g.reshape(x, tuple(-1 if i == place else 1 for i in range(len(axes))))
        for x, place in zip(axes, order, strict=True)
    ]
    return rows if sparse else list(g.broadcast_arrays(*rows))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """A matrix with ones on its k-th diagonal."""
    return g.asarray(np.eye(N, M, k, np.float32 if dtype is None else as_dtype(dtype).np))


def array_equiv(a1: Any, a2: Any) -> Tensor:
    """Whether the arrays are equal once they are broadcast."""
    x, y = as_value(a1), as_value(a2)
    try:
        return g.all(x == y)
    except ShapeError:
        return as_value(False)


def around(a: Any, decimals: int = 0, out: None = None) -> Tensor:
    """a rounded to so many decimals, halves to even."""
    x = as_value(a)
    if decimals == 0 or not x.dtype.is_inexact:
        return g.round(x)
    return g.round(x * 10.0**decimals) / 10.0**decimals


def identity(n: int, dtype: Any = None) -> Tensor:
    """The unit matrix."""
    return g.eye(n, dtype="float32" if dtype is None else dtype)


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Numbers whose quotients are equal."""
    low, high = g.log(cast(as_value(start), "float32")), g.log(cast(as_value(stop), "float32"))
    steps = g.arange(num, dtype="float32") / max(num - 1 if endpoint else num, 1)
    steps = g.reshape(steps, (num, *(1,) * low.ndim))
    result = g.exp(low + (high - low) * steps)
    return g.moveaxis(result if dtype is None else cast(result, dtype), 0, axis)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kw: Any) -> Any:
    """function of the positions on each axis."""
    places = np.indices(tuple(shape)).astype(np.float32 if dtype is float else dtype)
    return function(*map(g.asarray, places), **kw)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kw: Any) -> Any:
    """The results of a function of vectors, of each line along an axis."""
    x = as_value(arr)
    axis = check_axis("apply_along_axis", axis, x.ndim)
    lines = g.moveaxis(x, axis, -1)

    def run(row):
        return func1d(row, *args, **kw)

    for _ in range(x.ndim - 1):
        run = vmap(run)
    result = run(lines)
    extra = result.ndim - (x.ndim - 1)
    return g.moveaxis(result, range(x.ndim - 1, result.ndim), range(axis, axis + extra))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Tensor:
    """func(a, axis) of each of the axes in turn, which stay with size 1."""
    x = as_value(a)
    for axis in axes if isinstance(axes, Sequence) else [axes]:
        result = func(x, axis)
        x = result if result.ndim == x.ndim else g.expand_dims(result, axis=axis)
    return x


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Any = (), signature: str | None = None
) -> Callable[..., Any]:
    """Map a function of elements (or of `signature`'s core axes, as "(n),(n)->()") over arrays."""
    if signature is None:
        counts = None
    else:
        counts = [len(part.strip("() ").split(",")) if part.strip("() ") else 0
                  for part in signature.split("->")[0].replace("),", ")|").split("|")]  # fmt: skip

    def mapped(*args):
        own = [i for i in range(len(args)) if i not in excluded]
        values = [as_value(args[i]) for i in own]
        inner = [0] * len(own) if counts is None else counts
        leads = [x.shape[: x.ndim - n] for x, n in zip(values, inner, strict=True)]
        lead = np.broadcast_shapes(*leads)
        wide = [
            g.broadcast_to(x, (*lead, *x.shape[x.ndim - n :]))
            for x, n in zip(values, inner, strict=True)
        ]

        def run(*xs):
            every = list(args)
            for i, x in zip(own, xs, strict=True):
                every[i] = x
            return pyfunc(*every)

        for _ in lead:
            run = vmap(run)
        return run(*wide)

    return mapped
