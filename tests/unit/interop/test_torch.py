"""Tensors and state dicts to and from PyTorch."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.dtype import all_dtypes
from glasshouse.base.errors import DTypeError
from glasshouse.interop import from_torch, state_dict_from_torch, state_dict_to_torch, to_torch
from glasshouse.optim import Adam

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", all_dtypes, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_every_dtype_goes_there_and_back(dtype, shape):
    array = np.ones(shape).astype(dtype.np)
    tensor = gh.asarray(array)
    there = to_torch(tensor)
    assert str(there.dtype) == f"torch.{dtype.name}"
    assert tuple(there.shape) == shape
    back = from_torch(there)
    assert isinstance(back, gh.Tensor)
    assert (back.dtype, back.shape) == (dtype, shape)
    np.testing.assert_array_equal(back.numpy(), array)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_memory_is_shared_where_that_is_asked_for(dtype):
    source = torch.arange(4.0).to(dtype)
    ours = from_torch(source, copy=False)
    assert to_torch(ours, copy=False).data_ptr() == source.data_ptr()
    assert to_torch(ours).data_ptr() != source.data_ptr()
    assert to_torch(from_torch(source), copy=False).data_ptr() != source.data_ptr()


def test_writing_changes_no_tensor_of_the_other_side():
    theirs = torch.ones(3)
    ours = from_torch(theirs)
    doubled, copy = ours * 2, to_torch(ours)
    theirs.fill_(9.0), copy.fill_(7.0)
    assert ours.tolist() == [1.0] * 3 and doubled.tolist() == [2.0] * 3


def test_layouts_that_are_not_contiguous():
    source = torch.arange(6.0).reshape(2, 3)
    assert from_torch(source.T).tolist() == source.T.tolist()
    assert from_torch(source[:, ::2]).tolist() == [[0, 2], [3, 5]]
    assert from_torch((source * 1j).conj()).tolist() == (source * 1j).conj().tolist()
    tensor = gh.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert to_torch(tensor.T).tolist() == [[1, 3], [2, 4]]
    assert to_torch(gh.broadcast_to(gh.asarray([1.0, 2.0]), (2, 2))).tolist() == [[1, 2], [1, 2]]


def test_gradient_histories_stay_behind():
    ours = to_torch(gh.tensor([1.0], requires_grad=True) * 2)
    assert not ours.requires_grad
    theirs = from_torch(torch.ones(2, requires_grad=True) * 2)
    assert not theirs.requires_grad


def test_model_states_fit_both_ways():
    ours = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    theirs.load_state_dict(state_dict_to_torch(ours.state_dict()))
    x = np.random.default_rng(0).normal(size=(2, 1, 4, 4)).astype(np.float32)
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(gh.asarray(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    ours.load_state_dict(state_dict_from_torch(theirs.state_dict()))
    ours.eval(), theirs.eval()
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(gh.asarray(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_converted_states_have_memory_of_their_own():
    source = {"w": torch.ones(2)}
    ours = state_dict_from_torch(source)
    source["w"] += 1
    assert ours["w"].tolist() == [1, 1]
    theirs = state_dict_to_torch(ours)
    theirs["w"] += 1
    assert ours["w"].tolist() == [1, 1]


def test_optimizer_states_go_to_pytorch():
    p = gh.tensor([1.0, 2.0], requires_grad=True)
    opt = Adam([p], lr=0.1)
    twin = torch.tensor([1.0, 2.0], requires_grad=True)
    p.grad = gh.asarray([1.0, -1.0])
    opt.step()
    twin.data = to_torch(p).clone()
    theirs = torch.optim.Adam([twin])
    saved = state_dict_to_torch(opt.state_dict())
    saved["state"][0]["step"] = torch.tensor(float(saved["state"][0]["step"]))
    theirs.load_state_dict(saved)
    p.grad, twin.grad = gh.asarray([2.0, 1.0]), torch.tensor([2.0, 1.0])
    opt.step()
    theirs.step()
    np.testing.assert_allclose(p.numpy(), twin.detach().numpy(), rtol=1e-6)


def test_bad_calls():
    with pytest.raises(DTypeError, match="expected a Glasshouse tensor; got numpy.ndarray"):
        to_torch(np.ones(2))
    with pytest.raises(DTypeError, match="expected a PyTorch tensor; got list"):
        from_torch([1.0])
