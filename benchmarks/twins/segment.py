"""The U-Net of `glasshouse train segment` in PyTorch."""

import torch
from torch import nn
from torch.nn.functional import interpolate

loss = nn.functional.cross_entropy


def double_conv(channels, out):
    parts = []
    for size in (channels, out):
        parts += [nn.Conv2d(size, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    def __init__(self, classes, width, depth):
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        self.down = nn.ModuleList(double_conv(*pair) for pair in zip([3, *widths], widths))
        self.reduce = nn.ModuleList(nn.Conv2d(high, low, 1) for high, low in pairs)
        self.up = nn.ModuleList(double_conv(2 * low, low) for _, low in pairs)
        self.head = nn.Conv2d(width, classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        results = []
        for i, layer in enumerate(self.down):
            x = layer(self.pool(x) if i else x)
            results.append(x)
        for beside, reduce, up in zip(results[-2::-1], self.reduce, self.up):
            x = interpolate(reduce(x), size=beside.shape[2:], mode="bilinear")
            x = up(torch.cat([beside, x], dim=1))
        return self.head(x)


def make_model(recipe, assets):
    return UNet(len(assets["classes"]), recipe.width, recipe.depth)


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.01)
