"""Transformers whose blocks have one matrix for queries, keys and values: DeiT, and Swin, which
attends in windows."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.nn import Module
from glasshouse.nn.checks import check_divides
from glasshouse.nn.functional import pad, scaled_dot_product_attention
from glasshouse.tensor import Tensor, asarray, broadcast_to, concat, roll, zeros
from glasshouse.vision.models.convnext import Permute, reset
from glasshouse.vision.models.sizes import sized


class PackedAttention(nn.Module):
    """Self-attention with the parameters `qkv` and `proj`.

    Shapes: (N, L, dim), and a bias that broadcasts to (N, heads, L, L) -> (N, L, dim).
    Raises: OptionError unless heads divides dim.
    Source: Vaswani et al. 2017, arXiv:1706.03762; names as in timm and torchvision.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        check_divides("PackedAttention", "dim", dim, "heads", heads)
        self.heads = heads
        self.qkv: nn.Linear = nn.Linear(dim, 3 * dim)
        self.proj: nn.Linear = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, None)

    def attend(self, x: Tensor, bias: Tensor | None) -> Tensor:
        n, length, dim = x.shape
        packed = self.qkv(x).reshape((n, length, 3, self.heads, dim // self.heads))
        q, k, v = packed.permute((2, 0, 3, 1, 4))  # of each (N, heads, L, D)
        y = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(y.transpose(1, 2).reshape((n, length, dim)))


class PackedBlock(nn.Module):
    """x + attn(norm1(x)), then x + mlp(norm2(x)).

    Shapes: (N, ..., dim) -> the same.
    """

    def __init__(self, dim: int, attention: Module, mlp: Module, drop: float, eps: float) -> None:
        super().__init__()
        self.norm1: nn.LayerNorm = nn.LayerNorm(dim, eps=eps)
        self.attn = attention
        self.stochastic_depth: nn.DropPath = nn.DropPath(drop)
        self.norm2: nn.LayerNorm = nn.LayerNorm(dim, eps=eps)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


def named(**parts: Module) -> nn.Sequential:
    """Layers one after the other, with names."""
    layers = nn.Sequential()
    for name, part in parts.items():
        layers.add_module(name, part)
    return layers


class DeiT(nn.Module):
    """A Vision Transformer under timm's names. If `distilled` there is a second token with a head
    of its own, and the scores are the mean of both heads'; while training, the pair of them.

    Shapes: images (N, 3, image_size, image_size) -> scores (N, num_classes).
    Raises: OptionError unless patch_size divides image_size, and heads dim.
    Source: Touvron et al. 2020, arXiv:2012.12877; names as in timm.
    Example:
        >>> DeiT(16, 2, 1, num_classes=10, image_size=32)(gh.zeros((1, 3, 32, 32))).shape
        (1, 10)
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        layers: int = 12,
        num_classes: int = 1000,
        *,
        image_size: int = 224,
        patch_size: int = 16,
        stochastic_depth: float = 0.0,
        distilled: bool = False,
    ) -> None:
        super().__init__()
        check_divides("DeiT", "image_size", image_size, "patch_size", patch_size)
        length = (image_size // patch_size) ** 2 + 1 + distilled
        self.cls_token: nn.Parameter = nn.Parameter(zeros((1, 1, dim)))
        self.pos_embed: nn.Parameter = nn.Parameter(zeros((1, length, dim)))
        self.patch_embed: nn.Sequential = named(
            proj=nn.Conv2d(3, dim, patch_size, stride=patch_size)
        )
        drops = np.linspace(0, stochastic_depth, layers).tolist()
        self.blocks: nn.Sequential = nn.Sequential(
            *[self.block(dim, heads, drop) for drop in drops]
        )
        self.norm: nn.LayerNorm = nn.LayerNorm(dim, eps=1e-6)
        self.head: nn.Linear = nn.Linear(dim, num_classes)
        self.distilled = distilled
        if distilled:
            self.dist_token: nn.Parameter = nn.Parameter(zeros((1, 1, dim)))
            self.head_dist: nn.Linear = nn.Linear(dim, num_classes)
        self.apply(reset)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    @staticmethod
    def block(dim: int, heads: int, drop: float) -> PackedBlock:
        mlp = named(fc1=nn.Linear(dim, 4 * dim), act=nn.GELU(), fc2=nn.Linear(4 * dim, dim))
        return PackedBlock(dim, PackedAttention(dim, heads), mlp, drop, 1e-6)

    def forward(self, images: Tensor) -> Any:
        x = self.patch_embed(images).flatten(2).transpose(1, 2)  # (N, patches, E)
        tokens = [self.cls_token, self.dist_token] if self.distilled else [self.cls_token]
        tokens = [broadcast_to(token, (x.shape[0], 1, x.shape[2])) for token in tokens]
        x = self.norm(self.blocks(concat([*tokens, x], axis=1) + self.pos_embed))
        if not self.distilled:
            return self.head(x[:, 0])
        scores = self.head(x[:, 0]), self.head_dist(x[:, 1])
        return scores if self.training else (scores[0] + scores[1]) / 2


def window_places(window: int) -> np.ndarray:
    """The row of the table of biases for each pair of positions in a window, (window⁴,)."""
    places = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij"))
    apart = places.reshape(2, -1, 1) - places.reshape(2, 1, -1) + window - 1
    return (apart[0] * (2 * window - 1) + apart[1]).reshape(-1)


class WindowAttention(PackedAttention):
    """Attention inside windows of window × window positions, which lie `shift` further than a
    multiple of their size, with a learned bias for each distance.

    Shapes: (N, H, W, dim) -> the same.
    Source: Liu et al. 2021, arXiv:2103.14030, sec. 3.2.
    """

    def __init__(self, dim: int, heads: int, window: int = 7, shift: int = 0) -> None:
        super().__init__(dim, heads)
        self.window = window
        self.shift = shift
        self.relative_position_bias_table: nn.Parameter = nn.Parameter(
            zeros(((2 * window - 1) ** 2, heads))
        )
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.register_buffer("relative_position_index", asarray(window_places(window)))

    def forward(self, x: Tensor) -> Tensor:
        n, height, width, dim = x.shape
        window, area = self.window, self.window**2
        rows, columns = math.ceil(height / window), math.ceil(width / window)
        shifts = (self.shift if rows > 1 else 0, self.shift if columns > 1 else 0)
        x = pad(x, (0, 0, 0, columns * window - width, 0, rows * window - height))
        x = roll(x, (-shifts[0], -shifts[1]), axis=(1, 2)) if any(shifts) else x
        x = x.reshape((n, rows, window, columns, window, dim)).permute((0, 1, 3, 2, 4, 5))
        table = self.relative_position_bias_table[self.relative_position_index]
        bias = table.reshape((1, area, area, -1)).permute((0, 3, 1, 2))  # (1, heads, area, area)
        if any(shifts):
            bias = bias + asarray(window_masks((n, rows, columns), window, shifts))
        x = self.attend(x.reshape((n * rows * columns, area, dim)), bias)
        x = x.reshape((n, rows, columns, window, window, dim)).permute((0, 1, 3, 2, 4, 5))
        x = x.reshape((n, rows * window, columns * window, dim))
        x = roll(x, shifts, axis=(1, 2)) if any(shifts) else x
        return x[:, :height, :width]


@cache
def window_masks(counts: tuple[int, int, int], window: int, shifts: tuple[int, int]) -> np.ndarray:
    """-100 for positions of a window that come from opposite edges, else 0; `counts` are those of
    images, rows and columns of windows.

    Shapes: -> (images · rows · columns, 1, window², window²).
    """
    (n, rows, columns), parts = counts, []
    for count, shift in zip((rows, columns), shifts, strict=True):
        places = np.arange(count * window)
        part = (places >= (count - 1) * window).astype(int) + (places >= count * window - shift)
        parts.append(part if shift else part * 0)
    part = parts[0][:, None] * 3 + parts[1]
    part = part.reshape(rows, window, columns, window).transpose(0, 2, 1, 3)
    part = part.reshape(rows * columns, 1, window**2)
    masks = np.where(part[:, :, None] != part[..., None], np.float32(-100), np.float32(0))
    return np.tile(masks, (n, 1, 1, 1))


class PatchMerging(nn.Module):
    """Four neighbours side by side, mapped to twice the channels.

    Shapes: (N, H, W, dim) -> (N, ⌈H / 2⌉, ⌈W / 2⌉, 2 · dim).
    Source: Liu et al. 2021, arXiv:2103.14030, sec. 3.1.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reduction: nn.Linear = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm: nn.LayerNorm = nn.LayerNorm(4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        x = pad(x, (0, 0, 0, width % 2, 0, height % 2))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(concat(parts, axis=-1)))


class SwinTransformer(nn.Module):
    """Patches of 4 × 4, then stages of `layers` blocks of window attention; every second one has
    its windows shifted by half. After each stage four neighbours become one.

    Shapes: images (N, 3, H, W) -> scores (N, num_classes).
    Source: Liu et al. 2021, arXiv:2103.14030; names as in torchvision.
    Example:
        >>> model = SwinTransformer(8, (2, 2), (2, 4), num_classes=10, window=4)
        >>> model(gh.zeros((1, 3, 32, 32))).shape
        (1, 10)
    """

    def __init__(
        self,
        dim: int,
        layers: tuple[int, ...],
        heads: tuple[int, ...],
        num_classes: int = 1000,
        window: int = 7,
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        patches = nn.Conv2d(3, dim, 4, stride=4)
        parts: list[Module] = [nn.Sequential(patches, Permute(0, 2, 3, 1), nn.LayerNorm(dim))]
        drops = iter([stochastic_depth * i / max(sum(layers) - 1, 1) for i in range(sum(layers))])
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                attention = WindowAttention(dim, heads[i], window, j % 2 * (window // 2))
                first, last = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
                mlp = nn.Sequential(first, nn.GELU(), nn.Identity(), last)
                blocks.append(PackedBlock(dim, attention, mlp, next(drops), 1e-5))
            parts.append(nn.Sequential(*blocks))
            if i + 1 < len(layers):
                parts.append(PatchMerging(dim))
                dim *= 2
        self.features: nn.Sequential = nn.Sequential(*parts)
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.head: nn.Linear = nn.Linear(dim, num_classes)
        self.apply(reset)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.features(images)).mean((1, 2)))


SWIN: dict[str, Any] = {
    "dim": 96,
    "layers": (2, 2, 6, 2),
    "heads": (3, 6, 12, 24),
    "stochastic_depth": 0.2,
}
swin_t: Callable[..., SwinTransformer] = sized("swin_t", SwinTransformer, **SWIN)
SWIN_S: dict[str, Any] = {"layers": (2, 2, 18, 2), "stochastic_depth": 0.3}
swin_s: Callable[..., SwinTransformer] = sized("swin_s", SwinTransformer, **SWIN | SWIN_S)
SWIN_B: dict[str, Any] = {"dim": 128, "heads": (4, 8, 16, 32), "stochastic_depth": 0.5}
swin_b: Callable[..., SwinTransformer] = sized("swin_b", SwinTransformer, **SWIN | SWIN_S | SWIN_B)

deit_tiny_patch16_224: Callable[..., DeiT] = sized("deit_tiny_patch16_224", DeiT, dim=192, heads=3)
deit_small_patch16_224: Callable[..., DeiT] = sized(
    "deit_small_patch16_224", DeiT, dim=384, heads=6
)
deit_base_patch16_224: Callable[..., DeiT] = sized("deit_base_patch16_224", DeiT, dim=768, heads=12)
