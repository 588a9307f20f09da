"""GPT-2 of transformers, six of its layers, trains under torch.compile with our backend."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=6, use_cache=False))
compiled = torch.compile(model, backend="glasshouse")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens = torch.randint(0, 50257, (1, 64))


def step():
    loss = compiled(tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
