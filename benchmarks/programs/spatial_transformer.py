"""Turned digits, which a network straightens before it classifies them."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from scipy.ndimage import rotate, zoom
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

BATCH, SIDE = 32, 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=3)
        self.fc1 = nn.Linear(180, 50)
        self.fc2 = nn.Linear(50, 10)
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=5),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
            nn.Conv2d(8, 10, kernel_size=3),
            nn.MaxPool2d(2, stride=2),
            nn.ReLU(True),
        )
        self.fc_loc = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(True), nn.Linear(32, 3 * 2))
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def stn(self, x):
        xs = self.localization(x)
        xs = xs.view(-1, 10 * 3 * 3)
        theta = self.fc_loc(xs)
        theta = theta.view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = x.view(-1, 180)
        x = F.relu(self.fc1(x))
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def batches(count):
    draws = np.random.default_rng(0)
    digits = load_digits()
    images = []
    for image in digits.images[: BATCH * 20]:
        large = zoom(image / 16, SIDE / 8, order=1)
        images.append(rotate(large, draws.uniform(-60, 60), reshape=False, order=1))
    labels = torch.from_numpy(digits.target[: BATCH * 20])
    dataset = TensorDataset(torch.tensor(np.stack(images), dtype=torch.float).unsqueeze(1), labels)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=False, num_workers=0)
    results = []
    while len(results) < count:
        results.extend((data, target) for data, target in loader)
    return results[:count]


def models():
    return (Net(),)


def training(model):
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    model.train()

    def step(data, target):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        return loss

    return step
