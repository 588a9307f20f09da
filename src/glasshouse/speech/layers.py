"""Features and augmentations of speech as layers; features (..., F, T) over bands and frames."""

from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import adopt, as_value, reshape
from glasshouse.nn.checks import check_floating
from glasshouse.nn.layer import layer
from glasshouse.ops.checks import check_integer
from glasshouse.speech import features
from glasshouse.tensor import Tensor, arange, concat, floor, log, minimum, random
from glasshouse.tensor import where as choose
from glasshouse.tensor.standard import reduce

__all__ = ["MFCC", "Deltas", "FrequencyMasking", "LogMelSpectrogram", "MelSpectrogram",
           "NormalizeFeatures", "PreEmphasis", "Resample", "SpecAugment", "Spectrogram",
           "SpeedPerturbation", "TimeMasking"]  # fmt: skip


def constant(values: np.ndarray) -> Tensor:
    return adopt(values.astype(np.float32))


class Spectrogram(nn.Module):
    """`features.spectrogram` with a window of win_length samples, which is a buffer.

    Shapes: (..., samples) -> (..., n_fft // 2 + 1, frames).
    Raises: OptionError for a window that is not there or longer than n_fft.
    Source: standard.
    """

    _shown: tuple[str, ...] = ("n_fft", "hop_length", "power")

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        *,
        window: str = "hann",
        power: float | None = 2.0,
        center: bool = True,
        pad_mode: str = "reflect",
        normalized: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.n_fft: int = check_integer(name, "n_fft", n_fft, 1)
        size = n_fft if win_length is None else check_integer(name, "win_length", win_length, 1)
        if size > n_fft:
            raise OptionError(name, f"win_length of at most {n_fft}", size, "Raise n_fft.")
        self.hop_length: int = size // 2 if hop_length is None else hop_length
        self.power = power
        self.center = center
        self.pad_mode = pad_mode
        self.normalized = normalized
        self.register_buffer("window", constant(features.window_values(window, size)))

    def forward(self, waveform: Tensor | np.ndarray) -> Tensor:
        sizes = (self.n_fft, self.hop_length, self.power)
        options = {name: getattr(self, name) for name in ("center", "pad_mode", "normalized")}
        return features.spectrogram(waveform, self.window, *sizes, **options)


