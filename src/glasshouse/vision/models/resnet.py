"""Residual networks."""

from collections.abc import Callable
from typing import Any

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.nn.functional import relu
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor, ones, sqrt, zeros
from glasshouse.vision.models.sizes import sized


def conv_norm(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[Module, Module]:
    options = {"padding": kernel // 2, "groups": groups, "bias": False}
    return nn.Conv2d(channels, out, kernel, stride, **options), nn.BatchNorm2d(out)


class ResidualBlock(nn.Module):
    """Base of residual blocks: relu(parts(x) + x), or a projection of x where the shape
    changes. `kernels` are the sizes of its convolutions, the last to `expansion` times width; those
    before have `width_per_group` / 64 times the width in each of `groups`."""

    expansion = 1
    kernels: tuple[int, ...] = ()
    strided = 1  # which of the convolutions has the stride

    def __init__(
        self,
        channels: int,
        width: int,
        stride: int = 1,
        *,
        groups: int = 1,
        width_per_group: int = 64,
    ) -> None:
        super().__init__()
        out, inner = width * self.expansion, width * width_per_group // 64 * groups
        size = channels
        for i, kernel in enumerate(self.kernels, 1):
            wide = out if i == len(self.kernels) else inner
            step, parts = (stride, groups) if i == self.strided else (1, 1)
            conv, norm = conv_norm(size, wide, kernel, step, parts)
            self.add_module(f"conv{i}", conv)
            self.add_module(f"bn{i}", norm)
            size = wide
        is_identity = stride == 1 and channels == out
        shortcut = () if is_identity else conv_norm(channels, out, 1, stride)
        self.out_channels = out
        self.downsample: nn.Identity | nn.Sequential = (
            nn.Identity() if is_identity else nn.Sequential(*shortcut)
        )

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

    kernels: tuple[int, ...] = (3, 3)


class Bottleneck(ResidualBlock):
    """1 × 1, 3 × 3 (with the stride) and 1 × 1 convolutions, the last to 4 times the width.

    Shapes: (N, C, H, W) -> (N, 4 · width, H / stride, W / stride).
    """

    expansion = 4
    kernels: tuple[int, ...] = (1, 3, 1)
    strided = 2


class ResNet(nn.Module):
    """A 7 × 7 convolution, four stages of residual blocks, mean over the image, linear layer.
    `layers` are the numbers of blocks of the stages, `width` the channels of the first one; with
    `groups` of `width_per_group` channels it is a ResNeXt, with 128 in one group a wide ResNet.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: He et al. 2015, arXiv:1512.03385, table 1; Xie et al. 2016, arXiv:1611.05431 (groups);
        the stride in the 3 × 3 convolution and the names as in torchvision.
    Example:
        >>> ResNet(BasicBlock, (1, 1, 1, 1), 10, width=4)(gh.zeros((2, 3, 32, 32))).shape
        (2, 10)
    """

    def __init__(
        self,
        block: type[Any],
        layers: tuple[int, ...],
        num_classes: int = 1000,
        width: int = 64,
        **groups: int,
    ) -> None:
        super().__init__()
        self.conv1: Any = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1: Any = nn.BatchNorm2d(width)
        self.maxpool: Any = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                blocks.append(block(channels, width << i, 2 if i and not j else 1, **groups))
                channels = (width << i) * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool: Any = nn.AdaptiveAvgPool2d((1, 1))
        self.fc: nn.Linear = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self, images: Tensor) -> list[Tensor]:
        """The results of the four stages, from 1/4 of the image's size to 1/32."""
        x, results = self.maxpool(relu(self.bn1(self.conv1(images)), inplace=True)), []
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
            results.append(x)
        return results

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.stages(images)[-1]).flatten(1))


class FrozenBatchNorm2d(nn.Module):
    """x scaled and shifted by fixed statistics: a BatchNorm2d that is not trained.

    Shapes: (N, C, H, W) -> the same.
    Source: names as in torchvision and transformers.
    """

    _shown = ("num_features",)

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        values = {"weight": ones, "bias": zeros, "running_mean": zeros, "running_var": ones}
        for name, make in values.items():
            self.register_buffer(name, make((num_features,)))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight / sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class ResNetBody(ResNet):
    """A ResNet without its last layer, which gives the results of its four stages; if `frozen` its
    norms are FrozenBatchNorm2d.

    Shapes: images (N, 3, H, W) -> four of (N, C, H / 4, W / 4) to (N, 8 · C, H / 32, W / 32).
    Raises: OptionError for an unknown name.
    Source: as ResNet's.
    """

    def __init__(self, name: str = "resnet50", frozen: bool = False, **options: Any) -> None:
        block, *layers = RESNETS[check_option("ResNetBody", "name", name, RESNETS)]
        super().__init__(block, tuple(layers), **options)
        del self.fc
        blocks = [self.layer1, self.layer2, self.layer3, self.layer4]
        self.channels: list[Any] = [layer[-1].out_channels for layer in blocks]
        if frozen:
            self.apply(freeze)

    def forward(self, images: Tensor) -> Any:
        return self.stages(images)


def freeze(module: Module) -> None:
    """Put a FrozenBatchNorm2d in the place of each norm among the module's parts."""
    for name, part in list(module.named_children()):
        if isinstance(part, nn.BatchNorm2d):
            module.add_module(name, FrozenBatchNorm2d(part.num_features, part.eps))


RESNETS: dict[str, tuple[Any, ...]] = {
    "resnet18": (BasicBlock, 2, 2, 2, 2),
    "resnet34": (BasicBlock, 3, 4, 6, 3),
    "resnet50": (Bottleneck, 3, 4, 6, 3),
    "resnet101": (Bottleneck, 3, 4, 23, 3),
    "resnet152": (Bottleneck, 3, 8, 36, 3),
}


def resnet(name: str, of: str | None = None, **groups: int) -> Callable[..., ResNet]:
    block, *layers = RESNETS[of or name]
    return sized(name, ResNet, block, layers=tuple(layers), **groups)


resnet18: Callable[..., ResNet] = resnet("resnet18")
resnet34: Callable[..., ResNet] = resnet("resnet34")
resnet50: Callable[..., ResNet] = resnet("resnet50")
resnet101: Callable[..., ResNet] = resnet("resnet101")
resnet152: Callable[..., ResNet] = resnet("resnet152")
resnext50_32x4d: Callable[..., ResNet] = resnet(
    "resnext50_32x4d", "resnet50", groups=32, width_per_group=4
)
resnext101_32x8d: Callable[..., ResNet] = resnet(
    "resnext101_32x8d", "resnet101", groups=32, width_per_group=8
)
wide_resnet50_2: Callable[..., ResNet] = resnet("wide_resnet50_2", "resnet50", width_per_group=128)
wide_resnet101_2: Callable[..., ResNet] = resnet(
    "wide_resnet101_2", "resnet101", width_per_group=128
)
