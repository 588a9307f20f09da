"""Features as Kaldi computes them: mel bands and cepstra, frames first. Gradients go through."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import as_value, cast
from glasshouse.nn.functional import pad
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.speech.features import dct_matrix, frames, samples
from glasshouse.tensor import (
    Tensor,
    concat,
    fft,
    flip,
    imag,
    log,
    matmul,
    maximum,
    random,
    real,
    sqrt,
)
from glasshouse.tensor.standard import reduce

__all__ = ["KaldiOptions", "kaldi_fbank", "kaldi_mfcc"]

EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class KaldiOptions:
    """Options of Kaldi's features, with its names and defaults but dither, which is 0.

    `high_freq` of 0 or less counts down from half the rate. Without `snip_edges` the waveform is
    mirrored at its ends, and there is a frame for each shift."""

    sample_frequency: float = 16000.0
    frame_length: float = 25.0  # in milliseconds
    frame_shift: float = 10.0
    dither: float = 0.0
    preemphasis_coefficient: float = 0.97
    remove_dc_offset: bool = True
    window_type: str = "povey"
    round_to_power_of_two: bool = True
    blackman_coeff: float = 0.42
    snip_edges: bool = True
    num_mel_bins: int = 23
    low_freq: float = 20.0
    high_freq: float = 0.0
    use_energy: bool = False
    raw_energy: bool = True
    energy_floor: float = 1.0
    htk_compat: bool = False
    use_log_fbank: bool = True
    use_power: bool = True
    subtract_mean: bool = False
    num_ceps: int = 13
    cepstral_lifter: float = 22.0

    def sizes(self) -> tuple[int, int, int]:
        """(samples of a frame, of a shift, of a transform)."""
        size = int(self.sample_frequency * self.frame_length * 0.001)
        shift = int(self.sample_frequency * self.frame_shift * 0.001)
        check_integer("KaldiOptions", "samples of a frame", size, 2)
        check_integer("KaldiOptions", "samples of a shift", shift, 1)
        return size, shift, 1 << (size - 1).bit_length() if self.round_to_power_of_two else size

    def window(self) -> np.ndarray:
        turns = 2 * np.pi * np.arange(size := self.sizes()[0]) / (size - 1)
        b = self.blackman_coeff
        windows = {
            "povey": (0.5 - 0.5 * np.cos(turns)) ** 0.85,
            "hanning": 0.5 - 0.5 * np.cos(turns),
            "hamming": 0.54 - 0.46 * np.cos(turns),
            "blackman": b - 0.5 * np.cos(turns) + (0.5 - b) * np.cos(2 * turns),
            "rectangular": np.ones(size),
        }
        check_option("KaldiOptions", "window_type", self.window_type, tuple(windows))
        return windows[self.window_type]

    def filters(self) -> np.ndarray:
        """Triangles on the mel scale 1127 ln(1 + f / 700), (n_fft // 2 + 1, bins)."""
        top, size = self.sample_frequency / 2, self.sizes()[2]
        high = self.high_freq + (top if self.high_freq <= 0 else 0)
        if not 0 <= self.low_freq < high <= top:
            got = f"{self.low_freq} and {high}"
            raise OptionError("KaldiOptions", f"0 <= low_freq < high_freq <= {top}", got, "Check.")
        check_integer("KaldiOptions", "num_mel_bins", self.num_mel_bins, 1)

        def mel(hertz: Any) -> Any:
            return 1127 * np.log1p(np.asarray(hertz) / 700)

        corners = np.linspace(mel(self.low_freq), mel(high), self.num_mel_bins + 2)
        at = mel(np.arange(size // 2 + 1) * self.sample_frequency / size)[:, None]
        rising = (at - corners[:-2]) / (corners[1:-1] - corners[:-2])
        falling = (corners[2:] - at) / (corners[2:] - corners[1:-1])
        filters = np.maximum(0, np.minimum(rising, falling))
        filters[size // 2] = 0
        return filters


def options_of(where: str, options: KaldiOptions | None, changes: dict[str, Any]) -> KaldiOptions:
    try:
        return replace(options or KaldiOptions(), **changes)
    except TypeError as error:
        names = ", ".join(KaldiOptions.__dataclass_fields__)
        raise OptionError(where, f"options of {names}", error, "Check the name.") from None


def windowed(where: str, waveform: Any, options: KaldiOptions) -> tuple[Tensor, Tensor]:
    """(frames under the window, padded (..., T, n_fft); the log of their energies (..., T, 1))."""
    size, shift, n_fft = options.sizes()
    x = samples(where, waveform, size)
    if not options.snip_edges:
        edge, mirrored = size // 2 - shift // 2, flip(x, axis=-1)
        before = mirrored[..., x.shape[-1] - edge :] if edge > 0 else mirrored[..., :0]
        count = (x.shape[-1] + shift // 2) // shift
        x = concat([before, x[..., max(-edge, 0) :], mirrored], axis=-1)
        x = x[..., : size + (count - 1) * shift]
    rows = frames(x, size, shift)  # (..., T, size)
    if options.dither:
        rows = rows + random.normal(rows.shape, dtype=rows.dtype) * options.dither
    if options.remove_dc_offset:
        rows = rows - reduce.mean(rows, axis=-1, keepdims=True)
    energy = log_energy(rows, options)
    if options.preemphasis_coefficient:
        before = concat([rows[..., :1], rows[..., :-1]], axis=-1)
        rows = rows - before * options.preemphasis_coefficient
    rows = rows * cast(as_value(options.window()), rows.dtype)
    if not options.raw_energy:
        energy = log_energy(rows, options)
    return pad(rows, (0, n_fft - size)), energy


def log_energy(rows: Tensor, options: KaldiOptions) -> Tensor:
    energy = log(maximum(reduce.sum(rows * rows, axis=-1, keepdims=True), EPSILON))
    floor = options.energy_floor
    return maximum(energy, float(np.log(floor))) if floor > 0 else energy


def mel_bands(where: str, waveform: Any, options: KaldiOptions) -> tuple[Tensor, Tensor]:
    """(mel bands (..., T, bins), log energies (..., T, 1))."""
    rows, energy = windowed(where, waveform, options)
    spectrum = fft.rfft(rows)
    power = real(spectrum) ** 2 + imag(spectrum) ** 2
    bands = power if options.use_power else sqrt(power)
    bands = matmul(bands, cast(as_value(options.filters()), rows.dtype))
    return (log(maximum(bands, EPSILON)) if options.use_log_fbank else bands), energy


def less_mean(x: Tensor, options: KaldiOptions) -> Tensor:
    return x - reduce.mean(x, axis=-2, keepdims=True) if options.subtract_mean else x


def kaldi_fbank(waveform: Any, options: KaldiOptions | None = None, **changes: Any) -> Tensor:
    """Mel bands of each frame, as logarithms unless use_log_fbank is off; with use_energy the log
    energy stands before them, or with htk_compat after them.

    Shapes: (..., samples) -> (..., T, num_mel_bins), or one more with use_energy.
    Raises: OptionError for an option that is not known or out of its range; ShapeError for a
        waveform shorter than a frame.
    Source: Povey et al. 2011, "The Kaldi speech recognition toolkit", feat/feature-fbank.
    Example:
        >>> kaldi_fbank(np.ones(800, "f4"), num_mel_bins=40, sample_frequency=8000).shape
        (8, 40)
    """
    options = options_of("kaldi_fbank", options, changes)
    bands, energy = mel_bands("kaldi_fbank", waveform, options)
    if options.use_energy:
        parts = [bands, energy] if options.htk_compat else [energy, bands]
        bands = concat(parts, axis=-1)
    return less_mean(bands, options)


def kaldi_mfcc(waveform: Any, options: KaldiOptions | None = None, **changes: Any) -> Tensor:
    """Cepstra of each frame: the cosine transform of the log mel bands, lifted; with use_energy the
    first is the log energy, and with htk_compat the first becomes the last.

    Shapes: (..., samples) -> (..., T, num_ceps).
    Raises: as `kaldi_fbank`; OptionError unless num_ceps <= num_mel_bins.
    Source: Povey et al. 2011, feat/feature-mfcc; the lifter of Young et al., "The HTK Book".
    Example:
        >>> kaldi_mfcc(np.ones(800, "f4")).shape
        (3, 13)
    """
    options = options_of(
        "kaldi_mfcc", options, {"use_log_fbank": True, "use_power": True} | changes
    )
    bands, energy = mel_bands("kaldi_mfcc", waveform, options)
    number = np.arange(options.num_ceps)
    matrix = dct_matrix(options.num_ceps, options.num_mel_bins)
    if lifter := options.cepstral_lifter:
        matrix = matrix * (1 + 0.5 * lifter * np.sin(np.pi * number / lifter))
    cepstra = matmul(bands, cast(as_value(matrix), bands.dtype))
    first = energy if options.use_energy else cepstra[..., :1]
    if options.htk_compat:
        last = first if options.use_energy else first * 2**0.5
        cepstra = concat([cepstra[..., 1:], last], axis=-1)
    elif options.use_energy:
        cepstra = concat([first, cepstra[..., 1:]], axis=-1)
    return less_mean(cepstra, options)
