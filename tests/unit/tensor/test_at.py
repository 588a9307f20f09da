"""x.at[i]: each update is NumPy's `ufunc.at` on a copy."""

import numpy as np
import pytest

import glasshouse as gh

UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
          "min": np.minimum, "max": np.maximum}  # fmt: skip
KEYS = {
    "one": 1,
    "slice": slice(1, None),
    "pair": (0, [2, 0]),
    "repeated": [1, 1, 0],
    "mask": np.array([True, False, True]),
    "far": (..., -1),
}


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("kind", KEYS)
def test_updates_are_those_of_a_ufunc(name, kind):
    key, rng = KEYS[kind], np.random.default_rng(0)
    x = rng.uniform(1, 2, (3, 4)).astype(np.float32)
    y = rng.uniform(0.5, 3, x[key].shape).astype(np.float32)
    expected = x.copy()
    UFUNCS[name].at(expected, key, y)
    ours = gh.asarray(x)
    result = getattr(ours.at[key], name)(gh.asarray(y))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)
    assert ours.tolist() == x.tolist()


def test_set_get_power_and_apply():
    x = gh.tensor([1.0, 2.0, 3.0])
    assert x.at[1].set(9).tolist() == [1.0, 9.0, 3.0]
    assert x.at[1:].get().tolist() == [2.0, 3.0]
    assert x.at[[0, 2]].power(2).tolist() == [1.0, 2.0, 9.0]
    assert x.at[0].apply(gh.negative).tolist() == [-1.0, 2.0, 3.0]


def test_updates_have_gradients_and_batches():
    def total(x, y):
        return (x.at[gh.tensor([1, 1])].add(y) ** 2).sum()

    gx, gy = gh.grad(total, (0, 1))(gh.tensor([1.0, 2.0]), gh.tensor([3.0, 4.0]))
    assert gx.tolist() == [2.0, 18.0] and gy.tolist() == [18.0, 18.0]
    rows = gh.vmap(lambda x, i: x.at[i].set(0.0))(gh.ones((2, 3)), gh.tensor([0, 2]))
    assert rows.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]


def test_out_of_range_and_its_modes_are_refused():
    with pytest.raises(gh.IndexOutOfRangeError):
        gh.zeros(3).at[gh.tensor([3])].add(1.0)
    with pytest.raises(gh.OptionError, match="mode"):
        gh.zeros(3).at[3].add(1.0, mode="drop")
