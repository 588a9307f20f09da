"""Rearranging, joining and splitting: against NumPy, with derivatives, under vmap, and errors."""

import numpy as np
import pytest

import glasshouse as gh

X = np.arange(24.0).reshape(2, 3, 4)
SAME_IN_NUMPY = {
    "transpose": [(), (((2, 0, 1)),)],
    "swapaxes": [(0, 2), (-1, 1)],
    "moveaxis": [(0, -1), ((0, 1), (-1, 0))],
    "expand_dims": [((0, -1),), (1,)],
    "roll": [(5,), (1, 1), ((1, 1), 2), ((1, -2), (0, 2)), (7, (0, 1)), (-30,)],
    "tile": [(2,), ((2, 1, 1, 3),), ((1, 0, 1),)],
    "repeat": [(2,), ([1, 0, 3], 1), (3, -1), (np.arange(24),), ([2], 0)],
    "flip": [(), ((0, 2),), (-1,)],
    "pad": [
        (1,),
        ((1, 2),),
        (((0, 1), (2, 0), (0, 0)),),
        (1, "edge"),
        (2, "reflect"),
        (2, "symmetric"),
        (3, "wrap"),
        (((0, 0), (7, 9), (1, 1)), "reflect"),
        (1, "constant", 5),
    ],
}


def calls(table):
    return [pytest.param(n, args, id=f"{n}-{args}") for n, rows in table.items() for args in rows]


@pytest.mark.parametrize(("name", "args"), calls(SAME_IN_NUMPY))
def test_same_as_numpy(name, args):
    if name == "pad" and args[1:2] == ("constant",):
        expected = np.pad(X, args[0], "constant", constant_values=args[2])
    else:
        expected = getattr(np, name)(X, *args)
    np.testing.assert_array_equal(getattr(gh, name)(X, *args).numpy(), expected)


MOVES = {
    "roll": lambda x: gh.roll(x, 2),
    "tile": lambda x: gh.tile(x, (2, 2)),
    "repeat": lambda x: gh.repeat(x, gh.asarray([2, 0, 1]), 0),
    "pad": lambda x: gh.pad(x, (1, 2), mode="reflect"),
    "concat": lambda x: gh.concat([x, x, [[1.0, 2.0]]]),
    "stack": lambda x: gh.stack([x, x + 1], 1),
    "unstack": lambda x: gh.unstack(x, 1)[1],
    "split": lambda x: gh.split(x, [1, 2], axis=0)[1],
    "flip": lambda x: gh.flip(x, 0),
    "broadcast": lambda x: gh.broadcast_to(x, (2, 3, 2)),
    "transpose": lambda x: gh.transpose(x, 0, 1),
}


@pytest.mark.parametrize("name", MOVES)
def test_derivatives_and_vmap(name):
    move = MOVES[name]
    x = np.random.default_rng(0).normal(size=(3, 2))

    def weighted(x):
        y = move(x)
        return gh.sum(y * gh.reshape(gh.arange(float(y.size)), y.shape))

    by_reverse = gh.grad(weighted)(gh.asarray(x)).numpy()
    by_forward = gh.jacobian(weighted, mode="forward")(gh.asarray(x)).numpy()
    np.testing.assert_allclose(by_reverse, by_forward)
    many = gh.vmap(move)(gh.asarray(np.stack([x, x + 1]))).numpy()
    np.testing.assert_allclose(many[1], move(gh.asarray(x + 1)).numpy())


def test_reshape_works_out_one_size():
    x = gh.asarray(X)
    assert gh.reshape(x, (4, -1)).shape == (4, 6) and gh.reshape(x, -1).shape == (24,)
    assert gh.reshape(gh.zeros((0, 3)), (-1, 3)).shape == (0, 3)
    assert gh.reshape(x, X.shape) is x and gh.reshape(x, X.shape, copy=True) is not x


def test_flatten_and_squeeze():
    assert gh.flatten(X, 1).shape == (2, 12) and gh.flatten(3.0).shape == (1,)
    assert gh.flatten(X, 0, 1).shape == (6, 4) and gh.squeeze([[[1]]]).shape == ()
    assert gh.squeeze([[[1, 2]]], (0, 1)).shape == (2,)


def test_joining_promotes():
    joined = gh.concat([gh.asarray([1], gh.int8), gh.asarray([2.5], gh.float16)])
    assert joined.dtype is gh.float16
    assert gh.concat(gh.asarray([[1, 2], [3, 4]])).tolist() == [1, 2, 3, 4]
    assert gh.stack((gh.ones(2), [1, 2])).dtype is gh.float32


def test_splitting():
    parts = gh.split(gh.arange(6), 3, axis=0)
    assert [p.tolist() for p in parts] == [[0, 1], [2, 3], [4, 5]]
    for cuts in ([1, 4], [4, 2], [-2], [9]):
        ours = [p.tolist() for p in gh.split(gh.arange(6), cuts, axis=0)]
        assert ours == [p.tolist() for p in np.split(np.arange(6), cuts)]
    assert [p.shape for p in gh.chunk(gh.zeros((2, 7)), 3, 1)] == [(2, 3), (2, 3), (2, 1)]
    assert len(gh.split(gh.zeros(0), 2, axis=0)) == 2 and gh.unstack(gh.zeros((0, 2))) == ()


