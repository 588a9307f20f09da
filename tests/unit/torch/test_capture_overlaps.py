"""Writes through views whose elements share memory, and weights that are written while autocast
keeps their casts: what eager gives, captured graphs give."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from same_outcome import nothing, same_story  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch.tensors.layout import overlaps_itself  # noqa: E402

PLACES = torch.tensor([0, 1])


def square(x):
    return x[:4].view(2, 2)


# What is written to a tensor of eight elements.
WRITES = {
    "strided": lambda x: x.as_strided((4, 3), (1, 1)).add_(1),
    "strided product": lambda x: x.as_strided((4, 3), (1, 1)).mul_(2),
    "expanded": lambda x: x[:1].expand(4).fill_(3),
    "expanded and indexed": lambda x: x[:2].expand(3, 2).index_put_((PLACES,), x.new_tensor(5)),
    "windows": lambda x: x.unfold(0, 3, 1).mul_(2),
    "windows apart": lambda x: x.unfold(0, 2, 2).mul_(2),
    "behind": lambda x: x[1:].add_(x[:-1]),
    "copied behind": lambda x: x[1:].copy_(x[:-1]),
    "transposed": lambda x: x.view(2, 4)[:, :2].copy_(x.view(2, 4)[:, :2].t()),
    "halves": lambda x: x[:4].copy_(x[4:]),
    "product into an operand": lambda x: square(x).addmm_(square(x), square(x)),
    "out": lambda x: torch.mm(square(x), square(x) + 1, out=square(x)),
    "itself": lambda x: x.mul_(x).addcmul_(x, x),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_read_or_write_the_same_memory(name):
    def fn(x):
        x.mul_(2)
        WRITES[name](x)
        return x + 1, x * 2

    with flags.override(compile="never"):
        same_story(lambda: (fn, lambda i: (torch.arange(8.0) + i,), nothing), compiler="program")


@pytest.mark.parametrize("shape, strides", [((4, 3), (1, 1)), ((3,), (0,)), ((3, 2), (2, 2))])
def test_elements_that_share_memory(shape, strides):
    assert overlaps_itself(torch.zeros(12).as_strided(shape, strides))


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 1:3]])
def test_elements_that_lie_apart(view):
    assert not overlaps_itself(view(torch.zeros(4, 6)))


def weight_written_inside():
    w = nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            first = F.linear(x, w)
            with torch.no_grad():
                w.mul_(2)
            second = F.linear(x, w)
        return first.detach(), second.detach(), F.linear(x, w).detach()

    return fn, lambda i: (torch.ones(2, 4),), lambda: w


def optimizer_steps_inside():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            first = model(x)
            first.float().sum().backward()
            optimizer.step()
            second = model(x)
        return first.detach(), second.detach()

    return fn, lambda i: (torch.ones(2, 4),), lambda: model


def casts_are_dropped():
    w = nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            first = F.linear(x, w)
            with torch.no_grad():
                w.mul_(2)
            torch.clear_autocast_cache()
            second = F.linear(x, w)
        return first.detach(), second.detach()

    return fn, lambda i: (torch.ones(2, 4),), lambda: w


CASTS = [weight_written_inside, optimizer_steps_inside, casts_are_dropped]


@pytest.mark.parametrize("make", CASTS, ids=lambda make: make.__name__)
def test_casts_that_autocast_keeps(make):
    with flags.override(compile="never"):
        same_story(make, compiler="program")


NAN, INF = float("nan"), float("inf")
ROWS = [[1.0, 3.0, 3.0, 2.0], [NAN, 1.0, NAN, 2.0], [INF, NAN, -INF, 0.0]]


@pytest.mark.parametrize("fn", [
    lambda x: x.topk(2)[0],
    lambda x: x.topk(2, largest=False)[0],
    lambda x: x.sort(descending=True, stable=True),
    F.relu6,
    F.hardtanh,
])  # fmt: skip
def test_nan_and_inf(fn):
    def step(x):
        y = fn(x * 1)
        values = y if isinstance(y, torch.Tensor) else y[0]
        values.sum().backward()
        return values.detach(), None if values is y else y[1], x.grad

    def arguments(i):
        return (torch.tensor(ROWS * 4).requires_grad_(),)

    with flags.override(compile="never"):
        same_story(lambda: (step, arguments, nothing), compiler="program")


def both(x, y):
    x.mul_(2)
    return x + y


def second(x, y):
    y.add_(x)
    return x * 3, y - 1


# Pairs of tensors over NumPy's memory, each a storage of its own, that may have elements in common.
SHARED = {
    "ends": lambda n: (torch.from_numpy(n[:4]), torch.from_numpy(n[2:6])),
    "ends turned": lambda n: (torch.from_numpy(n[2:6]), torch.from_numpy(n[:4])),
    "the same": lambda n: (torch.from_numpy(n[:4]), torch.from_numpy(n[:4])),
    "apart": lambda n: (torch.from_numpy(n[:4]), torch.from_numpy(n[4:])),
    "in turns": lambda n: (torch.from_numpy(n[::2]), torch.from_numpy(n[1::2])),
    "of a tensor": lambda n: (x := torch.arange(4.0), torch.from_numpy(x.numpy())),
    "through DLPack": lambda n: (x := torch.arange(4.0), torch.from_dlpack(x.numpy())),
    "tensors": lambda n: (torch.from_numpy(n.copy())[:4], torch.ones(4)),
}


@pytest.mark.parametrize("fn", [both, second])
@pytest.mark.parametrize("first", ["tensors", "ends", "apart"])
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_memory_of_two_storages(fn, first, compiler):
    captured = gh.optimize(compiler)(fn)
    for name in (first, *SHARED):
        stories = []
        for called in (fn, captured):
            n = np.arange(1.0, 9, dtype=np.float32)
            x, y = SHARED[name](n)
            stories.append((str(called(x, y)), x.tolist(), y.tolist(), n.tolist()))
        assert stories[0] == stories[1], name
