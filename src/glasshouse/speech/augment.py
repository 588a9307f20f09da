"""Augmentations of waveforms: noise, rooms. `speed` is in features, masks of features in layers."""

from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, cast
from glasshouse.ops.checks import check_integer
from glasshouse.speech.features import samples
from glasshouse.tensor import Tensor, concat, fft, random, sqrt
from glasshouse.tensor.standard import reduce

__all__ = ["add_noise", "reverberate", "room_response"]


def add_noise(waveform: Any, snr_db: Any, noise: Any = None) -> Tensor:
    """The waveform and noise whose energy is `snr_db` decibels below its own: Gaussian, or a
    recording, which begins at a place drawn at random and is repeated where it is too short.

    Shapes: waveform (..., samples), snr_db () or (...), noise (any number of samples,).
    Units: decibels.
    Raises: ShapeError for a noise that is empty or has more axes.
    Source: standard.
    Example:
        >>> y = add_noise(np.ones(4000, "f4"), 20.0)
        >>> round(((y - 1) ** 2).mean().item(), 4)  # a hundredth of the energy
        0.01
    """
    x = samples("add_noise", waveform)
    if noise is None:
        rows = random.normal(x.shape, dtype=x.dtype)
    else:
        rows = samples("add_noise", noise)
        if rows.ndim != 1:
            fix = "Pass one recording."
            raise ShapeError("add_noise", "a noise (samples,)", rows.shape, fix)
        first = int(random.randint(0, rows.shape[0], ()).item())
        rows = concat([rows[first:]] + [rows] * (x.shape[-1] // rows.shape[0] + 1))
        rows = cast(rows[: x.shape[-1]], x.dtype)
    energy = reduce.mean(x * x, axis=-1, keepdims=True)
    of_noise = reduce.mean(rows * rows, axis=-1, keepdims=True)
    ratio = 10 ** (cast(as_value(snr_db), x.dtype)[..., None] / 10)
    return x + rows * sqrt(energy / ((of_noise + 1e-20) * ratio))


def reverberate(waveform: Any, response: Any) -> Tensor:
    """The waveform as a room with this impulse response would have it: their convolution, so long
    as the waveform, with the response's peak at time 0 and of energy 1.

    Shapes: waveform (..., samples), response (any number of samples,) -> (..., samples).
    Raises: ShapeError for a response that is empty or has more axes.
    Source: Ko et al. 2017, "A study on data augmentation of reverberant speech".
    Example:
        >>> reverberate([1.0, 2.0, 3.0], [0.0, 1.0]).round(6).tolist()
        [1.0, 2.0, 3.0]
    """
    x, y = samples("reverberate", waveform), samples("reverberate", response)
    if y.ndim != 1:
        raise ShapeError("reverberate", "a response (samples,)", y.shape, "Pass one room.")
    y = cast(y, x.dtype) / sqrt(reduce.sum(y * y) + 1e-20)
    peak, size = int(np.abs(y.detach().numpy()).argmax()), x.shape[-1] + y.shape[0] - 1
    whole = fft.irfft(fft.rfft(x, size) * fft.rfft(y, size), size)
    return whole[..., peak : peak + x.shape[-1]]


def room_response(
    sample_rate: int, reverberation_s: float = 0.3, direct: float = 0.5, seed: int = 0
) -> np.ndarray:
    """An impulse response of a room that is made up: the direct sound, with the share `direct` of
    the energy, then Gaussian noise that falls by 60 decibels in `reverberation_s` seconds.

    Shapes: -> (samples of reverberation_s,).
    Units: hertz, seconds.
    Raises: OptionError unless the time is above 0 and the share in [0, 1].
    Source: Polack 1988, the statistical model of late reverberation.
    Example:
        >>> room_response(8000, 0.25).shape
        (2000,)
    """
    where, rate = "room_response", check_integer("room_response", "sample_rate", sample_rate, 1)
    if not (reverberation_s > 0 and 0 <= direct <= 1):
        got = f"{reverberation_s} and {direct}"
        raise OptionError(where, "reverberation_s above 0, direct in [0, 1]", got, "Change them.")
    times = np.arange(max(round(rate * reverberation_s), 1)) / rate
    tail = np.random.default_rng(seed).normal(size=times.shape)
    tail *= 10 ** (-3 * times / reverberation_s)
    tail[0] = 0.0
    tail *= np.sqrt((1 - direct) / max((tail**2).sum(), 1e-20))
    tail[0] = np.sqrt(direct)
    return tail
