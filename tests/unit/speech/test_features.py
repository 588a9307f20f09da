"""Features of sound against NumPy's and SciPy's; augmentations by what they leave; bad calls."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech
from glasshouse.speech import features

signal = pytest.importorskip("scipy.signal")
scipy_fft = pytest.importorskip("scipy.fft")
rng = np.random.default_rng(0)
WAVE = rng.normal(size=(2, 2000))


def plain_spectrogram(x, window, n_fft, hop):
    """Energy of each frame by the definition: (F, T)."""
    x = np.pad(x, n_fft // 2, mode="reflect")
    left = (n_fft - len(window)) // 2
    window = np.pad(window, (left, n_fft - len(window) - left))
    starts = range(0, len(x) - n_fft + 1, hop)
    return np.stack([np.abs(np.fft.rfft(x[s : s + n_fft] * window)) ** 2 for s in starts], axis=1)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "rectangular"])
@pytest.mark.parametrize("n_fft, size, hop", [(128, 128, 64), (256, 200, 80), (65, 64, 30)])
def test_spectrogram_is_that_of_each_frame(name, n_fft, size, hop):
    own = "boxcar" if name == "rectangular" else name
    window = signal.get_window(own, size)
    np.testing.assert_allclose(features.window_values(name, size), window, atol=1e-15)
    got = features.spectrogram(gh.asarray(WAVE), window, n_fft, hop)
    for row, x in zip(got.numpy(), WAVE, strict=True):
        np.testing.assert_allclose(row, plain_spectrogram(x, window, n_fft, hop), rtol=1e-9)


def test_options_of_spectrograms():
    window = features.window_values("hann", 64)
    x = gh.asarray(WAVE[0])
    spectrum = features.spectrogram(x, window, 64, power=None).numpy()
    for power in (1.0, 2.0, 3.0):
        got = features.spectrogram(x, window, 64, power=power).numpy()
        np.testing.assert_allclose(got, np.abs(spectrum) ** power, rtol=1e-9)
    got = features.spectrogram(x, window, 64, power=None, normalized=True).numpy()
    np.testing.assert_allclose(got, spectrum / np.sqrt((window**2).sum()), rtol=1e-9)
    apart = features.spectrogram(x, window, 64, 16, power=None, center=False).numpy()
    _, _, other = signal.stft(
        WAVE[0], window=window, nperseg=64, noverlap=48, boundary=None, padded=False
    )
    np.testing.assert_allclose(apart, other * window.sum(), atol=1e-9)


def plain_filters(n_freqs, n_mels, rate, f_min, f_max, scale):
    """Triangles, one frequency after the other."""
    if scale == "htk":
        forth, back = lambda f: 2595 * np.log10(1 + f / 700), lambda m: 700 * (10 ** (m / 2595) - 1)
    else:
        step = np.log(6.4) / 27

        def forth(f):
            return f * 3 / 200 if f < 1000 else 15 + np.log(f / 1000) / step

        def back(m):
            return m * 200 / 3 if m < 15 else 1000 * np.exp(step * (m - 15))

    points = [back(m) for m in np.linspace(forth(f_min), forth(f_max), n_mels + 2)]
    result = np.zeros((n_freqs, n_mels))
    for i, f in enumerate(np.linspace(0, rate / 2, n_freqs)):
        for j in range(n_mels):
            low, top, high = points[j : j + 3]
            if low < f <= top:
                result[i, j] = (f - low) / (top - low)
            elif top < f < high:
                result[i, j] = (high - f) / (high - top)
    return result, points


@pytest.mark.parametrize("scale", ["htk", "slaney"])
@pytest.mark.quick
def test_mel_filters_are_triangles(scale):
    expected, points = plain_filters(129, 12, 8000, 60.0, 3500.0, scale)
    got = features.mel_filters(129, 12, 8000, 60.0, 3500.0, mel_scale=scale)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    areas = features.mel_filters(129, 12, 8000, 60.0, 3500.0, mel_scale=scale, norm="slaney")
    width = np.array(points[2:]) - np.array(points[:-2])
    np.testing.assert_allclose(areas, expected * 2 / width, atol=1e-12)


def test_mel_energies_and_cepstra():
    layer = speech.MFCC(8000, 256, hop_length=80, n_mels=20, n_mfcc=13).double()
    window, filters = layer.window.numpy(), layer.filters.numpy()
    energy = np.stack([plain_spectrogram(x, window, 256, 80) for x in WAVE])
    mel = np.einsum("nft,fm->nmt", energy, filters)
    plain = speech.MelSpectrogram(8000, 256, hop_length=80, n_mels=20).double()
    np.testing.assert_allclose(plain(WAVE).numpy(), mel, rtol=1e-9)
    logged = speech.LogMelSpectrogram(8000, 256, hop_length=80, n_mels=20).double()
    np.testing.assert_allclose(logged(WAVE).numpy(), np.log(mel + 1e-6), rtol=1e-9)
    level = 10 * np.log10(np.maximum(mel, 1e-10))
    level = np.maximum(level, level.max(axis=(1, 2), keepdims=True) - 80)
    cepstra = scipy_fft.dct(level, type=2, norm="ortho", axis=1)[:, :13]
    np.testing.assert_allclose(layer(WAVE).numpy(), cepstra, atol=1e-4)  # float32 cosines
    for norm in ("ortho", None):
        got = features.dct_matrix(5, 9, norm).T
        np.testing.assert_allclose(got, scipy_fft.dct(np.eye(9), norm=norm, axis=0)[:5], atol=1e-12)


def test_decibels_end_below_the_peak():
    x = np.array([[1.0, 1e-20, 1e4]])
    np.testing.assert_allclose(features.decibels(x).numpy(), [[0, -100, 40]], atol=1e-12)
    np.testing.assert_allclose(features.decibels(x, top_db=50).numpy(), [[0, -10, 40]], atol=1e-12)


@pytest.mark.parametrize("length", [3, 5, 9])
def test_deltas_are_the_slopes_of_fitted_lines(length):
    x = rng.normal(size=(2, 3, 12))
    reach = length // 2
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach)), mode="edge")
    times = np.arange(-reach, reach + 1)
    for t in range(12):
        pieces = padded[..., t : t + length].reshape(6, length)
        slopes = np.polyfit(times, pieces.T, 1)[0].reshape(2, 3)
        np.testing.assert_allclose(features.deltas(x, length).numpy()[..., t], slopes, atol=1e-12)
    stacked = speech.Deltas(2, length)(x).numpy()
    assert stacked.shape == (2, 9, 12)
    twice = features.deltas(features.deltas(x, length), length)
    np.testing.assert_allclose(stacked[:, 6:], twice.numpy())


@pytest.mark.quick
def test_preemphasis_is_a_filter():
    got = speech.PreEmphasis(0.9)(WAVE).numpy()
    np.testing.assert_allclose(got, signal.lfilter([1, -0.9], [1], WAVE))


def test_normalized_features_have_mean_0_and_deviation_1():
    x = rng.normal(3, 5, size=(2, 4, 30))
    got = speech.NormalizeFeatures(eps=0.0)(x).numpy()
    np.testing.assert_allclose(got.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(got.std(-1), 1)
    only_mean = features.normalize_features(x, variance=False).numpy()
    np.testing.assert_allclose(only_mean, x - x.mean(-1, keepdims=True))


@pytest.mark.parametrize("old, new", [(2, 1), (1, 2), (3, 4), (441, 160)])
def test_resampled_is_the_sum_of_windowed_sincs(old, new):
    x = rng.normal(size=80)
    cutoff = min(old, new) * 0.99
    expected = []
    for i in range(-(-new * 80 // old)):
        times = np.clip((np.arange(80) / old - i / new) * cutoff, -6, 6)
        window = np.cos(times * np.pi / 12) ** 2
        expected.append((x * np.sinc(times) * window).sum() * cutoff / old)
    got = speech.Resample(old, new)(x)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


def test_a_tone_keeps_its_frequency_and_speed_changes_it():
    times = np.arange(8000) / 8000
    tone = np.sin(2 * np.pi * 500 * times)
    for rate, x, expected in (
        (16000, features.resample(tone, 8000, 16000), 500),
        (8000, features.speed(tone, 8000, 1.25), 625),
    ):
        y = x.numpy()
        peak = np.abs(np.fft.rfft(y)).argmax() * rate / len(y)
        assert peak == pytest.approx(expected, abs=2)


LAYERS = {
    "log mel": lambda: speech.LogMelSpectrogram(8000, 64, hop_length=32, n_mels=8),
    "cepstra": lambda: speech.MFCC(8000, 64, hop_length=32, n_mels=8, n_mfcc=5),
    "resampled": lambda: speech.Resample(3, 2),
    "slopes": lambda: gh.nn.Sequential(
        speech.PreEmphasis(),
        speech.Spectrogram(32),
        speech.NormalizeFeatures(),
        speech.Deltas(1, 3),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_differentiated_batched_and_captured(name):
    layer = LAYERS[name]().double()
    x, direction = gh.asarray(WAVE[:, :200]), gh.asarray(WAVE[:, 200:400])

    def loss(x):
        y = layer(x)
        return (y * y).mean()

    slope = gh.grad(loss)(x)
    result = (slope * direction).sum().item()
    step = 1e-6
    expected = (loss(x + step * direction) - loss(x - step * direction)).item() / (2 * step)
    assert result == pytest.approx(expected, rel=1e-5)
    assert gh.jvp(loss, (x,), (direction,))[1].item() == pytest.approx(result)
    np.testing.assert_allclose(gh.vmap(layer)(x).numpy(), layer(x).numpy(), atol=1e-12)
    captured = gh.optimize(lambda x: layer(x) * 1)
    for _ in range(3):
        got = captured(x)
    np.testing.assert_allclose(got.numpy(), layer(x).numpy(), atol=1e-12)


def test_masks_are_stripes_of_all_widths():
    gh.random.seed(0)
    mask = speech.TimeMasking(6, value=-1.0)
    x = gh.ones((400, 3, 20))
    y = mask(x).numpy()
    assert (y[:, :1] == y).all()  # all bands
    widths = set()
    firsts = set()
    for row in y[:, 0]:
        at = np.flatnonzero(row == -1)
        widths.add(len(at))
        assert len(at) == 0 or (np.diff(at) == 1).all()
        firsts |= {*at[:1], *at[-1:]}
    assert widths == set(range(7)) and {0, 19} <= firsts
    assert (mask.eval()(x).numpy() == 1).all()
    bands = speech.FrequencyMasking(2, count=2)(x).numpy()
    assert (bands[:, :, :1] == bands).all()
    assert set((bands[:, :, 0] == 0).sum(1)) == {0, 1, 2, 3}  # of 3 bands
    few = speech.TimeMasking(100, share=0.1)(x).numpy()
    assert (few[:, 0] == 0).sum(1).max() == 2


def test_spec_augment_passes_gradients_where_nothing_is_masked():
    gh.random.seed(1)
    augment = speech.SpecAugment(3, 1, 4, 1)
    x = gh.tensor(np.ones((2, 8, 30))).requires_grad_()
    y = augment(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert 0 < (y.numpy() == 0).mean() < 0.6


def test_speed_perturbation_draws_a_factor():
    gh.random.seed(0)
    perturb = speech.SpeedPerturbation(16000, (0.8, 1.0, 1.25))
    x = gh.asarray(WAVE[:, :160])
    assert {perturb(x).shape[-1] for _ in range(20)} == {128, 160, 200}
    assert perturb.eval()(x).shape == (2, 160)


BAD = [
    (lambda: features.window_values("han", 4), gh.OptionError, "'hann'"),
    (lambda: features.frames(WAVE, 3000, 10), gh.ShapeError, "3000 samples or more"),
    (lambda: features.frames(WAVE, 10, 0), gh.OptionError, "hop"),
    (lambda: features.spectrogram(WAVE, np.ones(500), 400), gh.ShapeError, r"1 to 400.*\(500,\)"),
    (lambda: features.spectrogram(WAVE[:, :9], np.ones(8), 64), gh.ShapeError, r"\(2, 9\)"),
    (
        lambda: features.spectrogram(WAVE, np.ones(8), 8, pad_mode="mirror"),
        gh.OptionError,
        "mirror",
    ),
    (lambda: features.mel_filters(9, 4, 8000, 5000.0), gh.OptionError, "5000.0 and 4000.0"),
    (lambda: features.mel_filters(9, 4, 8000, mel_scale="bark"), gh.OptionError, "bark"),
    (lambda: features.mel_filters(9, 0, 8000), gh.OptionError, "n_mels"),
    (lambda: features.dct_matrix(9, 4), gh.OptionError, "n_mfcc from 1 to 4; got 9"),
    (lambda: features.decibels([[1.0]], floor=0.0), gh.OptionError, "floor"),
    (lambda: features.deltas([[1.0]], 4), gh.OptionError, "odd win_length; got 4"),
    (lambda: features.resample(WAVE, 0, 8000), gh.OptionError, "orig_freq"),
    (lambda: features.resample(WAVE, 2, 1, rolloff=2.0), gh.OptionError, "rolloff"),
    (lambda: features.speed(WAVE, 8000, 0.0), gh.OptionError, "factor above 0"),
    (lambda: features.resample(np.ones(3, int), 2, 1), gh.DTypeError, "floating waveform"),
    (lambda: speech.Spectrogram(64, 65), gh.OptionError, "at most 64; got 65"),
    (lambda: speech.TimeMasking(-1), gh.OptionError, "width"),
    (lambda: speech.TimeMasking(3, share=1.5), gh.OptionError, "share"),
    (lambda: speech.FrequencyMasking(3)(gh.ones(4)), gh.ShapeError, r"\(4,\)"),
    (lambda: speech.SpeedPerturbation(factors=(0.0,)), gh.OptionError, r"\(0.0,\)"),
    (lambda: speech.Deltas(0), gh.OptionError, "order"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()
