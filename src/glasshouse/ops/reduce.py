"""Reductions over axes (which disappear), positions of extremes, and the cumulative sum."""

import math
from typing import Any

import numpy as np

from glasshouse.base import (
    DTypeError,
    ShapeError,
    accumulation_dtype,
    from_numpy_dtype,
    int64,
    scan_dtype,
)
from glasshouse.base.shape import Spec, check_axis, drop_axes
from glasshouse.dispatch import DTYPE_GROUPS, LINEAR, Arr, Value, bind, card, define, primitives
from glasshouse.dispatch.primitive import refusal, sample
from glasshouse.dispatch.value import broadcast_to, cast, reshape, section
from glasshouse.dispatch.wide import rounded_once
from glasshouse.ops.cast import conj

SCAN_BLOCK = 8  # elements; see scan_blocks

NAMES = {group: frozenset(d.name for d in dtypes) for group, dtypes in DTYPE_GROUPS.items()}


def check_reduced(
    name: str, x: Spec, axes: tuple[int, ...], dtypes: str, nonempty: bool = False
) -> None:
    if x.dtype.name not in NAMES[dtypes]:
        raise DTypeError(name, f"a dtype of '{dtypes}'", x.dtype.name, "Cast it.")
    if list(axes) != sorted({check_axis(name, axis, x.ndim) for axis in axes}):
        raise ShapeError(name, "sorted, distinct axes from 0", tuple(axes), "Use check_axes.")
    if nonempty and any(x.shape[axis] == 0 for axis in axes):
        expected = f"at least one element along axes {tuple(axes)}"
        raise ShapeError(name, expected, f"shape {x.shape}", "An empty axis has no extreme.")


