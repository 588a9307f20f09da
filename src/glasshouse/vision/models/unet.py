"""U-Net: a picture in, scores of each pixel out."""

from typing import Any

from glasshouse import nn
from glasshouse.nn.functional import interpolate
from glasshouse.tensor import Tensor, concat


def double_conv(channels: int, out: int) -> nn.Sequential:
    """Two 3 × 3 convolutions, each with a norm and ReLU."""
    parts = []
    for size in (channels, out):
        conv = nn.Conv2d(size, out, 3, padding=1, bias=False)
        parts += [conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Convolutions at sizes halved `depth` times, then back; the way up concatenates the features
    of the way down. Unlike the paper's, convolutions keep the size, and have norms.

    Shapes: images (N, channels, H, W) -> scores (N, num_classes, H, W).
    Source: Ronneberger et al. 2015, arXiv:1505.04597, fig. 1.
    Example:
        >>> UNet(2, width=4, depth=2)(gh.zeros((1, 3, 18, 20))).shape
        (1, 2, 18, 20)
    """

    def __init__(
        self, num_classes: int, channels: int = 3, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        pairs = list(zip([channels, *widths], widths, strict=False))
        self.down: nn.ModuleList = nn.ModuleList(double_conv(*pair) for pair in pairs)
        backward = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.reduce: nn.ModuleList = nn.ModuleList(
            nn.Conv2d(high, low, 1) for high, low in backward
        )
        self.up: nn.ModuleList = nn.ModuleList(double_conv(2 * low, low) for _, low in backward)
        self.head: Any = nn.Conv2d(width, num_classes, 1)
        self.pool: Any = nn.MaxPool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        x, results = images, []
        for i, layer in enumerate(self.down):
            x = layer(self.pool(x) if i else x)
            results.append(x)
        for beside, reduce, up in zip(results[-2::-1], self.reduce, self.up, strict=True):
            x = interpolate(reduce(x), size=beside.shape[2:], mode="bilinear")
            x = up(concat([beside, x], axis=1))
        return self.head(x)
