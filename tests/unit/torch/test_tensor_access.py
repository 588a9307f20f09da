"""How tensors get into a Program and out of it: the C is as its slow twin."""

import ctypes
import gc

import pytest

from glasshouse import memory

torch = pytest.importorskip("torch")


def access():
    from glasshouse.torch.tensors import access as tensor_access

    if tensor_access.native() is None:
        pytest.skip("no functions of DLPack, or no compiler")
    return tensor_access


def calls(inputs, outputs=()):
    """(the extension's call, its table), (the twin's, its table)."""
    result = access()
    c, python = (ctypes.c_int64 * 8)(), (ctypes.c_int64 * 8)()
    return (
        (result.make_call(ctypes.addressof(c), inputs, list(outputs)), c),
        (result.PythonTensorCall(ctypes.addressof(python), inputs, list(outputs)), python),
    )


def samples():
    x = torch.arange(60.0)
    yield x.reshape(3, 4, 5)
    yield x[7:].reshape(53)[::2]
    yield x.reshape(3, 4, 5).permute(2, 0, 1)
    yield x.bfloat16().reshape(1, 60)[:, 3:]
    yield x.to(torch.complex64)
    yield x.reshape(1, 2, 2, 3, 1, 5)[..., 1:]
    yield torch.nn.Parameter(x.reshape(6, 10))
    yield torch.tensor(True)
    yield torch.zeros(3, 0, 2)


def test_addresses_are_those_of_pytorch():
    for x in samples():
        for call, table in calls([access().expected_tensor(x, 2), (7,)]):
            assert call.fill([x, 7])
            assert table[2] == x.data_ptr()


def test_the_parts_of_tensors_are_known_in_this_version_of_pytorch():
    assert access().find_parts(access().extension()) is not None


def test_other_arguments_are_refused():
    x = torch.zeros(4, 3)
    others = (
        x.double(),
        x.t(),
        x.reshape(3, 4),
        x[:3],
        x[None],
        torch._neg_view(x),
        x.to("meta"),
        torch.zeros(8, 3)[::2],
        x.int(),
        3.0,
    )
    for call, _ in calls([access().expected_tensor(x, 1), (7,)]):
        assert not any(call.fill([other, 7]) for other in others)
        assert not call.fill([x, 8]) and not call.fill([x, 7.0]) and not call.fill([x])


def test_results_lie_where_the_table_says_and_are_freed_with_the_tensor():
    outputs = [
        (0, torch.bfloat16, (2, 3), (1, 2), 12),
        (1, torch.float32, (64, 64), (64, 1), 1 << 14),
    ]
    for call, table in calls([], outputs):
        before = memory.stats().allocated_bytes
        buffer = memory.current().alloc(1 << 14)
        address = buffer.address
        small, large = call.results([None, (address, buffer)])
        del buffer
        assert (small.dtype, small.shape, small.stride()) == (torch.bfloat16, (2, 3), (1, 2))
        assert table[0] == small.data_ptr() and table[1] == large.data_ptr() == address
        large.fill_(3)
        assert large.sum() == 3 * 64 * 64
        view = large[3:]
        del large
        gc.collect()
        assert memory.stats().allocated_bytes > before
        del view
        gc.collect()
        assert memory.stats().allocated_bytes == before


def test_results_may_be_written_to_what_is_there():
    for value in (torch.zeros(8, 3), torch.zeros(3, 8).T, torch.nn.Parameter(torch.zeros(8, 3))):
        inputs = value[2:6] if type(value) is torch.Tensor else value
        outputs = [(0, torch.float32, tuple(inputs.shape), (3, 1), inputs.nbytes)]
        for call, table in calls([], outputs):
            (result,) = call.results([inputs])
            assert result is inputs and table[0] == inputs.data_ptr()


def test_sharing_is_equal_only_where_the_slow_twin_is():
    from glasshouse.torch.front.compilers import aliases

    native = access().native()
    x, y = torch.arange(60.0), torch.arange(60.0)
    one = (x, y, x[3:], 7, torch.nn.Parameter(y), x[:6].t(), None, y[9:])
    shifted = (y[2:], x, y[5:], 8, torch.nn.Parameter(x), y[2:8], None, x[9:])
    others = (
        (x, y, x[4:], 7, torch.nn.Parameter(y), x[:6], None, y[9:]),
        (x, y, x[3:], 7, torch.nn.Parameter(x), x[:6], None, y[9:]),
        (x, y, x.clone()[3:], 7, torch.nn.Parameter(y), x[:6], None, y[9:]),
        (x, y, x[3:], 7, torch.nn.Parameter(y), x[:6], y[9:]),
        (x, y),
        (),
    )
    swapped = (y, x, y[3:], 8, torch.nn.Parameter(x), y[:6], None, x[9:])
    assert aliases(swapped) == aliases(one)
    assert native.sharing(swapped) == native.sharing(one)
    assert aliases(shifted) == aliases(one)
    assert native.sharing(shifted) != native.sharing(one)  # so that the slow twin is asked
    for other in others:
        assert (native.sharing(other) == native.sharing(one)) is (aliases(other) == aliases(one))


def test_sharing_of_many_tensors_and_of_those_without_memory_here():
    from glasshouse.torch.front.compilers import aliases

    native = access().native()
    rows = tuple(torch.zeros(3) for _ in range(500))
    again = tuple(torch.ones(3) for _ in range(500))
    assert native.sharing((*rows, rows[7])) == native.sharing((*again, again[7]))
    assert native.sharing((*rows, rows[7])) != native.sharing((*again, again[8]))
    assert aliases((*rows, rows[7]))[-1] == (7, 0)
    assert native.sharing((rows[0], torch.zeros(3, device="meta"))) is None
