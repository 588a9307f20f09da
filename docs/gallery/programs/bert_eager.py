"""BERT of transformers, four of its layers, trains in eager PyTorch; nothing is compiled."""

import torch
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)
model = BertForMaskedLM(BertConfig(num_hidden_layers=4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 30522, (4, 64))


def step():
    loss = model(tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
