"""Products and convolutions through oneDNN: what is done where it has no way for a call."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.programs import program
from glasshouse.nn import functional as F
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.library import Unavailable
from glasshouse.targets.cpu.onednn.lowerer import PrimitivePlanner

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here")


def layers():
    """A linear layer and a convolution, with biases and relus, and their gradients."""
    rng = np.random.default_rng(0)
    shapes = ((6, 20), (30, 20), (30,), (2, 8, 9, 9), (12, 8, 3, 3), (12,))
    tensors = [gh.tensor(rng.standard_normal(shape, np.float32)) for shape in shapes]
    for tensor in tensors:
        tensor.requires_grad = True
    x, w, b, images, kernel, bias = tensors
    y = F.relu(F.linear(x, w, b))
    z = F.relu(F.conv2d(images, kernel, bias, padding=1))
    ((y * y).sum() + (z * z).sum()).backward()
    return [a.numpy() for a in (y, z, *(t.grad for t in tensors))]


def steps() -> list:
    entries = program.programs.values()
    return [info for e in entries if e.program for info in e.program.step_infos()]


def check(result) -> None:
    with gh.backends.use("numpy"):
        expected = layers()
    for y, z in zip(result, expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=1e-5 * np.abs(z).max())


def test_a_bias_is_part_of_the_primitive(without_winograd):
    check(layers())
    names = [info.name for info in steps() if info.kind == "onednn"]
    assert "matmul + add" in names and "conv + add" in names


def test_a_primitive_that_takes_no_bias_is_followed_by_a_kernel(without_winograd, monkeypatch):
    real = PrimitivePlanner.bias

    def none(self, view, shape):
        if view is not None:
            raise Unavailable("no bias here")
        return real(self, view, shape)

    monkeypatch.setattr(PrimitivePlanner, "bias", none)
    check(layers())
    names = [info.name for info in steps() if info.kind == "onednn"]
    assert "matmul" in names and "conv" in names
    assert not any("add" in name for name in names)


def test_what_onednn_has_no_fast_way_for_is_done_on_the_host(without_winograd, monkeypatch):
    def none(self, *args, **more):
        raise Unavailable("nothing here")

    monkeypatch.setattr(PrimitivePlanner, "add_step", none)
    check(layers())
    hosts = [info for info in steps() if info.kind == "host"]
    assert {info.name for info in hosts} >= {"matmul", "conv", "conv_weight_grad"}
    assert all("no fast way" in info.fallback for info in hosts)
    assert not any(info.kind == "onednn" for info in steps())


def attention_like(n: int):
    """A stack of one, whose first axis has stride 0: transposed matrices times the heads of x."""
    rng = np.random.default_rng(0)
    scores = gh.tensor(rng.standard_normal((1, 3, n, n), np.float32))
    x = gh.tensor(rng.standard_normal((n, 3 * 8), np.float32))
    heads = (x + 1).reshape(1, n, 3, 8).permute(0, 2, 1, 3)
    return (scores * 2).mT @ heads


def test_operands_are_read_where_they_lie(without_winograd):
    result = attention_like(16).numpy()
    with gh.backends.use("numpy"):
        np.testing.assert_allclose(result, attention_like(16).numpy(), rtol=1e-5, atol=1e-5)
    assert "permute" not in " ".join(info.name for info in steps())


def test_a_product_that_is_read_in_two_dtypes_is_rounded(without_winograd):
    rng = np.random.default_rng(1)
    a, b = (gh.tensor(rng.standard_normal((16, 16), np.float32)).astype("bfloat16") for _ in "ab")
    product = a @ b
    wide, doubled = product.astype("float32"), product + product
    gh.eval(wide, doubled)
    np.testing.assert_array_equal(wide.numpy(), product.numpy().astype(np.float32))
    np.testing.assert_array_equal(2 * wide.numpy(), doubled.numpy().astype(np.float32))


@pytest.mark.parametrize(
    ("rows", "columns", "reordered"),
    [(512, 128, True), (511, 128, False), (512, 120, False), (128, 1536, True), (128, 2048, False)],
)
def test_matrices_go_into_the_layout_of_a_large_product(without_bf16x6, rows, columns, reordered):
    """Where there are many rows, or the rows of the second fall into few sets of the cache."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s, np.float32) for s in ((rows, 64), (64, columns)))
    result = (gh.tensor(a) @ gh.tensor(b)).numpy()
    np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)
    reordered &= onednn.library().chooses_panels
    assert any("reorder" in info.kind or "reorder" in info.name for info in steps()) == reordered


@pytest.mark.parametrize(("rows", "copied"), [(1024, True), (1023, False)])
def test_a_matrix_that_lies_in_columns_is_copied_for_many_rows(without_bf16x6, rows, copied):
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s, np.float32) for s in ((rows, 64), (128, 64)))
    result = (gh.tensor(a) @ gh.tensor(b).T).numpy()
    np.testing.assert_allclose(result, a @ b.T, rtol=1e-4, atol=1e-4)
    copied &= onednn.library().chooses_panels
    assert [info.name for info in steps()] == ["transpose"] * copied + ["matmul"]
