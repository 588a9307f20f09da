"""Kaldi's features against torchaudio's, option by option."""

import importlib.util
import sys
import types

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import speech

rng = np.random.default_rng(0)
WAVE = (rng.normal(size=(2, 6000)) * 0.3 + 0.1).astype(np.float32)
WAVE[:, 2000:2600] = 0.0  # silence


@pytest.fixture(scope="module")
def kaldi():
    """torchaudio's functions in Python, without its binary, which may not fit PyTorch's version."""
    torch = pytest.importorskip("torch")
    spec = importlib.util.find_spec("torchaudio")
    if spec is None:
        pytest.skip("torchaudio is not installed")
    folder = spec.submodule_search_locations[0]
    before = {name: sys.modules.get(name) for name in ("torchaudio",)}
    package = types.ModuleType("torchaudio")
    package.__path__ = []
    package.functional = types.SimpleNamespace(create_dct=created_dct(torch))
    sys.modules["torchaudio"] = package
    try:
        path = f"{folder}/compliance/kaldi.py"
        module_spec = importlib.util.spec_from_file_location("kaldi_of_torchaudio", path)
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
    finally:
        sys.modules.pop("torchaudio")
        sys.modules.update({name: m for name, m in before.items() if m is not None})
    return module


def created_dct(torch):
    from glasshouse.speech.features import dct_matrix

    return lambda n_mfcc, n_mels, norm: torch.tensor(dct_matrix(n_mfcc, n_mels, norm)).float()


COMMON = [
    {},
    {"sample_frequency": 8000.0, "num_mel_bins": 40},
    {"snip_edges": False},
    {"snip_edges": False, "frame_length": 10.0, "frame_shift": 15.0},
    {"window_type": "hamming", "remove_dc_offset": False},
    {"window_type": "hanning", "preemphasis_coefficient": 0.0},
    {"window_type": "blackman", "round_to_power_of_two": False},
    {"window_type": "rectangular", "low_freq": 0.0, "high_freq": -400.0},
    {"use_energy": True},
    {"use_energy": True, "raw_energy": False, "energy_floor": 0.0},
    {"use_energy": True, "htk_compat": True},
    {"htk_compat": True, "subtract_mean": True},
]
FBANK = [*COMMON, {"use_log_fbank": False}, {"use_power": False}]
MFCC = [*COMMON, {"num_ceps": 20}, {"cepstral_lifter": 0.0}]


@pytest.mark.parametrize("name", ["fbank", "mfcc"])
def test_features_equal_torchaudios(kaldi, name):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(speech, f"kaldi_{name}"), getattr(kaldi, name)
    for options in FBANK if name == "fbank" else MFCC:
        got = ours(WAVE, **options).numpy()
        for channel in range(2):
            expected = theirs(torch.tensor(WAVE), channel=channel, dither=0.0, **options).numpy()
            np.testing.assert_allclose(got[channel], expected, 1e-4, 1e-4, err_msg=str(options))


def test_gradients_go_to_the_waveform():
    x = gh.asarray(rng.normal(size=900))
    direction = gh.asarray(rng.normal(size=900))

    def loss(x):
        return (speech.kaldi_mfcc(x, use_energy=True, snip_edges=False) ** 2).mean()

    step = 1e-6
    expected = (loss(x + step * direction) - loss(x - step * direction)).item() / (2 * step)
    assert (gh.grad(loss)(x) * direction).sum().item() == pytest.approx(expected, rel=1e-4)


def test_dither_is_noise_of_that_size():
    gh.random.seed(0)
    options = {"window_type": "rectangular", "use_energy": True, "dither": 0.5}
    energy = speech.kaldi_fbank(np.zeros(16000, "f4"), preemphasis_coefficient=0.0, **options)
    mean = np.exp(energy[:, 0].numpy()).mean() / 400
    assert mean == pytest.approx(0.25, rel=0.05)


BAD = [
    (lambda: speech.kaldi_fbank(WAVE, window="hann"), gh.OptionError, "window_type"),
    (lambda: speech.kaldi_fbank(WAVE, window_type="hann"), gh.OptionError, "'hann'"),
    (lambda: speech.kaldi_fbank(WAVE, high_freq=9000.0), gh.OptionError, "9000.0"),
    (lambda: speech.kaldi_fbank(WAVE[:, :300]), gh.ShapeError, "400 samples"),
    (lambda: speech.kaldi_fbank(WAVE, frame_length=0.0), gh.OptionError, "samples of a frame"),
    (lambda: speech.kaldi_mfcc(WAVE, num_ceps=24), gh.OptionError, "n_mfcc from 1 to 23"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_calls(number):
    call, error, text = BAD[number]
    with pytest.raises(error, match=text):
        call()
