"""User-defined operations."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import GradError, ShapeError, TransformError

pytestmark = pytest.mark.quick


class Cube(gh.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


class Exp(gh.autograd.Function):
    """Saves its result."""

    @staticmethod
    def forward(ctx, x):
        y = gh.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * g


class StraightThrough(gh.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        return gh.round(x * levels) / levels

    @staticmethod
    def backward(ctx, g):
        return g, None


class TwoResults(gh.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx, g_sum, g_product):
        x, y = ctx.saved_tensors
        return g_sum + g_product * y, g_sum + g_product * x


def test_backward_is_the_users():
    x = gh.tensor([1.0, 2.0], requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]


def test_gradients_of_gradients_go_through_saved_inputs():
    assert gh.grad(gh.grad(Cube.apply))(gh.asarray(2.0)).item() == 12.0
    x = gh.tensor(2.0, requires_grad=True)
    (g,) = gh.autograd.grad(Cube.apply(x), x, create_graph=True)
    assert gh.autograd.grad(g, x)[0].item() == 12.0


def test_gradients_of_gradients_go_through_saved_results():
    x = gh.tensor(0.5, requires_grad=True)
    (g,) = gh.autograd.grad(Exp.apply(x), x, create_graph=True)
    assert gh.autograd.grad(g, x)[0].item() == pytest.approx(np.exp(0.5), rel=1e-6)


def test_arguments_without_gradient_are_passed_as_they_are():
    x = gh.tensor([0.26], requires_grad=True)
    y = StraightThrough.apply(x, 10)
    assert y.tolist() == pytest.approx([0.3])
    y.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_several_results():
    x, y = gh.tensor(2.0, requires_grad=True), gh.tensor(3.0, requires_grad=True)
    total, product = TwoResults.apply(x, y)
    (total + 2 * product).backward()
    assert (x.grad.item(), y.grad.item()) == (7.0, 5.0)


def test_unused_result_counts_as_zero():
    x, y = gh.tensor(2.0, requires_grad=True), gh.tensor(3.0, requires_grad=True)
    TwoResults.apply(x, y)[1].backward()
    assert (x.grad.item(), y.grad.item()) == (3.0, 2.0)


def test_per_example_gradient_inside_vmap():
    x = gh.asarray([1.0, 2.0, 3.0])
    assert gh.vmap(gh.grad(Cube.apply))(x).tolist() == [3.0, 12.0, 27.0]


def test_untracked_arguments_just_run_forward():
    assert Cube.apply(gh.asarray(2.0)).item() == 8.0
    assert gh.vmap(Cube.apply)(gh.asarray([1.0, 2.0])).tolist() == [1.0, 8.0]


def test_vmap_inside_the_tape_is_refused():
    x = gh.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TransformError, match="Take the gradient inside"):
        gh.vmap(Cube.apply)(x)


def test_wrong_gradients_are_named():
    class Short(Cube):
        @staticmethod
        def backward(ctx, g):
            return g.sum()

    x = gh.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"Short.backward.*\(2,\).*\(\)"):
        Short.apply(x).sum().backward()

    class Many(Cube):
        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(ShapeError, match="1 gradients"):
        Many.apply(x).sum().backward()


def test_missing_methods_are_named():
    with pytest.raises(GradError, match="forward"):
        gh.autograd.Function.apply(gh.ones(1))
