"""A decoder of ours trains with every layer checkpointed: backward computes each layer again."""

import glasshouse as gh
from glasshouse import nn
from glasshouse.nn.functional import cross_entropy
from glasshouse.text.models import GptLike


class Checkpointed(nn.Module):
    """A layer of which only the input is kept for backward."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, is_causal=False):
        return gh.checkpoint(lambda x: self.layer(x, is_causal=is_causal))(x)


gh.random.seed(0)
model = GptLike(vocab=8000, layers=6, dim=256, heads=8, ff=1024, max_len=128)
model.layers = nn.ModuleList(Checkpointed(layer) for layer in model.layers)
optimizer = gh.optim.AdamW(model.parameters(), lr=3e-4)
tokens = gh.random.randint(0, 8000, (4, 128))


def step():
    scores = model(tokens)
    loss = cross_entropy(scores.reshape(-1, 8000), tokens.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
