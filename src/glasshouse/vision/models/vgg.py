"""VGG: stacks of 3 × 3 convolutions."""

from typing import Any

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.tensor import Tensor

# Channels in units of the width, "M" being a pooling: configuration D of the paper, VGG-16.
LAYERS_16 = (1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8, "M")


class VGG(nn.Module):
    """3 × 3 convolutions with ReLU, halved in size by pooling, then three linear layers.
    `width` is the number of channels of the first stack, `hidden` that of the linear layers.

    Shapes: images (N, 3, H, W), H and W at least 32 -> scores (N, num_classes).
    Source: Simonyan & Zisserman 2015, arXiv:1409.1556, table 1; names as in torchvision.
    Example:
        >>> VGG(10, width=2, hidden=8)(gh.zeros((1, 3, 32, 32))).shape
        (1, 10)
    """

    def __init__(
        self,
        num_classes: int = 1000,
        dropout: float = 0.5,
        width: int = 64,
        hidden: int = 4096,
        layers: tuple[int | str, ...] = LAYERS_16,
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        channels = 3
        for factor in layers:
            if isinstance(factor, str):
                parts.append(nn.MaxPool2d(2, 2))
                continue
            parts += [nn.Conv2d(channels, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = factor * width
        self.features: nn.Sequential = nn.Sequential(*parts)
        self.avgpool: Any = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier: nn.Sequential = nn.Sequential(
            nn.Linear(channels * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        self.apply(reset)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def reset(module: Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
    else:
        return
    nn.init.zeros_(module.bias)


def vgg16(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-16: 138,357,544 parameters for 1,000 classes, for images of 224 × 224."""
    return VGG(num_classes, **options)
