"""Functions that check values, as users write them: pytest would rewrite their `assert`."""

import math

import torch
from torch import nn


def is_sound(x):
    """A check as libraries write it, called by others."""
    if not torch.isfinite(x).all():
        where = (~torch.isfinite(x)).nonzero().tolist()
        message = f"expected finite numbers; got {x.shape} with others at {where}"
        raise ValueError(message)
    return x


def training_step(draws: bool):
    """A step that sets gradients and updates parameters after its checks, and may draw numbers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.3 if draws else 0.0), nn.Linear(5, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        noise = torch.randn_like(x) if draws else torch.ones_like(x)
        loss = is_sound(net(x + 0.1 * noise)).square().mean()
        assert loss < 50, f"a loss of {loss.item():.0f}"
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    def others():
        return net, optimizer, torch.random.default_generator

    return step, others


def both_ways(x):
    if (x > 0).all():
        return x
    return -x


def named_condition(x):
    if torch.any(input=x > 0):
        return x
    return -x


def caught_beside(x):
    try:
        if not (x > 0).all():
            raise ValueError
    except ValueError:
        return -x
    return x


def raises_in_a_loop(x):
    if not (x > 0).all():
        for _ in range(3):
            if x.ndim > 5:
                return x
        raise ValueError
    return x


def ways_to_check(x):
    assert (x < 9).all()
    if x.sum() > 90 or x.isnan().any():
        raise ValueError("large")
    if torch.any(x < -9):
        raise ValueError("small")
    return x + 1


def two_networks(check):
    """A step that updates a critic, then an actor whose actions it checks, as in SAC."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 3), nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizers = [torch.optim.Adam(x.parameters(), lr=1e-2) for x in (critic, actor)]

    def step(x):
        with torch.no_grad():
            actions = actor(x)
        loss = critic(torch.cat([x, actions], 1)).square().mean()
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        actions = check(actor(x * 2))
        gain = critic(torch.cat([x, actions], 1)).mean()
        optimizers[1].zero_grad()
        (-gain).backward()
        optimizers[1].step()
        return loss, gain

    return step, lambda: (actor, critic, optimizers)


def normalized_step():
    """A step whose loss is checked after a batch norm's statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)

    def step(x):
        loss = net(x).square().mean()
        if not loss.isfinite():
            raise FloatingPointError("the loss is not finite")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, lambda: (net, optimizer)


def skipping_step():
    """A training step that leaves out batches with a loss that is not finite, and counts them."""
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    skipped = []

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if not torch.isfinite(loss) or torch.isnan(loss):
            skipped.append(len(skipped))
            return None
        loss.backward()
        optimizer.step()
        return loss

    def others():
        return net, optimizer, skipped

    return step, others


def step_that_reads_its_loss(check):
    """A training step that looks at its loss as a number of Python's, and returns that."""
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    losses = []

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        number = check(loss)
        if number is None:
            return None
        loss.backward()
        optimizer.step()
        losses.append(2 * number)
        return loss

    return step, lambda: (net, optimizer, torch.tensor(losses))


def stops_where_not_finite(loss):
    number = loss.item()
    if not math.isfinite(number):
        raise FloatingPointError(f"a loss of {number}")
    return number


def stops_where_large(loss):
    number = float(loss.detach())
    assert 0 <= 2 * number - 1.5 * abs(number) < 5e5, number
    return number


def leaves_out_what_is_not_finite(loss):
    number = loss.item()
    return None if math.isnan(number) or number != number or math.isinf(number) else number


def goes_on_where_large(loss):
    number = loss.item()
    return None if number > 5e5 else number


def divides(loss):
    number = loss.item()
    assert 1 / number > 0
    return number


def multiplies_whole_numbers(x):
    """Whole numbers whose product float64 does not hold."""
    count = x.int() * 0 + 94906267
    if count.item() * count.item() != 94906267**2:
        raise ValueError(count)
    return x + 1


def read_before_a_write(x):
    """A number that is checked when the tensor has another one."""
    total = x.sum()
    number = total.item()
    total.mul_(0)
    if number > 5e5:
        raise ValueError(number)
    return total + number


def filled_in(x):
    if (x != x).any():
        x = torch.where(x != x, 0.0, x)
    return x * 2


def negative_where_all_are_finite_and_large(x):
    if torch.isfinite(x).all() and (x > 0).all():
        return -x
    return x


class InitializedOnce(nn.Module):
    """A layer that takes its mean from the first batch, and says so in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor([False]))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if not self.ready:
            self.mean.copy_(x.mean(0))
            self.ready.fill_(True)
        return x - self.mean


def reads_what_it_wrote(flags, x):
    first, view = flags, flags.view(1)
    if first:
        x = x + 1
    view.logical_not_()
    if first:
        x = x * 2
    return x
