"""Discrete Fourier transforms: `gh.fft`, the extension of the Array API, and PyTorch's forms.

`n` and `s` cut the axes, or pad them with zeros, before the transform. `norm` places the scale 1/N:
"backward" (in the inverse, the default), "forward", or "ortho" (its root in both)."""

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, OptionError, check_axis
from glasshouse.base import dtype as dtypes
from glasshouse.base.dtype import DType, DTypeLike, as_dtype, complex_dtype, float32, real_dtype
from glasshouse.dispatch.backend import check_device
from glasshouse.dispatch.spelling import takes_names_of_pytorch
from glasshouse.dispatch.value import ArrayLike, as_value, cast
from glasshouse.ops import fourier as cards
from glasshouse.ops.cast import conj
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.ops.movement import pad, section
from glasshouse.tensor.standard.creation import arange
from glasshouse.tensor.standard.manipulate import roll

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
           "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft",
           "rfft2", "rfftfreq", "rfftn"]  # fmt: skip

NORMS = ("backward", "ortho", "forward")
LAST_TWO = (-2, -1)


def complex_operand(where: str, x: ArrayLike) -> "Tensor":
    x = as_value(x, where=where)
    return cast(x, complex_dtype(x.dtype))


def real_operand(where: str, x: ArrayLike) -> "Tensor":
    x = as_value(x, where=where)
    if x.dtype.is_complex:
        raise DTypeError(where, "real numbers", x.dtype.name, "Use the complex transform.")
    return cast(x, real_dtype(complex_dtype(x.dtype)))


def axes_and_sizes(
    where: str, x: "Tensor", s: Any, axes: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the axes in the order in which they were given, the size that each is brought to)."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = tuple(check_axis(where, axis, x.ndim) for axis in axes)
    size_list = (None,) * len(axes) if s is None else tuple(s)
    if len(size_list) != len(axes) or len(set(axes)) != len(axes):
        got = f"s={s}, axes={axes}"
        raise OptionError(where, "distinct axes, and a size for each", got, "Give as many of both.")
    # PyTorch's -1 means the size that is there
    pairs = zip(size_list, axes, strict=True)
    sizes = (x.shape[axis] if n is None or n == -1 else n for n, axis in pairs)
    return axes, tuple(check_integer(where, "a size", n, least=1) for n in sizes)


def brought_to(x: "Tensor", axis: int, size: int) -> "Tensor":
    """x cut along an axis, or filled up with zeros at its end."""
    if size < x.shape[axis]:
        return section(x, axis, 0, size)
    if size == x.shape[axis]:
        return x
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis], 0)
    return pad(x, widths=tuple(widths), value=0)


def normalize(where: str, x: "Tensor", count: int, norm: str | None, inverse: bool) -> "Tensor":
    """The result of a transform of `count` elements with the factor that `norm` asks for."""
    norm = check_option(where, "norm", norm or "backward", NORMS)
    if norm == "ortho":
        return x * (1 / math.sqrt(count))
    return x * (1 / count) if (norm == "backward") == inverse else x


def complex_transform(
    where: str, x: "Tensor", s: Any, axes: int | Sequence[int], norm: str, inverse: bool
) -> "Tensor":
    x = complex_operand(where, x)
    axes, sizes = axes_and_sizes(where, x, s, axes)
    for axis, size in zip(axes, sizes, strict=True):
        x = brought_to(x, axis, size)
    if not axes:
        return x
    y = cards.fft(x, axes=tuple(sorted(axes)), inverse=inverse)
    return normalize(where, y, math.prod(sizes), norm, inverse)


def of_real(where: str, x: Any, s: Any, axes: int, norm: Any, inverse: bool) -> "Tensor":
    """The frequencies of a real signal: `rfft` of the last axis, then `fft` of the others."""
    x = real_operand(where, x)
    axes, sizes = axes_and_sizes(where, x, s, axes)
    if not axes:
        raise OptionError(where, "one axis or more", "none", "Name the axes.")
    for axis, size in zip(axes, sizes, strict=True):
        x = brought_to(x, axis, size)
    y = cards.rfft(x, axis=axes[-1])
    y = conj(y) if inverse else y
    if axes[:-1]:
        y = cards.fft(y, axes=tuple(sorted(axes[:-1])), inverse=inverse)
    return normalize(where, y, math.prod(sizes), norm, inverse)


