"""Sorting, the largest elements, and distinct elements."""

import numpy as np
import pytest

import glasshouse as gh

nan = float("nan")


def test_sorting_is_stable_both_ways():
    x = gh.asarray([2, 1, 2, 1, 0])
    assert gh.argsort(x).tolist() == [4, 1, 3, 0, 2]
    assert gh.argsort(x, descending=True).tolist() == [0, 2, 1, 3, 4]
    assert gh.sort([nan, 1.0, -1.0]).tolist()[:2] == [-1, 1]
    assert gh.sort([True, False]).tolist() == [False, True]
    assert gh.sort(gh.asarray([0, 128, 255], gh.uint8), descending=True).tolist() == [255, 128, 0]


def test_sorting_has_derivatives_and_batches():
    x = gh.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (gh.sort(x) * gh.asarray([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]
    rows = gh.asarray([[3.0, 1.0], [0.0, 5.0]])
    assert gh.vmap(gh.sort)(rows).tolist() == [[1, 3], [0, 5]]


def test_topk():
    x = gh.asarray([[1.0, 5.0, 3.0], [4.0, 0.0, 4.0]])
    values, indices = gh.topk(x, 2)
    assert values.tolist() == [[5, 3], [4, 4]] and indices.tolist() == [[1, 2], [0, 2]]
    result = gh.topk(x, 1, axis=0, largest=False)
    assert result.values.tolist() == [[1, 0, 3]] and result.indices.tolist() == [[0, 1, 0]]
    assert gh.topk(x, 0).values.shape == (2, 0)
    y = gh.tensor([1.0, 3.0, 2.0], requires_grad=True)
    gh.topk(y, 2).values.sum().backward()
    assert y.grad.tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "complex64", "bfloat16"])
def test_unique_gives_back_its_input(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (3, 5))
    x = x + 1j * rng.integers(0, 2, (3, 5)) if dtype == "complex64" else x
    x = x.astype(getattr(gh, dtype).np)
    result = gh.unique_all(gh.asarray(x))
    values = result.values.numpy()
    np.testing.assert_array_equal(values[result.inverse_indices.numpy()], x)
    np.testing.assert_array_equal(x.reshape(-1)[result.indices.numpy()], values)
    assert result.counts.sum().item() == x.size
    for value, first, count in zip(values, result.indices.numpy(), result.counts.numpy()):
        places = np.flatnonzero(x == value)
        assert first == places[0] and count == len(places)


def test_unique_of_special_values():
    result = gh.unique_counts([nan, 0.0, -0.0, nan])
    assert result.values.shape == (3,) and result.counts.tolist() == [2, 1, 1]
    assert gh.unique_values(gh.zeros((0, 2))).shape == (0,)
    assert gh.unique_inverse(gh.asarray(7)).inverse_indices.shape == ()


ERRORS = [
    (lambda: gh.sort([1j]), gh.DTypeError, "sort: expected real values"),
    (lambda: gh.argsort(3.0), gh.ShapeError, "argsort: expected no axis"),
    (lambda: gh.sort([1, 2], axis=1), gh.ShapeError, "got axis 1"),
    (lambda: gh.topk([1, 2], 3), gh.OptionError, "k from 0 to 2; got 3"),
    (lambda: gh.topk([1, 2], -1), gh.OptionError, "got -1"),
    (lambda: gh.unique_values("a"), gh.DTypeError, "unique_values: expected numbers"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
