"""The gradients of convolutions' weights by our kernel: those of the reference and of oneDNN, for
every shape and number of threads, and where it is used."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.target import current_target, use_target
from glasshouse.compile.programs import program
from glasshouse.compile.steps.emitted import Dialect
from glasshouse.ops.contract import conv_weight_grad
from glasshouse.targets.cpu.kernels import weight_gradients
from glasshouse.targets.cpu.onednn import library as onednn

SHAPES = {  # images, channels, made, (height, width), kernel, stride, padding, dilation
    "whole panels": (2, 64, 28, (8, 12), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "parts of panels": (3, 37, 45, (7, 11), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "few channels": (2, 16, 17, (9, 6), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "one channel": (2, 1, 1, (9, 6), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "steps": (2, 40, 33, (9, 14), (1, 1), (2, 3), ((0, 0), (0, 0)), (1, 1)),
    "kernels with steps": (2, 33, 70, (15, 16), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "uneven padding": (1, 20, 9, (11, 8), (2, 3), (1, 2), ((2, 0), (0, 3)), (1, 1)),
    "padding of one position": (1, 18, 16, (6, 6), (1, 1), (1, 1), ((1, 1), (2, 0)), (1, 1)),
    "gaps": (2, 35, 18, (13, 12), (3, 2), (1, 1), ((2, 2), (0, 3)), (2, 3)),
    "many blocks": (4, 24, 30, (21, 20), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "one position": (1, 50, 20, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
}
TOLERANCE = 1e-5  # of the largest element


@pytest.fixture
def fresh(monkeypatch):
    """Programs made here are of no use to others."""
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(flags, "compile", "always")


@pytest.fixture
def everywhere(fresh, monkeypatch):
    """Also where it is slower."""
    monkeypatch.setattr(weight_gradients, "is_faster", lambda node: True)
    monkeypatch.setattr(flags, "winograd", False)


def gradient(shape, dtype: str = "float32", spoilt: bool = False) -> np.ndarray:
    """The gradient of a convolution's weights with the current backend; `spoilt`: one NaN in it."""
    images, channels, out_channels, size, kernel, stride, padding, dilation = shape
    out = [
        (n + sum(pair) - (k - 1) * gap - 1) // step + 1
        for n, k, step, pair, gap in zip(size, kernel, stride, padding, dilation, strict=True)
    ]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, channels, *size), np.float32)
    g = rng.standard_normal((images, out_channels, *out), np.float32)
    if spoilt:
        g[0, out_channels - 1, -1, -1] = np.nan
    x, g = (gh.tensor(a, dtype=dtype) for a in (x, g))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 1}
    return conv_weight_grad(x, g, shape=kernel, **how).numpy().astype(np.float32)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_the_reference(everywhere, name):
    result = gradient(SHAPES[name])
    with gh.backends.use("numpy"):
        expected = gradient(SHAPES[name])
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("name", SHAPES)
def test_vectors_of_8_give_those_of_the_reference(everywhere, monkeypatch, name):
    """As on processors without AVX-512."""
    lanes, rows = weight_gradients.registers_of("avx")
    for constant, size in (("LANES", lanes), ("MOST_ROWS", rows), ("COLUMNS", 2 * lanes)):
        monkeypatch.setattr(weight_gradients, constant, size)
    narrow = Dialect(options=("-mno-avx512f",))
    with use_target(current_target().extension("vectors of 8", dialect=narrow)):
        result = gradient(SHAPES[name])
    with gh.backends.use("numpy"):
        expected = gradient(SHAPES[name])
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("name", ["parts of panels", "kernels with steps"])
def test_gradients_are_those_of_onednn(everywhere, monkeypatch, name):
    result = gradient(SHAPES[name])
    monkeypatch.setattr(weight_gradients, "is_faster", lambda node: False)
    monkeypatch.setattr(program, "programs", {})
    expected = gradient(SHAPES[name])
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def test_a_nan_spoils_the_weights_of_its_channel_alone(everywhere):
    result = gradient(SHAPES["parts of panels"], spoilt=True)
    assert np.isnan(result[-1]).all()
    assert np.isfinite(result[:-1]).all()


@pytest.mark.parametrize("name", ["parts of panels", "kernels with steps", "few channels"])
def test_bits_do_not_depend_on_the_number_of_threads(everywhere, monkeypatch, name):
    monkeypatch.setattr(weight_gradients, "CORES", 3)
    openmp = toolchain.share_openmp()
    before, results = openmp.omp_get_max_threads(), []
    try:
        for threads in (1, 2, 3):
            openmp.omp_set_num_threads(threads)
            results.append(gradient(SHAPES[name]).tobytes())
    finally:
        openmp.omp_set_num_threads(before)
    assert results[0] == results[1] == results[2]


def kind_of(shape, dtype: str = "float32") -> str:
    """The kind of the step that computes the gradient."""
    with gh.profile() as prof:
        gradient(shape, dtype)
    (kind,) = {row.kind for row in prof.kernels() if "conv" in row.name}
    return kind


@pytest.mark.slow
@pytest.mark.skipif(weight_gradients.LANES < 8, reason="vectors have too few lanes")
def test_it_is_used_where_onednn_is_slower(fresh):
    large = (2, 32, 48, (24, 24), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    strided = (2, 32, 48, (33, 33), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))
    few_positions = (2, 32, 48, (16, 16), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    few_channels = (2, 8, 48, (24, 24), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    assert kind_of(large) == kind_of(strided) == "panels"
    assert kind_of(few_positions) == kind_of(few_channels) == "onednn"
    is_brief = "bfloat16" in onednn.library().dtypes  # else it is widened, and float32
    assert kind_of(large, "bfloat16") == ("onednn" if is_brief else "panels")
