"""Contractions: products summed over shared axes. Most of the time of a model passes here.

`matmul` and `conv` are the two forms; `conv_data_grad` and `conv_weight_grad` are the transposes of
`conv` in its operands. The three convolutions are one trilinear form

    form(x, w, g) = sum over n, o, c, window p, position k of x[n, c, p·stride + k·dilation - low]
                    · w[o, c, k] · g[n, o, p]

with one operand left out, so each one's derivatives are the other two."""

import math
from typing import Any

import numpy as np

from glasshouse.base import Shape, Spec, accumulation_dtype, from_numpy_dtype
from glasshouse.base.errors import DTypeError, OptionError, ShapeError
from glasshouse.dispatch import Value
from glasshouse.dispatch.primitive import LINEAR, Arr, card, refusal, sample
from glasshouse.ops.cast import conj
from glasshouse.ops.elementwise import batch_together, infer_same
from glasshouse.ops.movement import permute, reshape
from glasshouse.ops.window import check_window, window_counts, window_positions, window_view


def check_pair(where: str, group: str, lhs: Spec, rhs: Spec) -> None:
    infer_same(where, group)(Spec((), lhs.dtype), Spec((), rhs.dtype))


def wide(x: np.ndarray) -> np.ndarray:
    """`x` in the dtype that sums over it are carried in: float32 for 16-bit floats."""
    return x.astype(accumulation_dtype(from_numpy_dtype(x.dtype)).np, copy=False)


def transpose(x: Value) -> Any:
    """The matrices in the last two axes transposed."""
    return permute(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Value) -> Any:
    return conj(transpose(x))


def infer_matmul(a: Spec, b: Spec) -> Spec:
    check_pair("matmul", "numeric", a, b)
    if a.ndim < 2 or b.ndim < 2:
        expected = "two matrices or stacks of them"
        fix = "Reshape vectors to (1, n) or (n, 1)."
        raise ShapeError("matmul", expected, f"shapes {a.shape} and {b.shape}", fix)
    if a.shape[:-2] != b.shape[:-2]:
        got = f"{a.shape[:-2]} and {b.shape[:-2]} of shapes {a.shape} and {b.shape}"
        raise ShapeError("matmul", "equal batch axes", got, "Broadcast them first.")
    if a.shape[-1] != b.shape[-2]:
        expected = "lhs.shape[-1] == rhs.shape[-2]"
        fix = "Transpose an operand or check the feature size."
        raise ShapeError("matmul", expected, f"{a.shape} and {b.shape}", fix)
    return Spec((*a.shape[:-1], b.shape[-1]), a.dtype)


def batch_matmul(batched: tuple[bool, ...], a: Value, b: Value) -> Any:
    """One large product where only the left operand of a plain product is batched."""
    if batched == (True, False) and b.ndim == 2:
        rows = reshape(a, shape=(a.shape[0] * a.shape[1], a.shape[2]))
        return reshape(matmul(rows, b), shape=(*a.shape[:2], b.shape[1]))
    return matmul(*batch_together(batched, (a, b)))


