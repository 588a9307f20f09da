"""Vision Transformer: an image as a sequence of patches."""

import math
from typing import Any

from glasshouse import nn
from glasshouse.nn.checks import check_divides
from glasshouse.tensor import Tensor, broadcast_to, concat, zeros
from glasshouse.vision.models.sizes import sized


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Shapes: (N, L, E) -> the same
    """

    def __init__(self, heads: int, dim: int, mlp_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.ln_1: nn.LayerNorm = nn.LayerNorm(dim, eps=1e-6)
        self.self_attention: nn.MultiheadAttention = nn.MultiheadAttention(
            dim, heads, dropout, batch_first=True
        )
        self.dropout: Any = nn.Dropout(dropout)
        self.ln_2: nn.LayerNorm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp: nn.Sequential = nn.Sequential(
            nn.Linear(dim, mlp_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, dim),
            nn.Dropout(dropout),
        )
        for i in (0, 3):
            nn.init.xavier_uniform_(self.mlp[i].weight)
            nn.init.normal_(self.mlp[i].bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.dropout(self.self_attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Positions added, then the blocks and a last norm.

    Shapes: (N, L, E) -> the same
    """

    def __init__(
        self, length: int, layers: int, heads: int, dim: int, mlp_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.pos_embedding: nn.Parameter = nn.Parameter(zeros((1, length, dim)))
        nn.init.normal_(self.pos_embedding, std=0.02)
        self.dropout: Any = nn.Dropout(dropout)
        self.layers: nn.Sequential = nn.Sequential()
        for i in range(layers):
            self.layers.add_module(f"encoder_layer_{i}", EncoderBlock(heads, dim, mlp_dim, dropout))
        self.ln: nn.LayerNorm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """The patches of an image and a class token through an encoder; a linear layer on that token.

    Shapes: images (N, 3, image_size, image_size) -> scores (N, num_classes).
    Raises: OptionError unless patch_size divides image_size, and num_heads hidden_dim.
    Source: Dosovitskiy et al. 2020, arXiv:2010.11929; names as in torchvision.
    Example:
        >>> model = VisionTransformer(32, 16, 2, 2, 8, 16, num_classes=10)
        >>> model(gh.zeros((1, 3, 32, 32))).shape
        (1, 10)
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        check_divides("VisionTransformer", "image_size", image_size, "patch_size", patch_size)
        patches = (image_size // patch_size) ** 2
        self.class_token: nn.Parameter = nn.Parameter(zeros((1, 1, hidden_dim)))
        self.conv_proj: Any = nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size)
        self.encoder: Encoder = Encoder(
            patches + 1, num_layers, num_heads, hidden_dim, mlp_dim, dropout
        )
        self.heads: nn.Sequential = nn.Sequential()
        self.heads.add_module("head", nn.Linear(hidden_dim, num_classes))
        fan_in = math.prod(self.conv_proj.weight.shape[1:])
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan_in))
        nn.init.zeros_(self.conv_proj.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv_proj(images).flatten(2).transpose(1, 2)  # (N, patches, E)
        token = broadcast_to(self.class_token, (x.shape[0], 1, x.shape[2]))
        x = self.encoder(concat([token, x], axis=1))
        return self.heads(x[:, 0])


def vit(name: str, patch_size: int, layers: int, heads: int, dim: int) -> Any:
    sizes = {"image_size": 224, "patch_size": patch_size, "num_layers": layers}
    sizes |= {"num_heads": heads, "hidden_dim": dim, "mlp_dim": 4 * dim}
    return sized(name, VisionTransformer, **sizes)


vit_b_16: Any = vit("vit_b_16", 16, 12, 12, 768)
vit_b_32: Any = vit("vit_b_32", 32, 12, 12, 768)
vit_l_16: Any = vit("vit_l_16", 16, 24, 16, 1024)
vit_l_32: Any = vit("vit_l_32", 32, 24, 16, 1024)
vit_h_14: Any = vit("vit_h_14", 14, 32, 16, 1280)
