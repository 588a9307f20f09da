"""Residual networks."""

from typing import Any

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.nn.functional import relu
from glasshouse.tensor import Tensor


def conv_norm(channels: int, out: int, kernel: int, stride: int = 1) -> tuple[Module, Module]:
    conv = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(out)


class ResidualBlock(nn.Module):
    """Base of residual blocks: relu(parts(x) + x), or a projection of x where the shape
    changes. `kernels` are the sizes of its convolutions, the last to `expansion` times width."""

    expansion = 1
    kernels: tuple[int, ...] = ()
    strided = 1  # which of the convolutions has the stride

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        out = width * self.expansion
        size = channels
        for i, kernel in enumerate(self.kernels, 1):
            wide = out if i == len(self.kernels) else width
            conv, norm = conv_norm(size, wide, kernel, stride if i == self.strided else 1)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", norm)
            size = wide
        is_identity = stride == 1 and channels == out
        shortcut = () if is_identity else conv_norm(channels, out, 1, stride)
        self.downsample = nn.Identity() if is_identity else nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(1, len(self.kernels) + 1):
            y = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(y))
            if i < len(self.kernels):
                y = relu(y, inplace=True)
        return relu(y + self.downsample(x), inplace=True)


class BasicBlock(ResidualBlock):
    """Two 3 × 3 convolutions.

    Shapes: (N, C, H, W) -> (N, width, H / stride, W / stride)
    """

    kernels = (3, 3)


class Bottleneck(ResidualBlock):
    """1 × 1, 3 × 3 (with the stride) and 1 × 1 convolutions, the last to 4 times the width.

    Shapes: (N, C, H, W) -> (N, 4 · width, H / stride, W / stride).
    """

    expansion = 4
    kernels = (1, 3, 1)
    strided = 2


class ResNet(nn.Module):
    """A 7 × 7 convolution, four stages of residual blocks, mean over the image, linear layer.
    `layers` are the numbers of blocks of the stages, `width` the channels of the first one.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: He et al. 2015, arXiv:1512.03385, table 1; the stride in the 3 × 3 convolution and the
        names as in torchvision.
    Example:
        >>> ResNet(BasicBlock, (1, 1, 1, 1), 10, width=4)(gh.zeros((2, 3, 32, 32))).shape
        (2, 10)
    """

    def __init__(
        self, block: type[Any], layers: tuple[int, ...], num_classes: int = 1000, width: int = 64
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                blocks.append(block(channels, width << i, 2 if i and not j else 1))
                channels = (width << i) * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(relu(self.bn1(self.conv1(images)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(
    num_classes: int = 1000, *, layers: tuple[int, ...] = (2, 2, 2, 2), **options: Any
) -> ResNet:
    """ResNet-18: 11,689,512 parameters for 1,000 classes."""
    return ResNet(BasicBlock, layers, num_classes, **options)


def resnet50(
    num_classes: int = 1000, *, layers: tuple[int, ...] = (3, 4, 6, 3), **options: Any
) -> ResNet:
    """ResNet-50: 25,557,032 parameters for 1,000 classes."""
    return ResNet(Bottleneck, layers, num_classes, **options)
