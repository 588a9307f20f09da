"""Products over axes against NumPy."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError, ShapeError

rng = np.random.default_rng(0)
SIZES = dict(zip("abcdehijklmq", (2, 3, 4, 2, 3, 2, 3, 3, 4, 2, 5, 3), strict=True))
EQUATIONS = [
    "ij,jk->ik", "ij,jk", "ii->i", "ii", "ij->ji", "...ij,...jk->...ik", "ai,bj->abij", "i,i->",
    "i,j->ij", "ijk,jil->kl", "ab,bc,cd->ad", "b...->...b", "bqhd,bihd->bhqi", "iij->j", "ij->",
    "abc,cd,be->ade", "i...,i...->...", "iiii->i", "ij,ij->ij", "ab,ab,b->a",
]  # fmt: skip


def operand(term):
    rest = [SIZES[c] for c in term.replace("...", "")]
    return rng.normal(
        size=[5, *rest] if term.startswith("...") else [*rest, 5] if "..." in term else rest
    )


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation):
    xs = [operand(term) for term in equation.split("->")[0].split(",")]
    got = gh.einsum(equation, *map(gh.asarray, xs))
    np.testing.assert_allclose(got.numpy(), np.einsum(equation, *xs), rtol=1e-10, atol=1e-12)


def test_einsum_gradient():
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(3, 4))
    g = gh.grad(lambda x: gh.sum(gh.einsum("ij,jk->ki", x, b)))(gh.asarray(a))
    np.testing.assert_allclose(g.numpy(), np.tile(b.sum(1), (2, 1)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((4, 2, 3), (3, 2)),
        ((0, 3), (3, 2)),
        ((4, 1, 2, 3), (5, 3, 2)),
        ((2, 0), (0, 2)),
        ((3,), (4, 3, 2)),
        ((4, 2, 3), (3,)),
    ],
)
def test_matmul(a, b):
    x, y = rng.normal(size=a), rng.normal(size=b)
    for got in (gh.asarray(x) @ gh.asarray(y), gh.asarray(x) @ y, x @ gh.asarray(y)):
        np.testing.assert_allclose(got.numpy(), x @ y, atol=1e-14)


def test_a_shared_matrix_is_not_repeated():
    shapes = []

    class Shapes(gh.Mode):
        def process(self, primitive, args, attrs, below):
            if primitive.name == "matmul":
                shapes.append([arg.shape for arg in args])
            return below(primitive, args, attrs)

    with Shapes():
        gh.ones((4, 5, 2, 3)) @ gh.ones((3, 6))
        gh.einsum("ij,ij->ij", gh.ones((2, 3)), gh.ones((2, 3)))  # no sum, so no matmul
    assert shapes == [[(40, 3), (3, 6)]]


def test_other_products():
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 3, 5))
    for axes in (([1, 2], [1, 0]), ([2], [0])):
        got = gh.tensordot(gh.asarray(x), gh.asarray(y), axes=axes)
        np.testing.assert_allclose(got.numpy(), np.tensordot(x, y, axes))
    for ours, theirs in ((gh.kron, np.kron), (gh.inner, np.inner), (gh.outer, np.outer)):
        got = ours(gh.asarray(x[0]), gh.asarray(x[1]))
        np.testing.assert_allclose(got.numpy(), theirs(x[0], x[1]))
    z = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    got = gh.vecdot(gh.asarray(z), gh.asarray(z), axis=0)
    np.testing.assert_allclose(got.numpy(), np.linalg.vecdot(z, z, axis=0))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gh.ones((4, 3)) @ gh.ones((5, 2)), ShapeError, r"\(4, 3\) and \(5, 2\)"),
        (lambda: gh.ones((2, 2, 3)) @ gh.ones((3, 3, 2)), ShapeError, "broadcast"),
        (lambda: gh.ones(()) @ gh.ones(3), ShapeError, "one axis or more"),
        (lambda: gh.asarray([True]) @ gh.asarray([True]), DTypeError, "bool"),
        (lambda: gh.matrix_transpose(gh.ones(3)), ShapeError, "two axes"),
        (lambda: gh.vecdot(gh.ones(3), gh.ones(4)), ShapeError, "equal sizes"),
        (lambda: gh.tensordot(gh.ones(3), gh.ones(4), axes=1), ShapeError, "equal sizes"),
        (lambda: gh.tensordot(gh.ones(3), gh.ones(4), axes=2), ShapeError, "from 0 to 1"),
        (lambda: gh.einsum("ij,jk->ik", gh.ones((2, 3))), OptionError, "2 operands"),
        (lambda: gh.einsum("ij->ik", gh.ones((2, 3))), OptionError, "'k'"),
        (lambda: gh.einsum("ij->ii", gh.ones((2, 3))), OptionError, "at most once"),
        (lambda: gh.einsum("i->i", gh.ones((2, 3))), ShapeError, "every axis"),
        (lambda: gh.einsum("i,i->i", gh.ones(2), gh.ones(3)), ShapeError, "one size for 'i'"),
        (lambda: gh.einsum(gh.ones(2), "i"), DTypeError, "string first"),
    ],
)
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()
