"""Norms over a batch are as exact as eager's: beside float64, no further from it."""

import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
]
ROUNDING = 1.1  # no errors of the same size are equal


def norm(x, weight):
    """A batch norm in training."""
    return functional.batch_norm(x, None, None, weight, None, training=True)


def step(norm, x, g, weight):
    """A norm of x, and the gradients of x and weight for a gradient g of the result."""
    x, weight = (each.clone().requires_grad_() for each in (x, weight))
    y = norm(x, weight)
    y.backward(g)
    return y.detach(), x.grad, weight.grad


def further_than_eager(shape, spread: float, centre: float) -> list[float]:
    """The distances of our result and gradients from float64, by eager's."""
    torch.manual_seed(0)
    x, g = centre + spread * torch.randn(shape), torch.randn(shape)
    weight = torch.rand(shape[1]) + 0.5
    exact = step(norm, x.double(), g.double(), weight.double())
    eager = step(norm, x, g, weight)
    ours = step(torch.compile(norm, backend="glasshouse"), x, g, weight)
    return [
        ((a - c).norm() / (b - c).norm()).item() for a, b, c in zip(ours, eager, exact, strict=True)
    ]


@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_result_and_gradients_are_as_exact_as_eagers(centre):
    assert max(further_than_eager((4, 512, 5, 5), 1.0, centre)) <= ROUNDING


def test_gradients_of_two_elements_are_as_exact_as_eagers():
    """Only a part of g, eps / variance, remains: all else cancels."""
    assert max(further_than_eager((2, 4096), 0.1, 0.0)) <= ROUNDING
