"""ConvNeXt: convolutions in the shape of transformers' blocks."""

from typing import Any

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.tensor import Tensor, full
from glasshouse.vision.models.sizes import sized


class Permute(nn.Module):
    """The axes of the input in another order.

    Shapes: (*S) -> (*S in that order).
    Source: standard.
    """

    _shown = ("axes",)

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.axes)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of each position.

    Shapes: (N, C, H, W) -> the same.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute((0, 2, 3, 1))).permute((0, 3, 1, 2))


class ConvNeXtBlock(nn.Module):
    """x + scale · (7 × 7 convolution of each channel, norm, two linear maps of the channels).

    Shapes: (N, dim, H, W) -> the same.
    Source: Liu et al. 2022, arXiv:2201.03545, fig. 4.
    """

    def __init__(self, dim: int, layer_scale: float = 1e-6, drop: float = 0.0) -> None:
        super().__init__()
        self.block: nn.Sequential = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(dim, eps=1e-6),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale: nn.Parameter = nn.Parameter(full((dim, 1, 1), layer_scale))
        self.stochastic_depth: nn.DropPath = nn.DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.stochastic_depth(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """Patches of 4 × 4, then stages of `layers` blocks with `widths` channels, each after the first
    at half the size of the one before it.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: Liu et al. 2022, arXiv:2201.03545; names as in torchvision.
    Example:
        >>> ConvNeXt((1, 1), (8, 16), num_classes=10)(gh.zeros((1, 3, 32, 32))).shape
        (1, 10)
    """

    def __init__(
        self,
        layers: tuple[int, ...],
        widths: tuple[int, ...],
        num_classes: int = 1000,
        stochastic_depth: float = 0.0,
        layer_scale: float = 1e-6,
    ) -> None:
        super().__init__()
        norms = [LayerNorm2d(width, eps=1e-6) for width in (widths[0], *widths)]
        parts: list[Any] = [nn.Sequential(nn.Conv2d(3, widths[0], 4, stride=4), norms[0])]
        drops = iter([stochastic_depth * i / max(sum(layers) - 1, 1) for i in range(sum(layers))])
        for i, (count, width) in enumerate(zip(layers, widths, strict=True)):
            if i:
                halved = nn.Conv2d(widths[i - 1], width, 2, stride=2)
                parts.append(nn.Sequential(norms[i], halved))
            blocks = [ConvNeXtBlock(width, layer_scale, next(drops)) for _ in range(count)]
            parts.append(nn.Sequential(*blocks))
        self.features: nn.Sequential = nn.Sequential(*parts)
        self.avgpool: Any = nn.AdaptiveAvgPool2d(1)
        head = nn.Linear(widths[-1], num_classes)
        self.classifier: nn.Sequential = nn.Sequential(norms[-1], nn.Flatten(1), head)
        self.apply(reset)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)))


def reset(module: Module) -> None:
    """Draw weights of maps from a normal distribution cut off at two, and make biases 0."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def convnext(size: str, layers: int, width: int, stochastic_depth: float) -> Any:
    sizes = {"layers": (3, 3, layers, 3), "widths": tuple(width << i for i in range(4))}
    return sized(f"convnext_{size}", ConvNeXt, **sizes, stochastic_depth=stochastic_depth)


convnext_tiny: Any = convnext("tiny", 9, 96, 0.1)
convnext_small: Any = convnext("small", 27, 96, 0.4)
convnext_base: Any = convnext("base", 27, 128, 0.5)
convnext_large: Any = convnext("large", 27, 192, 0.5)
