"""Digits through a variational autoencoder."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F

BATCH = 64


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 200)
        self.fc21 = nn.Linear(200, 10)
        self.fc22 = nn.Linear(200, 10)
        self.fc3 = nn.Linear(10, 200)
        self.fc4 = nn.Linear(200, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar, eps)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def batches(count):
    draws = np.random.default_rng(0)
    images = (load_digits().images / 16).astype(np.float32)
    results = []
    for _ in range(count):
        chosen = draws.integers(len(images), size=BATCH)
        eps = draws.standard_normal((BATCH, 10)).astype(np.float32)
        results.append((torch.from_numpy(images[chosen]), torch.from_numpy(eps)))
    return results


def models():
    return (VAE(),)


def training(model):
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    model.train()

    def step(data, eps):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, eps)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss

    return step
