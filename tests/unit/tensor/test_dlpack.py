"""DLPack in both directions: any layout, in a process that stays alive."""

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")

BASE = np.arange(24.0).reshape(2, 3, 4)
ARRAYS = {
    "plain": BASE,
    "reversed": BASE[::-1],
    "reversed within": BASE[:, :, ::-2],
    "transposed": BASE.transpose(2, 0, 1),
    "strided": BASE[:, ::2],
    "repeated": np.broadcast_to(BASE[:, :1], (2, 3, 4)),
    "repeated number": np.broadcast_to(np.float32(2), (2, 2)),
    "0-d": np.array(3.0),
    "empty": np.zeros((0, 3)),
    "empty and reversed": np.zeros((3, 0))[::-1],
    "one element, reversed": np.ones(1)[::-1],
    "int8": np.array([-1, 2], np.int8),
    "bool": np.array([True, False]),
    "complex": np.array([1j, 2]),
}
TENSORS = {
    "flip": lambda x: gh.flip(x, axis=0),
    "slice backwards": lambda x: x[..., ::-1],
    "broadcast": lambda x: gh.broadcast_to(x, (2, *x.shape)),
    "full": lambda x: gh.full(x.shape, 7.0),
    "transpose": lambda x: gh.permute_dims(x, tuple(reversed(range(x.ndim)))),
    "computed": lambda x: x + 1,
}


def read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


@pytest.fixture(params=["lazy", "numpy", "torch"], autouse=True)
def backend(request):
    with gh.backends.use(request.param):
        yield request.param


@pytest.mark.parametrize("array", ARRAYS.values(), ids=list(ARRAYS))
@pytest.mark.parametrize("form", [np.asarray, read_only], ids=["writeable", "read-only"])
def test_arrays_of_any_layout_go_in_and_out(array, form):
    array = form(array)
    for x in (gh.asarray(array), gh.from_dlpack(array), gh.from_numpy(array)):
        for read in (torch.from_dlpack, np.from_dlpack):
            there = read(x)
            assert tuple(there.shape) == array.shape
            assert there.tolist() == array.tolist()
            assert gh.from_dlpack(there).tolist() == array.tolist()


@pytest.mark.parametrize("make", TENSORS.values(), ids=list(TENSORS))
def test_results_go_out_and_stay_what_they_are(make):
    x = make(gh.asarray(BASE))
    want = x.tolist()
    for read in (torch.from_dlpack, np.from_dlpack):
        there = read(x)
        assert there.tolist() == want
        if not (isinstance(there, np.ndarray) and not there.flags.writeable):
            there[...] = 100.0
        assert x.tolist() == want


@pytest.mark.parametrize("make", [torch.ones, torch.zeros], ids=["ones", "zeros"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)], ids=str)
def test_tensors_of_torch_come_in(make, shape):
    theirs = make(shape)
    turned = theirs.permute(tuple(reversed(range(len(shape)))))
    for part in (theirs, theirs.expand(2, *shape), turned):
        ours = gh.from_dlpack(part)
        assert ours.shape == tuple(part.shape) and ours.tolist() == part.tolist()
    ours = gh.from_dlpack(theirs) * 2
    want = (theirs * 2).tolist()
    theirs += 5
    assert ours.tolist() == want


def test_memory_is_shared_where_that_is_asked_for(backend):
    source = np.arange(4.0)
    x = gh.from_dlpack(source, copy=False)
    assert torch.from_dlpack(x, copy=False).data_ptr() == source.ctypes.data
    assert torch.from_dlpack(x).data_ptr() != source.ctypes.data
    assert np.shares_memory(np.from_dlpack(x, copy=False), source)
    assert x.__dlpack_device__() == (1, 0)


def test_what_cannot_be_shared_is_refused(backend):
    x = gh.flip(gh.arange(4.0), axis=0)
    x.numpy()
    if backend == "numpy":  # contents lie backwards there
        with pytest.raises(BufferError, match=r"__dlpack__: expected .* not negative; got"):
            torch.from_dlpack(x, copy=False)
    with pytest.raises(gh.DTypeError, match="without a gradient"):
        gh.from_dlpack(torch.ones(2, requires_grad=True))
