import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn

SHAPES = {"rows": (7, 3), "images": (5, 3, 4, 4)}


def results(shape, dtype, rows=slice(None)):
    """y, gradients and statistics of a step on some rows of a batch."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    layer = nn.SyncBatchNorm(3, dtype=dtype)
    with gh.no_grad():
        layer.weight.copy_(gh.asarray([0.5, 2.0, 1.5], dtype=dtype))
    x = gh.asarray(3 + 2 * x[rows], dtype=dtype).requires_grad_()
    y = layer(x)
    (y * gh.asarray(w[rows], dtype=dtype)).sum().backward()
    outcomes = [
        y,
        x.grad,
        layer.weight.grad,
        layer.bias.grad,
        layer.running_mean,
        layer.running_var,
    ]
    return [t.detach().to(dtype="float64").numpy() for t in outcomes]


def on_ranks(shape, dtype):
    first = shape[0] // 2 + 1
    return results(shape, dtype, slice(first) if dist.rank() == 0 else slice(first, None))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_ranks_normalize_as_one_process_does(ranks, shape, dtype, tolerance):
    expected, parts = results(shape, dtype), ranks(on_ranks, shape, dtype)
    joined = [np.concatenate([own[i] for own in parts]) for i in (0, 1)]
    summed = [sum(own[i] for own in parts) for i in (2, 3)]
    same = [own[i] for own in parts for i in (4, 5)]
    for got, wanted in zip([*joined, *summed, *same], [*expected, *expected[4:]], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def evaluated():
    layer = nn.SyncBatchNorm(3).eval()
    return layer(gh.ones((1 + dist.rank(), 3))).shape


def test_evaluation_needs_no_other_rank(ranks):
    assert ranks(evaluated) == [(1, 3), (2, 3)]


def in_bfloat16():
    layer = nn.SyncBatchNorm(3)
    return layer(gh.ones((4, 3), dtype="bfloat16")).dtype.name


def test_the_result_has_the_inputs_dtype(ranks):
    assert ranks(in_bfloat16) == ["bfloat16", "bfloat16"]