def to_real(where: str, x: Any, s: Any, axes: int, norm: Any, inverse: bool) -> "Tensor":
    """The real signal of frequencies, of which the last axis has the first half."""
    x = complex_operand(where, x)
    axes, sizes = axes_and_sizes(where, x, s, axes)
    if not axes:
        raise OptionError(where, "one axis or more", "none", "Name the axes.")
    last, size = axes[-1], sizes[-1]
    if s is None or tuple(s)[-1] in (None, -1):
        size = check_integer(where, "a size", 2 * (x.shape[last] - 1), least=1)
    for axis, n in zip(axes[:-1], sizes[:-1], strict=True):
        x = brought_to(x, axis, n)
    x = brought_to(x, last, cards.frequencies(size))
    if axes[:-1]:
        x = cards.fft(x, axes=tuple(sorted(axes[:-1])), inverse=inverse)
    y = cards.irfft(x if inverse else conj(x), axis=last, size=size)
    return normalize(where, y, math.prod(sizes[:-1]) * size, norm, inverse)


DTYPES: dict[Any, Any] = {
    complex_transform: "any -> complex64, or complex128 of float64 and complex128",
    of_real: "real or bool -> complex64, or complex128 of float64",
    to_real: "any -> float32, or float64",
}
DOC = """{about}

Shapes: x {shapes}.
Dtypes: {dtypes}.
Raises: {refused}OptionError for another norm or size, AxisError.
Source: {source}.
{example}"""


def documented(
    call: Any,
    name: str,
    compute: Callable[..., Any],
    about: str,
    shapes: str,
    example: tuple[Any, ...] = (),
) -> Any:
    call.__name__ = call.__qualname__ = name
    refused = "DTypeError for complex numbers, " * (compute is of_real)
    source = "PyTorch" if name.endswith(("2", "hfftn")) else "standard"
    if example:
        argument, result = example
        example = f"Example:\n    >>> {name}({argument}).tolist()\n    {result}\n"
    parts = {"about": about, "shapes": shapes, "dtypes": DTYPES[compute], "refused": refused}
    call.__doc__ = DOC.format(**parts, source=source, example=example or "")
    return takes_names_of_pytorch(call)


def along_axis(
    name: Any,
    compute: Callable[..., Any],
    inverse: Any,
    about: Any,
    shapes: Any,
    example: tuple[Any, ...] = (),
) -> Any:
    """The transform `compute`, or its inverse, along one axis."""

    def call(x, /, n: int | None = None, axis: int = -1, norm: str | None = "backward"):
        return compute(name, x, None if n is None else (n,), (axis,), norm, inverse)

    return documented(call, name, compute, about, shapes, example)


def along_axes(
    name: Any,
    compute: Callable[..., Any],
    inverse: Any,
    about: Any,
    shapes: str = "(...) -> the axes with the sizes `s`",
) -> Any:
    """The transform along several axes, and that along two, by default the last."""

    def call(x, /, s=None, axes=None, norm: str | None = "backward"):
        return compute(name, x, s, axes, norm, inverse)

    def of_two(x, /, s=None, axes=LAST_TWO, norm: str | None = "backward"):
        return compute(name, x, s, axes, norm, inverse)

    about_two = f"gh.fft.{name} along two axes, by default the last two."
    return (
        documented(call, name, compute, about, shapes),
        documented(of_two, f"{name[:-1]}2", compute, about_two, shapes),
    )


# fmt: off
fft: Any = along_axis("fft", complex_transform, False,
                 "The discrete Fourier transform along an axis: y_k = Σ_j x_j exp(-2πi·jk/n).",
                 "(..., m, ...) -> (..., n, ...)",
                 ("[1.0, 0.0, 0.0]", "[(1+0j), (1+0j), (1+0j)]"))
ifft: Any = along_axis("ifft", complex_transform, True,
                  "The inverse of `fft`: x_j = 1/n Σ_k y_k exp(2πi·jk/n).",
                  "(..., m, ...) -> (..., n, ...)")
rfft: Any = along_axis("rfft", of_real, False,
                  "The frequencies 0 to n // 2 of a real signal; the others are their conjugates.",
                  "(..., m, ...) -> (..., n // 2 + 1, ...)",
                  ("[1.0, 1.0, 1.0, 1.0]", "[(4+0j), 0j, 0j]"))
irfft: Any = along_axis("irfft", to_real, True,
                   "The real signal of n elements, by default 2(m - 1), with the frequencies x.",
                   "(..., m, ...) -> (..., n, ...)")
hfft: Any = along_axis("hfft", to_real, False, "The real frequencies of a signal that is its own "
                  "mirrored conjugate, given by its half.",
                  "(..., m, ...) -> (..., n, ...), n = 2(m - 1) by default")
