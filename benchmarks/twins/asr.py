"""The network of `glasshouse train asr` in PyTorch."""

import torch
from torch import nn
from torch.nn.functional import ctc_loss, log_softmax, silu

BANDS, STRIDE, TOKENS, NEVER = 40, 3, 29, -1e4


def loss(scores, target):
    lengths = torch.full((scores.shape[0],), scores.shape[1])
    sizes = (target > 0).sum(dim=1)
    return ctc_loss(scores.transpose(0, 1), target, lengths, sizes, zero_infinity=True)


class Masking(nn.Module):
    """Stripes of bands and of frames, as in Park et al. 2019."""

    def __init__(self, masks):
        super().__init__()
        self.masks = masks

    def forward(self, x):
        if not self.training or not self.masks:
            return x
        for axis, width in ((1, 8), (2, 25)):
            size = x.shape[axis]
            most = min(width, int(0.15 * size)) if axis == 2 else width
            widths = (torch.rand(x.shape[0], self.masks) * (most + 1)).floor()
            first = (torch.rand(x.shape[0], self.masks) * (size - widths + 1)).floor()
            at = torch.arange(size) - first[..., None]
            masked = ((at >= 0) & (at < widths[..., None])).any(1)
            x = x.masked_fill(masked[:, :, None] if axis == 1 else masked[:, None], 0.0)
        return x


class SpeechBlock(nn.Module):
    def __init__(self, dim, kernel, dropout):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.wide, self.narrow = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        y = self.norm(self.conv((x * mask).transpose(1, 2)).transpose(1, 2))
        return x + self.dropout(self.narrow(self.dropout(silu(self.wide(y)))))


class Recogniser(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        dim = recipe.dim
        self.augment = Masking(recipe.masks)
        self.input = nn.Conv1d(BANDS, dim, 5, stride=STRIDE, padding=1)
        blocks = (SpeechBlock(dim, recipe.kernel, recipe.dropout) for _ in range(recipe.layers))
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(dim)
        self.output = nn.Linear(dim, TOKENS)
        self.register_buffer("blank", torch.full((TOKENS,), NEVER), persistent=False)
        self.blank[0] = 0

    def forward(self, features, lengths):
        x = self.input(self.augment(features.transpose(1, 2))).transpose(1, 2)
        mask = (torch.arange(x.shape[1])[None] < ((lengths + 2) // STRIDE)[:, None])[..., None]
        for block in self.blocks:
            x = block(x, mask)
        return torch.where(mask, log_softmax(self.output(self.norm(x)), -1), self.blank)


def make_model(recipe, assets):
    return Recogniser(recipe)


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
