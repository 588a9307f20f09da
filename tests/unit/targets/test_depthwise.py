"""Depthwise convolutions and their gradients by our kernels: those of the references, for every
shape and number of threads, and where they are used."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.programs import program
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.targets.cpu.kernels import depthwise
from glasshouse.targets.cpu.onednn import library as onednn

SHAPES = {  # images, channels, (height, width), kernel, stride, padding, dilation
    "whole vectors": (2, 64, (8, 9), (5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1)),
    "parts of vectors": (3, 75, (7, 5), (3, 7), (2, 1), ((1, 1), (3, 3)), (1, 1)),
    "one vector": (1, 16, (6, 11), (4, 3), (1, 2), ((0, 0), (0, 0)), (1, 1)),
    "uneven padding": (2, 19, (9, 6), (7, 5), (3, 2), ((3, 1), (0, 4)), (1, 1)),
    "gaps": (9, 40, (12, 13), (3, 4), (2, 3), ((2, 2), (5, 1)), (2, 3)),
    "one column": (2, 33, (20, 4), (11, 1), (2, 2), ((5, 5), (0, 0)), (1, 1)),
    "most columns": (1, 130, (5, 30), (2, 8), (1, 3), ((1, 1), (7, 7)), (1, 1)),
    "steps over the kernel": (2, 50, (10, 11), (2, 2), (3, 4), ((1, 0), (2, 1)), (1, 1)),
    "one axis": (3, 40, (29,), (15,), (1,), ((7, 7),), (1,)),
    "one axis with steps and gaps": (2, 21, (35,), (4,), (3,), ((2, 5),), (2,)),
    "padding alone": (1, 18, (2, 3), (3, 3), (2, 1), ((5, 5), (4, 4)), (1, 1)),
}


@pytest.fixture
def everywhere(monkeypatch):
    """Also where it is slower; Programs made here are of no use to others."""
    monkeypatch.setattr(depthwise, "is_faster", lambda node: True)
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(flags, "compile", "always")


def results(shape, dtype: str) -> dict[str, np.ndarray]:
    """A convolution, one with a bias, and the gradients of data and weights, with the current
    backend."""
    images, channels, size, kernel, stride, padding, dilation = shape
    out = [
        (n + sum(pair) - (k - 1) * gap - 1) // step + 1
        for n, k, step, pair, gap in zip(size, kernel, stride, padding, dilation, strict=True)
    ]
    rng = np.random.default_rng(0)
    shapes = ((images, channels, *size), (channels, 1, *kernel), (images, channels, *out))
    x, w, g = (gh.tensor(rng.standard_normal(s, np.float32), dtype=dtype) for s in shapes)
    bias = gh.tensor(
        rng.standard_normal((1, channels, *(1 for _ in size)), np.float32), dtype=dtype
    )
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": channels}
    outputs = {
        "conv": conv(x, w, **how),
        "conv + bias": conv(x, w, **how) + bias,
        "conv_data_grad": conv_data_grad(g, w, shape=size, **how),
        "conv_weight_grad": conv_weight_grad(x, g, shape=kernel, **how),
    }
    return {name: value.numpy().astype(np.float32) for name, value in outputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_results_are_those_of_the_references(everywhere, name, dtype):
    result = results(SHAPES[name], dtype)
    with gh.backends.use("numpy"):
        expected = results(SHAPES[name], dtype)
    tolerance = 1e-5 if dtype == "float32" else 2**-8
    for key, value in expected.items():
        np.testing.assert_allclose(result[key], value, rtol=0, atol=tolerance * np.abs(value).max())


def test_bits_do_not_depend_on_the_number_of_threads(everywhere, monkeypatch):
    """Sums are taken in the same parts."""
    one = results(SHAPES["parts of vectors"], "float32")
    openmp = toolchain.share_openmp()
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(3)
    try:
        three = results(SHAPES["parts of vectors"], "float32")
    finally:
        openmp.omp_set_num_threads(before)
    for key, value in one.items():
        assert value.tobytes() == three[key].tobytes()


def kinds_of(shape, dtype: str) -> set[str]:
    """The kinds of the steps that compute convolutions and gradients."""
    with gh.profile() as prof:
        results(shape, dtype)
    return {(row.name.split()[0], row.kind) for row in prof.kernels() if "conv" in row.name}


@pytest.mark.slow
def test_it_is_used_where_onednn_is_slow(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")
    large = (2, 64, (8, 8), (5, 5), (2, 2), ((2, 2), (2, 2)), (1, 1))
    small = (2, 64, (8, 8), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    time = (2, 64, (40,), (3,), (1,), ((1, 1),), (1,))
    ours = {(name, "template") for name in ("conv", "conv_data_grad", "conv_weight_grad")}
    assert kinds_of(large, "float32") == kinds_of(time, "float32") == ours
    assert ("conv_weight_grad", "template") in kinds_of(small, "float32")
    if "bfloat16" in onednn.library().dtypes:
        assert kinds_of(large, "bfloat16") == ours - {("conv", "template")} | {("conv", "onednn")}
        assert not {kind for _, kind in kinds_of(small, "bfloat16")} & {"template"}
    else:
        assert kinds_of(large, "bfloat16") == kinds_of(small, "bfloat16") == ours


def test_kernels_with_many_columns_or_wide_gaps_go_through_onednn(everywhere):
    long = (1, 16, (5, 20), (1, 9), (1, 1), ((0, 0), (4, 4)), (1, 1))
    wide = (1, 16, (5, 90), (1, 3), (1, 1), ((0, 0), (0, 0)), (1, 17))
    for shape in (long, wide):
        assert not {kind for _, kind in kinds_of(shape, "float32")} & {"template"}
