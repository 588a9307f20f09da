"""Norms in weights, and what steps of convolutions compute after them, in captured inference."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags
from glasshouse.nn import functional as F
from glasshouse.targets.cpu.kernels import weight_factors
from glasshouse.targets.cpu.onednn import library as onednn

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="needs oneDNN")
CLOSE = {"float32": 2e-6, "bfloat16": 3e-2}


class Block(nn.Module):
    """Convolutions, a norm after each, and an activation of each kind."""

    def __init__(self, groups=1, bias=False):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(32, 32, 1, bias=bias),
                nn.Conv2d(32, 32, 3, padding=1, groups=groups, bias=bias),
                nn.Conv2d(32, 32, 1, stride=1, bias=bias),
            ]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(32) for _ in range(3)])

    def forward(self, x):
        y = F.relu(self.norms[0](self.convs[0](x)))
        y = F.hardswish(self.norms[1](self.convs[1](y)))
        return F.relu(self.norms[2](self.convs[2](y)) + x).mean((2, 3))


def prepared(dtype="float32", **options):
    gh.random.seed(0)
    block, x = Block(**options), gh.random.normal((2, 32, 9, 9))
    for _ in range(2):
        block(x * 2 + 1)  # statistics that are not 0 and 1
    block.eval().to(dtype=dtype)
    return block, x.to(dtype)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 32])
@pytest.mark.parametrize("dtype", CLOSE)
def test_inference_is_as_without_it(monkeypatch, dtype, groups, bias):
    monkeypatch.setattr(flags, "compile", "always")
    block, x = prepared(dtype, groups=groups, bias=bias)
    step = gh.optimize(lambda x: block(x))
    with gh.no_grad():
        expected = block(x).astype("float32").numpy()
        for _ in range(3):
            y = step(x).astype("float32").numpy()
            np.testing.assert_allclose(y, expected, CLOSE[dtype], CLOSE[dtype])


@pytest.mark.parametrize("special", [np.nan, -0.0, 1e-30, -1e30, 1e30])
def test_a_relu_keeps_nan_and_makes_no_negative_zero(monkeypatch, special):
    monkeypatch.setattr(flags, "compile", "always")
    conv = nn.Conv2d(32, 32, 1, bias=False)
    with gh.no_grad():
        conv.weight.copy_(gh.ones(conv.weight.shape))
    x = np.zeros((1, 32, 4, 4), np.float32)
    x[0, 0, 1] = special
    step = gh.optimize(lambda x: F.relu(conv(x)) * 2)
    with gh.no_grad():
        for _ in range(3):
            y = step(gh.asarray(x)).numpy()
    expected = np.where(x[0, 0] <= 0, 0, x[0, 0] * 2)
    np.testing.assert_array_equal(y[0, 3], expected)
    assert not np.signbit(y[~np.isnan(y)]).any()


def test_factors_of_changing_inputs_stay_outside(monkeypatch):
    """Only results of parameters alone go into weights."""
    monkeypatch.setattr(flags, "compile", "always")
    conv = nn.Conv2d(32, 32, 1)
    step = gh.optimize(lambda x, s: conv(x) * s)
    rewritten, original = [], weight_factors.scaled
    monkeypatch.setattr(
        weight_factors, "scaled", lambda *args: rewritten.append(args) or original(*args)
    )
    x = gh.random.normal((1, 32, 4, 4))
    with gh.no_grad():
        for factor in (1.0, 2.0, 3.0):
            s = gh.full((1, 32, 1, 1), factor)
            np.testing.assert_allclose(step(x, s).numpy(), (conv(x) * s).numpy(), 1e-6)
    assert not rewritten


def test_each_activation_is_part_of_a_step(monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")
    block, x = prepared("bfloat16")
    x = x[:, :, 2:]  # no Program of another test's
    operations = set()
    original = onednn.OnednnLibrary.object

    def noted(self, *call):
        if call[0] == "attributes":
            operations.update(number for number, *_ in call[1:])
        return original(self, *call)

    monkeypatch.setattr(onednn.OnednnLibrary, "object", noted)
    step = gh.optimize(lambda x: block(x))
    with gh.no_grad():
        for _ in range(3):
            step(x).numpy()
    assert operations == {onednn.ELTWISE_HARDSWISH, onednn.ELTWISE_LINEAR, onednn.BINARY_ADD}
