"""The decoder of `glasshouse train lm` in PyTorch: a small Llama."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu


def loss(scores, targets):
    return cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-100)


def turned(x, cos, sin):
    """Rotary positions: pairs are features i and i + half."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(dim, dim, bias=False))

    def forward(self, x, cos, sin):
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads, wide):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(dim, 1e-6)
        self.post_attention_layernorm = nn.RMSNorm(dim, 1e-6)
        self.self_attn = Attention(dim, heads)
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(dim, wide, bias=False),
            "up_proj": nn.Linear(dim, wide, bias=False),
            "down_proj": nn.Linear(wide, dim, bias=False),
        })  # fmt: skip

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        y, mlp = self.post_attention_layernorm(x), self.mlp
        return x + mlp["down_proj"](silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Decoder(nn.Module):
    def __init__(self, recipe, vocabulary):
        super().__init__()
        dim, heads = recipe.dim, max(recipe.dim // 64, 1)
        self.embed_tokens = nn.Embedding(vocabulary, dim)
        wide = 8 * dim // 3 // 16 * 16
        self.layers = nn.ModuleList(Layer(dim, heads, wide) for _ in range(recipe.layers))
        self.norm = nn.RMSNorm(dim, 1e-6)
        self.width = dim // heads

    def forward(self, tokens):
        steps = 10000.0 ** (-torch.arange(0, self.width, 2) / self.width)
        angles = torch.arange(tokens.shape[1])[:, None] * steps
        angles = torch.cat([angles, angles], dim=-1)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.norm(x)


class LanguageModel(nn.Module):
    def __init__(self, recipe, vocabulary):
        super().__init__()
        self.model = Decoder(recipe, vocabulary)
        self.lm_head = nn.Linear(recipe.dim, vocabulary, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))


def make_model(recipe, assets):
    return LanguageModel(recipe, assets["vocabulary"])


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), recipe.lr, (0.9, 0.98), weight_decay=0.1)
