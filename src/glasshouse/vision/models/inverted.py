"""Networks of inverted residuals: MobileNet v2 and v3, EfficientNet."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.tensor import Tensor
from glasshouse.vision.models.sizes import divisible, sized

Layers = Callable[..., Module]


def conv_act(
    channels: int, out: int, kernel: int, norm: Layers, act: Layers | None, **options: int
) -> nn.Sequential:
    """A convolution, its norm and, unless it is None, an activation."""
    conv = nn.Conv2d(channels, out, kernel, padding=kernel // 2, bias=False, **options)
    return nn.Sequential(conv, norm(out), *([] if act is None else [act()]))


def slow_norm(channels: int) -> Module:
    """The norm of MobileNet v3 and of the larger EfficientNets: its statistics follow slowly."""
    return nn.BatchNorm2d(channels, eps=0.001, momentum=0.01)


class InvertedResidual(nn.Module):
    """A 1 × 1 convolution to `expanded` channels (left out if they are as many), one of each
    channel by itself, the gate if there is one, and a 1 × 1 convolution to `out` without
    activation; x is added where the shape is the same. The parts are in the attribute `place`; in
    "conv", MobileNet v2's, the last convolution and norm stand by themselves. `sizes` are channels,
    expanded, out, kernel and stride.

    Shapes: (N, channels, H, W) -> (N, out, H / stride, W / stride).
    Source: Sandler et al. 2018, arXiv:1801.04381, table 1.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int, int, int],
        norm: Layers,
        act: Layers,
        gate: Module | None = None,
        drop: float = 0.0,
        *,
        place: str = "block",
    ) -> None:
        super().__init__()
        channels, expanded, out, kernel, stride = sizes
        options = {"stride": stride, "groups": expanded}
        parts: list[Module] = []
        if expanded != channels:
            parts.append(conv_act(channels, expanded, 1, norm, act))
        parts.append(conv_act(expanded, expanded, kernel, norm, act, **options))
        parts += [] if gate is None else [gate]
        last = conv_act(expanded, out, 1, norm, None)
        self.add_module(place, nn.Sequential(*parts, *(last if place == "conv" else [last])))
        self.place = place
        self.is_added: bool = stride == 1 and channels == out
        self.stochastic_depth: nn.DropPath = nn.DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        y = self.get_submodule(self.place)(x)
        return x + self.stochastic_depth(y) if self.is_added else y


class MobileNet(nn.Module):
    """Base of these networks: `features`, the mean over the image, `classifier`.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    """

    def __init__(self, features: list[Module], classifier: list[Module]) -> None:
        super().__init__()
        self.features: nn.Sequential = nn.Sequential(*features)
        self.avgpool: Any = nn.AdaptiveAvgPool2d(1)
        self.classifier: nn.Sequential = nn.Sequential(*classifier)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


