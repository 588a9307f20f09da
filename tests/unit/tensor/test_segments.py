"""segment_reduce and hash_tensor beside PyTorch's."""

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_are_reduced_as_pytorch_does(reduce, initial):
    x = np.random.default_rng(0).normal(size=(7, 3))
    ours, theirs = gh.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y = gh.segment_reduce(ours, reduce, lengths=gh.tensor([2, 0, 4, 1]), initial=initial)
    z = torch.segment_reduce(theirs, reduce, lengths=torch.tensor([2, 0, 4, 1]), initial=initial)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy())
    (y[gh.tensor([0, 2, 3])] ** 2).sum().backward()
    (z[torch.tensor([0, 2, 3])] ** 2).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy())


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_lengths_differ_along_the_axes_before(reduce):
    x, lengths = np.random.default_rng(0).normal(size=(2, 5, 2)), [[2, 3, 0], [1, 1, 3]]
    y = gh.segment_reduce(gh.tensor(x), reduce, lengths=gh.tensor(lengths), axis=1)
    z = torch.segment_reduce(torch.tensor(x), reduce, lengths=torch.tensor(lengths), axis=1)
    np.testing.assert_allclose(y.numpy(), z.numpy())


def test_offsets_say_the_same_as_lengths():
    x = gh.arange(7.0)
    y = gh.segment_reduce(x, "sum", offsets=gh.tensor([0, 2, 2, 6, 7]))
    assert y.tolist() == [1, 0, 14, 6]


def test_lengths_that_leave_something_are_refused():
    with pytest.raises(gh.ShapeError, match="add up to 3"):
        gh.segment_reduce(gh.ones(3), "sum", lengths=gh.tensor([1, 1]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "bool"])
def test_hashes_are_pytorchs(dtype):
    x = (np.random.default_rng(0).normal(size=(3, 5, 2)) * 20).astype(dtype)
    ours, theirs = gh.tensor(x), torch.tensor(x)
    assert gh.hash_tensor(ours).item() == torch.hash_tensor(theirs).item()
    y, z = gh.hash_tensor(ours, 1, keepdim=True), torch.hash_tensor(theirs, 1, keepdim=True)
    np.testing.assert_array_equal(y.numpy(), z.numpy())
