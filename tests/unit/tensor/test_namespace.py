"""Dtype functions and inspection, beyond what the standard's conformance test compares."""

import numpy as np
import pytest

import glasshouse as gh


def test_limits_of_our_own_dtypes():
    info = gh.finfo(gh.bfloat16)
    assert (info.bits, info.eps, info.smallest_normal) == (16, 2**-7, 2.0**-126)
    assert gh.finfo(gh.ones(1)).dtype is gh.float32 and gh.finfo("complex128").bits == 64
    assert gh.finfo(np.zeros(1)).tiny == np.finfo(np.float64).tiny
    assert gh.iinfo(gh.asarray([1], gh.uint8)).max == 255


def test_result_type():
    assert gh.result_type(gh.int8, 2.5) is gh.float32
    assert gh.result_type(gh.ones(1, dtype=gh.float16), 1) is gh.float16
    assert gh.result_type(1, 2.5, True) is gh.float32 and gh.result_type(True) is gh.bool
    assert gh.result_type(gh.float64, 1j) is gh.complex128
    assert gh.result_type(np.float64(1), gh.float32) is gh.float64
    assert gh.result_type("float16", "bfloat16") is gh.float32
    assert gh.result_type("int64", "uint64") is gh.float64


def test_can_cast_takes_tensors():
    assert gh.can_cast(gh.ones(1), gh.float64) and not gh.can_cast(gh.float64, gh.float32)
    assert gh.can_cast(gh.bool, gh.int8)


def test_astype():
    x = gh.ones(2)
    assert gh.astype(x, gh.float32, copy=False) is x
    y = gh.astype(x, gh.float32)
    y[0] = 5.0
    assert x.tolist() == [1, 1]
    assert gh.astype([1.9, -1.9], gh.int8, device="cpu").tolist() == [1, -1]
    z = gh.tensor([1.0], requires_grad=True)
    gh.astype(z, gh.float64).sum().backward()
    assert z.grad.dtype is gh.float32


def test_dtypes_of_the_namespace_are_the_standards():
    info = gh.__array_namespace_info__()
    assert "bfloat16" not in info.dtypes() and info.dtypes(kind="bool") == {"bool": gh.bool}
    assert info.default_dtypes(device="cpu")["real floating"] is gh.float32


ERRORS = [
    (lambda: gh.finfo(gh.int8), gh.DTypeError, "finfo: expected a floating or complex dtype"),
    (lambda: gh.iinfo(gh.float32), gh.DTypeError, "iinfo: expected an integer dtype; got float32"),
    (lambda: gh.isdtype(gh.int8, "integer"), gh.OptionError, "expected a kind of dtype"),
    (lambda: gh.isdtype("int9", "integral"), gh.DTypeError, "Did you mean 'int"),
    (lambda: gh.result_type(), gh.OptionError, "got none"),
    (lambda: gh.can_cast("float31", gh.int8), gh.DTypeError, "expected a data type"),
    (lambda: gh.astype([1j], gh.float32), gh.DTypeError, "gh.real"),
    (
        lambda: gh.astype([1], gh.int8, device="tpu"),
        gh.DeviceError,
        "expected 'cpu', the device of",
    ),
    (lambda: gh.__array_namespace_info__().dtypes(kind="whole"), gh.OptionError, "a kind of dtype"),
    (lambda: gh.__array_namespace_info__().dtypes(device="x"), gh.DeviceError, "got 'x'"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
