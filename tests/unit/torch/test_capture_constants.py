"""Branches on tensors that are the same in each call: they need no break of the graph."""

import pytest

torch = pytest.importorskip("torch")

from same_outcome import same_outcome  # noqa: E402
from torch import nn  # noqa: E402


def x(value=1.0):
    return torch.full((4,), value)


def grid(x):
    t = torch.linspace(0, 1, 5)
    increasing = t[1:] > t[:-1]
    assert increasing.all() or (~increasing).all()
    for start, end in zip(t[:-1], t[1:]):
        if end >= t[2]:
            x = x + (end - start)
    return x, t.tolist(), t[3].item(), float(t[1]), torch.equal(t, t * 1), int(t[4])


def made_in_place(x):
    t = torch.zeros(3)
    if not (t + 1).any():
        x = x * 2
    with torch.no_grad():
        u = torch.ones(3) * 2
    return x * 3 if u.sum() > 5 else x


def adds_into(x):
    t = torch.zeros(4)
    t += x
    return x + 1 if t.sum() > 4 else x - 1


def writes_an_element(x):
    t = torch.zeros(4)
    t[1] = x[0]
    return x + 1 if t[1] > 1 else x - 1


def writes_out(x):
    t = torch.zeros(4)
    torch.add(x, 1, out=t)
    return x + 1 if t.sum() > 8 else x - 1


def keeps_a_mean(x):
    mean = torch.zeros(4)
    nn.functional.batch_norm(torch.stack([x, x + 1]), mean, torch.ones(4), training=True)
    return x + 1 if mean[0] > 0.2 else x - 1


def accumulates(x):
    x.requires_grad_()
    total = torch.zeros(4)
    x.grad = total
    (x * x.detach()).sum().backward()
    return x.detach() + 1 if total.sum() > 4 else x.detach() - 1


def draws(x):
    return x + 1 if torch.rand(1) > 0.5 else x - 1


def was_passed(x):
    t = torch.ones(4) * x
    return x + 1 if t.sum() > 4 else x - 1


@pytest.mark.parametrize("fn", [grid, made_in_place])
def test_a_tensor_made_of_constants_decides_without_a_break(fn):
    for compiler in ("eager", "program"):
        same_outcome(fn, (x(),), (x(3.0),), compiler=compiler, graphs=1, breaks=[])


@pytest.mark.parametrize(
    "fn",
    [adds_into, writes_an_element, writes_out, keeps_a_mean, accumulates, draws, was_passed],
)
def test_what_was_written_to_or_drawn_decides_anew_in_each_call(fn):
    captured = same_outcome(fn, *[(x(value),) for value in (0.5, 3.0, 0.5, 3.0)])
    assert captured.capture.breaks


class Held(nn.Module):
    """A module that is made of a tensor."""

    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("tensor", tensor)

    def forward(self, x):
        return self.tensor + x


def test_a_buffer_of_a_module_that_is_made_in_the_call_is_computed():
    def fn(x):
        return Held(x * 2)(x)

    same_outcome(fn, (x(),), (x(2.0),), (x(3.0),), graphs=1, breaks=[])