# Of each stage: expansion, channels, blocks, stride of the first one. Table 2 of the paper.
STAGES_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
             (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


class MobileNetV2(MobileNet):
    """MobileNet v2, its channels multiplied by `width_mult`.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: Sandler et al. 2018, arXiv:1801.04381; names as in torchvision.
    Example:
        >>> MobileNetV2(10, width_mult=0.25)(gh.zeros((2, 3, 32, 32))).shape
        (2, 10)
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        act, norm, channels = nn.ReLU6, nn.BatchNorm2d, divisible(32 * width_mult)
        parts: list[Module] = [conv_act(3, channels, 3, norm, act, stride=2)]
        for expansion, width, count, stride in STAGES_V2:
            out = divisible(width * width_mult)
            for i in range(count):
                sizes = (channels, channels * expansion, out, 3, 1 if i else stride)
                parts.append(InvertedResidual(sizes, norm, act, place="conv"))
                channels = out
        last = divisible(1280 * max(1.0, width_mult))
        parts.append(conv_act(channels, last, 1, norm, act))
        super().__init__(parts, [nn.Dropout(dropout), nn.Linear(last, num_classes)])


# Of each block: kernel, expanded channels, channels, gate, hard swish, stride. Tables 1 and 2.
BLOCKS_V3: dict[str, Any] = {
    "large": ((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1),
              (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1),
              (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
              (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
              (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)),
    "small": ((3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1),
              (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1),
              (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2),
              (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1)),
}  # fmt: skip
HIDDEN_V3 = {"large": 1280, "small": 1024}


class MobileNetV3(MobileNet):
    """MobileNet v3, "large" or "small", its channels multiplied by `width_mult`.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: Howard et al. 2019, arXiv:1905.02244; names as in torchvision.
    Example:
        >>> MobileNetV3("small", 10, width_mult=0.25)(gh.zeros((2, 3, 32, 32))).shape
        (2, 10)
    """

    def __init__(
        self, size: str, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        norm = slow_norm
        channels = divisible(16 * width_mult)
        parts: list[Module] = [conv_act(3, channels, 3, norm, nn.Hardswish, stride=2)]
        for kernel, inner, width, is_gated, is_hard, stride in BLOCKS_V3[size]:
            expanded, out = divisible(inner * width_mult), divisible(width * width_mult)
            squeeze = divisible(expanded // 4)
            gate = nn.SqueezeExcitation(expanded, squeeze, scale_activation=nn.Hardsigmoid)
            sizes = (channels, expanded, out, kernel, stride)
            act = nn.Hardswish if is_hard else nn.ReLU
            parts.append(InvertedResidual(sizes, norm, act, gate if is_gated else None))
            channels = out
        parts.append(conv_act(channels, 6 * channels, 1, norm, nn.Hardswish))
        hidden = divisible(HIDDEN_V3[size] * width_mult)
        first, last = nn.Linear(6 * channels, hidden), nn.Linear(hidden, num_classes)
        super().__init__(parts, [first, nn.Hardswish(), nn.Dropout(dropout), last])


# Of each stage: expansion, kernel, stride of the first block, channels, blocks. Table 1, B0.
STAGES_B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
             (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))  # fmt: skip


class EfficientNet(MobileNet):
    """EfficientNet: channels multiplied by `width_mult`, numbers of blocks by `depth_mult`.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: Tan & Le 2019, arXiv:1905.11946; names as in torchvision.
    Example:
        >>> EfficientNet(0.25, 0.5, num_classes=10)(gh.zeros((2, 3, 32, 32))).shape
        (2, 10)
    """

    def __init__(
        self,
        width_mult: float,
        depth_mult: float,
        num_classes: int = 1000,
        dropout: float = 0.2,
        stochastic_depth: float = 0.2,
        norm: Layers = nn.BatchNorm2d,
    ) -> None:
        channels = divisible(32 * width_mult)
        parts: list[Module] = [conv_act(3, channels, 3, norm, nn.SiLU, stride=2)]
        counts = [math.ceil(stage[-1] * depth_mult) for stage in STAGES_B0]
        rates: Iterator[float] = (stochastic_depth * i / sum(counts) for i in range(sum(counts)))
        for (expansion, kernel, stride, width, _), count in zip(STAGES_B0, counts, strict=True):
            out, blocks = divisible(width * width_mult), []
            for i in range(count):
                expanded = divisible(channels * expansion)
                gate = nn.SqueezeExcitation(expanded, max(1, channels // 4), nn.SiLU)
                sizes = (channels, expanded, out, kernel, 1 if i else stride)
                blocks.append(InvertedResidual(sizes, norm, nn.SiLU, gate, next(rates)))
                channels = out
            parts.append(nn.Sequential(*blocks))
        parts.append(conv_act(channels, 4 * channels, 1, norm, nn.SiLU))
        super().__init__(parts, [nn.Dropout(dropout), nn.Linear(4 * channels, num_classes)])


mobilenet_v2: Callable[..., MobileNetV2] = sized("mobilenet_v2", MobileNetV2)
mobilenet_v3_large: Callable[..., MobileNetV3] = sized("mobilenet_v3_large", MobileNetV3, "large")
mobilenet_v3_small: Callable[..., MobileNetV3] = sized("mobilenet_v3_small", MobileNetV3, "small")


def efficientnet(
    number: int, width_mult: float, depth_mult: float, dropout: float
) -> Callable[..., EfficientNet]:
    """EfficientNet-B`number`; from B5 on norms have another eps and momentum."""
    options = {"norm": slow_norm} if number >= 5 else {}
    sizes = {"width_mult": width_mult, "depth_mult": depth_mult, "dropout": dropout}
    return sized(f"efficientnet_b{number}", EfficientNet, **sizes, **options)


efficientnet_b0: Callable[..., EfficientNet] = efficientnet(0, 1.0, 1.0, 0.2)
efficientnet_b1: Callable[..., EfficientNet] = efficientnet(1, 1.0, 1.1, 0.2)
efficientnet_b2: Callable[..., EfficientNet] = efficientnet(2, 1.1, 1.2, 0.3)
efficientnet_b3: Callable[..., EfficientNet] = efficientnet(3, 1.2, 1.4, 0.3)
efficientnet_b4: Callable[..., EfficientNet] = efficientnet(4, 1.4, 1.8, 0.4)
efficientnet_b5: Callable[..., EfficientNet] = efficientnet(5, 1.6, 2.2, 0.4)
efficientnet_b6: Callable[..., EfficientNet] = efficientnet(6, 1.8, 2.6, 0.5)
efficientnet_b7: Callable[..., EfficientNet] = efficientnet(7, 2.0, 3.1, 0.5)