ihfft: Any = along_axis("ihfft", of_real, True,
                   "The inverse of `hfft`: half of the signal that has the real frequencies x.",
                   "(..., m, ...) -> (..., n // 2 + 1, ...)")
HALF = "(...) -> the axes with the sizes `s`, the last with s // 2 + 1"
fft2: Any
fftn: Any
fftn, fft2 = along_axes("fftn", complex_transform, False,
                        "The discrete Fourier transform along several axes, by default all.")
ifft2: Any
ifftn: Any
ifftn, ifft2 = along_axes("ifftn", complex_transform, True, "The inverse of `fftn`.")
rfft2: Any
rfftn: Any
rfftn, rfft2 = along_axes("rfftn", of_real, False, "The frequencies of a real signal along "
                          "several axes, of the last the first half.", HALF)
irfft2: Any
irfftn: Any
irfftn, irfft2 = along_axes("irfftn", to_real, True, "The inverse of `rfftn`: the last axis has "
                            "the size 2(m - 1) if `s` does not say it.")
hfft2: Any
hfftn: Any
hfftn, hfft2 = along_axes("hfftn", to_real, False,
                          "`hfft` along the last of several axes, and `fft` along the others.")
ihfft2: Any
ihfftn: Any
ihfftn, ihfft2 = along_axes("ihfftn", of_real, True, "The inverse of `hfftn`.", HALF)
# fmt: on


def spaced(where: str, n: Any, d: float, dtype: Any, device: Any) -> tuple[int, DType, float]:
    """(n, the dtype of frequencies, how far they lie apart) for n samples that lie d apart."""
    check_device(where, device)
    n = check_integer(where, "n", n, least=1)
    dtype = float32 if dtype is None else as_dtype(dtype)
    if not dtype.is_floating:
        raise DTypeError(where, "a floating dtype", dtype.name, "Use float32.")
    if not isinstance(d, numbers.Real) or d == 0:
        fix = "Pass the time a sample."
        raise OptionError(where, "a spacing d as a number other than 0", repr(d), fix)
    return n, dtype, 1 / (n * d)


def fftfreq(
    n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Any:
    """The frequencies of `fft`'s results, for samples that lie d apart: 0, 1, …, -2, -1 by (n·d).

    Shapes: (n,).
    Dtypes: float32, or a floating dtype.
    Raises: OptionError for n below 1 or d = 0.
    Source: standard.
    Example:
        >>> fftfreq(4).tolist()
        [0.0, 0.25, -0.5, -0.25]
    """
    n, dtype, apart = spaced("fftfreq", n, d, dtype, device)
    numbers = roll(arange(-(n // 2), (n + 1) // 2, dtype=dtypes.int64), -(n // 2))
    return cast(numbers, dtype) * apart


def rfftfreq(
    n: int, /, d: float = 1.0, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Any:
    """The frequencies of `rfft`'s results: 0, 1, …, n // 2 by (n·d).

    Shapes: (n // 2 + 1,).
    Dtypes: float32, or a floating dtype.
    Raises: OptionError for n below 1 or d = 0.
    Source: standard.
    """
    n, dtype, apart = spaced("rfftfreq", n, d, dtype, device)
    return arange(0, cards.frequencies(n), dtype=dtype) * apart


def shifted(where: str, x: ArrayLike, axes: Any, by: Any) -> "Tensor":
    x = as_value(x, where=where)
    if axes is None:
        axes = range(x.ndim)
    elif not isinstance(axes, (tuple, list)):
        axes = (axes,)
    axes = [check_axis(where, operator.index(axis), x.ndim) for axis in axes]
    return roll(x, [by(x.shape[axis]) for axis in axes], axes) if axes else x


@takes_names_of_pytorch
def fftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Any:
    """x with the frequency 0 of `fft`'s order moved to the middle of the axes, by default all.

    Shapes: x (...) -> (...).
    Dtypes: any, kept.
    Raises: AxisError.
    Source: standard.
    Example:
        >>> fftshift([0, 1, -2, -1]).tolist()
        [-2, -1, 0, 1]
    """
    return shifted("fftshift", x, axes, lambda size: size // 2)


@takes_names_of_pytorch
def ifftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Any:
    """The inverse of `fftshift`.

    Shapes: x (...) -> (...).
    Dtypes: any, kept.
    Raises: AxisError.
    Source: standard.
    """
    return shifted("ifftshift", x, axes, lambda size: -(size // 2))
