"""Features of sound as functions: frames, spectra, mel bands, cepstra, deltas, resampling. All are
composed of array functions, so gradients go through to the waveform."""

import math
from numbers import Real
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.checks import check_floating
from glasshouse.nn.functional import conv1d, pad
from glasshouse.ops.checks import check_integer, check_option, check_type
from glasshouse.tensor import Tensor, abs, log, maximum, real, sqrt
from glasshouse.tensor import imag as imaginary
from glasshouse.tensor.standard import reduce
from glasshouse.tensor.torch_names.short_time import frames_of, stft

MEL_SCALES, PAD_MODES = ("htk", "slaney"), ("constant", "reflect", "replicate", "circular")
COSINES = {  # a₀ - a₁ cos(2πt) + a₂ cos(4πt)
    "hann": (0.5, 0.5, 0.0),
    "hamming": (0.54, 0.46, 0.0),
    "blackman": (0.42, 0.5, 0.08),
    "rectangular": (1.0, 0.0, 0.0),
}


def window_values(name: str, size: int) -> np.ndarray:
    """A window (size,) of one period: "hann", "hamming", "blackman" or "rectangular".

    Raises: OptionError for another name or a size below 1.
    Source: Harris 1978; standard.
    Example:
        >>> window_values("hann", 4).round(6).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    check_option("window_values", "window", name, tuple(COSINES))
    check_integer("window_values", "size", size, 1)
    a, b, c = COSINES[name]
    turns = 2 * np.pi * np.arange(size) / size
    return a - b * np.cos(turns) + c * np.cos(2 * turns)


def samples(where: str, waveform: Tensor | np.ndarray, least: int = 1) -> Tensor:
    x = check_floating(where, waveform, "waveform")
    if not x.ndim or x.shape[-1] < least:
        fix = "Pad it, or take shorter frames."
        raise ShapeError(where, f"a waveform (..., {least} samples or more)", x.shape, fix)
    return x


def frames(waveform: Any, size: int, hop: int) -> Tensor:
    """Overlapping pieces of a waveform, `hop` samples apart; an incomplete last one is left out.

    Shapes: (..., samples) -> (..., 1 + (samples - size) // hop, size).
    Raises: ShapeError for a waveform shorter than a piece, OptionError for sizes below 1.
    Example:
        >>> frames([1.0, 2.0, 3.0, 4.0], 2, 1).tolist()
        [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    """
    size, hop = check_integer("frames", "size", size, 1), check_integer("frames", "hop", hop, 1)
    x = samples("frames", waveform, size)
    return frames_of(x, size, hop)


def spectrogram(
    waveform: Tensor | np.ndarray,
    window: Tensor | np.ndarray,
    n_fft: int = 400,
    hop_length: int | None = None,
    power: float | None = 2.0,
    *,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
) -> Tensor:
    """|rfft(frame · window)|^power for overlapping frames, n_fft // 2 samples apart by default;
    the complex spectrum for power None. A window shorter than a frame is centred in it.
    `center` pads the waveform so that frame t is around sample t · hop_length; `normalized` divides
    by the window's norm.

    Shapes: waveform (..., samples), window (w,) with w <= n_fft -> (..., n_fft // 2 + 1, frames).
    Raises: ShapeError for a short waveform or a long window, OptionError for another pad_mode.
    Source: standard; torchaudio (layout, options).
    Example:
        >>> spectrogram(np.ones(8, "f4"), window_values("hann", 4), 4, 2, center=False).shape
        (3, 3)
    """
    where = "spectrogram"
    n_fft = check_integer(where, "n_fft", n_fft, 1)
    hop = n_fft // 2 if hop_length is None else check_integer(where, "hop_length", hop_length, 1)
    check_option(where, "pad_mode", pad_mode, PAD_MODES)
    half = n_fft // 2
    x, window = samples(where, waveform, half + 1 if center else n_fft), as_value(window)
    if window.ndim != 1 or not 1 <= window.size <= n_fft:
        expected = f"a window of 1 to {n_fft} samples"
        raise ShapeError(where, expected, window.shape, "Raise n_fft.")
    window = cast(window, x.dtype)
    spectrum = stft(x, n_fft, hop, window.size, window, center, pad_mode)
    if normalized:
        spectrum = spectrum * (1 / sqrt(reduce.sum(window * window)))
    if power is None:
        return spectrum
    if power == 1:
        return abs(spectrum)
    parts = real(spectrum), imaginary(spectrum)
    energy = parts[0] * parts[0] + parts[1] * parts[1]
    return energy if power == 2 else energy ** (power / 2)


def to_mel(hertz: list[float], scale: str) -> np.ndarray:
    hertz = np.asarray(hertz, np.float64)
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    linear = hertz * 3 / 200
    bent = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, linear, bent)


def to_hertz(mel: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    bent = 1000 * np.exp(np.log(6.4) / 27 * (np.maximum(mel, 15) - 15))
    return np.where(mel < 15, mel * 200 / 3, bent)


def mel_filters(
    n_freqs: int,
    n_mels: int,
    sample_rate: int,
    f_min: float = 0.0,
    f_max: float | None = None,
    *,
    mel_scale: str = "htk",
    norm: str | None = None,
) -> np.ndarray:
    """Triangles over the frequencies 0 to sample_rate / 2, whose corners are even on the mel scale:
    HTK's 2595 log₁₀(1 + f / 700), or Slaney's, linear below 1 kHz and logarithmic above. With norm
    "slaney" each has area 1, in hertz.

    Shapes: -> (n_freqs, n_mels).
    Units: hertz.
    Raises: OptionError for a scale or norm that is not known, or frequencies out of order.
    Source: Young et al., "The HTK Book"; Slaney 1998, "Auditory Toolbox".
    Example:
        >>> mel_filters(5, 2, 8000).shape
        (5, 2)
    """
    where = "mel_filters"
    check_option(where, "mel_scale", mel_scale, MEL_SCALES)
    check_option(where, "norm", norm, (None, "slaney"))
    check_integer(where, "n_freqs", n_freqs, 2)
    check_integer(where, "n_mels", n_mels, 1)
    check_type(where, sample_rate, Real, "a number as sample_rate", "Pass e.g. 16000.")
    f_max = sample_rate / 2 if f_max is None else f_max
    if not 0 <= f_min < f_max <= sample_rate / 2:
        expected = f"0 <= f_min < f_max <= {sample_rate / 2}"
        raise OptionError(where, expected, f"{f_min} and {f_max}", "Change them.")
    first, last = to_mel([f_min, f_max], mel_scale)
    corners = to_hertz(np.linspace(first, last, n_mels + 2), mel_scale)
    frequencies = np.linspace(0, sample_rate / 2, n_freqs)
    low, top, high = corners[:-2], corners[1:-1], corners[2:]
    rising = (frequencies[:, None] - low) / (top - low)
    falling = (high - frequencies[:, None]) / (high - top)
    filters = np.maximum(0, np.minimum(rising, falling))
    return filters * 2 / (high - low) if norm else filters


def dct_matrix(n_mfcc: int, n_mels: int, norm: str | None = "ortho") -> np.ndarray:
    """The cosine transform of n_mels numbers (DCT-II), its first n_mfcc columns; "ortho" makes them
    orthonormal, None leaves 2 cos.

    Shapes: -> (n_mels, n_mfcc).
    Raises: OptionError unless 1 <= n_mfcc <= n_mels.
    Source: Ahmed, Natarajan & Rao 1974.
    """
    check_option("dct_matrix", "norm", norm, ("ortho", None))
    if not 1 <= n_mfcc <= n_mels:
        fix = "Lower n_mfcc."
        raise OptionError("dct_matrix", f"n_mfcc from 1 to {n_mels}", repr(n_mfcc), fix)
    angles = np.pi / n_mels * (np.arange(n_mels)[:, None] + 0.5) * np.arange(n_mfcc)
    if norm is None:
        return 2 * np.cos(angles)
    return np.cos(angles) * np.sqrt(2 / n_mels) * np.where(np.arange(n_mfcc) == 0, 0.5**0.5, 1)


def decibels(
    energy: Tensor | np.ndarray, floor: float = 1e-10, top_db: float | None = None
) -> Tensor:
    """10 log₁₀(max(energy, floor)), and with `top_db` at least that much below the example's peak.

    Shapes: (..., F, T) -> (..., F, T).
    Units: decibels.
    Raises: OptionError for a floor of 0 or less, or a negative top_db.
    Example:
        >>> decibels([[1.0, 100.0]]).tolist()
        [[0.0, 20.0]]
    """
    x = check_floating("decibels", energy, "energy")
    if not floor > 0 or (top_db is not None and top_db < 0):
        got = f"floor={floor}, top_db={top_db}"
        raise OptionError("decibels", "floor above 0 and top_db of 0 or more", got, "Change it.")
    level = log(maximum(x, floor)) * (10 / math.log(10))
    if top_db is None:
        return level
    return maximum(level, reduce.max(level, axis=(-2, -1), keepdims=True) - top_db)


def deltas(features: Any, win_length: int = 5) -> Any:
    """Slopes over time: Σ_k k (x[t + k] - x[t - k]) / (2 Σ k²), edges repeated.

    Shapes: (..., F, T) -> (..., F, T).
    Raises: OptionError for an even win_length or one below 3.
    Source: Young et al., "The HTK Book", eq. 5.16.
    Example:
        >>> deltas([[0.0, 1.0, 2.0, 3.0, 4.0]])[0, 2].item()
        1.0
    """
    x = check_floating("deltas", features, "features")
    reach = check_integer("deltas", "win_length", win_length, 3) // 2
    if win_length % 2 == 0:
        raise OptionError("deltas", "an odd win_length", win_length, "Use e.g. 5.")
    weights = np.arange(-reach, reach + 1) / (reach * (reach + 1) * (2 * reach + 1) / 3)
    pieces = frames(pad_edges(x, reach), win_length, 1)
    return reduce.sum(pieces * cast(as_value(weights), x.dtype), axis=-1)


def pad_edges(x: Tensor, width: int) -> Tensor:
    return pad(x, (width, width), "replicate")


def preemphasis(waveform: Any, coefficient: float = 0.97) -> Tensor:
    """x[t] - coefficient · x[t - 1], which lifts high frequencies.

    Shapes: (..., samples) -> (..., samples).
    Source: standard.
    Example:
        >>> preemphasis([1.0, 1.0], 0.5).tolist()
        [1.0, 0.5]
    """
    x = samples("preemphasis", waveform)
    return x - pad(x[..., :-1], (1, 0)) * coefficient


def normalize_features(
    features: Tensor | np.ndarray, eps: float = 1e-5, variance: bool = True
) -> Tensor:
    """Each feature less its mean over time, and with `variance` by its standard deviation + eps.

    Shapes: (..., F, T) -> (..., F, T).
    Source: standard (cepstral mean and variance normalisation).
    """
    x = check_floating("normalize_features", features, "features")
    centred = x - reduce.mean(x, axis=-1, keepdims=True)
    if not variance:
        return centred
    return centred / (sqrt(reduce.mean(centred * centred, axis=-1, keepdims=True)) + eps)


def resample(
    waveform: Tensor | np.ndarray,
    orig_freq: int,
    new_freq: int,
    width: int = 6,
    rolloff: float = 0.99,
) -> Any:
    """A waveform at another rate: each new sample is the sum of the old ones around it, weighted by
    a sinc under a squared-cosine window of `width` zero crossings to each side, cut off at
    `rolloff` times the lower of both Nyquist frequencies.

    Shapes: (..., samples) -> (..., ceil(samples · new_freq / orig_freq)).
    Units: hertz.
    Raises: OptionError for rates below 1, a width below 1, or rolloff outside (0, 1].
    Source: Smith, "Digital Audio Resampling"; torchaudio (window).
    Example:
        >>> resample(np.ones(100, "f4"), 16000, 8000).shape
        (50,)
    """
    where = "resample"
    options = {"orig_freq": orig_freq, "new_freq": new_freq, "width": width}
    old, new, width = (check_integer(where, name, n, 1) for name, n in options.items())
    if not 0 < rolloff <= 1:
        raise OptionError(where, "rolloff in (0, 1]", repr(rolloff), "Use e.g. 0.99.")
    x = samples(where, waveform)
    common = math.gcd(old, new)
    old, new = old // common, new // common
    if old == new:
        return x
    kernels, reach = sinc_kernels(old, new, width, rolloff)
    rows = reshape(x, (math.prod(x.shape[:-1]), 1, x.shape[-1]))
    rows = pad(rows, (reach, reach + old))
    y = conv1d(rows, cast(as_value(kernels[:, None]), x.dtype), stride=old).mT  # (N, steps, new)
    y = reshape(y, (*x.shape[:-1], y.shape[1] * y.shape[2]))
    return y[..., : math.ceil(new * x.shape[-1] / old)]


def sinc_kernels(old: int, new: int, width: int, rolloff: float) -> tuple[np.ndarray, int]:
    """(a kernel for each of `new` samples between `old` ones, how far they reach back)."""
    cutoff = min(old, new) * rolloff
    reach = math.ceil(width * old / cutoff)
    times = np.arange(-reach, reach + old) / old - np.arange(new)[:, None] / new
    times = np.clip(times * cutoff, -width, width)
    return np.sinc(times) * np.cos(times * np.pi / width / 2) ** 2 * cutoff / old, reach


def speed(waveform: np.ndarray, sample_rate: int, factor: float) -> Tensor:
    """A waveform played `factor` times as fast, pitch and all.

    Shapes: (..., samples) -> (..., about samples / factor).
    Raises: OptionError unless factor > 0.
    Source: Ko et al. 2015, "Audio augmentation for speech recognition".
    """
    if not factor > 0:
        raise OptionError("speed", "a factor above 0", repr(factor), "Use e.g. 0.9.")
    return resample(waveform, int(factor * sample_rate), sample_rate)
