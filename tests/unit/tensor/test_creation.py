"""Making tensors: what NumPy and PyTorch users write, copies, and errors."""

import numpy as np
import pytest

import glasshouse as gh

pytestmark = pytest.mark.quick

inf, nan = float("inf"), float("nan")


def test_default_dtypes_of_python_data():
    cases = [
        (1, "int64"),
        (1.5, "float32"),
        (1j, "complex64"),
        (True, "bool"),
        ([], "float32"),
        ([1, 2.5], "float32"),
        ([np.float64(1)], "float64"),
        (2**63, "uint64"),
        (np.arange(3, dtype=np.int16), "int16"),
        ([gh.ones(1, dtype=gh.float64)], "float64"),
    ]
    for data, name in cases:
        assert gh.asarray(data).dtype.name == name, data


def test_large_integers_are_exact():
    assert gh.asarray([0, 2**63 + 1], gh.uint64).tolist() == [0, 2**63 + 1]
    assert gh.full((1,), 2**64 - 1, gh.uint64).tolist() == [2**64 - 1]
    assert gh.arange(2**63, 2**63 + 4, dtype=gh.uint64).tolist()[-1] == 2**63 + 3


def test_foreign_byte_order_is_converted():
    x = gh.asarray(np.arange(3, dtype=">i4"))
    assert x.dtype is gh.int32 and x.numpy().dtype.isnative and (x + 1).tolist() == [1, 2, 3]


def test_lists_of_tensors_stay_on_the_tape():
    x = gh.tensor(2.0, requires_grad=True)
    y = gh.asarray([[x * x, 1.0], [x, 0.0]])
    assert y.shape == (2, 2)
    y.sum().backward()
    assert x.grad.item() == 5
    assert gh.vmap(lambda v: gh.asarray([v, v + 1]))(gh.ones(2)).tolist() == [[1, 2], [1, 2]]


def test_copies():
    x = gh.asarray([1.0, 2.0])
    assert gh.asarray(x) is x and gh.asarray(x, copy=False) is x
    y = gh.asarray(x, copy=True)
    y[0] = 9.0
    assert x.tolist() == [1, 2]
    source = np.ones(2)
    for share in (lambda x: gh.asarray(x, copy=False), gh.from_numpy):
        assert np.shares_memory(share(source).numpy(), source)
    copies = (gh.asarray, gh.as_tensor, gh.tensor, lambda x: gh.asarray(x, copy=True))
    for copy in copies:
        assert not np.shares_memory(copy(source).numpy(), source)
    for call in (
        lambda: gh.asarray([1.0], copy=False),
        lambda: gh.asarray(source, gh.float32, copy=False),
        lambda: gh.asarray(np.float64(1.0), copy=False),
        lambda: gh.asarray(source.astype(">f8"), copy=False),
        lambda: gh.asarray(gh.ones(2), gh.int8, copy=False),
        lambda: gh.from_numpy(source.astype(">f8")),
    ):
        with pytest.raises(ValueError, match="expected data that needs no copy"):
            call()


def test_tensor_makes_leaves():
    x = gh.tensor([1, 2], dtype=gh.float32, requires_grad=True)
    assert x.is_leaf and x.requires_grad
    again = gh.tensor(x * 2)
    assert again.is_leaf and not again.requires_grad


def test_filled_tensors_take_sizes_as_numpy_and_pytorch_do():
    for make in (gh.zeros, gh.ones, gh.empty):
        assert make((2, 3)).shape == make([2, 3]).shape == make(2, 3).shape == (2, 3)
        assert make(3).shape == (3,) and make(()).shape == () and make(0).dtype is gh.float32
        assert make((2,), gh.int8).dtype is gh.int8 and make(2, dtype="bool").dtype is gh.bool
    assert gh.full((2,), True).dtype is gh.bool and gh.full(2, 1j).dtype is gh.complex64
    assert gh.full((2,), gh.asarray(3, gh.int8)).dtype is gh.int8
    assert gh.full_like(gh.ones(2), 3).dtype is gh.float32


def test_ranges():
    assert gh.arange(3).dtype is gh.int64 and gh.arange(3.0).dtype is gh.float32
    assert gh.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    assert gh.arange(5, 0, -2, dtype=gh.uint8).tolist() == [5, 3, 1]
    assert gh.arange(0, 200, 199, dtype=gh.uint8).tolist() == [0, 199]
    assert gh.arange(1, 0).shape == (0,) and gh.arange(gh.asarray(3)).shape == (3,)
    assert gh.arange(3, dtype=gh.bfloat16).tolist() == [0, 1, 2]
    assert gh.linspace(0, 1, 5, endpoint=False).tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert gh.linspace(0, 1j, 3).dtype is gh.complex64
    assert gh.linspace(0, 5, 3, dtype=gh.int64).tolist() == [0, 2, 5]


