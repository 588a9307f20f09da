"""A Vision Transformer of ours trains in a step that gh.optimize captures whole."""

import glasshouse as gh
from glasshouse.nn.functional import cross_entropy
from glasshouse.vision.models import VisionTransformer

gh.random.seed(0)
model = VisionTransformer(
    image_size=64,
    patch_size=8,
    num_layers=4,
    num_heads=4,
    hidden_dim=128,
    mlp_dim=512,
    num_classes=10,
)
optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = gh.random.normal((8, 3, 64, 64)), gh.arange(8)


@gh.optimize
def train(images, labels):
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def step():
    return train(images, labels).item()


step(), step()  # the first call runs as it is, the second is captured
