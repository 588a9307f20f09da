"""Names told apart letter by letter by a recurrent network, whose weights are changed by hand."""

import numpy as np
import torch
import torch.nn as nn

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LANGUAGES = ("northern", "southern", "eastern", "western")
ENDINGS = ("sen", "ello", "ov", "ing")
LEARNING_RATE = 0.01


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, letter, hidden):
        hidden = torch.tanh(self.i2h(letter) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden)), hidden

    def init_hidden(self):
        return torch.zeros(1, self.hidden_size)


def name_to_tensor(name):
    tensor = torch.zeros(len(name), 1, len(LETTERS))
    for i, letter in enumerate(name):
        tensor[i][0][LETTERS.find(letter)] = 1
    return tensor


def batches(count):
    draws = np.random.default_rng(0)
    results = []
    for _ in range(count):
        language = int(draws.integers(len(LANGUAGES)))
        stem = "".join(LETTERS[i] for i in draws.integers(26, size=draws.integers(2, 5)))
        category = torch.tensor([language], dtype=torch.long)
        results.append((category, name_to_tensor(stem + ENDINGS[language])))
    return results


def models():
    return (RNN(len(LETTERS), 128, len(LANGUAGES)),)


def training(rnn):
    criterion = nn.NLLLoss()

    def step(category, name):
        hidden = torch.zeros(1, 128)
        rnn.zero_grad()
        for i in range(name.size()[0]):
            output, hidden = rnn(name[i], hidden)
        loss = criterion(output, category)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-LEARNING_RATE)
        return loss

    return step
