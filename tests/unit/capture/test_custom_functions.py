"""A custom `autograd.Function` in captured steps: its backward is the user's, in each call."""

import pytest

import glasshouse as gh


class Scaled(gh.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return gh.exp(x) * k, x + 1

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * x * ctx.k + h, None


def applied(x, k):
    a, b = Scaled.apply(x, k)
    return (a * b).sum()


def without_gradient(x, k):
    with gh.no_grad():
        return Scaled.apply(x, k)[0].sum()


def twice(x, k):
    return Scaled.apply(Scaled.apply(x, k)[1], k + 1)[0].sum()


def behind_a_break(x, k):
    gh.graph_break()
    return applied(x * 2, k)


@pytest.mark.parametrize("fn", [applied, without_gradient, twice, behind_a_break])
@pytest.mark.parametrize("mode", ["eager", "program"])
@pytest.mark.parametrize("needs", [True, False])
def test_values_and_gradients(fn, mode, needs):
    outcomes = []
    for called in (fn, gh.optimize(mode)(fn)):
        got = []
        for k in (1, 2, 2, 3):
            x = gh.arange(3.0).requires_grad_(needs)
            y = called(x, k)
            if y.requires_grad:
                y.backward()
            got.append((y.item(), x.grad if x.grad is None else x.grad.tolist()))
        outcomes.append(got)
    for (a, g), (b, h) in zip(*outcomes, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert g == pytest.approx(h, rel=1e-5) if g is not None else h is None


@pytest.mark.parametrize("mode", ["eager", "program"])
def test_a_training_step(mode):
    def trained(capture):
        gh.random.seed(0)
        model = gh.nn.Linear(3, 2)
        optimizer = gh.optim.SGD(model.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = applied(model(x), 2)
            loss.backward()
            optimizer.step()
            return loss

        step = capture(step)
        return [step(gh.ones((4, 3)) * 0.1).item() for _ in range(5)]

    assert trained(gh.optimize(mode)) == pytest.approx(trained(lambda fn: fn), rel=1e-4)
