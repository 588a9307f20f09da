"""Training iterations of PyTorch, captured whole, leave what eager leaves."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import assert_same  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402


class Net(nn.Module):
    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), norm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x))))


class Bench:
    """A model with what trains it."""

    def __init__(self, optimizer=None, schedule=None, model=Net):
        torch.manual_seed(0)
        self.model = model()
        make = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1))
        self.optimizer = make(self.model.parameters())
        self.schedule = schedule(self.optimizer) if schedule else None


def batches(count):
    torch.manual_seed(1)
    return [(torch.randn(5, 4), torch.randint(0, 3, (5,))) for _ in range(count)]


def step(bench, x, y):
    bench.optimizer.zero_grad()
    loss = F.cross_entropy(bench.model(x), y)
    loss.backward()
    bench.optimizer.step()
    return loss


def compare(fn, make=Bench, *, graphs=2, compiler="eager", steps=5):
    """Train two equal benches, one captured; compare after each step. The first step makes the
    optimizer's state and gradients, so there are two graphs."""
    plain, fast = make(), make()
    captured = gh.optimize(compiler)(fn)
    for x, y in batches(steps):
        torch.manual_seed(7)
        want = fn(plain, x, y)
        torch.manual_seed(7)
        got = captured(fast, x, y)
        assert_same(got, want)
        assert_same(fast.model, plain.model, "model")
        assert_same(fast.optimizer, plain.optimizer, "optimizer")
    capture = captured.capture
    assert len(capture.entries) <= graphs, (len(capture.entries), capture.breaks)
    return captured


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "maximize": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "single": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rate in a tensor": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9),
    "Adam's rate in a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "two groups": lambda p: torch.optim.SGD(
        [{"params": [next(p)], "lr": 0.5}, {"params": [*p]}], lr=0.1
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_step_is_one_graph(name):
    captured = compare(step, lambda: Bench(OPTIMIZERS[name]))
    assert captured.hits >= 3 and not captured.capture.breaks


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rate in a tensor", "Adam's rate in a tensor"])
def test_a_rate_in_a_tensor_is_compiled(name):
    def slower(bench, x, y):
        loss = step(bench, x, y)
        bench.optimizer.param_groups[0]["lr"].mul_(0.5)
        return loss

    captured = compare(slower, lambda: Bench(OPTIMIZERS[name]), compiler="program")
    assert captured.hits >= 3 and not captured.capture.breaks


OTHERS = {
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "foreach sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "foreach adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_optimizers(name):
    compare(step, lambda: Bench(OTHERS[name]), graphs=60)


SCHEDULES = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, 0.5, total_steps=20, cycle_momentum=False
    ),
}


def scheduled(bench, x, y):
    loss = step(bench, x, y)
    bench.schedule.step()
    return loss


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_that_changes_needs_no_other_graph(name):
    make = lambda: Bench(OPTIMIZERS["momentum"], SCHEDULES[name])  # noqa: E731
    captured = compare(scheduled, make, steps=6, graphs=3)
    assert captured.hits >= 3


def clipped(bench, x, y):
    bench.optimizer.zero_grad()
    loss = F.cross_entropy(bench.model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(bench.model.parameters(), 0.1)
    bench.optimizer.step()
    return loss, norm


def accumulated(bench, x, y):
    bench.optimizer.zero_grad()
    for part, wanted in zip(x.split(2), y.split(2)):
        (F.cross_entropy(bench.model(part), wanted) / 3).backward()
    bench.optimizer.step()


def gradients_zeroed(bench, x, y):
    bench.optimizer.zero_grad(set_to_none=False)
    F.cross_entropy(bench.model(x), y).backward()
    bench.optimizer.step()


def under_autocast(bench, x, y):
    bench.optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(bench.model(x), y)
    loss.backward()
    bench.optimizer.step()
    return loss


def by_hand(bench, x, y):
    loss = F.cross_entropy(bench.model(x), y)
    loss.backward()
    with torch.no_grad():
        for p in bench.model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    return loss


def autograd_grad(bench, x, y):
    loss = F.cross_entropy(bench.model(x), y)
    gradients = torch.autograd.grad(loss, list(bench.model.parameters()))
    with torch.no_grad():
        for p, g in zip(bench.model.parameters(), gradients):
            p.sub_(g, alpha=0.1)
    return loss


def gradients_by_iterators(bench, x, y):
    loss = F.cross_entropy(bench.model(x), y)
    named = dict(bench.model.named_parameters())
    first = torch.autograd.grad(loss, bench.model.parameters(), create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), inputs=named.values())
    with torch.no_grad():
        for p, g in zip(bench.model.parameters(), second):
            p.sub_(g, alpha=0.1)
    return loss


