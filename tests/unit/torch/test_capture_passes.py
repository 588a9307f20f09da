"""Backward passes that go through parts of a captured graph: what is compiled together, and what a
pass that raises leaves behind."""

import pytest
import torch
from same_outcome import same_story
from torch import nn
from torch.nn import functional as F

from glasshouse.base.flags import flags

pytestmark = pytest.mark.library_warnings


def heads():
    return nn.ModuleDict({"body": nn.Linear(3, 4), "one": nn.Linear(4, 2), "two": nn.Linear(4, 2)})


def decaying(model):
    """An optimizer that tells a gradient of zeros from none."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)


def data(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(5, 3, generator=generator), torch.randn(5, 2, generator=generator)


def missing(model):
    return [p.grad is None for p in model.parameters()]


def unused_head(show):
    model = heads()
    optimizer = decaying(model)

    def step(x, y):
        optimizer.zero_grad()
        h = model["body"](x).tanh()
        one, two = model["one"](h), model["two"](h)
        loss = F.mse_loss(one, y)
        loss.backward()
        optimizer.step()
        return loss.detach(), show(two)

    return step, data, lambda: [model, optimizer, missing(model)]


def unused_head_returned():
    return unused_head(lambda two: two)


def unused_head_detached():
    return unused_head(lambda two: two.detach())


def detached_between():
    model = heads()
    optimizer, other = decaying(model), decaying(model["two"])

    def step(x, y):
        optimizer.zero_grad()
        h = model["body"](x).tanh()
        two, one = F.mse_loss(model["two"](h.detach()), y), F.mse_loss(model["one"](h), y)
        two.backward()
        other.step()
        one.backward()
        optimizer.step()
        return one.detach(), two.detach()

    return step, data, lambda: [model, optimizer, other]


def differentiated_outside(go_back):
    """`go_back(losses, number)` differentiates some of the two losses that the call gave."""
    model = heads()
    optimizer, inputs = decaying(model), []

    def arguments(number):
        if inputs:
            optimizer.zero_grad()
            go_back(inputs.pop(), number)
            optimizer.step()
        return data(number)

    def step(x, y):
        one = F.mse_loss(model["one"](model["body"](x).tanh()), y)
        two = F.mse_loss(model["two"](y @ model["two"].weight.detach()), y)
        inputs.append((one, two, model["two"](y @ model["two"].weight.detach()).detach()))

    return step, arguments, lambda: [model, optimizer, missing(model)]


def one_loss_outside():
    return differentiated_outside(lambda losses, number: losses[number % 2].backward())


def losses_one_by_one_outside():
    return differentiated_outside(lambda losses, number: [x.backward() for x in losses[:2]])


def leaf_made_inside():
    weight = nn.Parameter(torch.ones(3, 2))

    def step(x, y):
        noise = torch.zeros(5, 3, requires_grad=True)
        scale = torch.ones_like(x, requires_grad=True)
        F.mse_loss((x * scale + noise).tanh() @ weight, y).backward()
        return noise.grad, scale.grad, noise.is_leaf

    return step, data, lambda: [weight]


def lstm():
    model = nn.LSTM(3, 4, batch_first=True)
    optimizer = decaying(model)

    def arguments(number):
        return (torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(number)),)

    def step(x):
        optimizer.zero_grad()
        out, (h, c) = model(x)
        loss = out.tanh().square().sum() + h.square().sum() + c.mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, arguments, lambda: [model, optimizer]


STORIES = [
    unused_head_returned,
    unused_head_detached,
    detached_between,
    one_loss_outside,
    losses_one_by_one_outside,
    leaf_made_inside,
    lstm,
]


@pytest.mark.parametrize("make", STORIES)
def test_a_pass_goes_through_what_it_goes_through_in_eager(make):
    with flags.override(compile="never"):
        captured = same_story(make, calls=4, compiler="program")
    assert captured.hits and not captured.capture.breaks


def raises_in_the_pass():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    number = [0]

    def step(x, y):
        number[0] += 1
        loss = F.mse_loss(model(x), y)
        if number[0] in (2, 3):
            with torch.no_grad():
                model[2].weight.mul_(2)
        loss.backward()
        return loss.detach()

    return step, data, lambda: [model, number]


def gradient_is_deleted():
    model = nn.Linear(3, 2)
    optimizer = decaying(model)

    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        del model.bias.grad
        optimizer.step()

    return step, data, lambda: [model, optimizer]


def class_of_a_module_is_set():
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())

    def arguments(number):
        model[1].__class__ = nn.Sigmoid if number > 2 else nn.Tanh
        return data(number)

    return lambda x, y: model(x), arguments, lambda: [model]


def gradient_that_the_pass_does_not_reach(given_at):
    """In calls of these numbers the other head has a gradient from outside."""
    model = heads()
    optimizer = decaying(model)

    def arguments(number):
        x, y = data(number)
        optimizer.zero_grad()
        if number in given_at:
            F.mse_loss(model["two"](model["body"](x)), y).backward()
        return x, y

    def step(x, y):
        F.mse_loss(model["one"](model["body"](x)), y).backward()
        optimizer.step()
        return missing(model)

    return step, arguments, lambda: [model, optimizer]


def another_gradient_comes():
    return gradient_that_the_pass_does_not_reach({2, 4})


def another_gradient_goes():
    return gradient_that_the_pass_does_not_reach({0, 1, 3})


def gradient_is_another_ones_too():
    a, b = (nn.Parameter(torch.ones(3)) for _ in range(2))

    def arguments(number):
        a.grad = torch.zeros(3)
        b.grad = a.grad if number in (1, 3) else torch.zeros(3)
        return (torch.ones(3) + number,)

    def step(x):
        (a * x + b * x * x).sum().backward()
        a.grad.mul_(2)
        return a.grad is b.grad, a.grad + b.grad

    return step, arguments, lambda: [a, b]


AS_IN_EAGER = [
    raises_in_the_pass,
    gradient_is_deleted,
    class_of_a_module_is_set,
    another_gradient_comes,
    another_gradient_goes,
    gradient_is_another_ones_too,
]


@pytest.mark.parametrize("make", AS_IN_EAGER)
def test_as_in_eager(make):
    same_story(make)
