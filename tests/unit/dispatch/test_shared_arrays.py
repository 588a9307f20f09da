"""GH_VERIFY: arrays that tensors share have to be left unchanged while calls wait."""

import gc

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.dispatch.shared_arrays import shared_arrays

SHARING = {
    "from_numpy": gh.from_numpy,
    "asarray": lambda x: gh.asarray(x, copy=False),
    "from_dlpack": lambda x: gh.from_dlpack(x, copy=False),
}


@pytest.fixture(autouse=True, params=["lazy", "numpy"])
def backend(request):
    with flags.override(verify=True), gh.backends.use(request.param):
        yield request.param


@pytest.mark.parametrize("name", SHARING)
def test_a_change_before_a_call_runs_is_an_error_that_names_it(name, backend):
    values = np.ones(3, np.float32)
    x = SHARING[name](values)
    y = gh.exp(x) if backend == "lazy" else None
    values[1] = 2.0
    expected = rf"exp: expected the array that {name} shared at .*\.py:\d+ to be left unchanged"
    with pytest.raises(gh.SharedMemoryError, match=expected):
        (y if y is not None else gh.exp(x)).tolist()


def test_a_change_before_the_backward_pass_is_an_error():
    values = np.ones(3, np.float32)
    w = gh.ones(3).requires_grad_()
    y = (w * gh.from_numpy(values)).sum()
    y.item()
    values[0] = 5.0
    with pytest.raises(gh.SharedMemoryError, match="mul: "):
        y.backward()
        w.grad.tolist()


def test_what_was_left_unchanged_is_computed():
    values = np.arange(3.0)
    for _ in range(2):
        x = gh.from_numpy(values)
        assert (x + 1).tolist() == (values + 1).tolist()
        copy = x.clone()
        del x
        values += 1
        assert (copy + 1).tolist() == values.tolist()


def test_arrays_of_all_layouts_are_looked_at():
    for values in (np.ones(()), np.ones((2, 3)).T, np.ones(4)[::-2], np.zeros((0, 2))):
        x = gh.from_numpy(values)
        assert (x + 1).tolist() == (values + 1).tolist()
        if values.size:
            values[...] = 7
            with pytest.raises(gh.SharedMemoryError):
                (x + 1).tolist()


def test_nothing_is_kept_of_tensors_that_are_gone():
    gc.collect()
    before = len(shared_arrays.by_payload)
    x = gh.from_numpy(np.ones(3))
    y = x + 1
    assert len(shared_arrays.by_payload) == before + 1
    y.numpy()
    del x, y
    gc.collect()
    assert len(shared_arrays.by_payload) == before


def test_copies_are_not_looked_at():
    values = np.ones(3)
    y = gh.asarray(values) + 1
    values[:] = 5
    assert y.tolist() == [2.0, 2.0, 2.0]
