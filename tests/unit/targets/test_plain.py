"""Products and convolutions of the target `plain`, beside those of the target `cpu`."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.targets import CPU, PLAIN, use_target

F = gh.nn.functional
CASES = {
    "rows": (lambda a, b: a @ b, (37, 300), (300, 45)),
    "stacks": (lambda a, b: a @ b, (3, 7, 20), (3, 20, 5)),
    "turned": (lambda a, b: a @ b.swapaxes(-1, -2), (2, 3, 7, 20), (2, 3, 5, 20)),
    "repeated": (lambda a, b: a @ b, (3, 7, 20), (20, 5)),
    "padded": (lambda a, b: F.conv2d(a, b, padding=1), (2, 3, 8, 9), (20, 3, 3, 3)),
    "groups": (
        lambda a, b: F.conv2d(a, b, stride=2, padding=2, dilation=2, groups=2),
        (2, 4, 11, 9),
        (6, 2, 3, 3),
    ),
    "one axis": (lambda a, b: F.conv1d(a, b, stride=3), (2, 4, 31), (6, 4, 5)),
    "three axes": (lambda a, b: F.conv3d(a, b, padding=1), (2, 4, 5, 6, 7), (6, 4, 3, 2, 1)),
}


def values_and_gradients(target, fn, arrays):
    before = gh.backends.current().fallbacks.copy()
    with use_target(target), flags.override(compile="always"):
        tensors = [gh.tensor(x, requires_grad=True) for x in arrays]
        y = fn(*tensors)
        g = np.random.default_rng(1).standard_normal(y.shape).astype(arrays[0].dtype)
        (y * gh.asarray(g)).sum().backward()
        gh.eval(y, *[x.grad for x in tensors])
    assert not gh.backends.current().fallbacks.since(before)
    return [y.detach().numpy(), *[x.grad.numpy() for x in tensors]]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_target_cpu(case, dtype):
    fn, *shapes = CASES[case]
    draws = np.random.default_rng(0)
    arrays = [draws.standard_normal(shape).astype(dtype) for shape in shapes]
    result = values_and_gradients(PLAIN, fn, arrays)
    wanted = values_and_gradients(CPU, fn, [x.astype(np.float32) for x in arrays])
    for x, y in zip(result, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * abs(y).max())
