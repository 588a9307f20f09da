"""Products and convolutions of bytes: the sums are NumPy's, whichever kernel adds them."""

import os
import subprocess
import sys

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record
from glasshouse.ops.contract import conv
from glasshouse.targets.cpu.kernels import byte_products
from glasshouse.targets.cpu.onednn import byte_products as onednn_bytes
from glasshouse.targets.cpu.target import CPU

KINDS = ["int8", "uint8"]
SIZES = [(rows, 67 * rows % 300 + 1, 5 * rows + 1) for rows in range(1, 9)]
SIZES += [(1, 64, 8), (4, 128, 4), (16, 1000, 33), (17, 129, 40), (40, 500, 333), (3, 4099, 2)]
# Channels, those made, sizes, kernel, groups, then stride, padding and dilation.
WINDOWS = [
    (3, 8, (9, 7), (3, 3), 1, 1, 1, 1),
    (8, 8, (12, 12), (3, 3), 8, 2, 1, 1),
    (6, 4, (10, 10), (3, 2), 2, 1, 2, 2),
    (64, 64, (5, 5), (1, 1), 1, 1, 0, 1),
    (5, 3, (11,), (4,), 1, 3, 3, 1),
    (2, 4, (5, 6, 4), (2, 3, 2), 2, (1, 2, 2), (0, 2, 1), 1),
    (1, 1, (2, 2), (3, 3), 1, 1, 2, 1),
]
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")


@pytest.fixture
def without_onednn(monkeypatch):
    """Kernels of ours take all products of bytes."""
    for module in (byte_products, onednn_bytes):
        monkeypatch.setattr(module, "has_exact_sums", lambda: False)
    variant = CPU.settings()
    monkeypatch.setattr(type(CPU), "settings", lambda self: (*variant, "no exact sums"))


def numbers(kind, shape):
    """Random bytes, the extreme ones among them."""
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    x.flat[0], x.flat[-1] = limits.min, limits.max
    return x


def result_of(function, *arrays):
    """(a result, the descriptions of the steps that compute it)."""
    tensors = [gh.asarray(x) for x in arrays]
    gh.backends.current().evaluate()
    y = function(*tensors)
    with program.plans_kept():
        steps = program.compiled(record.describe(record.recorder.pending)).plan
    return y.numpy(), describe_steps(steps)


def product(x, w):
    return gh.matmul(x.astype("int32"), w.mT.astype("int32"))


def check_product(kind, rows, depth, columns):
    x, w = numbers(kind, (rows, depth)), numbers("int8", (columns, depth))
    result, steps = result_of(product, x, w)
    assert "kernel over" not in steps  # nothing is widened
    np.testing.assert_array_equal(result, x.astype("int32") @ w.T.astype("int32"))
    return steps


def options(n, groups, *values):
    stride, padding, dilation = ((v,) * n if isinstance(v, int) else v for v in values)
    pairs = tuple((p, p) for p in padding)
    return {"stride": stride, "padding": pairs, "dilation": dilation, "groups": groups}


def check_windows(kind, case):
    channels, out_channels, size, kernel, groups, *values = case
    x = numbers(kind, (2, channels, *size))
    w = numbers("int8", (out_channels, channels // groups, *kernel))
    attrs = options(len(size), groups, *values)
    result, steps = result_of(
        lambda x, w: conv(x.astype("int32"), w.astype("int32"), **attrs), x, w
    )
    np.testing.assert_array_equal(result, exact_windows(x, w, attrs))
    return steps


def exact_windows(x, w, attrs):
    """A convolution as its definition reads, in NumPy's integers."""
    n, groups = x.ndim - 2, attrs["groups"]
    x = np.pad(x.astype("int32"), ((0, 0), (0, 0), *attrs["padding"]))
    reach = [d * (k - 1) + 1 for d, k in zip(attrs["dilation"], w.shape[2:], strict=True)]
    parts = zip(x.shape[2:], reach, attrs["stride"], strict=True)
    out = [(size - r) // s + 1 for size, r, s in parts]
    y = np.zeros((x.shape[0], w.shape[0], *out), "int32")
    own, result = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        group = x[:, o // result * own : (o // result + 1) * own]
        for at in np.ndindex(*out):
            window = tuple(
                slice(p * s, p * s + r, d)
                for p, s, r, d in zip(at, attrs["stride"], reach, attrs["dilation"], strict=True)
            )
            product = group[(slice(None), slice(None), *window)] * w[o].astype("int32")
            y[(slice(None), o, *at)] = product.sum(axis=tuple(range(1, n + 2)))
    return y


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_sums_of_products_are_exact(kind, size):
    check_product(kind, *size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_kernels_of_ours_sum_exactly(kind, size, without_onednn):
    assert check_product(kind, *size).count("byte_sums matmul") == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", WINDOWS)
def test_sums_of_convolutions_are_exact(kind, case):
    check_windows(kind, case)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", WINDOWS)
def test_kernels_of_ours_convolve_exactly(kind, case, without_onednn):
    assert check_windows(kind, case).count("byte_sums conv") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_lie_otherwise_are_left_to_onednn(kind):
    x, w = numbers(kind, (3, 100)), numbers("int8", (100, 9))
    result, steps = result_of(lambda x, w: x.astype("int32") @ w.astype("int32"), x, w)
    assert steps.count("onednn matmul") == int(onednn_bytes.has_exact_sums())
    np.testing.assert_array_equal(result, x.astype("int32") @ w.astype("int32"))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_lie_otherwise_are_copied_by_ours(kind, without_onednn):
    x, w = numbers(kind, (3, 100)), numbers("int8", (100, 9))
    result, steps = result_of(lambda x, w: x.astype("int32") @ w.astype("int32"), x, w)
    assert steps.count("byte_sums matmul") == 1
    np.testing.assert_array_equal(result, x.astype("int32") @ w.astype("int32"))


@pytest.mark.parametrize("kind", KINDS)
def test_stacks_of_products_are_exact(kind):
    x, w = numbers(kind, (2, 3, 20, 30)), numbers("int8", (2, 3, 30, 10))
    result, _ = result_of(lambda x, w: x.astype("int32") @ w.astype("int32"), x, w)
    np.testing.assert_array_equal(result, x.astype("int32") @ w.astype("int32"))


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_ours_sum_stacks(kind, without_onednn):
    x, w = numbers(kind, (2, 3, 5, 30)), numbers("int8", (2, 3, 10, 30))
    result, steps = result_of(product, x, w)
    assert steps.count("byte_sums matmul") == 1
    np.testing.assert_array_equal(result, x.astype("int32") @ w.astype("int32").mT)


def test_the_flag_takes_the_composition(monkeypatch):
    monkeypatch.setattr(flags, "few_bits", False)
    x, w = numbers("int8", (3, 50)), numbers("int8", (7, 50))
    result, steps = result_of(product, x, w)
    assert "byte_sums matmul" not in steps and "onednn" not in steps
    np.testing.assert_array_equal(result, x.astype("int32") @ w.T.astype("int32"))


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-mno-avx512vnni", "-mno-avx512f", "-mno-avx2 -mno-avx512f"])
def test_narrower_processors_sum_the_same(tmp_path, flag):
    """A compiler that is told to leave instructions alone makes the other branches."""
    wrapper = tmp_path / "cc"
    wrapper.write_text(f'#!/bin/sh\nexec gcc "$@" {flag}\n')
    wrapper.chmod(0o755)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "ours",
    ]
    environment = {**os.environ, "GH_CC": str(wrapper), "GH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