def test_matrices():
    assert gh.eye(2, 3, k=1, dtype=gh.int8).tolist() == [[0, 1, 0], [0, 0, 1]]
    x = gh.tensor(np.ones((2, 2)), requires_grad=True)
    gh.tril(x).sum().backward()
    assert x.grad.tolist() == [[1, 0], [1, 1]]
    assert gh.triu([[True, True]] * 2).tolist() == [[True, True], [False, True]]
    with pytest.warns(UserWarning, match="indexing='ij' for PyTorch's order"):
        grids = gh.meshgrid([1, 2], [3.0, 4.0, 5.0])
    assert gh.meshgrid([gh.ones(2), gh.ones(3)])[0].shape == (2, 3)
    assert [g.shape for g in grids] == [(3, 2)] * 2 and grids[0].dtype is gh.int64
    assert gh.meshgrid() == []


def test_one_hot():
    assert gh.one_hot([2, 0, 9, -1], 3).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert gh.one_hot(gh.asarray(1, gh.uint8), 2, dtype=gh.bool).tolist() == [False, True]


def test_dlpack():
    x = gh.ones(2)
    assert gh.from_dlpack(x) is x and gh.from_dlpack(x, copy=True) is not x
    source = np.arange(3)
    assert np.shares_memory(gh.from_dlpack(source, copy=False).numpy(), source)
    for copy in (None, True):
        assert not np.shares_memory(gh.from_dlpack(source, copy=copy).numpy(), source)


ERRORS = [
    (lambda: gh.asarray([[1], [2, 3]]), gh.ShapeError, "ragged list"),
    (lambda: gh.asarray([1, [2]]), gh.ShapeError, "ragged list"),
    (lambda: gh.asarray([np.ones(2), np.ones(3)]), gh.ShapeError, "ragged list"),
    (lambda: gh.asarray([gh.ones(1), gh.ones(2)]), gh.ShapeError, "equal shape in a list"),
    (lambda: gh.asarray("text"), gh.DTypeError, "got str 'text'"),
    (lambda: gh.asarray([None]), gh.DTypeError, "got list"),
    (lambda: gh.asarray(2**70), gh.DTypeError, "got int"),
    (lambda: gh.asarray([300], gh.uint8), gh.DTypeError, "numbers that fit uint8"),
    (lambda: gh.asarray([-1], gh.uint8), gh.DTypeError, "numbers that fit uint8"),
    (lambda: gh.asarray([nan], gh.int8), gh.DTypeError, "numbers that fit int8"),
    (lambda: gh.asarray([1j], gh.float32), gh.DTypeError, "numbers that fit float32"),
    (lambda: gh.asarray([1], "flaot32"), gh.DTypeError, "Did you mean 'float32'"),
    (lambda: gh.asarray(1, device="cuda"), gh.DeviceError, "expected 'cpu', the device of"),
    (lambda: gh.tensor([1], requires_grad=True), gh.DTypeError, "floating or complex"),
    (lambda: gh.zeros((2, -1)), gh.ShapeError, "zeros: expected sizes of 0 or more"),
    (lambda: gh.ones((2.5,)), gh.DTypeError, "ones: expected a shape of integers"),
    (lambda: gh.full((2,), 300, gh.int8), gh.DTypeError, "integer that fits int8"),
    (lambda: gh.full((2,), 1j, gh.float32), gh.DTypeError, "fill_value that fits float32"),
    (lambda: gh.full((2,), nan, gh.int64), gh.DTypeError, "fill_value that fits int64"),
    (lambda: gh.full((2,), [1, 2, 3]), gh.ShapeError, "broadcast"),
    (lambda: gh.arange(0, 3, 0), gh.OptionError, "step other than 0"),
    (lambda: gh.arange("3"), gh.DTypeError, "arange: expected a number; got str"),
    (
        lambda: gh.arange(300, dtype=gh.int8),
        gh.DTypeError,
        "arange: expected numbers that fit int8",
    ),
    (lambda: gh.linspace(0, 1, -1), gh.OptionError, "num of 0 or more"),
    (lambda: gh.eye(-1), gh.ShapeError, "0 or more"),
    (lambda: gh.tril(gh.ones(3)), gh.ShapeError, r"tril: expected matrices.*\(3,\)"),
    (lambda: gh.meshgrid([1], indexing="yx"), gh.OptionError, "indexing 'xy' or 'ij'; got 'yx'"),
    (lambda: gh.meshgrid([[1]]), gh.ShapeError, "expected vectors"),
    (lambda: gh.one_hot([1.0], 2), gh.DTypeError, "integer indices; got float32"),
    (lambda: gh.from_dlpack([1]), gh.DTypeError, "an array with __dlpack__; got list"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_dlpack_refuses_what_it_cannot_share():
    torch = pytest.importorskip("torch")
    with pytest.raises(gh.DTypeError, match="from_dlpack: expected an array in host memory"):
        gh.from_dlpack(torch.ones(2, requires_grad=True))


def test_arange_takes_a_number_of_elements():
    assert gh.arange(gh.ones((2, 2)).size).tolist() == [0, 1, 2, 3]
