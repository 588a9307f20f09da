"""Products of float32 as six of bfloat16: as exact as oneDNN's, for every layout and size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products import LAID_OUT, SHAPES, kinds, operand

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import threads_used
from glasshouse.compile.programs import program
from glasshouse.nn.functional import conv2d
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.targets.cpu.kernels import bf16x6

pytestmark = pytest.mark.skipif(not bf16x6.has_tiles(), reason="the processor has no AMX")
EPSILON = 2.0**-24  # half of the distance between 1 and the next number of float32


@pytest.fixture
def everywhere(alone, monkeypatch):
    """Also where it is slower."""
    monkeypatch.setattr(bf16x6.SplitProducts, "is_faster", lambda *sizes: True)


def errors(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How far results are from the exact ones, of the sums of their magnitudes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.abs(result - a @ b) / np.maximum(np.abs(a) @ np.abs(b), 1e-300)


@pytest.mark.parametrize("across", LAID_OUT)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_exact_to_rounding(everywhere, shape, across):
    items, rows, terms, columns = SHAPES[shape]
    rng = np.random.default_rng(terms)
    a, b = (
        rng.standard_normal((*items, *s), np.float32) for s in ((rows, terms), (terms, columns))
    )
    first, second = (operand(x, turned) for x, turned in zip((a, b), LAID_OUT[across], strict=True))
    assert errors((first @ second).numpy(), a, b).max() < 4 * EPSILON
    assert kinds().count("bf16x6") == 1


@pytest.mark.parametrize("across", LAID_OUT)
def test_products_of_whole_numbers_are_exact(everywhere, across):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-600, 601, s).astype(np.float32) for s in ((70, 45), (45, 40)))
    first, second = (operand(x, turned) for x, turned in zip((a, b), LAID_OUT[across], strict=True))
    np.testing.assert_array_equal((first @ second).numpy(), a @ b)


@pytest.mark.slow
def test_a_bias_is_part_of_the_step(everywhere):
    rng = np.random.default_rng(2)
    a, b, bias = (rng.integers(-9, 9, s).astype(np.float32) for s in ((70, 1100), (1100, 45), 45))
    result = gh.asarray(a) @ gh.asarray(b) + gh.asarray(bias)
    np.testing.assert_array_equal(result.numpy(), a @ b + bias)
    assert kinds() == ["bf16x6"]


def test_an_item_that_all_share_is_read_where_it_lies(everywhere):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((4, 40, 33), (33, 70)))
    result = gh.asarray(a) @ gh.broadcast_to(gh.asarray(b), (4, 33, 70))
    np.testing.assert_array_equal(result.numpy(), a @ b)
    assert set(kinds()) == {"bf16x6"}


@pytest.mark.parametrize("size", [300, 1200])
def test_errors_are_no_larger_than_those_of_onednn(alone, size):
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal((n, m), np.float32) for n, m in ((256, size), (size, 256)))
    ours = errors((gh.asarray(a) @ gh.asarray(b)).numpy(), a, b)
    assert kinds() == ["bf16x6"]
    with flags.override(bf16x6=False):
        theirs = errors((gh.asarray(a) @ gh.asarray(b)).numpy(), a, b)
    assert "onednn" in kinds()
    assert ours.mean() < 1.5 * theirs.mean() and ours.max() < 2 * theirs.max()


def test_rows_may_be_of_very_different_size(everywhere):
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((80, 80), np.float32) for _ in range(2))
    a *= 10.0 ** rng.integers(-15, 16, (80, 1)).astype(np.float32)
    b *= 10.0 ** rng.integers(-15, 16, (1, 80)).astype(np.float32)
    assert errors((gh.asarray(a) @ gh.asarray(b)).numpy(), a, b).max() < 4 * EPSILON


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38])
@pytest.mark.parametrize("into", [0, 1])
def test_elements_without_parts_give_what_they_should(everywhere, value, into):
    rng = np.random.default_rng(6)
    operands = [rng.uniform(0.5, 0.9, s).astype(np.float32) for s in ((70, 40), (40, 90))]
    operands[into][17, 21] = value
    first, second = map(gh.asarray, operands)
    result = (first @ second).numpy()
    wide = np.matmul(*(x.astype(np.float64) for x in operands))
    np.testing.assert_allclose(result, wide.astype(np.float32), rtol=1e-5)


def test_numbers_of_threads_give_the_same_bits(everywhere):
    rng = np.random.default_rng(7)
    a, b = (gh.asarray(rng.standard_normal(s, np.float32)) for s in ((330, 600), (600, 500)))
    results = []
    for threads in (1, 2):
        with threads_used(threads):
            results.append((a @ b).numpy())
    np.testing.assert_array_equal(*results)


def test_one_kernel_serves_all_sizes(everywhere):
    texts = set()
    for size in (40, 70):
        (
            gh.asarray(np.ones((size, size), np.float32)) @ gh.asarray(np.eye(size, dtype="f"))
        ).numpy()
    for entry in program.programs.values():
        texts.update(entry.program.sources if entry.program else ())
    assert len(program.programs) == 2 and len(texts) == 1


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 90)] * 3), st.sampled_from(sorted(LAID_OUT)), st.integers(0, 9))
def test_any_sizes(shape, across, seed):
    rows, terms, columns = shape
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-99, 99, s).astype(np.float32) for s in ((rows, terms), (terms, columns)))
    with pytest.MonkeyPatch.context() as patch, flags.override(compile="always"):
        patch.setattr(bf16x6.SplitProducts, "is_faster", lambda *sizes: True)
        patch.setattr(program, "programs", {})
        turned = zip((a, b), LAID_OUT[across], strict=True)
        first, second = (operand(x, is_turned) for x, is_turned in turned)
        np.testing.assert_array_equal((first @ second).numpy(), a @ b)


def test_small_products_and_other_dtypes_go_elsewhere(alone):
    small = gh.asarray(np.ones((20, 20), np.float32))
    brief = gh.ones((256, 256), dtype="bfloat16")
    gh.eval(small @ small, brief @ brief)
    with flags.override(bf16x6=False):
        large = gh.ones((256, 256))
        gh.eval(large @ large)
    assert "bf16x6" not in kinds()


def test_without_the_unit_products_go_elsewhere(alone, monkeypatch):
    monkeypatch.setattr(bf16x6, "has_tiles", lambda: False)
    large = gh.asarray(np.ones((256, 256), np.float32))
    gh.eval(large @ large.mT)
    assert "bf16x6" not in kinds()


@pytest.mark.parametrize("size", [(7, 5), (9,), (3, 4, 2)], ids=["2d", "1d", "3d"])
def test_convolutions_of_one_weight_are_products(everywhere, size):
    rng = np.random.default_rng(len(size))
    shapes = ((3, 40, *size), (50, 40, *[1 for _ in size]), (3, 50, *size))
    x, w, g = (rng.integers(-9, 10, s).astype(np.float32) for s in shapes)
    axes = len(size)
    attrs = {
        "stride": (1,) * axes,
        "padding": ((0, 0),) * axes,
        "dilation": (1,) * axes,
        "groups": 1,
    }
    given_x, given_w, given_g = map(gh.asarray, (x, w, g))
    results = (
        conv(given_x, given_w, **attrs),
        conv_data_grad(given_g, given_w, shape=size, **attrs),
        conv_weight_grad(given_x, given_g, shape=(1,) * axes, **attrs),
    )
    gh.eval(*results)
    matrix = w.reshape(50, 40)
    wanted = (
        np.einsum("oc,nc...->no...", matrix, x),
        np.einsum("oc,no...->nc...", matrix, g),
        np.einsum("nop,ncp->oc", *(v.reshape(*v.shape[:2], -1) for v in (g, x))).reshape(w.shape),
    )
    for result, exact in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result.numpy(), exact)
    assert kinds().count("bf16x6") == 3


def test_a_bias_of_a_convolution_is_part_of_the_step(everywhere):
    rng = np.random.default_rng(9)
    x, w, b = (
        rng.integers(-9, 10, s).astype(np.float32) for s in ((2, 40, 6, 7), (50, 40, 1, 1), 50)
    )
    result = conv2d(*map(gh.asarray, (x, w, b))).numpy()
    np.testing.assert_array_equal(
        result, np.einsum("oc,nchw->nohw", w[..., 0, 0], x) + b[:, None, None]
    )
    assert kinds().count("bf16x6") == 1


@pytest.mark.parametrize("changed", ["stride", "padding", "groups", "kernel"])
def test_other_convolutions_go_elsewhere(everywhere, changed):
    options = {"stride": {"stride": 2}, "padding": {"padding": 1}, "groups": {"groups": 2}}
    shape = (50, 20 if changed == "groups" else 40, *((3, 3) if changed == "kernel" else (1, 1)))
    x, w = gh.ones((2, 40, 6, 7)), gh.ones(shape)
    gh.eval(conv2d(x, w, **options.get(changed, {})))
    assert "bf16x6" not in kinds()
