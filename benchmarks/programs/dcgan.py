"""Digits drawn by a generator of transposed convolutions against a discriminator."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from sklearn.datasets import load_digits

BATCH, NOISE, WIDTH = 32, 32, 16


def weights_init(module):
    name = module.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(module.weight.data, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(module.weight.data, 1.0, 0.02)
        nn.init.constant_(module.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NOISE, WIDTH * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(WIDTH * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(WIDTH * 4, WIDTH * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(WIDTH * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(WIDTH * 2, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(WIDTH, WIDTH * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(WIDTH * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(WIDTH * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, images):
        return self.main(images)


def batches(count):
    draws = np.random.default_rng(0)
    images = torch.tensor(load_digits().images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    images = F.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)
    results = []
    for _ in range(count):
        chosen = torch.from_numpy(draws.integers(len(images), size=BATCH))
        noise = draws.standard_normal((BATCH, NOISE, 1, 1)).astype(np.float32)
        results.append((images[chosen], torch.from_numpy(noise)))
    return results


def models():
    net_g, net_d = Generator(), Discriminator()
    net_g.apply(weights_init)
    net_d.apply(weights_init)
    return net_g, net_d


def training(net_g, net_d):
    criterion = nn.BCELoss()
    optimizer_d = optim.Adam(net_d.parameters(), lr=0.0002, betas=(0.5, 0.999))
    optimizer_g = optim.Adam(net_g.parameters(), lr=0.0002, betas=(0.5, 0.999))

    def step(real, noise):
        net_d.zero_grad()
        label = torch.full((real.size(0),), 1.0, dtype=torch.float)
        error_real = criterion(net_d(real).view(-1), label)
        error_real.backward()
        fake = net_g(noise)
        label.fill_(0.0)
        error_fake = criterion(net_d(fake.detach()).view(-1), label)
        error_fake.backward()
        optimizer_d.step()

        net_g.zero_grad()
        label.fill_(1.0)
        error_g = criterion(net_d(fake).view(-1), label)
        error_g.backward()
        optimizer_g.step()
        return error_real + error_fake + error_g

    return step