class MelSpectrogram(Spectrogram):
    """The energy in n_mels bands: a `Spectrogram` times `features.mel_filters`, which are a buffer.

    Shapes: (..., samples) -> (..., n_mels, frames).
    Units: sample_rate, f_min and f_max in hertz.
    Source: Davis & Mermelstein 1980.
    Example:
        >>> MelSpectrogram(16000, n_mels=40)(np.ones((2, 16000), "f4")).shape
        (2, 40, 81)
    """

    _shown = ("sample_rate", "n_fft", "hop_length", "n_mels")

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        *,
        n_mels: int = 80,
        f_min: float = 0.0,
        f_max: float | None = None,
        mel_scale: str = "htk",
        norm: str | None = None,
        **spectrum: Any,
    ) -> None:
        super().__init__(n_fft, win_length, hop_length, **spectrum)
        self.sample_rate = sample_rate
        self.n_mels = n_mels
        bands = (n_fft // 2 + 1, n_mels, sample_rate, f_min, f_max)
        filters = features.mel_filters(*bands, mel_scale=mel_scale, norm=norm)
        self.register_buffer("filters", constant(filters))

    def forward(self, waveform: Tensor | np.ndarray) -> Tensor:
        return (super().forward(waveform).mT @ self.filters).mT


class LogMelSpectrogram(MelSpectrogram):
    """log(mel energy + offset), the front end of most recognisers; arguments as `MelSpectrogram`.

    Shapes: (..., samples) -> (..., n_mels, frames).
    Source: standard.
    """

    def __init__(self, *args: int, offset: float = 1e-6, **options: Any) -> None:
        super().__init__(*args, **options)
        self.offset = offset

    def forward(self, waveform: Tensor | np.ndarray) -> Tensor:
        return log(super().forward(waveform) + self.offset)


class MFCC(MelSpectrogram):
    """Mel-frequency cepstral coefficients: the cosine transform of the bands' decibels (at most
    `top_db` below the peak), or of their logarithms with `log_mels`; arguments as `MelSpectrogram`.

    Shapes: (..., samples) -> (..., n_mfcc, frames).
    Raises: OptionError for n_mfcc above n_mels.
    Source: Davis & Mermelstein 1980.
    """

    def __init__(
        self,
        *args: int,
        n_mfcc: int = 40,
        log_mels: bool = False,
        top_db: float | None = 80.0,
        dct_norm: str | None = "ortho",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.log_mels = log_mels
        self.top_db = top_db
        self.register_buffer("dct", constant(features.dct_matrix(n_mfcc, self.n_mels, dct_norm)))

    def forward(self, waveform: Tensor | np.ndarray) -> Tensor:
        mel = super().forward(waveform)
        level = log(mel + 1e-6) if self.log_mels else features.decibels(mel, top_db=self.top_db)
        return (level.mT @ self.dct).mT


class Deltas(nn.Module):
    """Features, their slopes and, with order 2, the slopes of these, one above the other.

    Shapes: (..., F, T) -> (..., (order + 1) F, T).
    Raises: OptionError for an even win_length, or order below 1.
    Source: Furui 1986.
    """

    _shown = ("order", "win_length")

    def __init__(self, order: int = 2, win_length: int = 5) -> None:
        super().__init__()
        self.order: int = check_integer("Deltas", "order", order, 1)
        self.win_length = win_length

    def forward(self, input: Tensor | np.ndarray) -> Tensor:
        parts = [check_floating("Deltas", input)]
        for _ in range(self.order):
            parts.append(features.deltas(parts[-1], self.win_length))
        return concat(parts, axis=-2)


NormalizeFeatures: type[Any] = layer("NormalizeFeatures", features.normalize_features)
PreEmphasis: type[Any] = layer("PreEmphasis", features.preemphasis)
Resample: type[Any] = layer("Resample", features.resample)


class SpeedPerturbation(nn.Module):
    """Waveforms played at a speed that is drawn from `factors` for each batch, while training. The
    draw is read, for the length depends on it: a captured step is captured for each factor.

    Shapes: (..., samples) -> (..., about samples / factor).
    Raises: OptionError for factors of 0 or less.
    Source: Ko et al. 2015, "Audio augmentation for speech recognition".
    """

    _shown = ("sample_rate", "factors")

    def __init__(
        self, sample_rate: int = 16000, factors: tuple[float, ...] = (0.9, 1.0, 1.1)
    ) -> None:
        super().__init__()
        self.sample_rate = sample_rate
        self.factors: tuple[float, ...] = tuple(factors)
        if not self.factors or not all(factor > 0 for factor in self.factors):
            fix = "Use e.g. (0.9, 1.0, 1.1)."
            raise OptionError("SpeedPerturbation", "factors above 0", repr(factors), fix)

    def forward(self, waveform: Any) -> Any:
        if not self.training:
            return as_value(waveform)
        factor = self.factors[random.randint(len(self.factors)).item()]
        return features.speed(waveform, self.sample_rate, factor)


class Masking(nn.Module):
    """`count` stripes of up to `width` bands or frames, each as likely as another, put to `value`
    while training, drawn for each example. `share` is the most of an axis that a stripe takes.
    """

    axis = -1
    _shown = ("width", "count", "value", "share")

    def __init__(self, width: int, count: int = 1, value: float = 0.0, share: float = 1.0) -> None:
        super().__init__()
        name = type(self).__name__
        self.width: int = check_integer(name, "width", width)
        self.count: int = check_integer(name, "count", count)
        if not 0 <= share <= 1:
            raise OptionError(name, "share in [0, 1]", repr(share), "Change it.")
        self.value = value
        self.share = share

    def forward(self, input: Any) -> Any:
        x = check_floating(type(self).__name__, input)
        if x.ndim < 2:
            raise ShapeError(type(self).__name__, "features (..., F, T)", x.shape, "Add an axis.")
        if not self.training or not self.count:
            return x
        size = x.shape[self.axis]
        most = min(self.width, int(self.share * size), size)
        draws = random.uniform((2, *x.shape[:-2], self.count))
        widths = minimum(floor(draws[0] * (most + 1)), most)  # rounding may give most + 1
        first = minimum(floor(draws[1] * (size - widths + 1)), size - widths)
        shape = (*first.shape, 1)
        at = arange(size) - reshape(first, shape)  # (..., count, size)
        masked = reduce.any((at >= 0) & (at < reshape(widths, shape)), axis=-2)
        along = (*x.shape[:-2], size, 1) if self.axis == -2 else (*x.shape[:-2], 1, size)
        return choose(reshape(masked, along), self.value, x)


class FrequencyMasking(Masking):
    """Stripes of up to `width` bands put to `value` while training, drawn again for each example.

    Shapes: (..., F, T) -> (..., F, T).
    Raises: OptionError for a negative width, or share outside [0, 1].
    Source: Park et al. 2019, arXiv:1904.08779, sec. 2.
    """

    axis = -2


class TimeMasking(Masking):
    """Stripes of up to `width` frames put to `value` while training, drawn again for each example.

    Shapes: (..., F, T) -> (..., F, T).
    Raises: OptionError for a negative width, or share outside [0, 1].
    Source: Park et al. 2019, arXiv:1904.08779, sec. 2.
    """


class SpecAugment(nn.Sequential):
    """Stripes of bands and of frames masked while training; by default the paper's LibriSpeech
    double policy. Time is not warped.

    Shapes: (..., F, T) -> (..., F, T).
    Source: Park et al. 2019, arXiv:1904.08779, table 1.
    Example:
        >>> augment = SpecAugment()
        >>> augment(np.ones((2, 80, 100), "f4")).shape, augment.eval()(np.ones((80, 9), "f4")).shape
        ((2, 80, 100), (80, 9))
    """

    def __init__(
        self,
        bands: int = 27,
        band_masks: int = 2,
        frames: int = 100,
        frame_masks: int = 2,
        *,
        share: float = 1.0,
        value: float = 0.0,
    ) -> None:
        super().__init__(
            FrequencyMasking(bands, band_masks, value),
            TimeMasking(frames, frame_masks, value, share),
        )