def test_broadcasting():
    assert gh.broadcast_shapes((2, 1), 3, ()) == (2, 3)
    assert [x.dtype for x in gh.broadcast_arrays([1], [[1.0]])] == [gh.int64, gh.float32]
    assert gh.broadcast_arrays() == []


def test_bool_and_complex_values_move():
    for x in (X > 3, X * 1j):
        np.testing.assert_array_equal(gh.pad(x, 1).numpy(), np.pad(x, 1))
        np.testing.assert_array_equal(gh.roll(x, 3).numpy(), np.roll(x, 3))


ERRORS = [
    (lambda: gh.reshape(X, (5, -1)), gh.ShapeError, "product divides 24"),
    (lambda: gh.reshape(X, (-1, -1)), gh.ShapeError, "at most one size of -1"),
    (lambda: gh.reshape(X, (7,)), gh.ShapeError, r"24 elements, as \(2, 3, 4\) has; got \(7,\)"),
    (lambda: gh.reshape(X, (-2, 12)), gh.ShapeError, "0 or more"),
    (lambda: gh.reshape(gh.zeros((0, 2)), (0, -1)), gh.ShapeError, "Name all sizes"),
    (lambda: gh.flatten(X, 2, 1), gh.ShapeError, "start_axis <= end_axis"),
    (lambda: gh.permute_dims(X, (0, 1)), gh.ShapeError, "each of the 3 axes"),
    (lambda: gh.permute_dims(X, (0, 1, 1)), gh.ShapeError, "distinct axes"),
    (lambda: gh.transpose(X, 0, 1, 2), gh.OptionError, "one tuple of all"),
    (lambda: gh.swapaxes(X, 0, 3), gh.ShapeError, "swapaxes: expected an axis from -3 to 2"),
    (lambda: gh.moveaxis(X, (0, 1), 2), gh.ShapeError, "as many sources as destinations"),
    (lambda: gh.moveaxis(X, (0, 0), (1, 2)), gh.ShapeError, "distinct axes"),
    (lambda: gh.expand_dims(X, axis=4), IndexError, "expand_dims: expected an axis from -4 to 3"),
    (lambda: gh.squeeze(X, 0), gh.ShapeError, "axes of size 1; got axis 0"),
    (lambda: gh.broadcast_to(X, (2, 3)), gh.ShapeError, "broadcast_to"),
    (lambda: gh.broadcast_arrays(X, gh.ones(5)), gh.ShapeError, "broadcast together"),
    (lambda: gh.concat([]), gh.ShapeError, "concat: expected at least one tensor"),
    (lambda: gh.concat(gh.asarray(1.0)), gh.DTypeError, "expected a sequence of tensors"),
    (lambda: gh.concat([gh.ones(2), gh.ones((2, 2))]), gh.ShapeError, "equal shapes but for the"),
    (lambda: gh.concat([gh.ones((2, 3)), gh.ones((2, 4))]), gh.ShapeError, r"\(2, 3\), \(2, 4\)"),
    (lambda: gh.stack([gh.ones(2), gh.ones(3)]), gh.ShapeError, "stack: expected equal shapes;"),
    (lambda: gh.stack([gh.ones(2)], 2), gh.ShapeError, "from -2 to 1; got axis 2"),
    (lambda: gh.stack(3), gh.DTypeError, "sequence of tensors; got int"),
    (lambda: gh.unstack(gh.ones(())), gh.ShapeError, "no axis"),
    (lambda: gh.split(gh.arange(5), 2, axis=0), gh.ShapeError, "divides 5; got 2"),
    (lambda: gh.chunk(gh.arange(5), 0), gh.OptionError, "1 or more chunks; got 0"),
    (lambda: gh.flip(X, 3), gh.ShapeError, "flip"),
    (lambda: gh.roll(X, (1, 2, 3), (0, 1)), gh.ShapeError, "a shift per axis"),
    (lambda: gh.roll(X, 1, 3), gh.ShapeError, "roll"),
    (lambda: gh.tile(X, (-1,)), gh.ShapeError, "tile: expected sizes of 0 or more"),
    (lambda: gh.repeat(X, -1), gh.ShapeError, "one count of 0 or more"),
    (lambda: gh.repeat(X, [1, 2], 1), gh.ShapeError, "each of 3 elements"),
    (lambda: gh.repeat(X, 1.5), gh.DTypeError, "integers as repeats"),
    (lambda: gh.pad(X, 1, "mirror"), gh.OptionError, "pad: expected a mode; got 'mirror'"),
    (lambda: gh.pad(X, [(1, 2), (3, 4)]), gh.ShapeError, "one per axis"),
    (lambda: gh.pad(X, -1), gh.ShapeError, "of 0 or more"),
    (lambda: gh.pad(gh.zeros((0,)), 1, "edge"), gh.ShapeError, "expected elements to take"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
