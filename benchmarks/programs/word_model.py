"""A language model of words with an LSTM, tied weights and clipped gradients."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, WIDTH, LAYERS, BATCH, BPTT, CLIP, LEARNING_RATE = 200, 64, 2, 16, 20, 0.25, 5.0


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.0, tie_weights=False):
        super().__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.nhid = nhid
        self.nlayers = nlayers

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, inputs, hidden):
        emb = self.drop(self.encoder(inputs))
        output, hidden = self.rnn(emb, hidden)
        output = self.drop(output)
        decoded = self.decoder(output)
        decoded = decoded.view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(BPTT, len(source) - 1 - i)
    data = source[i : i + seq_len]
    target = source[i + 1 : i + 1 + seq_len].view(-1)
    return data, target


def batches(count):
    draws = np.random.default_rng(0)
    follows = draws.integers(WORDS, size=(WORDS, 4))
    words = [0]
    while len(words) < BATCH * (BPTT * min(count, 100) + 1):
        words.append(int(follows[words[-1], draws.integers(4)]))
    source = batchify(torch.tensor(words), BATCH)
    results = [get_batch(source, i) for i in range(0, source.size(0) - 1, BPTT)]
    return [results[i % len(results)] for i in range(count)]


def models():
    return (RNNModel("LSTM", WORDS, WIDTH, WIDTH, LAYERS, tie_weights=True),)


def training(model):
    criterion = nn.NLLLoss()
    model.train()
    hidden = None

    def step(data, targets):
        nonlocal hidden
        if hidden is None:
            hidden = model.init_hidden(BATCH)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-LEARNING_RATE)
        return loss

    return step
