"""Everything that multiplies is counted, or listed as not counted."""

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops import while_loop  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import glasshouse as gh  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
A, B, C = torch.ones(3, 4), torch.ones(4, 5), torch.ones(3, 5)
BATCH, OTHER = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
X, Y = torch.ones(7), torch.ones(7)
SIGNAL, IMAGE = torch.ones(1, 2, 9), torch.ones(1, 2, 6, 6)
SQUARE, HEADS = torch.ones(4, 4), torch.ones(1, 2, 16, 8)
PRODUCT = 2 * 3 * 4 * 5


def flex(q):
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, q, q)


COUNTED = {
    "mm": (lambda: A.mm(B), PRODUCT),
    "matmul": (lambda: A @ B, PRODUCT),
    "addmm": (lambda: torch.addmm(C, A, B), PRODUCT),
    "addmm_": (lambda: C.clone().addmm_(A, B), PRODUCT),
    "out": (lambda: torch.mm(A, B, out=torch.empty(3, 5)), PRODUCT),
    "bmm": (lambda: BATCH.bmm(OTHER), 2 * PRODUCT),
    "baddbmm": (lambda: torch.baddbmm(C, BATCH, OTHER), 2 * PRODUCT),
    "addbmm": (lambda: torch.addbmm(C, BATCH, OTHER), 2 * PRODUCT),
    "mv": (lambda: A.mv(torch.ones(4)), 24),
    "addmv": (lambda: torch.addmv(torch.ones(3), A, torch.ones(4)), 24),
    "dot": (lambda: X.dot(Y), 14),
    "vdot": (lambda: torch.vdot(X, Y), 14),
    "inner": (lambda: torch.inner(X, Y), 14),
    "linear": (lambda: torch.nn.functional.linear(A, B.t()), PRODUCT),
    "einsum": (lambda: torch.einsum("ij,jk->ik", A, B), PRODUCT),
    "tensordot": (lambda: torch.tensordot(A, B, 1), PRODUCT),
    "multi_dot": (lambda: torch.linalg.multi_dot([A, B]), PRODUCT),
    "_int_mm": (lambda: torch._int_mm(torch.ones(32, 32).char(), torch.ones(32, 32).char()), 65536),
    "conv1d": (lambda: torch.conv1d(SIGNAL, torch.ones(3, 2, 3)), 2 * 3 * 7 * 6),
    "conv2d": (lambda: torch.conv2d(IMAGE, torch.ones(3, 2, 3, 3)), 2 * 3 * 16 * 18),
    "conv_transpose2d": (
        lambda: torch.conv_transpose2d(IMAGE, torch.ones(2, 3, 3, 3)),
        2 * 36 * 2 * 27,
    ),
    "attention": (
        lambda: torch.nn.functional.scaled_dot_product_attention(HEADS, HEADS, HEADS),
        2 * 2 * 2 * 16 * 16 * 8,
    ),
    "flex_attention": (lambda: flex(HEADS), 2 * 2 * 2 * 16 * 16 * 8),
    "cond": (
        lambda: torch.cond(torch.tensor(True), lambda x: x @ x, lambda x: x + x, (SQUARE,)),
        128,
    ),
    "while_loop": (
        lambda: while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x @ x), (torch.tensor(0), SQUARE)
        ),
        3 * 128,
    ),
}


@pytest.mark.parametrize(("call", "flops"), COUNTED.values(), ids=COUNTED)
def test_counted(call, flops):
    for _ in range(2):
        with gh.FlopCounter() as counter:
            call()
        assert counter.total() == flops


@pytest.mark.parametrize("shape", [(3, 4), (64, 4)])
def test_a_checkpoint_counts_alike_compiled_and_eager(shape):
    x, a, b = torch.ones(shape), *(torch.ones(n, 5, requires_grad=True) for n in (4, 5))

    def fn(x, a, b):
        region = lambda x, a, b: torch.relu(x @ a) @ b  # noqa: E731
        return checkpoint(region, x, a, b, use_reentrant=False).sum()

    counts = []
    for called in (fn, torch.compile(fn, backend="glasshouse")):
        called(x, a, b).backward()
        with gh.FlopCounter() as counter:
            called(x, a, b).backward()
        counts.append((counter.total(), counter.by_phase(column="executed")))
    assert counts[0] == counts[1] and counts[0][1]["recompute"]


def test_a_branch_counts_alike_compiled_and_eager():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x + x, (x,))

    compiled = torch.compile(fn, backend="glasshouse")
    for x, flops in ((SQUARE, 128), (-SQUARE, 0)):
        compiled(x)
        with gh.FlopCounter() as counter:
            compiled(x)
        assert counter.total() == flops
