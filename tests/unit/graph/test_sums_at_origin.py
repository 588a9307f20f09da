"""Sums over a matrix for products are those of what the matrix was made of, in its first shape."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.planning import plan
from glasshouse.compile.programs import program
from glasshouse.graph.sums_at_origin import axes_together

pytestmark = pytest.mark.usefixtures("alone")
SIZES = (4, 6, 5, 48)


def gradients(shape, axes, order=(0, 1, 2, 3)):
    """Return the gradients of the bias and weight of a layer after an activation, of a matrix of a
    shape."""
    rng = np.random.default_rng(0)
    sizes = tuple(SIZES[order.index(axis)] for axis in range(4))
    x, g = (gh.asarray(rng.standard_normal(sizes, np.float32)) for _ in range(2))
    matrix = gh.permute_dims(g * gh.exp(x), order).reshape(shape)
    bias = matrix.sum(axis=axes)
    weight = matrix.reshape(120, 48).T @ gh.asarray(rng.standard_normal((120, 7), np.float32))
    gh.backends.current().evaluate()
    return [bias.numpy(), weight.numpy()]


def steps() -> list:
    entries = program.programs.values()
    return [info for e in entries if e.program for info in e.program.step_infos()]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
@pytest.mark.parametrize("shape, axes", [((120, 48), 0), ((24, 5, 48), (0, 1)), ((24, 5, 48), 0)])
def test_a_sum_over_rows_is_that_without_the_pass(shape, axes, order, monkeypatch):
    ours = gradients(shape, axes, order)
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(plan, "PASSES", tuple(p for p in plan.PASSES if p[0] != "sum_at_origin"))
    for x, y in zip(ours, gradients(shape, axes, order), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def count_kernels() -> int:
    return [info.kind for info in steps()].count("kernel")


def test_a_sum_is_added_up_as_its_terms_are_made(monkeypatch):
    gradients((120, 48), 0)
    assert count_kernels() == 1
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(plan, "PASSES", tuple(p for p in plan.PASSES if p[0] != "sum_at_origin"))
    gradients((120, 48), 0)
    assert count_kernels() == 2


def test_parts_of_axes_are_summed_in_the_matrix():
    """Of the first axis of (40, 144), no axes before are the same elements."""
    rng = np.random.default_rng(0)
    x, w = (gh.asarray(rng.standard_normal(shape, np.float32)) for shape in (SIZES, (40, 7)))
    matrix = gh.exp(x).reshape(40, 144)
    total, product = matrix.sum(axis=0), matrix.T @ w
    gh.backends.current().evaluate()
    expected = np.exp(x.numpy()).reshape(40, 144)
    np.testing.assert_allclose(total.numpy(), expected.sum(0), rtol=1e-5)
    np.testing.assert_allclose(product.numpy(), expected.T @ w.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "first, second, groups",
    [
        ((4, 6, 5, 48), (120, 48), [([0, 1, 2], [0]), ([3], [1])]),
        ((2, 3), (3, 2), [([0, 1], [0, 1])]),
        ((1, 6), (6,), [([0], []), ([1], [0])]),
        ((6,), (6, 1), [([0], [0]), ([], [1])]),
    ],
)
def test_axes_are_grouped_by_the_elements_that_they_count(first, second, groups):
    assert axes_together(first, second) == groups
