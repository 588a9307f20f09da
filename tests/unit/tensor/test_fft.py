"""gh.fft beside NumPy and PyTorch: values, derivatives, sizes and norms."""

import numpy as np
import pytest

import glasshouse as gh

OF_REAL = ("rfft", "rfftn", "rfft2", "ihfft", "ihfftn", "ihfft2")
ONE_AXIS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
TRANSFORMS = [name for name in gh.fft.__all__ if "freq" not in name and "shift" not in name]


def signal(name: str, dtype: str = "float64") -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 5)).astype(dtype)
    return x if name in OF_REAL else x + 1j * rng.standard_normal(x.shape).astype(dtype)


def options(name: str):
    if name in ONE_AXIS:
        return [(n, axis) for n in (None, 3, 6, 7) for axis in (-1, 0, 1)]
    sizes = [(s, axes) for s in (None, (3, 4), (2, 6)) for axes in ((0, 1), (2, 0), (-2, -1))]
    return sizes + [(None, None)] * name.endswith("n")


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward", None])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_are_those_of_pytorch(name, norm):
    torch = pytest.importorskip("torch")
    for dtype, close in (("float32", 1e-4), ("float64", 1e-10)):
        x = signal(name, dtype)
        for sizes, axes in options(name):
            expected = getattr(torch.fft, name)(torch.tensor(x), sizes, axes, norm)
            result = getattr(gh.fft, name)(gh.asarray(x), sizes, axes, norm).numpy()
            assert result.dtype == x.real.dtype if "irfft" in name or name[0] == "h" else True
            np.testing.assert_allclose(result, expected.resolve_conj().numpy(), atol=close)


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if hasattr(np.fft, name)])
def test_values_are_those_of_numpy(name):
    x = signal(name)
    expected = getattr(np.fft, name)(x)
    np.testing.assert_allclose(getattr(gh.fft, name)(gh.asarray(x)).numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    for size in (4, 5) if name in ONE_AXIS else (None,):
        theirs = torch.tensor(signal(name), requires_grad=True)
        ours = gh.tensor(signal(name), requires_grad=True)
        y, z = getattr(torch.fft, name)(theirs, size), getattr(gh.fft, name)(ours, size)
        (torch.view_as_real(y.resolve_conj()) if y.is_complex() else y).square().sum().backward()
        (gh.real(z) * gh.real(z) + gh.imag(z) * gh.imag(z)).sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-9)


def test_frequencies_and_shifts():
    for n in (1, 2, 5, 8):
        np.testing.assert_allclose(gh.fft.fftfreq(n, d=0.5).numpy(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_allclose(gh.fft.rfftfreq(n).numpy(), np.fft.rfftfreq(n))
    x = np.arange(30).reshape(5, 6)
    for axes in (None, 0, (1, 0), (-1,)):
        np.testing.assert_array_equal(gh.fft.fftshift(x, axes).numpy(), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(gh.fft.ifftshift(x, axes).numpy(), np.fft.ifftshift(x, axes))


def test_a_transform_may_be_mapped_and_there_and_back_is_the_same():
    x = gh.asarray(signal("rfft"))
    mapped = gh.vmap(gh.fft.rfft)(x)
    np.testing.assert_allclose(mapped.numpy(), np.fft.rfft(x.numpy()), atol=1e-12)
    there = gh.fft.rfftn(x, axes=(0, 2))
    back = gh.fft.irfftn(there, s=(3, 5), axes=(0, 2))
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: gh.fft.fft(x, norm="orto"), gh.OptionError, "ortho"),
        (lambda x: gh.fft.fft(x, n=0), gh.OptionError, "a size"),
        (lambda x: gh.fft.fft(x, axis=3), gh.AxisError, "axis 3"),
        (lambda x: gh.fft.rfft(gh.fft.fft(x)), gh.DTypeError, "complex"),
        (lambda x: gh.fft.fftn(x, s=(2,), axes=(0, 1)), gh.OptionError, "as many of both"),
        (lambda x: gh.fft.fftn(x, axes=(0, 0)), gh.OptionError, "distinct"),
        (lambda x: gh.fft.irfft(x[..., :1]), gh.OptionError, "a size"),
        (lambda x: gh.fft.rfftn(x, axes=()), gh.OptionError, "one axis"),
        (lambda x: gh.fft.fftfreq(0), gh.OptionError, "n to be"),
        (lambda x: gh.fft.fftfreq(4, d=0), gh.OptionError, "^fftfreq: .*spacing"),
        (lambda x: gh.fft.rfftfreq(4, d=0), gh.OptionError, "^rfftfreq: .*spacing"),
        (lambda x: gh.fft.fftfreq(4, dtype="int32"), gh.DTypeError, "int32"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call(gh.ones((2, 3, 4)))