def loss_as_number(bench, x, y):
    return step(bench, x, y).item()


def averaged(bench, x, y):
    loss = step(bench, x, y)
    with torch.no_grad():
        for p in bench.model.parameters():
            p.mul_(0.9).add_(p.detach().clone(), alpha=0.1)
    return loss


def double_backward(bench, x, y):
    x = x.clone().requires_grad_() if not x.requires_grad else x
    loss = F.cross_entropy(bench.model(x), y)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    bench.optimizer.zero_grad()
    (loss + (g**2).sum()).backward()
    bench.optimizer.step()
    return loss


LOOPS = [clipped, accumulated, gradients_zeroed, under_autocast, by_hand, autograd_grad,
         gradients_by_iterators, loss_as_number, averaged]  # fmt: skip


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_iterations_in_one_graph(fn):
    captured = compare(fn, lambda: Bench(OPTIMIZERS["momentum"]))
    assert captured.hits >= 3 and not captured.capture.breaks


def test_gradients_of_gradients_by_iterators_compiled():
    compare(gradients_by_iterators, compiler="aot_eager")


def test_gradients_of_gradients():
    compare(double_backward, graphs=8)


COMPILED = [(step, "program"), (clipped, "program"), (under_autocast, "program"),
            (scheduled, "aot_eager"), (by_hand, "aot_eager")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fn", "compiler"), COMPILED, ids=lambda x: getattr(x, "__name__", x))
def test_compiled_iterations(fn, compiler):
    schedule = SCHEDULES["step"] if fn is scheduled else None
    bench = Bench(OPTIMIZERS["momentum"], schedule), Bench(OPTIMIZERS["momentum"], schedule)
    captured = gh.optimize(compiler)(fn)
    for x, y in batches(4):
        want, got = fn(bench[0], x, y), captured(bench[1], x, y)
        torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
        for p, q in zip(bench[0].model.parameters(), bench[1].model.parameters()):
            torch.testing.assert_close(q, p, rtol=1e-2, atol=2e-3)
    assert captured.hits >= 2


def test_a_checkpoint_goes_on_in_eager_and_back():
    plain, fast = Bench(OPTIMIZERS["adamw"]), Bench(OPTIMIZERS["adamw"])
    captured = gh.optimize("eager")(step)
    data = batches(9)
    for x, y in data:
        step(plain, x, y)
    for x, y in data[:3]:
        captured(fast, x, y)
    states = copy.deepcopy((fast.model.state_dict(), fast.optimizer.state_dict()))
    for x, y in data[3:5]:
        step(fast, x, y)
    fast.model.load_state_dict(states[0])
    fast.optimizer.load_state_dict(states[1])
    for x, y in data[3:6]:
        captured(fast, x, y)
    for x, y in data[6:]:
        step(fast, x, y)
    assert_same(fast.model, plain.model)
    assert_same(fast.optimizer, plain.optimizer)


def test_batch_norm_counts_and_modes():
    def make():
        return Bench(OPTIMIZERS["momentum"], model=lambda: Net(nn.BatchNorm1d))

    captured = compare(step, make)
    assert captured.hits == 3


def test_dropout_draws_what_eager_draws():
    def make():
        return Bench(model=lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)))

    compare(step, make)


def scheduled_rate(step):
    if step < 6:
        return 0.1 * (step + 1) / 7
    if step > 30:
        return 0.01
    share = (step - 6) / (30 - 6)
    assert 0 <= share <= 1
    return 0.01 + 0.5 * (1 + math.cos(math.pi * share)) * 0.09


def step_that_counts(bench, x, y, step):
    """Gradients of four steps, and a learning rate that is computed from the step."""
    for group in bench.optimizer.param_groups:
        group["lr"] = scheduled_rate(step)
    loss = F.cross_entropy(bench.model(x), y) / 4
    loss.backward()
    if (step + 1) % 4 == 0:
        nn.utils.clip_grad_norm_(bench.model.parameters(), 1.0)
        bench.optimizer.step()
        bench.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


@pytest.mark.slow
def test_steps_that_depend_on_their_number_are_captured_for_what_they_do():
    eager, ours = Bench(torch.optim.AdamW), Bench(torch.optim.AdamW)
    captured = gh.optimize(step_that_counts)
    for step, (x, y) in enumerate(batches(40)):
        assert_same(step_that_counts(eager, x, y, step), captured(ours, x, y, step))
    assert_same(eager.model.state_dict(), ours.model.state_dict())
    assert len(captured.capture.entries) <= 9
