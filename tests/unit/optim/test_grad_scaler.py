"""Loss scaling: the same steps as without, and overflowing steps left out."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.optim import SGD, GradScaler


def make(scale=8.0, **options):
    p = gh.tensor([1.0, -2.0], requires_grad=True)
    return p, SGD([p], lr=0.25), GradScaler(init_scale=scale, **options)


def test_a_step_is_the_step_without_scaling():
    p, optimizer, scaler = make(growth_interval=2)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((p * p).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert p.tolist() == [0.25, -0.5] and scaler.get_scale() == 16.0


def test_an_overflow_skips_the_step_and_halves_the_scale():
    p, optimizer, scaler = make(scale=65536.0)
    with gh.autocast("float16"):
        scale = gh.asarray([[60000.0]])
        loss = (gh.reshape(p, (2, 1)) @ scale).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [1.0, -2.0] and scaler.get_scale() == 32768.0
    optimizer.zero_grad()
    scaler.scale((p * p).sum()).backward()
    scaler.step(optimizer)
    assert p.tolist() == [0.5, -1.0]


def test_clipping_in_between_and_state():
    p, optimizer, scaler = make()
    scaler.scale((p * p).sum()).backward()
    scaler.unscale_(optimizer)
    np.testing.assert_allclose(p.grad.numpy(), [2.0, -4.0])
    with pytest.raises(gh.GradError, match="update"):
        scaler.unscale_(optimizer)
    gh.optim.clip_grad_norm_([p], 1.0)
    scaler.step(optimizer)
    scaler.update(new_scale=4.0)
    again = GradScaler()
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 4.0
    off = GradScaler(enabled=False)
    assert off.scale(p) is p and off.state_dict() == {}
    with pytest.raises(gh.OptionError, match=r"0\.5"):
        GradScaler(growth_factor=0.5)


@pytest.mark.parametrize("arguments", [(8.0,), ("cpu", 8.0), ("cuda", 8.0)])
def test_the_device_of_pytorch_may_stand_before_the_scale(arguments):
    assert gh.amp.GradScaler(*arguments).get_scale() == 8.0