@card(
    "contract",
    infer=infer_matmul,
    vjp=(lambda g, _y, _a, b: matmul(g, adjoint(b)), lambda g, _y, a, _b: matmul(adjoint(a), g)),
    jvp=LINEAR,
    batch=batch_matmul,
    flops=lambda a, b: 2 * a.size * b.shape[-1],
    samples=[
        sample((2, 3), (3, 4)),
        sample((2, 1, 3, 2), (2, 1, 2, 1)),
        sample((2, 0), (0, 3)),
        sample((0, 2, 1), (0, 1, 2)),
    ],
    error_samples=[
        refusal(ShapeError, "lhs.shape[-1] == rhs.shape[-2]", (4, 3), (5, 2)),
        refusal(ShapeError, "equal batch axes", (2, 2, 2), (3, 2, 2)),
        refusal(ShapeError, "two matrices", (3,), (3, 2)),
        refusal(DTypeError, "one dtype", (2, 2), Arr((2, 2), dtype="int32")),
        refusal(DTypeError, "expected a dtype", (2, 2), (2, 2), on="bool"),
    ],
    dtypes="numeric",
    autocast="lower",
)
def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The matrix products a @ b of (..., m, k) and (..., k, n), with equal leading axes.

    Why: a product and a sum would write m · k · n elements.

    Sums of 16-bit floats are carried in float32; integers wrap around."""
    return (wide(a) @ wide(b)).astype(a.dtype, copy=False)


def check_conv(
    where: str,
    x: Shape,
    w: Shape,
    *,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, ...], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Shape:
    """The shape (N, O, *windows) of the convolution of x (N, C, *S) with w (O, C/groups, *K)."""
    spatial_ndim = len(x) - 2
    if spatial_ndim < 1 or len(w) != len(x):
        expected = "x (N, C, *S) and w (O, C/groups, *K) with equally many axes, 3 or more"
        fix = "Add a batch axis, or choose the convolution of this rank."
        raise ShapeError(where, expected, f"{x} and {w}", fix)
    check_window(where, spatial_ndim, stride=stride, dilation=dilation)
    if len(padding) != spatial_ndim or any(min(pair) < 0 for pair in padding):
        expected = f"padding of {spatial_ndim} pairs (low, high) of 0 or more"
        raise ShapeError(where, expected, padding, "Slice the input to crop it.")
    if groups < 1 or x[1] % groups or w[0] % groups:
        expected = f"groups that divide the {x[1]} input and {w[0]} output channels"
        raise OptionError(where, expected, f"groups={groups}", "Choose a common divisor.")
    if x[1] != w[1] * groups:
        got = f"{x[1]} input channels, w of shape {w} and groups={groups}"
        fix = "Check the channel count of the input."
        raise ShapeError(where, "x.shape[1] == w.shape[1] * groups", got, fix)
    padded = tuple(size + low + high for size, (low, high) in zip(x[2:], padding))
    return (x[0], w[0], *window_counts(where, padded, w[2:], stride, dilation))


def infer_conv(x: Spec, w: Spec, **options: Any) -> Spec:
    check_pair("conv", "numeric", x, w)
    return Spec(check_conv("conv", x.shape, w.shape, **options), x.dtype)


def check_cotangent(where: str, g: Spec, expected: Shape) -> None:
    if g.shape != expected:
        fix = "Pass the shape and options of that convolution."
        raise ShapeError(where, f"g of shape {expected}, as the convolution gives", g.shape, fix)


def infer_data_grad(g: Spec, w: Spec, *, shape: tuple[int, ...], **options: Any) -> Spec:
    check_pair("conv_data_grad", "inexact", g, w)
    x_shape = (*g.shape[:1], w.shape[1] * options["groups"] if w.ndim > 1 else 0, *shape)
    check_cotangent("conv_data_grad", g, check_conv("conv_data_grad", x_shape, w.shape, **options))
    return Spec(x_shape, g.dtype)


def infer_weight_grad(x: Spec, g: Spec, *, shape: tuple[int, ...], **options: Any) -> Spec:
    check_pair("conv_weight_grad", "inexact", x, g)
    channels = x.shape[1] // max(options["groups"], 1) if x.ndim > 1 else 0
    w_shape = (*g.shape[1:2], channels, *shape)
    expected = check_conv("conv_weight_grad", x.shape, w_shape, **options)
    check_cotangent("conv_weight_grad", g, expected)
    return Spec(w_shape, g.dtype)


def channels_last(x: np.ndarray, padding: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """x (N, C, *S) with zeros around it, of shape (N, C, *S') but stored as (N, *S', C)."""
    stored = np.ascontiguousarray(wide(np.moveaxis(x, 1, -1)))
    if any(map(any, padding)):
        n, *sizes, c = stored.shape
        padded = [low + size + high for size, (low, high) in zip(sizes, padding)]
        inside = tuple(slice(low, low + size) for size, (low, _high) in zip(sizes, padding))
        out = np.zeros((n, *padded, c), stored.dtype)
        out[:, *inside] = stored
        stored = out
    return np.moveaxis(stored, -1, 1)


def columns(
    x: np.ndarray,
    size: tuple[int, ...],
    *,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, ...], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """The windows of x (N, C, *S) as matrices (groups, N · windows, prod(size) · C/groups)."""
    x = channels_last(x, padding)
    n, c = x.shape[:2]
    d = len(size)
    view = np.moveaxis(window_view(x, size, stride, dilation), 1, -1)  # (N, *windows, *size, C)
    view = view.reshape(*view.shape[:-1], groups, c // groups)
    rows = math.prod(view.shape[: d + 1])
    return np.moveaxis(view, -2, 0).reshape(groups, rows, math.prod(size) * c // groups)


def output_rows(g: np.ndarray, groups: int) -> np.ndarray:
    """g (N, O, *windows) as matrices (groups, N · windows, O/groups)."""
    g = np.moveaxis(wide(g), 1, -1)
    return np.moveaxis(g.reshape(-1, groups, g.shape[-1] // groups), 1, 0)


def merge(x: Value, axis: int, groups: int) -> Any:
    """x (B, ...) with B moved into `axis` of the rest, inside of each of its `groups`."""
    b, *shape = x.shape
    x = reshape(x, shape=(b, *shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))
    x = permute(x, axes=(*range(1, axis + 2), 0, *range(axis + 2, x.ndim)))
    return reshape(x, shape=(*shape[:axis], b * shape[axis], *shape[axis + 1 :]))


def unmerge(x: Value, axis: int, groups: int, b: int) -> Any:
    shape = x.shape
    size = shape[axis] // b
    x = reshape(x, shape=(*shape[:axis], groups, b, size // groups, *shape[axis + 1 :]))
    x = permute(x, axes=(axis + 1, *range(axis + 1), *range(axis + 2, x.ndim)))
    return reshape(x, shape=(b, *shape[:axis], size, *shape[axis + 1 :]))


def batch_conv(card: Any, plans: Any) -> Any:
    """The batching rule that hides the batch axis in N, O, C or the groups of one convolution.
    `plans` maps which operands are batched to the axes where the batch goes: of the first operand,
    the second, and the result; an axis given as (axis,) keeps it inside of each group."""

    def batch(batched, *operands, groups, **attrs):
        b = next(x.shape[0] for x, has in zip(operands, batched) if has)
        *places, result = plans[batched]
        split = {p: (p[0], groups) if isinstance(p, tuple) else (p, 1) for p in plans[batched]}
        merged = [x if p is None else merge(x, *split[p]) for x, p in zip(operands, places)]
        wider = groups * b if all(batched) else groups
        axis, inside = split[result]
        return unmerge(card()(*merged, groups=wider, **attrs), axis, inside, b)

    return batch


FIRST, SECOND, BOTH = (True, False), (False, True), (True, True)


def conv_flops(out: Shape, w: Shape) -> int:
    """Two per product: each output element sums prod(w.shape[1:]) of them, padding included."""
    return 2 * math.prod(out) * math.prod(w[1:])


def exact_conv_flops(
    x: Shape,
    w: Shape,
    out: Shape,
    *,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, ...], ...],
    dilation: tuple[int, ...],
    **_: Any,
) -> int:
    """Two per product whose element of x (N, C, *S) is not a zero of the padding."""
    products = out[0] * math.prod(w[:2])
    for i, (step, (low, _high), gap) in enumerate(zip(stride, padding, dilation, strict=True)):
        size, most = x[2 + i], out[2 + i]
        inside = [at for k in range(w[2 + i]) if (at := k * gap - low) < size]
        products *= sum(
            min(most, (size - 1 - at) // step + 1) - min(most, max(0, -(at // step)))
            for at in inside
        )
    return 2 * products


def attrs(
    spatial_ndim: Any,
    stride: Any = None,
    padding: Any = None,
    dilation: Any = None,
    groups: int = 1,
    **others: Any,
) -> Any:
    ones = (1,) * spatial_ndim
    return {
        "stride": stride or ones,
        "padding": padding or ((0, 0),) * spatial_ndim,
        "dilation": dilation or ones,
        "groups": groups,
        **others,
    }


STRIDED: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (0, 2)), "dilation": (1, 2)}


@card(
    "contract",
    infer=infer_conv,
    jvp=LINEAR,
    vjp=(
        lambda g, _y, _x, w, **attrs: conv_data_grad(g, conj(w), shape=_x.shape[2:], **attrs),
        lambda g, _y, x, _w, **attrs: conv_weight_grad(conj(x), g, shape=_w.shape[2:], **attrs),
    ),
    batch=batch_conv(
        lambda: conv, {FIRST: (0, None, 0), SECOND: (None, (0,), (1,)), BOTH: (1, 0, 1)}
    ),
    flops=lambda x, w, **attrs: conv_flops(infer_conv(x, w, **attrs).shape, w.shape),
    exact_flops=lambda x, w, **attrs: exact_conv_flops(
        x.shape, w.shape, infer_conv(x, w, **attrs).shape, **attrs
    ),
    samples=[
        sample((2, 3, 5), (4, 3, 2), **attrs(1)),
        sample((2, 4, 5, 4), (6, 2, 3, 2), **attrs(2, **STRIDED, groups=2)),
        sample((1, 2, 4, 3), (3, 2, 2, 3), **attrs(2, padding=((1, 1), (2, 0)))),
        sample((1, 2, 3, 2, 3), (2, 1, 2, 2, 1), **attrs(3, groups=2)),
        sample((0, 2, 3), (1, 2, 2), **attrs(1)),
    ],
    error_samples=[
        refusal(ShapeError, "w.shape[1] * groups", (2, 3, 5), (4, 2, 2), **attrs(1)),
        refusal(ShapeError, "3 or more", (3, 5), (4, 3), **attrs(1)),
        refusal(OptionError, "divide", (2, 3, 5), (4, 1, 2), **attrs(1, groups=3)),
        refusal(ShapeError, "no longer than", (2, 3, 1), (4, 3, 2), **attrs(1)),
        refusal(ShapeError, "0 or more", (2, 3, 5), (4, 3, 2), **attrs(1, padding=((-1, 0),))),
        refusal(ShapeError, "stride with 1", (2, 3, 5), (4, 3, 2), **attrs(1, stride=(1, 1))),
        refusal(DTypeError, "a dtype", (2, 3, 5), (4, 3, 2), on="bool", **attrs(1)),
    ],
    dtypes="numeric",
    autocast="lower",
)
def conv(x: np.ndarray, w: np.ndarray, *, groups: int, **options: Any) -> np.ndarray:
    """The cross-correlation of x (N, C, *S) with kernels w (O, C/groups, *K), as (N, O, *windows).

    Why: windows and matmul would write every window, prod(K) times the input.

    Columns of windows times the kernels: one matrix product per group. Integers wrap around."""
    shape = check_conv("conv", x.shape, w.shape, groups=groups, **options)
    cols = columns(x, w.shape[2:], groups=groups, **options)
    kernels = np.moveaxis(wide(w), 1, -1).reshape(groups, w.shape[0] // groups, -1)
    rows = cols @ kernels.mT  # (groups, N · windows, O/groups)
    out = np.moveaxis(rows, 0, 1).reshape(shape[0], *shape[2:], shape[1])
    return np.moveaxis(out, -1, 1).astype(x.dtype, copy=False)


@card(
    "contract",
    infer=infer_data_grad,
    jvp=LINEAR,
    vjp=(
        lambda g, _y, _g, w, *, shape, **attrs: conv(g, conj(w), **attrs),
        lambda g, _y, cotangent, _w, *, shape, **attrs: conv_weight_grad(
            g, conj(cotangent), shape=_w.shape[2:], **attrs
        ),
    ),
    batch=batch_conv(
        lambda: conv_data_grad, {FIRST: (0, None, 0), SECOND: (None, 1, (1,)), BOTH: (1, 0, 1)}
    ),
    flops=lambda g, w, **_: conv_flops(g.shape, w.shape),
    exact_flops=lambda g, w, *, shape, **attrs: exact_conv_flops(
        (*g.shape[:2], *shape), w.shape, g.shape, **attrs
    ),
    samples=[
        sample((2, 4, 4), (4, 3, 2), **attrs(1, shape=(5,))),
        sample((2, 6, 2, 4), (6, 2, 3, 2), **attrs(2, **STRIDED, groups=2, shape=(5, 4))),
        sample((1, 2, 2), (2, 1, 2), **attrs(1, stride=(3,), shape=(6,))),
    ],
    error_samples=[
        refusal(ShapeError, "g of shape", (2, 4, 3), (4, 3, 2), **attrs(1, shape=(5,))),
        refusal(ShapeError, "equally many", (2, 4), (4, 3, 2), **attrs(1, shape=())),
    ],
    dtypes="inexact",
    autocast="lower",
)
def conv_data_grad(
    g: np.ndarray,
    w: np.ndarray,
    *,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[tuple[int, ...], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """The transpose of `conv` in x: g (N, O, *windows) spread by w over (N, C, *shape).

    Why: as a convolution of g it needs zeros between and around g, which fast kernels skip.

    The windows' cotangents, one position of the kernel after the other, added up in place."""
    (o, c), size, (n, _o, *counts) = w.shape[:2], w.shape[2:], g.shape
    kernels = np.moveaxis(wide(w).reshape(groups, o // groups, c, -1), -1, 0)  # (K, groups, O, C)
    padded = [low + s + high for s, (low, high) in zip(shape, padding)]
    rows = output_rows(g, groups)
    out = np.moveaxis(np.zeros((n, *padded, groups * c), rows.dtype), -1, 1)
    for at, kernel in zip(window_positions(counts, size, stride, dilation), kernels):
        part = np.moveaxis(rows @ kernel, 0, 1).reshape(n, *counts, groups * c)
        out[at] += np.moveaxis(part, -1, 1)
    inside = (slice(low, low + s) for s, (low, _high) in zip(shape, padding))
    return out[:, :, *inside].astype(g.dtype, copy=False)


@card(
    "contract",
    infer=infer_weight_grad,
    jvp=LINEAR,
    vjp=(
        lambda g, _y, _x, cotangent, *, shape, **attrs: conv_data_grad(
            conj(cotangent), g, shape=_x.shape[2:], **attrs
        ),
        lambda g, _y, x, _g, *, shape, **attrs: conv(conj(x), g, **attrs),
    ),
    batch=batch_conv(
        lambda: conv_weight_grad,
        {FIRST: ((1,), None, 1), SECOND: (None, (1,), (0,)), BOTH: (1, 1, 0)},
    ),
    flops=lambda x, g, *, shape, groups, **_: (
        2 * g.size * (x.shape[1] // groups) * math.prod(shape)
    ),
    exact_flops=lambda x, g, *, shape, groups, **attrs: exact_conv_flops(
        x.shape, (g.shape[1], x.shape[1] // groups, *shape), g.shape, **attrs
    ),
    samples=[
        sample((2, 3, 5), (2, 4, 4), **attrs(1, shape=(2,))),
        sample((2, 4, 5, 4), (2, 6, 2, 4), **attrs(2, **STRIDED, groups=2, shape=(3, 2))),
        sample((1, 1, 6), (1, 2, 2), **attrs(1, stride=(3,), shape=(2,))),
    ],
    error_samples=[
        refusal(ShapeError, "g of shape", (2, 3, 5), (2, 4, 3), **attrs(1, shape=(2,))),
        refusal(ShapeError, "3 or more", (2, 3), (2, 4, 4), **attrs(1, shape=(2,))),
    ],
    dtypes="inexact",
    autocast="lower",
)
def conv_weight_grad(
    x: np.ndarray, g: np.ndarray, *, shape: tuple[int, ...], groups: int, **options: Any
) -> np.ndarray:
    """The transpose of `conv` in w: the kernels (O, C/groups, *shape) that x and g meet through.

    Why: as a convolution it needs x and g with N and C exchanged, and one call per group.

    The outputs' cotangents times the columns of windows."""
    cols = columns(x, shape, groups=groups, **options)
    rows = output_rows(g, groups).mT @ cols  # (groups, O/g, K · C/g)
    out = rows.reshape(g.shape[1], *shape, x.shape[1] // groups)
    return np.moveaxis(out, -1, 1).astype(g.dtype, copy=False)
