"""The network of `glasshouse train imgclass` in PyTorch."""

import torch
from torch import nn
from torch.nn.functional import affine_grid, grid_sample

loss = nn.functional.cross_entropy


class RandomAffine(nn.Module):
    def __init__(self, amount):
        super().__init__()
        self.limits = torch.tensor([0.25, 0.15, 0.15, 0.15, 0.12, 0.12]) * amount
        self.amount = amount

    def forward(self, images):
        if not self.training or not self.amount:
            return images
        turn, wide, high, shear, right, down = (
            (torch.rand(images.shape[0], 6) * 2 - 1) * self.limits
        ).T
        cos, sin = torch.cos(turn), torch.sin(turn)
        rows = [[(1 + wide) * cos, shear - sin, right], [sin, (1 + high) * cos, down]]
        matrices = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=1)
        grid = affine_grid(matrices, images.shape, align_corners=False)
        return grid_sample(images, grid, align_corners=False)


def make_model(recipe, assets):
    width, parts = recipe.width, [RandomAffine(recipe.distort)]
    for channels, out in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
        conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        parts += [conv, nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    head = nn.Linear(4 * width * 9, len(assets["classes"]))
    return nn.Sequential(*parts, nn.Flatten(), nn.Dropout(recipe.dropout), head)


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.02)
