"""The translator of `glasshouse train translate` in PyTorch."""

import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

PAD, POSITIONS = 0, 256


def loss(scores, target):
    return cross_entropy(
        scores.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=0.1
    )


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(dim, dim))
        self.heads = heads

    def forward(self, x, memory, **masks):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q_proj(x), self.k_proj(memory), self.v_proj(memory))
        )
        y = scaled_dot_product_attention(q, k, v, **masks)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, recipe, heads, is_decoder):
        super().__init__()
        dim = recipe.dim
        self.self_attn, self.self_attn_layer_norm = Attention(dim, heads), nn.LayerNorm(dim)
        if is_decoder:
            self.encoder_attn = Attention(dim, heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.final_layer_norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(recipe.dropout)

    def forward(self, x, mask, memory=None):
        own = {"attn_mask": mask} if memory is None else {"is_causal": True}
        x = self.self_attn_layer_norm(x + self.dropout(self.self_attn(x, x, **own)))
        if memory is not None:
            y = self.encoder_attn(x, memory, attn_mask=mask)
            x = self.encoder_attn_layer_norm(x + self.dropout(y))
        return self.final_layer_norm(x + self.dropout(self.fc2(gelu(self.fc1(x)))))


class Positions(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("weight", torch.zeros(POSITIONS, dim))


class Stack(nn.Module):
    def __init__(self, recipe, heads, table, is_decoder):
        super().__init__()
        self.embed_tokens, self.embed_positions = table, Positions(recipe.dim)
        self.layers = nn.ModuleList(Layer(recipe, heads, is_decoder) for _ in range(recipe.layers))
        self.dropout = nn.Dropout(recipe.dropout)

    def forward(self, tokens, mask, memory=None):
        x = self.embed_tokens(tokens) * math.sqrt(self.embed_tokens.embedding_dim)
        x = self.dropout(x + self.embed_positions.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x, mask, memory)
        return x


class Net(nn.Module):
    def __init__(self, recipe, vocabulary):
        super().__init__()
        heads = max(recipe.dim // 64, 1)
        self.model = nn.Module()
        self.model.shared = nn.Embedding(vocabulary, recipe.dim)
        self.model.encoder = Stack(recipe, heads, self.model.shared, False)
        self.model.decoder = Stack(recipe, heads, self.model.shared, True)
        self.register_buffer("final_logits_bias", torch.zeros(1, vocabulary))
        self.lm_head = nn.Linear(recipe.dim, vocabulary, bias=False)
        self.lm_head.weight = self.model.shared.weight


class Translator(nn.Module):
    def __init__(self, recipe, vocabulary):
        super().__init__()
        self.net = Net(recipe, vocabulary)

    def forward(self, tokens, decoder_tokens):
        model, mask = self.net.model, (tokens != PAD)[:, None, None]
        states = model.decoder(decoder_tokens, mask, model.encoder(tokens, mask))
        return self.net.lm_head(states) + self.net.final_logits_bias


def make_model(recipe, assets):
    return Translator(recipe, assets["vocabulary"])


def make_optimizer(model, recipe):
    return torch.optim.AdamW(model.parameters(), lr=recipe.lr)
