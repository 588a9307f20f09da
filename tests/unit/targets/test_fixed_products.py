"""`gh.deterministic("batch")`: a row's results are the same bits alone, among others, elsewhere."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.planning.plan import describe_steps
from glasshouse.compile.programs import program
from glasshouse.graph import record

F = gh.nn.functional


def bits(x):
    x = x.astype("float32") if x.dtype is gh.bfloat16 else x
    return x.numpy().tobytes()


def layouts(rng, lead, depth, columns, dtype):
    """A matrix whose columns, rows, or neither lie in one piece each."""
    wide = rng.standard_normal((*lead, depth, 2 * columns))
    turned = gh.asarray(np.ascontiguousarray(np.swapaxes(wide[..., :columns], -1, -2)), dtype=dtype)
    return (
        turned.mT,
        gh.asarray(wide[..., :columns], dtype=dtype),
        gh.asarray(wide, dtype=dtype)[..., ::2],
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 8))]
)
def test_a_row_of_a_product_is_the_same_bits_among_others(dtype, seed):
    rng = np.random.default_rng(seed)
    for _ in range(2):
        rows, depth, columns = rng.integers(1, 40), rng.integers(1, 90), rng.integers(1, 150)
        x = gh.asarray(rng.standard_normal((rows, depth)), dtype=dtype)
        for w in layouts(rng, (), depth, columns, dtype):
            with gh.deterministic("batch"):
                whole = x @ w
                places = {0, rows - 1, *rng.integers(0, rows, 3).tolist()}
                for at in places:
                    few = int(rng.integers(1, rows - at + 1))
                    assert bits(x[at : at + few] @ w) == bits(whole[at : at + few])
            exact = x.astype("float64").numpy() @ w.astype("float64").numpy()
            scale = {"float16": 2e-2, "bfloat16": 0.2}.get(dtype, 1e-4)
            np.testing.assert_allclose(
                whole.astype("float64").numpy(), exact, rtol=0.01, atol=scale
            )


@pytest.mark.parametrize("seed", range(4))
def test_a_product_of_a_batch_is_the_same_bits_among_others(seed):
    rng = np.random.default_rng(seed)
    lead, depth, columns = tuple(rng.integers(1, 6, 2)), rng.integers(1, 40), rng.integers(1, 90)
    x = gh.asarray(rng.standard_normal((*lead, rng.integers(1, 20), depth)).astype(np.float32))
    for shape in (lead, (1, lead[1]), (lead[1],)):
        for w in layouts(rng, shape, depth, columns, "float32"):
            with gh.deterministic("batch"):
                whole = x @ w
                for i in range(lead[0]):
                    own = w[i : i + 1] if shape == lead else w
                    assert bits(x[i : i + 1] @ own) == bits(whole[i : i + 1])
            np.testing.assert_allclose(whole.numpy(), x.numpy() @ w.numpy(), rtol=1e-3, atol=1e-4)


NORMS = {
    "softmax": lambda x: F.softmax(x, axis=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "gelu": F.gelu,
    "silu": F.silu,
    "sum": lambda x: gh.sum(x * x, axis=-1),
    "log_softmax": lambda x: F.log_softmax(x, axis=-1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NORMS)
def test_a_row_of_a_norm_is_the_same_bits_among_others(name):
    rng = np.random.default_rng(0)
    for length in (3, 16, 33, 576, 2048, 5000, 9001):
        x = gh.asarray(rng.standard_normal((33, length)).astype(np.float32))
        with gh.deterministic("batch"):
            whole = NORMS[name](x)
            for at, count in ((0, 1), (5, 2), (30, 3), (3, 17), (32, 1)):
                assert bits(NORMS[name](x[at : at + count])) == bits(whole[at : at + count]), length


def test_masked_positions_change_no_bits():
    rng = np.random.default_rng(0)
    for length in (16, 64, 144, 608):  # whole vectors, as the sizes of caches
        x = rng.standard_normal((3, length)).astype(np.float32)
        expected = None
        with gh.deterministic("batch"):
            for more in (0, 16, 112, 4800):
                masked = np.concatenate([x, np.full((3, more), -np.inf, np.float32)], axis=1)
                result = bits(gh.asarray(F.softmax(gh.asarray(masked), axis=-1))[:, :length])
                expected = result if expected is None else expected
                assert result == expected, (length, more)


def test_the_mode_ends_with_its_scope_and_says_what_it_knows():
    assert flags.deterministic == ""
    with gh.deterministic():
        assert flags.deterministic == "batch"
        x, w = gh.ones((40, 40)), gh.ones((40, 40))
        gh.eval(x, w)
        y = x @ w
        with program.plans_kept():
            kernel_program = program.compiled(record.describe(record.recorder.pending))
        assert "row_by_row matmul" in describe_steps(kernel_program.plan)
        del y
    assert flags.deterministic == ""
    gh.deterministic("batch")
    assert flags.deterministic == "batch"
    gh.deterministic(None)
    assert flags.deterministic == ""
    with pytest.raises(gh.OptionError, match="deterministic"):
        gh.deterministic("rows")
