"""Functions that check values, as users write them: pytest would rewrite their `assert`."""

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
    """A step that sets gradients and updates parameters behind its checks, and may draw numbers."""
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
