"""A small network waits for its loader, which blurs each image in Python."""

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.nn.functional import cross_entropy


def blur(sample):
    """Average each pixel with its neighbours, five times."""
    image, label = sample
    for _ in range(5):
        for axis in (1, 2):
            image = (np.roll(image, 1, axis) + image + np.roll(image, -1, axis)) / 3
    return image.astype(np.float32), label


rng = np.random.default_rng(0)
images = rng.normal(size=(512, 3, 64, 64)).astype(np.float32)
loader = DataLoader(TensorDataset(images, np.arange(512) % 10).map(blur), batch_size=32)
batches = iter(loader)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 15 * 15, 10),
)  # fmt: skip
optimizer = gh.optim.SGD(model.parameters(), lr=0.01)


def step():
    x, y = next(batches)
    loss = cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
