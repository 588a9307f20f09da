"""eval_shape, linearize and linear_transpose."""

import math

import pytest

import glasshouse as gh
from glasshouse.base import Spec


def test_eval_shape_computes_nothing_and_takes_specs():
    result = gh.eval_shape(lambda x, w: {"y": x @ w}, Spec((2, 3), gh.float32), gh.zeros((3, 5)))
    assert result == {"y": Spec((2, 5), gh.float32)}


def test_a_linearized_function_is_the_derivative():
    y, along = gh.linearize(lambda x, y: (gh.sin(x) * y).sum(), gh.tensor([1.0, 2.0]), gh.ones(2))
    assert y.item() == pytest.approx(math.sin(1) + math.sin(2))
    assert along(gh.tensor([1.0, 0.0]), gh.zeros(2)).item() == pytest.approx(math.cos(1))
    rows = gh.vmap(along)(gh.eye(2), gh.zeros((2, 2)))
    assert rows.tolist() == pytest.approx([math.cos(1), math.cos(2)])
    with pytest.raises(gh.ShapeError, match="tangent"):
        along(gh.zeros(3), gh.zeros(2))


def test_the_transpose_of_a_matrix():
    w = gh.tensor([[1.0, 2.0], [3.0, 4.0]])
    (x,) = gh.linear_transpose(lambda x: w @ x, gh.zeros(2))(gh.tensor([1.0, 0.0]))
    assert x.tolist() == [1.0, 2.0]
