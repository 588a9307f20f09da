"""Attention written out, and by scaled_dot_product_attention: two steps to compare."""

import math

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn.functional import scaled_dot_product_attention, softmax

gh.random.seed(0)
query, key, value = (gh.random.normal((2, 8, 512, 64)) for _ in range(3))
projection = nn.Linear(64, 64)
optimizer = gh.optim.SGD(projection.parameters(), lr=0.01)


def written_out(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return softmax(scores, axis=-1) @ v


def step_of(attention):
    loss = attention(projection(query), key, value).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def before():
    return step_of(written_out)


def after():
    return step_of(scaled_dot_product_attention)
