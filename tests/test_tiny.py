"""A smoke test of everything, in a second: tensor, gradient, vmap, one trained network."""

import numpy as np

import glasshouse as gh
from glasshouse import nn


def test_tensor():
    x = gh.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert (x @ x.T + 1).tolist() == [[6.0, 12.0], [12.0, 26.0]]
    assert x[:, 1].sum().item() == 6.0


def test_gradient():
    x = gh.tensor([1.0, 2.0], requires_grad=True)
    gh.exp(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 2.0]), rtol=1e-6)
    assert gh.grad(gh.grad(lambda v: v**3))(gh.asarray(2.0)).item() == 12.0


def test_vmap():
    rows = gh.vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))(gh.ones((3, 2)), gh.ones(2))
    assert rows.tolist() == [2.0, 2.0, 2.0]


def test_a_network_learns():
    gh.random.seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    optimizer = gh.optim.Adam(model.parameters(), lr=0.05)
    images = gh.random.normal((16, 1, 4, 4))
    labels = (images.mean(axis=(1, 2, 3)) > 0).long()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 < losses[0]
