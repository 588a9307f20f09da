"""ResNet-50 of ours trains on two images of 128 x 128 in float32."""

import glasshouse as gh
from glasshouse.nn.functional import cross_entropy
from glasshouse.vision.models import resnet50

gh.random.seed(0)
model = resnet50(num_classes=100)
optimizer = gh.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images, labels = gh.random.normal((2, 3, 128, 128)), gh.asarray([3, 7])


def step():
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
