"""AlexNet, in the form for one device."""

from typing import Any

from glasshouse import nn
from glasshouse.tensor import Tensor

# Of each convolution: channels in units of the width, whether pooled, kernel, stride, padding.
PLAN = ((1, True, 11, 4, 2), (3, True, 5, 1, 2), (6, False, 3, 1, 1), (4, False, 3, 1, 1),
        (4, True, 3, 1, 1))  # fmt: skip


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; `width` scales all of them (64 is AlexNet's).

    Shapes: images (N, 3, H, W), H and W at least 63 -> scores (N, num_classes).
    Source: Krizhevsky 2014, arXiv:1404.5997; names as in torchvision.
    Example:
        >>> AlexNet(10, width=4)(gh.zeros((1, 3, 64, 64))).shape
        (1, 10)
    """

    features: "nn.Sequential"

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, width: int = 64) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        channels = 3
        for factor, pooled, *window in PLAN:
            parts += [nn.Conv2d(channels, factor * width, *window), nn.ReLU(inplace=True)]
            parts += [nn.MaxPool2d(3, 2)] if pooled else []
            channels = factor * width
        self.features, wide = nn.Sequential(*parts), 64 * width
        self.avgpool: Any = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier: nn.Sequential = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(36 * channels, wide),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(wide, wide),
            nn.ReLU(inplace=True),
            nn.Linear(wide, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def alexnet(num_classes: int = 1000, **options: Any) -> AlexNet:
    """AlexNet: 61,100,840 parameters for 1,000 classes, for images of 224 × 224."""
    return AlexNet(num_classes, **options)
