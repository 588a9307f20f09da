"""Tensor: conversion to and from the outside, Python protocols, writing, methods."""

import copy
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.dtype import all_dtypes
from glasshouse.base.errors import DeviceError, DTypeError, OptionError, ShapeError


def test_python_protocols():
    x = gh.asarray([[1, 2], [3, 4]])
    assert len(x) == 2 and [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert 3 in x and 9 not in x
    assert bool(gh.asarray(1.0)) and not gh.asarray([0])
    assert int(gh.asarray(2.7)) == 2 and float(gh.asarray([1.5])) == 1.5
    assert complex(gh.asarray(1j)) == 1j and [10, 20, 30][gh.asarray(1)] == 20
    assert hash(x) == hash(x) and x is not None and (x == "a") is False


def test_numpy_shares_memory_and_is_read_only():
    x = gh.asarray(np.arange(6.0))
    view = x.numpy()
    assert np.shares_memory(view, x.numpy())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    assert np.asarray(x).dtype == np.float64
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert (np.ones(6) + x).dtype == gh.float64 and isinstance(np.ones(6) + x, gh.Tensor)
    with pytest.raises(ValueError, match="no copy"):
        np.array(x, dtype=np.int8, copy=False)


@pytest.mark.parametrize("dtype", [d.name for d in all_dtypes])
def test_pickle_keeps_everything(dtype):
    x = gh.asarray(np.array([[0, 1], [2, 3]])).to(dtype)
    if x.dtype.is_inexact:
        x.requires_grad_()
    y = pickle.loads(pickle.dumps(x))
    assert y.dtype == x.dtype and y.requires_grad == x.requires_grad
    assert y.tolist() == x.tolist()


def test_deepcopy_is_a_new_leaf():
    x = gh.tensor([1.0], requires_grad=True)
    y = copy.deepcopy(x)
    (y * 2).sum().backward()
    assert x.grad is None and y.grad.tolist() == [2.0]
    z = copy.deepcopy(x * 3)
    assert z.is_leaf and z.tolist() == [3.0]
    assert copy.copy(x).tolist() == [1.0] and copy.copy(x).requires_grad


def test_in_place_operators_keep_the_handle_and_dtype():
    x = gh.asarray([1.0, 2.0])
    same = x
    x += 1
    x *= gh.asarray([2.0, 3.0])
    x -= 1
    x /= 2
    x **= 2
    assert x is same and x.tolist() == [2.25, 16.0]
    n = gh.asarray([5, 6])
    n //= 2
    n %= 2
    n <<= 3
    n >>= 1
    n |= 1
    n &= 5
    n ^= 7
    assert n.tolist() == [6, 2] and n.dtype == gh.int64
    m = gh.asarray([[1.0, 2.0], [3.0, 4.0]])
    m @= gh.eye(2)
    assert m.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(DTypeError, match="float32"):
        n += 0.5
    assert n.tolist() == [6, 2]


def test_writing_never_reaches_other_tensors():
    x = gh.zeros(3)
    y, row = x * 1, x[1:]
    x[1] = 5.0
    assert y.tolist() == [0.0] * 3 and row.tolist() == [0.0] * 2
    a = gh.ones(2)
    b = a.clone()
    b += 1
    assert a.tolist() == [1.0, 1.0]


def test_methods_in_both_spellings():
    x = gh.asarray(np.arange(24.0).reshape(2, 3, 4))
    assert x.reshape(6, -1).shape == x.view((6, 4)).shape == (6, 4)
    assert x.transpose(1, 2).shape == (2, 4, 3) and x.transpose().shape == (4, 3, 2)
    assert x.permute(2, 0, 1).shape == x.permute((2, 0, 1)).shape == (4, 2, 3)
    assert x.sum(axis=1, keepdims=True).shape == (2, 1, 4) and x.mean().item() == 11.5
    assert x.mT.shape == (2, 4, 3) and x[0].T.shape == (4, 3)
    assert x.unsqueeze(0).squeeze(0).shape == x.shape
    assert x[0, :1].expand(5, -1).shape == (5, 4)
    assert x.long().dtype == gh.int64 and x.half().dtype == gh.float16
    assert x.to("int32").dtype == x.astype(gh.int32).dtype == x.to(gh.asarray(1).int()).dtype
    assert x.amax().item() == 23.0 and x.argmax().item() == 23 and x.clamp(1, 2).max().item() == 2
    assert (x.numel(), x.dim(), x.nbytes, x.itemsize) == (24, 3, 192, 8)
    assert x.__array_namespace__() is gh


def test_type_constructor():
    assert gh.Tensor([1]).dtype == gh.float32 and gh.Tensor([1], dtype="int8").dtype == gh.int8
    assert gh.Tensor(np.ones(2)).dtype == gh.Tensor([True]).dtype == gh.float32
    assert gh.Tensor(2, 3).shape == (2, 3) and gh.Tensor().shape == (0,)
    assert gh.Tensor(gh.asarray([1])).dtype == gh.int64
    with pytest.raises(gh.OptionError, match=r"gh.tensor\(x\) for .* gh.empty\(n\) for"):
        gh.Tensor(3)


def test_backends_meet():
    pytest.importorskip("torch")
    x = gh.ones(3)
    with gh.backends.use("torch"):
        assert (x + 1).tolist() == [2.0, 2.0, 2.0]
        assert x.backend.name == "torch"
    assert (x + 1).backend is gh.backends.current()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: bool(gh.ones(2)), ShapeError, "gh.any or gh.all"),
        (lambda: int(gh.ones(2)), ShapeError, r"\(2,\)"),
        (lambda: gh.ones(2).item(), ShapeError, "one element"),
        (lambda: len(gh.asarray(1)), DTypeError, "0-d"),
        (lambda: [1][gh.asarray(0.0)], DTypeError, "float32"),
        (lambda: gh.ones(3).T, ShapeError, "two axes|2 axes"),
        (lambda: gh.ones(3).to("cuda"), DeviceError, "cuda"),
        (lambda: gh.ones(3).to("flaot32"), (DTypeError, DeviceError), "flaot32"),
        (lambda: gh.ones(3).to_device(3), DeviceError, "got 3"),
        (lambda: gh.ones(3).__array_namespace__(api_version="1999"), OptionError, "1999"),
        (lambda: gh.ones(3).copy_(gh.ones(2)), ShapeError, r"\(3,\)"),
        (lambda: gh.asarray([[1], [1, 2]]), ShapeError, "ragged"),
        (lambda: gh.asarray("text"), DTypeError, "text"),
        (lambda: gh.asarray([None]), DTypeError, "list"),
        (lambda: gh.asarray([1, 2], dtype=gh.uint8) + 300, DTypeError, "300"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_other_libraries_tensors_are_refused_by_name():
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match="from_dlpack"):
        gh.asarray(torch.ones(2))
    with pytest.raises((DTypeError, TypeError)):
        gh.ones(2) + torch.ones(2)
