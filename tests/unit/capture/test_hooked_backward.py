"""Captured steps whose parameters have hooks do what plain ones do."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.autograd.tape import AT_END
from glasshouse.tensor.handle import add_hook


class Trained:
    """A small network and its step, captured or not."""

    def __init__(self, captured):
        gh.random.seed(1)
        self.model = gh.nn.Sequential(gh.nn.Linear(5, 7), gh.nn.Tanh(), gh.nn.Linear(7, 3))
        self.optimizer = gh.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.names = {id(p): name for name, p in self.model.named_parameters()}
        self.order = []
        self.scale = 0.5
        self.step = gh.optimize(self.plain) if captured else self.plain

    def plain(self, x, y):
        self.optimizer.zero_grad()
        loss = gh.nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def halve(self, gradient):
        return gradient * self.scale

    def double(self, p):
        p.grad = p.grad * 2
        self.order.append(p.shape)

    def limit(self):
        self.order.append("end")
        for p in self.model.parameters():
            p.grad = gh.clip(p.grad, min=-0.01, max=0.01)


def on_one(trained):
    trained.model[0].weight.register_hook(trained.halve)


def afterwards(trained):
    for p in trained.model.parameters():
        p.register_post_accumulate_grad_hook(trained.double)


def at_end(trained):
    for p in trained.model.parameters():
        add_hook(p, AT_END, trained.limit)


def all_of_them(trained):
    on_one(trained)
    afterwards(trained)
    at_end(trained)


def batches(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield [gh.asarray(rng.standard_normal((4, n)).astype(np.float32)) for n in (5, 3)]


def trained(captured, hook, steps=5, between=lambda trained, number: None):
    own = Trained(captured)
    hook(own)
    losses = []
    for number, batch in enumerate(batches(steps)):
        between(own, number)
        losses.append(own.step(*batch).item())
    return own, losses


def check_same(result, wanted):
    (own, losses), (other, expected) = result, wanted
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert own.order == other.order
    for p, q in zip(own.model.parameters(), other.model.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hook", [on_one, afterwards, at_end, all_of_them])
def test_a_step_with_hooks_is_one_graph(hook):
    result = trained(True, hook)
    check_same(result, trained(False, hook))
    assert result[0].step.__func__.capture.breaks == []
    assert result[0].step.__func__.hits == 3


def test_another_hook_is_captured_anew():
    def more(own, number):
        if number == 3:
            own.handle = own.model[2].bias.register_hook(own.halve)
        if number == 5:
            own.handle.remove()

    check_same(trained(True, afterwards, 8, more), trained(False, afterwards, 8, more))


def test_what_a_hook_reads_is_guarded():
    def change(own, number):
        own.scale = 0.25 if number > 3 else 0.5

    check_same(trained(True, on_one, 6, change), trained(False, on_one, 6, change))


def test_a_hook_that_reads_values_is_left_to_python():
    def reading(own):
        p = own.model[0].bias
        p.register_post_accumulate_grad_hook(lambda p: own.order.append(p.grad.sum().item() > 0))
        at_end(own)

    check_same(trained(True, reading), trained(False, reading))


def test_gradients_are_added_to_those_that_are_there():
    def kept(own):
        all_of_them(own)
        own.optimizer.zero_grad = lambda: None

    check_same(trained(True, kept), trained(False, kept))
