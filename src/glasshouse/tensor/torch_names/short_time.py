"""Fourier transforms of overlapping frames, and back."""

from math import prod
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, OptionError, ShapeError, real_dtype
from glasshouse.dispatch.value import ArrayLike, as_value, broadcast_to, cast, full, reshape
from glasshouse.ops import window as cards
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.tensor import fft
from glasshouse.tensor.standard.arithmetic import view_as_real
from glasshouse.tensor.standard.manipulate import pad

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["istft", "stft"]

PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def frames_of(x: "Tensor", size: int, hop: int) -> "Tensor":
    """(..., n) -> (..., 1 + (n - size) // hop, size): pieces that start `hop` elements apart."""
    rows = reshape(x, (prod(x.shape[:-1]), 1, x.shape[-1]))
    pieces = cards.windows(rows, size=(size,), stride=(hop,), dilation=(1,))
    return reshape(pieces, (*x.shape[:-1], *pieces.shape[-2:]))


def added_frames(frames: "Tensor", hop: int) -> "Tensor":
    """The transpose of `frames_of`: (..., t, size) -> (..., size + hop · (t - 1))."""
    *lead, count, size = frames.shape
    rows = reshape(frames, (prod(lead), 1, count, size))
    length = size + hop * (count - 1)
    added = cards.fold(rows, shape=(length,), stride=(hop,), dilation=(1,))
    return reshape(added, (*lead, length))


def window_of(
    where: str, window: ArrayLike, win_length: int | None, n_fft: int, dtype: Any
) -> "Tensor":
    """The window, ones unless given, in the middle of n_fft places."""
    size = n_fft if win_length is None else check_integer(where, "win_length", win_length, 1)
    window = full((size,), 1, dtype) if window is None else cast(as_value(window), dtype)
    if window.shape != (size,) or size > n_fft:
        expected = f"a window of win_length {size} elements, at most n_fft {n_fft}"
        raise ShapeError(where, expected, window.shape, "Pass win_length=len(window).")
    left = (n_fft - size) // 2
    return pad(window, (left, n_fft - size - left))


def hop_of(where: str, hop_length: int | None, n_fft: int) -> int:
    hop = n_fft // 4 if hop_length is None else hop_length
    return check_integer(where, "hop_length", hop, 1)


def centred(where: str, x: "Tensor", n_fft: int, pad_mode: str) -> "Tensor":
    """x with n_fft // 2 more elements at each end."""
    check_option(where, "pad_mode", pad_mode, tuple(PAD_MODES))
    width = n_fft // 2
    if x.shape[-1] <= width and pad_mode == "reflect":
        fix = "Pad it, choose pad_mode='constant', or take shorter frames."
        raise ShapeError(where, f"more than n_fft // 2 = {width} samples", x.shape, fix)
    return pad(x, (*((0, 0),) * (x.ndim - 1), (width, width)), PAD_MODES[pad_mode])


def stft(
    x: ArrayLike,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> "Tensor":
    """The Fourier transforms of frames of x, `hop_length` (n_fft // 4) samples apart, each
    multiplied by the window (ones), which is centred in a frame. `center` pads x, so
    that frame t is around sample t · hop_length; `normalized` divides by √n_fft. Of real x the
    half of the frequencies that says all, unless `onesided` is False.

    Shapes: x (..., n), window (win_length,) -> (..., frequencies, frames); with
        return_complex=False a last axis of real and imaginary parts.
    Dtypes: floating or complex -> complex.
    Raises: ShapeError for a short x or a window that does not fit, OptionError for onesided=True of
        complex x, or another pad_mode.
    Source: PyTorch; Allen, Rabiner 1977, A unified approach to short-time Fourier analysis.
    Example:
        >>> stft(as_value([1.0] * 8), 4, 2, center=False).shape
        (3, 3)
    """
    x, n_fft = signal("stft", x), check_integer("stft", "n_fft", n_fft, 1)
    is_complex = x.dtype.is_complex
    onesided = not is_complex if onesided is None else onesided
    if onesided and is_complex:
        fix = "Leave onesided at None."
        raise OptionError("stft", "onesided=False for a complex signal", "True", fix)
    hop = hop_of("stft", hop_length, n_fft)
    window = window_of("stft", window, win_length, n_fft, x.dtype)
    x = centred("stft", x, n_fft, pad_mode) if center else x
    if x.shape[-1] < n_fft:
        fix = "Pad it, or take shorter frames."
        raise ShapeError("stft", f"a signal of {n_fft} samples or more", x.shape, fix)
    shaped = frames_of(x, n_fft, hop) * window
    norm = "ortho" if normalized else "backward"
    spectrum = (fft.rfft if onesided else fft.fft)(shaped, norm=norm).mT
    return spectrum if return_complex else view_as_real(spectrum)


def signal(where: str, x: ArrayLike) -> "Tensor":
    x = as_value(x, where=where)
    if not x.dtype.is_inexact or not x.ndim:
        got = f"{x.dtype.name} {x.shape}"
        raise DTypeError(where, "a floating or complex signal (..., n)", got, "Convert it.")
    return x


def istft(
    x: ArrayLike,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal whose stft is nearest to x: frames transformed back, multiplied by the window,
    added, and divided by the sum of the squared windows. Samples that no window reaches are NaN.

    Shapes: x (..., frequencies, frames) -> (..., length), by default all that the frames cover.
    Dtypes: complex -> real; complex with return_complex.
    Raises: ShapeError for another number of frequencies, OptionError for return_complex of one
        side, DTypeError unless complex.
    Source: Griffin, Lim 1984, Signal estimation from modified short-time Fourier transform, eq. 6.
    Example:
        >>> istft(stft(as_value([1.0, 2.0, 3.0, 4.0, 5.0]), 4), 4).shape
        (5,)
    """
    x, n_fft = as_value(x, where="istft"), check_integer("istft", "n_fft", n_fft, 1)
    if not x.dtype.is_complex:
        raise DTypeError("istft", "a complex spectrum", x.dtype.name, "Use gh.view_as_complex.")
    half = n_fft // 2 + 1
    onesided = x.ndim > 1 and x.shape[-2] != n_fft if onesided is None else onesided
    bins = half if onesided else n_fft
    if x.ndim < 2 or x.shape[-2] != bins or not x.shape[-1]:
        fix = "Pass the n_fft and onesided of stft."
        raise ShapeError("istft", f"a spectrum (..., {bins}, frames)", x.shape, fix)
    if return_complex and onesided:
        fix = "A one-sided spectrum is that of a real signal."
        raise OptionError("istft", "onesided=False with return_complex", "True", fix)
    hop = hop_of("istft", hop_length, n_fft)
    dtype = x.dtype if return_complex else real_dtype(x.dtype)
    window = window_of("istft", window, win_length, n_fft, dtype)
    norm, rows = "ortho" if normalized else "backward", x.mT
    if return_complex:
        frames = fft.ifft(rows, norm=norm)
    else:
        frames = fft.irfft(rows[..., :half], n_fft, norm=norm)
    total = added_frames(frames * window, hop)
    weight = added_frames(broadcast_to(window * window, frames.shape[-2:]), hop)
    start = n_fft // 2 if center else 0
    full_size = total.shape[-1]
    end = full_size - start if length is None else start + length
    inside = slice(start, min(end, full_size))
    y = total[..., inside] / weight[inside]
    missing = max(end - full_size, 0)
    return pad(y, (*((0, 0),) * (y.ndim - 1), (0, missing))) if missing else y
