"""Whether two digits are the same, told by one network that sees both."""

import random

import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

BATCH = 32


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((2, 2)),
        )
        self.fc = nn.Sequential(
            nn.Linear(32 * 4 * 2, 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, 1),
        )
        self.sigmoid = nn.Sigmoid()
        self.features.apply(self.init_weights)
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.features(x)
        return output.view(output.size()[0], -1)

    def forward(self, input1, input2):
        output1 = self.forward_once(input1)
        output2 = self.forward_once(input2)
        output = torch.cat((output1, output2), 1)
        return self.sigmoid(self.fc(output))


class Pairs(Dataset):
    def __init__(self, seed):
        digits = load_digits()
        self.data = torch.tensor(digits.images / 16, dtype=torch.float)
        self.of_class = {}
        for i, label in enumerate(digits.target.tolist()):
            self.of_class.setdefault(label, []).append(i)
        self.draws = random.Random(seed)

    def __len__(self):
        return 1600

    def __getitem__(self, index):
        chosen = self.draws.randint(0, 9)
        first = self.draws.choice(self.of_class[chosen])
        if index % 2 == 0:
            second, target = self.draws.choice(self.of_class[chosen]), 1
        else:
            other = (chosen + self.draws.randint(1, 9)) % 10
            second, target = self.draws.choice(self.of_class[other]), 0
        images = self.data[first].unsqueeze(0), self.data[second].unsqueeze(0)
        return *images, torch.tensor(target, dtype=torch.float)


def batches(count):
    loader = DataLoader(Pairs(0), batch_size=BATCH, shuffle=False)
    results = []
    while len(results) < count:
        results.extend(loader)
    return results[:count]


def models():
    return (SiameseNetwork(),)


def training(model):
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=50, gamma=0.7)
    criterion = nn.BCELoss()
    model.train()

    def step(images_1, images_2, targets):
        optimizer.zero_grad()
        outputs = model(images_1, images_2).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return step
