"""Products of narrow floats where the processor has no instructions for them: they are those of
float32, rounded once, and no reference computes them."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program
from glasshouse.nn import functional as F
from glasshouse.ops.contract import conv_data_grad, conv_weight_grad
from glasshouse.targets.cpu.kernels import depthwise, winograd
from glasshouse.targets.cpu.onednn import library as onednn

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here")
NARROW = ("bfloat16", "float16")
SHAPES = {  # of both operands
    "matrices": ((24, 40), (40, 16)),
    "stacks": ((3, 5, 7), (3, 7, 9)),
    "a stack by one matrix": ((3, 5, 7), (7, 9)),
    "a vector": ((7,), (7, 9)),
}


@pytest.fixture
def without_narrow(monkeypatch):
    """A processor whose products are of float32 alone, and no Programs made before."""
    monkeypatch.setattr(onednn.library(), "dtypes", frozenset({"float32"}))
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(flags, "compile", "always")


def values(*shape) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def names() -> list[str]:
    """Of all steps; those of the host have another kind."""
    infos = [i for e in program.programs.values() for i in e.program.step_infos()]
    assert not {i.kind for i in infos} & {"host"}
    return [i.name for i in infos]


def rounded(wide: gh.Tensor, dtype: str) -> np.ndarray:
    return wide.astype(dtype).astype("float32").numpy()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", SHAPES)
def test_a_product_is_that_of_float32_rounded_once(without_narrow, name, dtype):
    x, y = (gh.asarray(values(*shape)).astype(dtype) for shape in SHAPES[name])
    product = (x @ y).astype("float32").numpy()
    expected = rounded(x.astype("float32") @ y.astype("float32"), dtype)
    assert names()
    np.testing.assert_array_equal(product, expected)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"groups": 4}, {"groups": 16}, {"dilation": 2}], ids=str
)
def test_convolutions_and_their_gradients_are_those_of_float32(without_narrow, options, dtype):
    groups = options.get("groups", 1)
    shapes = (2, 16, 9, 9), (16, 16 // groups, 3, 3)
    narrow = [gh.asarray(values(*shape)).astype(dtype) for shape in shapes]

    def results(x, w):
        how = {"stride": (1, 1), "dilation": (1, 1)}
        how |= {k: (n, n) for k, n in options.items() if k != "groups"}
        how |= {"padding": ((1, 1), (1, 1)), "groups": groups}
        y = F.conv2d(x, w, padding=1, **options)
        return (
            y,
            conv_data_grad(y, w, shape=(9, 9), **how),
            conv_weight_grad(x, y, shape=(3, 3), **how),
        )

    y, dx, dw = (t.astype("float32").numpy() for t in results(*narrow))
    assert names()
    wide = results(*(t.astype("float32") for t in narrow))
    size = 2.0 ** (-8 if dtype == "bfloat16" else -11)
    np.testing.assert_allclose(y, rounded(wide[0], dtype), rtol=2 * size, atol=size)
    for narrow_grad, wide_grad in ((dx, wide[1]), (dw, wide[2])):
        expected = wide_grad.numpy()
        largest = np.abs(expected).max()
        np.testing.assert_allclose(narrow_grad, expected, rtol=0, atol=4 * size * largest)


def test_a_matrix_and_its_transpose_share_one_cast(without_narrow):
    x = gh.asarray(values(64, 64)).astype("bfloat16")
    x.numpy()
    program.programs.clear()
    (x @ x.mT).numpy()
    assert names().count("cast") == 2  # to float32, and back


@pytest.mark.slow
def test_kernels_that_read_narrow_floats_get_them(without_narrow, monkeypatch):
    monkeypatch.setattr(winograd, "BRIEF", True)
    monkeypatch.setattr(winograd, "is_faster", lambda node: True)
    x, w = (gh.asarray(values(*s)).astype("bfloat16") for s in ((2, 32, 12, 12), (32, 32, 3, 3)))
    own = gh.asarray(values(32, 1, 3, 3)).astype("bfloat16")
    gh.eval(x, w, own)
    program.programs.clear()
    gh.eval(F.conv2d(x, w, padding=1), F.conv2d(x, own, padding=1, groups=32))
    infos = [i for e in program.programs.values() for i in e.program.step_infos()]
    kinds = {i.kind for i in infos if i.name.startswith("conv")}
    assert kinds == {"winograd", depthwise.DepthwiseConvolutions.label}
    assert "cast" not in names()


@pytest.mark.parametrize("dtype", NARROW)
def test_a_layer_under_autocast_learns_as_in_float32(without_narrow, dtype):
    x, w = gh.asarray(values(32, 24)), gh.tensor(values(24, 8) / 5, requires_grad=True)

    def gradient(enabled):
        w.grad = None
        with gh.autocast(dtype, enabled=enabled):
            loss = ((x @ w).float() ** 2).mean()
        loss.backward()
        return w.grad.numpy()

    narrow, wide = gradient(True), gradient(False)
    assert names()
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=0.03 * np.abs(wide).max())


@pytest.mark.slow
def test_a_loop_of_narrow_products_has_none_of_the_host(without_narrow):
    layer = gh.nn.GRU(16, 24).to("bfloat16")
    x = gh.asarray(values(6, 4, 16)).astype("bfloat16")
    outputs = layer(x)[0].astype("float32").numpy()
    assert names()
    with gh.backends.use("numpy"):
        expected = layer(x)[0].astype("float32").numpy()
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_bias_is_added_before_the_result_is_rounded(without_narrow, dtype):
    shapes = ((12, 20), (20, 16), (16,), (2, 16, 7, 7), (8, 16, 1, 1), (8,))
    narrow = [gh.asarray(values(*shape)).astype(dtype) for shape in shapes]
    gh.eval(*narrow)
    program.programs.clear()

    def results(x, w, b, images, kernel, bias):
        return x @ w + b, F.conv2d(images, kernel, bias, stride=2)

    outputs = results(*narrow)
    gh.eval(*outputs)
    assert not [name for name in names() if name.startswith("add")]
    for mine, wide in zip(outputs, results(*(t.astype("float32") for t in narrow)), strict=True):
        np.testing.assert_array_equal(mine.astype("float32").numpy(), rounded(wide, dtype))
