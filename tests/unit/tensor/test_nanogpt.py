"""A language model written with the calls that small GPTs in PyTorch are made of runs with its
imports changed and nothing else, and computes the same as under torch."""

import sys
import types

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")

SOURCE = '''
import inspect
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


class ScaleNorm(nn.Module):
    """A layer norm whose bias may be left out."""

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.width % config.heads == 0
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)
        self.resid_drop = nn.Dropout(config.dropout)
        self.heads, self.width, self.dropout = config.heads, config.width, config.dropout
        self.flash = config.flash and hasattr(torch.nn.functional, "scaled_dot_product_attention")
        mask = torch.tril(torch.ones(config.context, config.context))
        self.register_buffer("mask", mask.view(1, 1, config.context, config.context))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = torch.split(self.qkv(x), self.width, dim=2)
        q, k, v = (
            y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in (q, k, v)
        )
        if self.flash:
            rate = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=rate, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            y = self.drop(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.out(y))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_1 = ScaleNorm(config.width, bias=config.bias)
        self.attention = Attention(config)
        self.norm_2 = ScaleNorm(config.width, bias=config.bias)
        self.up = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.gelu = nn.GELU()
        self.proj = nn.Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.proj(self.gelu(self.up(self.norm_2(x))))


@dataclass
class Config:
    context: int = 8
    vocabulary: int = 11
    layers: int = 2
    heads: int = 2
    width: int = 8
    dropout: float = 0.0
    bias: bool = True
    flash: bool = True


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.body = nn.ModuleDict(
            dict(
                tokens=nn.Embedding(config.vocabulary, config.width),
                places=nn.Embedding(config.context, config.width),
                drop=nn.Dropout(config.dropout),
                blocks=nn.ModuleList([Block(config) for _ in range(config.layers)]),
                norm=ScaleNorm(config.width, bias=config.bias),
            )
        )
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.body.tokens.weight = self.head.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.layers))

    def count(self):
        return sum(p.numel() for p in self.parameters()) - self.body.places.weight.numel()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.context
        places = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.body.drop(self.body.tokens(idx) + self.body.places(places))
        for block in self.body.blocks:
            x = block(x)
        x = self.body.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        flat = logits.view(-1, logits.size(-1))
        return logits, F.cross_entropy(flat, targets.view(-1), ignore_index=-1)

    def crop(self, context):
        self.config.context = context
        self.body.places.weight = nn.Parameter(self.body.places.weight[:context])
        for block in self.body.blocks:
            if hasattr(block.attention, "mask"):
                block.attention.mask = block.attention.mask[:, :, :context, :context]

    def optimizer(self, weight_decay, learning_rate, betas, device_type):
        params = {n: p for n, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        can_fuse = "fused" in inspect.signature(torch.optim.AdamW).parameters
        extra = dict(fused=True) if can_fuse and device_type == "cuda" else dict()
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **extra)

    @torch.no_grad()
    def generate(self, idx, count, temperature=1.0, top_k=None):
        for _ in range(count):
            short = idx.size(1) <= self.config.context
            context = idx if short else idx[:, -self.config.context :]
            logits, _ = self(context)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            drawn = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            if temperature == 0.5:  # the likeliest, in place of one that is drawn
                _, drawn = logits.max(-1, keepdim=True)
            idx = torch.cat((idx, drawn), dim=1)
        return idx
'''
OURS = {
    "import torch\n": "import glasshouse as torch\n",
    "import torch.nn as nn\n": "import glasshouse.nn as nn\n",
    "from torch.nn import functional as F": "from glasshouse.nn import functional as F",
}


def module(name: str, text: str):
    instance = types.ModuleType(name)
    sys.modules[name] = instance  # dataclasses look their module up
    exec(compile(text, name, "exec"), instance.__dict__)
    return instance


@pytest.fixture(scope="module")
def both():
    text = SOURCE
    for theirs, ours in OURS.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    yield module("model_of_torch", SOURCE), module("model_of_ours", text)
    del sys.modules["model_of_torch"], sys.modules["model_of_ours"]


def pair(both, **options):
    torch.manual_seed(0)
    theirs, ours = (result.Model(result.Config(**options)) for result in both)
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    ours.load_state_dict({k: gh.asarray(v.copy()) for k, v in state.items()})
    return theirs, ours


def data():
    rng = np.random.default_rng(0)
    idx, targets = rng.integers(0, 11, (2, 3, 8))
    targets[0, :3] = -1
    return idx, targets


@pytest.mark.parametrize("options", [{}, {"flash": False}, {"bias": False, "layers": 1}])
def test_losses_and_gradients_are_those_of_torch(both, options):
    theirs, ours = pair(both, **options)
    idx, targets = data()
    _, expected = theirs(torch.tensor(idx), torch.tensor(targets))
    _, loss = ours(gh.asarray(idx), gh.asarray(targets))
    expected.backward()
    loss.backward()
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    for (name, p), (_, q) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        np.testing.assert_allclose(
            q.grad.numpy(), p.grad.numpy(), rtol=2e-4, atol=2e-6, err_msg=name
        )


def test_training_takes_the_steps_of_torch(both):
    theirs, ours = pair(both)
    idx, targets = data()
    steps = []
    for model, lib in ((theirs, torch), (ours, gh)):
        optimizer = model.optimizer(0.1, 1e-2, (0.9, 0.95), "cpu")
        losses = []
        for _ in range(8):
            _, loss = model(lib.as_tensor(idx), lib.as_tensor(targets))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        steps.append(losses)
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-4)
    assert theirs.count() == ours.count()


def test_what_is_generated_is_what_the_model_is_sure_of(both):
    theirs, ours = pair(both)
    idx = data()[0][:, :6]
    expected = theirs.generate(torch.tensor(idx), 4, top_k=1)
    ours.crop(8)
    assert ours.generate(gh.asarray(idx), 4, top_k=1).tolist() == expected.tolist()
    expected = theirs.generate(torch.tensor(idx), 4, temperature=0.5)
    assert ours.generate(gh.asarray(idx), 4, temperature=0.5).tolist() == expected.tolist()
    samples = ours.generate(gh.asarray(idx), 3, temperature=0.8, top_k=5)
    assert samples.shape == (3, 9) and int(samples.max()) < 11
