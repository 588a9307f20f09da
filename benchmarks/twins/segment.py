"""The U-Net of `glasshouse train segment` in PyTorch."""

import torch
from torch import nn

from glasshouse.bench.torch_twins import unet

loss = nn.functional.cross_entropy


def make_model(recipe, assets):
    return unet(len(assets["classes"]), width=recipe.width, depth=recipe.depth)


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=0.01)
