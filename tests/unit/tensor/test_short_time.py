"""stft and istft beside PyTorch's: values, gradients, options."""

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
OPTIONS = [
    {},
    {"hop_length": 3, "win_length": 6},
    {"center": False, "normalized": True},
    {"onesided": False, "hop_length": 2},
    {"n_fft": 7, "pad_mode": "constant"},
    {"pad_mode": "circular"},
    {"pad_mode": "replicate"},
]


def given(options):
    options = {"n_fft": 8} | options
    rng = np.random.default_rng(0)
    size = options.get("win_length", options["n_fft"])
    return rng.normal(size=(2, 40)), rng.uniform(0.5, 1, size), options


@pytest.mark.parametrize("options", OPTIONS)
def test_stft_is_pytorchs_with_its_gradient(options):
    x, window, options = given(options)
    ours, theirs = gh.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y = gh.stft(ours, window=gh.tensor(window), **options)
    z = torch.stft(theirs, window=torch.tensor(window), return_complex=True, **options)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), atol=1e-11)
    (y.abs() ** 3).sum().backward()
    (z.abs() ** 3).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("length", [None, 30, 60])
@pytest.mark.parametrize("options", [o for o in OPTIONS if "win_length" not in o])
@pytest.mark.filterwarnings("ignore:The length of signal")
def test_istft_is_pytorchs_with_its_gradient(options, length):
    x, window, options = given(options)
    mode = options.pop("pad_mode", "reflect")
    spectrum = torch.stft(
        torch.tensor(x), window=torch.tensor(window), pad_mode=mode, return_complex=True, **options
    )
    ours = gh.tensor(spectrum.resolve_conj().numpy(), requires_grad=True)
    theirs = spectrum.clone().requires_grad_()
    y = gh.istft(ours, window=gh.tensor(window), length=length, **options)
    z = torch.istft(theirs, window=torch.tensor(window), length=length, **options)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), atol=1e-11)
    (y**3).sum().backward()
    (z**3).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.resolve_conj().numpy(), atol=1e-9)


def test_complex_signals_go_there_and_back():
    rng = np.random.default_rng(0)
    x = gh.tensor(rng.normal(size=32) + 1j * rng.normal(size=32))
    back = x.stft(8).istft(8, onesided=False, return_complex=True)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: gh.stft(x, 100, center=False), "a signal of 100 samples"),
        (lambda x: gh.stft(x, 8, win_length=4, window=gh.ones(6)), "a window of win_length 4"),
        (lambda x: gh.stft(x + 0j, 8, onesided=True), "onesided=False"),
        (lambda x: gh.stft(x.int(), 8), "a floating or complex signal"),
        (lambda x: gh.stft(x, 8).istft(16), r"a spectrum \(..., 9, frames\)"),
        (lambda x: gh.istft(x, 8), "a complex spectrum"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((gh.ShapeError, gh.OptionError, gh.DTypeError), match=message):
        call(gh.zeros(20, dtype="float64"))
