"""Products of bfloat16 by kernels of ours: exact sums, rounded once, for every layout and size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products import LAID_OUT, SHAPES, kinds, operand

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building.toolchain import threads_used
from glasshouse.compile.programs import program
from glasshouse.targets.cpu.kernels import amx, bf16x6

pytestmark = pytest.mark.skipif(not bf16x6.has_tiles(), reason="the processor has no AMX")
MORE_SHAPES = SHAPES | {
    "blocks of rows": ((), 1100, 96, 200),
    "many panels": ((), 40, 33, 4200),
    "most terms": ((), 400, 3072, 70),
}


@pytest.fixture
def everywhere(alone, monkeypatch):
    """Also where it is slower."""
    monkeypatch.setattr(amx.NarrowProducts, "is_faster", lambda *sizes: True)


def whole(shape, seed=0, most=8) -> np.ndarray:
    """Whole numbers, of which sums are exact in float32."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.float32)


def narrow(values: np.ndarray, across: bool = False) -> gh.Tensor:
    """In bfloat16, perhaps with columns in memory."""
    laid_out = operand(values, False) if not across else operand(values.swapaxes(-1, -2), False)
    result = laid_out.astype("bfloat16")
    gh.eval(result)
    return result.mT if across else result


def rounded(values: np.ndarray) -> np.ndarray:
    return gh.asarray(values).astype("bfloat16").astype("float32").numpy()


def wide(result: gh.Tensor) -> np.ndarray:
    gh.eval(result)
    return result.astype("float32").numpy()


@pytest.mark.sample(34)
@pytest.mark.parametrize("across", LAID_OUT)
@pytest.mark.parametrize("shape", MORE_SHAPES)
def test_products_are_rounded_once(everywhere, shape, across):
    items, rows, terms, columns = MORE_SHAPES[shape]
    a, b = whole((*items, rows, terms), 1), whole((*items, terms, columns), 2)
    first, second = (narrow(x, turned) for x, turned in zip((a, b), LAID_OUT[across], strict=True))
    np.testing.assert_array_equal(wide(first @ second), rounded(a @ b))
    assert kinds().count("amx") == 1


def test_products_are_as_exact_as_those_of_onednn(alone):
    rng = np.random.default_rng(3)
    a, b = (
        rounded(rng.standard_normal((400, 400), np.float32)) for _ in range(2)
    )  # 400: 12.5 · 32
    exact = a.astype(np.float64) @ b.astype(np.float64)
    ours = np.abs(wide(narrow(a) @ narrow(b)) - exact)
    assert "amx" in kinds()
    with flags.override(amx=False):
        theirs = np.abs(wide(narrow(a) @ narrow(b)) - exact)
    assert "onednn" in kinds()
    assert ours.mean() < 1.01 * theirs.mean() and ours.max() < 1.1 * theirs.max()


@pytest.mark.parametrize("terms", [60, 3000])
def test_a_bias_is_added_before_it_is_rounded(everywhere, terms):
    a, b, bias = whole((300, terms), 1), whole((terms, 45), 2), whole(45, 3)
    first, second, third = map(narrow, (a, b, bias))
    result = first @ second + third
    np.testing.assert_array_equal(wide(result), rounded(a @ b + bias))
    assert kinds().count("amx") == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan(everywhere, value):
    a, b = whole((70, 40), 1, 3) + 4, whole((40, 90), 2, 3) + 4
    a[3, 7] = value
    with np.errstate(invalid="ignore"):  # NumPy's own products warn
        exact = rounded(a @ b)
    np.testing.assert_array_equal(wide(narrow(a) @ narrow(b)), exact)


def test_numbers_of_threads_give_the_same_bits(everywhere):
    rng = np.random.default_rng(7)
    a, b = (narrow(rng.standard_normal(s, np.float32)) for s in ((700, 3000), (3000, 500)))
    results = []
    for threads in (1, 2):
        with threads_used(threads):
            results.append(wide(a @ b))
    np.testing.assert_array_equal(*results)


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 90)] * 3), st.sampled_from(sorted(LAID_OUT)), st.integers(0, 9))
def test_any_sizes(shape, across, seed):
    rows, terms, columns = shape
    a, b = whole((rows, terms), seed), whole((terms, columns), seed + 1)
    with pytest.MonkeyPatch.context() as patch, flags.override(compile="always"):
        patch.setattr(amx.NarrowProducts, "is_faster", lambda *sizes: True)
        patch.setattr(program, "programs", {})
        turned = zip((a, b), LAID_OUT[across], strict=True)
        first, second = (narrow(x, is_turned) for x, is_turned in turned)
        np.testing.assert_array_equal(wide(first @ second), rounded(a @ b))


def test_without_the_flag_and_with_more_terms_products_go_elsewhere(everywhere):
    a, b = narrow(whole((256, 3073))), narrow(whole((3073, 256)))
    gh.eval(a @ b)
    with flags.override(amx=False):
        gh.eval(b @ a)
    assert "amx" not in kinds()