def spread(g: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """`g` repeated along the reduced `axes`, back to `shape`."""
    kept_shape = tuple(1 if i in axes else size for i, size in enumerate(shape))
    return broadcast_to(reshape(g, kept_shape), shape)


def reduction(
    name: Any,
    doc: Any,
    *,
    dtypes: str = "numeric",
    nonempty: bool = False,
    traits: tuple[Any, ...] = (),
    **fields: Any,
) -> Any:
    def infer(x: Spec, *, axes) -> Spec:
        check_reduced(name, x, axes, dtypes, nonempty)
        return Spec(drop_axes(x.shape, axes), x.dtype)

    wrong = {"numeric": "bool", "bool": "int32"}.get(dtypes, "complex64")
    samples = [
        sample(Arr((2, 3, 4), -2, 2), axes=(1,)),
        sample(Arr((2, 3), -2, 2), axes=(0, 1)),
        sample(Arr((3,), -2, 2), axes=()),
        sample(Arr((2, 0)) if not nonempty else Arr((2, 1)), axes=(1,)),
    ]
    return define(
        name,
        "reduce",
        doc,
        infer=infer,
        batch=lambda batched, x, *, axes: bind(
            primitives[name], (x,), {"axes": tuple(axis + 1 for axis in axes)}
        ),
        flops=lambda x, *, axes: x.size,
        complex_flops=2 if name == "sum" else 6,
        samples=samples,
        error_samples=[
            refusal(ShapeError, "axis", (2, 3), on=dtype_for(dtypes), axes=(2,)),
            refusal(ShapeError, "sorted", (2, 3), on=dtype_for(dtypes), axes=(1, 0)),
            refusal(DTypeError, "expected a dtype", (2,), on=wrong, axes=(0,)),
        ],
        dtypes=dtypes,
        traits=("reduction", *traits),
        source="standard",
        **fields,
    )


def dtype_for(dtypes: str) -> str:
    return "bool" if dtypes == "bool" else "float32"


def sum_ref(x: Any, *, axes: tuple[int, ...]) -> Any:
    """Sums of 16-bit floats are carried in float32."""
    if x.dtype.itemsize > 2 or x.dtype.kind in "iu":
        return np.add.reduce(x, axis=axes, dtype=x.dtype)
    return np.asarray(np.add.reduce(x, axis=axes, dtype=np.float32)).astype(x.dtype)


sum_: Any = reduction(
    "sum",
    "The sum over `axes`.",
    ref=sum_ref,
    vjp=(lambda g, _y, _x, *, axes: spread(g, _x.shape, axes),),
    jvp=LINEAR,
    why="a tree of additions of unknown depth",
    traits=("linear",),
)


def shifted(x: Any, by: int, axis: int, fill: Any) -> Any:
    """`x` moved `by` places up its axis, with `fill` in the places left free."""
    widths = tuple((by, 0, 0) if i == axis else (0, 0, 0) for i in range(x.ndim))
    padded = bind(primitives["pad"], (x,), {"widths": widths, "value": fill})
    return section(padded, axis, 0, x.shape[axis])


def grown(x: Any, axis: int, size: int, fill: Any) -> Any:
    """`x` with `fill` at the end of an axis, up to this size."""
    widths = tuple((0, size - n if i == axis else 0, 0) for i, n in enumerate(x.shape))
    return bind(primitives["pad"], (x,), {"widths": widths, "value": fill})


def scan_prod(x: Any, axis: int) -> Any:
    """Running products along an axis; floats are carried in float64."""
    return cast(scan_blocks(cast(x, scan_dtype(x.dtype)), axis), x.dtype)


def scan_blocks(x: Any, axis: int) -> Any:
    """Running products within blocks, each times the product of all blocks before (Blelloch 1990);
    few steps over all elements."""
    size = x.shape[axis]
    count = -(-size // SCAN_BLOCK)
    if count < 2:
        return scan_doubling(x, axis)
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    filled = grown(x, axis, count * SCAN_BLOCK, 1)
    inside = scan_doubling(reshape(filled, (*lead, count, SCAN_BLOCK, *rest)), axis + 1)
    last = section(inside, axis + 1, SCAN_BLOCK - 1, SCAN_BLOCK)
    before = shifted(scan_blocks(reshape(last, (*lead, count, *rest)), axis), 1, axis, 1)
    y = inside * spread(before, inside.shape, (axis + 1,))
    return section(reshape(y, filled.shape), axis, 0, size)


def scan_doubling(x: Any, axis: int) -> Any:
    """Running products along an axis, in log2(n) doubling steps (Hillis & Steele 1986)."""
    step = 1
    while step < x.shape[axis]:
        x = x * shifted(x, step, axis, 1)
        step *= 2
    return x


def products_of_others(x: Any, axes: Any) -> Any:
    """At each position, the product over `axes` of all other elements; right where some are 0."""
    others = tuple(i for i in range(x.ndim) if i not in axes)
    moved = bind(primitives["permute"], (x,), {"axes": (*others, *axes)})
    flat = reshape(moved, (*moved.shape[: len(others)], math.prod(x.shape[axis] for axis in axes)))
    last = flat.ndim - 1
    flip = primitives["flip"]
    before = shifted(scan_prod(flat, last), 1, last, 1)
    reverse = bind(flip, (flat,), {"axes": (last,)})
    after = bind(flip, (shifted(scan_prod(reverse, last), 1, last, 1),), {"axes": (last,)})
    inverse = tuple(sorted(range(x.ndim), key=(*others, *axes).__getitem__))
    return bind(primitives["permute"], (reshape(before * after, moved.shape),), {"axes": inverse})


def prod_ref(x: Any, *, axes: Any) -> Any:
    """Products of 16-bit floats are carried in float32."""
    wide = accumulation_dtype(from_numpy_dtype(x.dtype)).np
    return np.asarray(np.prod(x, axis=axes, dtype=wide)).astype(x.dtype)


@rounded_once
def prod_vjp(g: Any, _y: Any, x: Any, *, axes: Any) -> Any:
    return spread(g, x.shape, axes) * conj(products_of_others(x, axes))


@rounded_once
def prod_jvp(t: Any, y: Any, x: Any, *, axes: Any) -> Any:
    return sum_(t * products_of_others(x, axes), axes=axes)


prod: Any = reduction(
    "prod",
    "The product over `axes`.",
    ref=prod_ref,
    vjp=(prod_vjp,),
    jvp=(prod_jvp,),
    why="exp(sum(log(x))) fails for zeros, negative numbers and integers",
)


def extreme_weights(y: Value, x: Value, axes: tuple[int, ...]) -> Any:
    """1/n at each of the n positions that hold the extreme, 0 elsewhere."""
    hits = cast(x == spread(y, x.shape, axes), x.dtype)
    return hits / spread(sum_(hits, axes=axes), x.shape, axes)


@rounded_once
def extreme_vjp(g: Value, y: Value, x: Value, *, axes: tuple[int, ...]) -> Any:
    return spread(g, x.shape, axes) * extreme_weights(y, x, axes)


@rounded_once
def extreme_jvp(t: Any, y: Any, x: Any, *, axes: Any) -> Any:
    return sum_(t * extreme_weights(y, x, axes), axes=axes)


max_: Any = reduction(
    "max",
    "The largest element over `axes`; NaN if there is one.",
    dtypes="real",
    nonempty=True,
    ref=lambda x, *, axes: np.asarray(np.max(x, axis=axes)),
    vjp=(extreme_vjp,),
    jvp=(extreme_jvp,),
    why="a tree of maximum of unknown depth",
    traits=("idempotent",),
)
min_: Any = reduction(
    "min",
    "The smallest element over `axes`; NaN if there is one.",
    dtypes="real",
    nonempty=True,
    ref=lambda x, *, axes: np.asarray(np.min(x, axis=axes)),
    vjp=(extreme_vjp,),
    jvp=(extreme_jvp,),
    why="-max(-x) is wrong for unsigned integers",
    traits=("idempotent",),
)
any_: Any = reduction(
    "any",
    "True where some element over `axes` is.",
    dtypes="bool",
    ref=lambda x, *, axes: np.asarray(np.any(x, axis=axes)),
    why="max has no booleans and no value for an empty axis",
    traits=("idempotent",),
)
all_: Any = reduction(
    "all",
    "True where every element over `axes` is.",
    dtypes="bool",
    ref=lambda x, *, axes: np.asarray(np.all(x, axis=axes)),
    why="min has no booleans and no value for an empty axis",
    traits=("idempotent",),
)


def position(name: Any, doc: Any, **fields: Any) -> Any:
    def infer(x: Spec, *, axis) -> Spec:
        check_reduced(name, x, (axis,), "ordered", nonempty=True)
        return Spec(drop_axes(x.shape, (axis,)), int64)

    return define(
        name,
        "reduce",
        doc,
        infer=infer,
        batch=lambda batched, x, *, axis: bind(primitives[name], (x,), {"axis": axis + 1}),
        flops=lambda x, *, axis: x.size,
        samples=[
            sample(Arr((2, 3, 4), -9, 9), axis=1),
            sample(Arr((3,), -9, 9), axis=0),
            sample(Arr((0, 2), -9, 9), axis=1),
        ],
        error_samples=[
            refusal(ShapeError, "at least one element", (2, 0), axis=1),
            refusal(ShapeError, "axis", (2,), axis=3),
        ],
        dtypes="ordered",
        traits=("reduction",),
        **fields,
    )


argmax: Any = position(
    "argmax",
    "The first position of the largest element along `axis`; of a NaN if there is one.",
    ref=lambda x, *, axis: np.asarray(np.argmax(x, axis=axis)),
    why="a search for the maximum needs a second pass",
)
argmin: Any = position(
    "argmin",
    "The first position of the smallest element along `axis`; of a NaN if there is one.",
    ref=lambda x, *, axis: np.asarray(np.argmin(x, axis=axis)),
    why="argmax(-x) is wrong for unsigned integers",
)


def infer_cumsum(x: Spec, *, axis: int, reverse: bool) -> Spec:
    check_reduced("cumsum", x, (axis,), "numeric")
    return x


@card(
    "reduce",
    infer=infer_cumsum,
    vjp=(lambda g, _y, _x, *, axis, reverse: cumsum(g, axis=axis, reverse=not reverse),),
    jvp=LINEAR,
    batch=lambda batched, x, *, axis, reverse: cumsum(x, axis=axis + 1, reverse=reverse),
    flops=lambda x, **_: x.size,
    samples=[
        sample((2, 3, 2), axis=1, reverse=False),
        sample((4,), axis=0, reverse=True),
        sample((2, 0), axis=1, reverse=False),
    ],
    error_samples=[
        refusal(ShapeError, "axis", (2,), axis=1, reverse=False),
        refusal(DTypeError, "numeric", (2,), on="bool", axis=0, reverse=True),
    ],
    dtypes="numeric",
    traits=("linear",),
)
def cumsum(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    """Running sums along `axis`, from its end if `reverse`.

    Why: log2(n) shifted additions, its composite form, move log2(n) times the bytes.

    Running sums; floats are carried in float64, and rounded as they are stored."""
    wide = scan_dtype(from_numpy_dtype(x.dtype)).np
    if reverse:
        return np.flip(cumsum.ref(np.flip(x, axis), axis=axis, reverse=False), axis)
    return np.cumsum(x, axis=axis, dtype=wide).astype(x.dtype, copy=False)
