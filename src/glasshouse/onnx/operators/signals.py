"""Fourier transforms, and the matrix of mel filters."""

from typing import Any

import numpy as np

import glasshouse as gh
from glasshouse.onnx.dtypes import dtype_of
from glasshouse.onnx.table import integers, operator


def pairs(x: Any) -> Any:
    """Complex numbers as pairs along a last axis."""
    return gh.stack([gh.real(x), gh.imag(x)], axis=-1)


def transform(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis = axis if axis < 0 else axis - x.ndim
    axis += 1  # of the numbers that pairs make
    n = None if length is None else integers(length)[0]
    if inverse and onesided:
        real = gh.fft.irfft(gh.complex(x[..., 0], x[..., 1]), n=n, axis=axis)
        return gh.expand_dims(real, axis=-1)
    if x.shape[-1] == 1:
        x = x[..., 0]
        if onesided:
            return pairs(gh.fft.rfft(x, n=n, axis=axis))
        x = gh.complex(x, gh.zeros_like(x))
    else:
        x = gh.complex(x[..., 0], x[..., 1])
    return pairs((gh.fft.ifft if inverse else gh.fft.fft)(x, n=n, axis=axis))


@operator("DFT", static=(1,))
def fourier_by_attribute(
    x: Any, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Any:
    return transform(x, length, axis, inverse, onesided)


@operator("DFT", since=20, static=(1, 2))
def fourier_by_input(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    at = -2 if axis is None else integers(axis)[0]
    return transform(x, length, at, inverse, onesided)


@operator("STFT", static=(1, 3))
def short_time(
    x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1
) -> Any:
    size = window.shape[0] if length is None else integers(length)[0]
    hop = integers(step)[0]
    starts = np.arange(0, x.shape[1] - size + 1, hop)
    index = starts[:, None] + np.arange(size)
    frames = gh.take(x, gh.asarray(index.ravel()), axis=1)
    frames = frames.reshape((x.shape[0], *index.shape, *x.shape[2:]))
    frames = frames.reshape((*frames.shape, 1)) if frames.ndim == 3 else frames
    if window is not None:
        frames = frames * window.reshape((-1, 1))
    return transform(frames, None, 2, 0, onesided)


@operator("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weights(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1
) -> Any:
    """Triangular filters whose middles lie evenly on the mel scale, as columns."""
    bins, length, rate = (integers(x)[0] for x in (bins, length, rate))
    mels = [2595 * np.log10(1 + float(x) / 700) for x in (low, high)]
    step = (mels[1] - mels[0]) / (bins + 2)
    hertz = 700 * (10 ** ((mels[0] + np.arange(bins + 2) * step) / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bins))
    rows = np.arange(len(weights))
    for i in range(bins):
        left, middle, right = edges[i : i + 3]
        if middle > left:
            rising = (rows >= left) & (rows <= middle)
            weights[rising, i] = (rows[rising] - left) / (middle - left)
        else:
            weights[middle, i] = 1
        if right > middle:
            falling = (rows >= middle) & (rows < right)
            weights[falling, i] = (right - rows[falling]) / (right - middle)
    return weights.astype(dtype_of(output_datatype).np)
