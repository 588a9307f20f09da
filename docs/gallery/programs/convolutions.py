"""A convolutional network of ours, with 33 channels in each layer, trains on small images."""

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn.functional import cross_entropy

CHANNELS = 33


def block(inputs, outputs):
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


gh.random.seed(0)
model = nn.Sequential(
    block(3, CHANNELS), block(CHANNELS, CHANNELS), block(CHANNELS, CHANNELS), nn.MaxPool2d(2),
    block(CHANNELS, CHANNELS), block(CHANNELS, CHANNELS), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(CHANNELS, 10),
)  # fmt: skip
optimizer = gh.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = gh.random.normal((32, 3, 32, 32)), gh.arange(32) % 10


def step():
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
