"""Attention in blocks: what the whole gives, of every kind of mask, on both sides of the table."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.nn.functional import blocks

torch = pytest.importorskip("torch")

matrix = pytest.importorskip("glasshouse.torch.aten.matrix")
BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 37, 24, 8
MASKS = {
    "keys": (1, KEYS),
    "both": (QUERIES, KEYS),
    "example's keys": (BATCH, 1, 1, KEYS),
    "example's": (BATCH, 1, QUERIES, KEYS),
    "head's": (1, HEADS, QUERIES, KEYS),
    "each": (BATCH, HEADS, QUERIES, KEYS),
}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=[(100, 200), (100, 4000), (100, 1 << 20)], ids=["rows", "heads", "groups"])
def small_blocks(request, monkeypatch):
    monkeypatch.setattr(blocks, "FEWEST_ROWS", 4)
    monkeypatch.setattr(blocks, "WHOLE", request.param[0])
    monkeypatch.setattr(blocks, "BLOCK", request.param[1])


def grads_of_torch(q, k, v, g, **options):
    inputs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*inputs, **options)
    out.backward(torch.tensor(g))
    return [out.detach().numpy(), *(x.grad.numpy() for x in inputs)]


def grads_of_ours(q, k, v, g, dtype="float32", **options):
    q, k, v, g = (gh.tensor(x).astype(dtype) for x in (q, k, v, g))
    out, sums = matrix.flash_attention(q, k, v, **options)
    causal = options.pop("is_causal", False)
    grads = matrix.flash_attention_backward(g, q, k, v, out, sums, 0.0, causal, **options)
    return [x.astype("float32").numpy() for x in (out, *grads)]


def check(shared: int, keys=KEYS, **options):
    q, g = drawn(BATCH, HEADS, QUERIES, SIZE), drawn(BATCH, HEADS, QUERIES, SIZE, seed=1)
    k, v = (drawn(BATCH, shared, keys, SIZE, seed=i) for i in (2, 3))
    mask = options.pop("attn_mask", None)
    theirs, own = dict(options), dict(options)
    if mask is not None:
        theirs["attn_mask"], own["attn_mask"] = torch.tensor(mask), gh.tensor(mask)
    if shared != HEADS:
        theirs["enable_gqa"] = True
    with flags.override(compile="always"), gh.backends.use("lazy"):
        ours = grads_of_ours(q, k, v, g, **own)
    for a, b in zip(ours, grads_of_torch(q, k, v, g, **theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("is_bool", [False, True])
def test_masks(small_blocks, name, is_bool):
    mask = drawn(*MASKS[name], seed=4)
    check(HEADS, attn_mask=mask > -0.5 if is_bool else mask)


@pytest.mark.parametrize("is_bool", [False, True])
def test_queries_that_see_no_key(small_blocks, is_bool):
    mask = drawn(QUERIES, KEYS, seed=4) > -0.5
    mask[[0, 5, QUERIES - 1]] = False
    check(HEADS, attn_mask=mask if is_bool else np.where(mask, 0.0, -np.inf).astype(np.float32))


def test_no_mask(small_blocks):
    check(HEADS)


def test_causal(small_blocks):
    check(HEADS, is_causal=True)


@pytest.mark.parametrize("shared", [HEADS, 2])
@pytest.mark.parametrize("part", [5, 18, QUERIES])
def test_causal_parts_see_the_keys_up_to_their_last_query(small_blocks, monkeypatch, part, shared):
    """Those of 5 and of 18 queries leave some for the last part; with one part all is one block."""
    monkeypatch.setattr(matrix, "PART", part)
    check(shared, keys=QUERIES, is_causal=True)


def errors_of_narrow(dtype: str, seed: int) -> list[float]:
    """How far attention with scores up to 100, and its gradients, are from those in float64."""
    shapes = ((1, 4, QUERIES, SIZE), (1, 4, KEYS, SIZE), (1, 4, KEYS, SIZE), (1, 4, QUERIES, SIZE))
    scales = (6, 6, 1, 1)
    drawn_parts = (drawn(*s, seed=seed + i) * f for i, (s, f) in enumerate(zip(shapes, scales)))
    narrow = [torch.tensor(x).to(getattr(torch, dtype)) for x in drawn_parts]
    with flags.override(compile="never"), gh.backends.use("lazy"):
        ours = grads_of_ours(*(x.float().numpy() for x in narrow), dtype=dtype)
    exact = grads_of_torch(*(x.double().numpy() for x in narrow))
    return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, exact, strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dtype", "unit"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_scores_are_not_narrow(dtype, unit, seed):
    """Each result is a few roundings of the dtype from the exact one, however large the scores."""
    assert max(errors_of_narrow(dtype, seed)) < 4 * unit


def flops_of_attention(length: int) -> int:
    """FLOPs of causal attention, forward and backward."""
    q, k, v, g = (gh.tensor(drawn(2, 12, length, SIZE, seed=i)) for i in range(4))
    with gh.FlopCounter() as counter, gh.backends.use("lazy"):
        out, sums = matrix.flash_attention(q, k, v, is_causal=True)
        matrix.flash_attention_backward(g, q, k, v, out, sums, 0.0, True)
    return counter.total("all", "executed")


def test_causal_parts_leave_out_scores_that_are_masked(monkeypatch):
    parts = flops_of_attention(512)
    monkeypatch.setattr(matrix, "visible_parts", lambda q, k: [])
    whole = flops_of_attention(512)
    assert 0.6 < parts / whole < 0.65  # 1 + 2 + 3 + 4 of four times four


def test_heads_that_share_keys(small_blocks):
    check(2)


def test_scores_never_exist_at_once():
    length = 2048
    q, k, v = (gh.tensor(drawn(1, 2, length, SIZE, seed=i)) for i in range(3))
    with flags.override(compile="always"), gh.backends.use("lazy") as backend:
        backend.evaluate()
        gh.memory.reset_peak()
        before = gh.memory.stats().allocated_bytes
        matrix.flash_attention(q, k, v)[0].numpy()
        assert gh.memory.stats().peak_allocated_bytes - before < length * length * 4
